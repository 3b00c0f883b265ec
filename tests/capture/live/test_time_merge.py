from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.live import time_merge
from kafkasniff.capture.live.frames import Frames
from kafkasniff.capture.live.time_merge import TimeMerge
from tests.capture.fake_interface import raw_packets

WAIT = 0.1


def frames(capture: int, times: list[int], first: int = 1) -> Frames:
    data = [(f"{capture} {first + place} {time}".encode(), 99, time) for place, time in enumerate(times)]
    return Frames.plain(raw_packets(data, capture=capture, first_number=first))


def names(found: Frames | None) -> list[str]:
    """Each packet by its bytes, so that a packet with another packet's columns would show."""
    if found is None:
        return []
    packets = found.packets
    columns = (packets.start, packets.captured, packets.capture, packets.number, packets.time_ns)
    reported = []
    for start, size, capture, number, time in zip(*(column.tolist() for column in columns), strict=True):
        text = packets.buffer[start : start + size].decode()
        assert text == f"{capture} {number} {time}"
        reported.append(text)
    return reported


TIMELINES = st.lists(st.lists(st.integers(0, 60), max_size=12).map(sorted), min_size=1, max_size=4)


@given(TIMELINES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_blocks_within_the_wait_make_one_timeline(lines: list[list[int]], block: int, dice: object) -> None:
    """Times in ticks of 10 ms. A block is available up to 50 ms after its last packet, which is within the wait."""
    arrivals = []
    for capture, times in enumerate(lines):
        at = 0.0
        for first in range(0, len(times), block):
            part = times[first : first + block]
            at = max(at, part[-1] / 100 + dice.uniform(0, 0.05))  # type: ignore[attr-defined]
            arrivals.append((at, capture, first, frames(capture, part, first + 1)))
    arrivals.sort(key=lambda arrival: arrival[:3])
    merge = TimeMerge(len(lines), WAIT + 0.6)
    out = []
    for at, _, _, part in arrivals:
        out += names(merge.due(at))
        merge.add(part, at)
    out += names(merge.rest())
    every = [(time, capture, number) for capture, times in enumerate(lines) for number, time in enumerate(times, 1)]
    assert [int(text.split()[2]) for text in out] == sorted(time for time, _, _ in every)
    assert sorted(out) == sorted(f"{capture} {number} {time}" for time, capture, number in every)


@given(st.lists(st.lists(st.integers(0, 60), max_size=12), min_size=1, max_size=3), st.data())
def test_an_interface_keeps_its_order_at_any_clock(lines: list[list[int]], data: st.DataObject) -> None:
    merge = TimeMerge(len(lines), WAIT)
    out = []
    now = 0.0
    left = {capture: times for capture, times in enumerate(lines) if times}
    first = dict.fromkeys(left, 1)
    while left:
        capture = data.draw(st.sampled_from(sorted(left)))
        count = data.draw(st.integers(1, len(left[capture])))
        merge.add(frames(capture, left[capture][:count], first[capture]), now)
        first[capture] += count
        left[capture] = left[capture][count:]
        left = {capture: times for capture, times in left.items() if times}
        now += data.draw(st.floats(0, 0.2))
        out += names(merge.due(now, data.draw(st.sets(st.integers(0, len(lines) - 1)))))
    out += names(merge.rest())
    for capture, times in enumerate(lines):
        own = [text for text in out if text.startswith(f"{capture} ")]
        assert own == [f"{capture} {number} {time}" for number, time in enumerate(times, 1)]


def test_no_packet_is_passed_on_early() -> None:
    merge = TimeMerge(2, WAIT)
    assert merge.due_in(0) is None
    merge.add(frames(0, [10, 20]), 5.0)
    assert merge.due_in(5.04) == pytest.approx(0.06)
    assert merge.due(5.05) is None
    merge.add(frames(1, [5, 15, 25]), 5.06)
    assert names(merge.due(5.11)) == ["1 1 5", "0 1 10", "1 2 15", "0 2 20"]
    assert merge.due(5.12) is None
    assert names(merge.due(5.2)) == ["1 3 25"]
    assert merge.rest() is None


def test_known_unread_packets_are_waited_for() -> None:
    """One interface has a ring full of older packets, the other one is up to date."""
    merge = TimeMerge(2, WAIT)
    merge.add(frames(0, [10]), 5.0)
    merge.add(frames(1, [50]), 5.0)
    assert names(merge.due(5.2, {0})) == ["0 1 10"]
    assert merge.due(5.2, {0}) is None
    merge.add(frames(0, [20], 2), 5.3)
    assert names(merge.due(5.31)) == ["0 2 20", "1 1 50"]


def test_no_more_waits_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_merge, "MAX_PENDING", 500)
    merge = TimeMerge(2, WAIT)
    merge.add(frames(0, [10]), 5.0)
    assert merge.due(5.0, {1}) is None
    merge.add(frames(0, [11, 12, 13, 14, 15, 16], 2), 5.0)
    assert names(merge.due(5.0, {1})) == ["0 1 10"]
