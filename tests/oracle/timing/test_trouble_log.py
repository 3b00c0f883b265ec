"""What a sender's problems add up to in time spans, compared with counting them one by one."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from kafkasniff.timing import Trouble
from tests.oracle.timing import trouble_log
from tests.oracle.timing.trouble_log import TroubleLog


def counted(
    again: list[int], late: list[tuple[int, int]], windows: list[tuple[int, int | None]], first: int, last: int
) -> Trouble:
    """The same as `TroubleLog.between`, event by event. A window that is not opened again stays closed."""
    within = [time - since for time, since in late if first <= time <= last]
    shut = [
        min(last if opened is None else opened, last) - max(closed, first)
        for closed, opened in windows
        if closed <= last and (opened is None or opened > first)
    ]
    return Trouble(sum(first <= time <= last for time in again), len(within), sum(within), len(shut), sum(shut))


@pytest.mark.parametrize("seed", range(3))
def test_spans_add_up(seed: int) -> None:
    random = Random(seed)
    log = TroubleLog()
    again = sorted(random.sample(range(1_000), 20))
    late = [(time, time - random.randrange(50)) for time in sorted(random.sample(range(1_000), 20))]
    times = sorted(random.sample(range(1_000), 20 + seed % 2))
    windows = [(closed, opened) for closed, opened in list(pairwise([*times, None]))[::2] if closed is not None]
    for time in again:
        log.retransmitted(time, None)
    for time, since in late:
        log.came_late(time, since)
    for closed, opened in windows:
        log.window_closed(closed)
        if opened is not None:
            log.window_opened(opened, closed)
    for _ in range(200):
        first = random.randrange(1_000)
        last = first + random.randrange(300)
        assert log.between(first, last) == counted(again, late, windows, first, last), (first, last)


def test_when_lost_data_was_last_retransmitted() -> None:
    log = TroubleLog()
    log.retransmitted(10, 1)
    log.retransmitted(20, 2)
    log.retransmitted(25, None)  # it was acknowledged before
    log.retransmitted(30, 28)
    assert log.again == [10, 20, 25, 30]
    assert [log.retransmitted_at(2, until) for until in (9, 10, 19, 20, 29, 99)] == [None, 10, 10, 20, 20, 20]
    assert log.retransmitted_at(0, 99) is None
    assert log.retransmitted_at(28, 99) == 30
    assert log.retransmitted_at(30, 99) is None


def test_only_some_lost_segments_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble_log, "MAX_LOOKED", 2)
    log = TroubleLog()
    log.retransmitted(10, 1)
    log.retransmitted(11, 8)
    assert log.retransmitted_at(5, 99) == 10
    log.retransmitted(12, 8)
    assert log.retransmitted_at(5, 99) is None


def test_it_remembers_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble_log, "MAX_TROUBLE", 2)
    log = TroubleLog()
    for time in range(4):
        log.retransmitted(time, time)
        log.window_closed(10 * time)
        log.window_opened(10 * time + 5, 10 * time)
    assert (log.again, log.lost, log.closed) == ([0, 1], [(0, 0), (1, 1)], [0, 10])
    # Windows that are not remembered are not opened again.
    assert (log.opened, log.closed_sum, log.counts) == ([5, 15], [0, 5, 10], [4, 0, 4, 20])
