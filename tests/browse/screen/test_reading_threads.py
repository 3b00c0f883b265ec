"""Threads that read for the explorer: only what is still wanted is used, errors are shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkasniff.browse.index import ExchangeIndex
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen.reading_threads import ReadingThreads
from kafkasniff.errors import CaptureError
from kafkasniff.filters.expression import parse_filter
from tests.browse.screen.driving import ERRORS

WAIT = 60


class Screen:
    """Runs threads as the explorer does, and what they pass to the screen at once."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def run_worker(self, run: Callable[[], object], **_: Any) -> None:
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def call_from_thread(self, use: Callable[..., object], *values: Any) -> None:
        use(*values)

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(WAIT)
            assert not thread.is_alive()


@pytest.fixture
def screen() -> Screen:
    return Screen()


def threads_of(screen: Screen) -> ReadingThreads:
    return ReadingThreads(screen, CaptureReading((str(ERRORS),), dict))


def test_only_the_last_exchange_is_used(screen: Screen) -> None:
    threads = threads_of(screen)
    index = threads.begin(None)
    screen.wait()
    reads, look = threading.Event(), threads._reading.look

    def slow(*values: Any, **more: Any) -> Any:
        assert reads.wait(WAIT)
        return look(*values, **more)

    threads._reading.look = slow
    used: list[Any] = []
    for place in (3, 4, 5):
        threads.decode(index, index.row(place), used.append)
    reads.set()
    screen.wait()
    assert [one.exchange_id for one in used] == [index.row(5).exchange_id]
    reads.clear()
    threads.decode(index, index.row(6), used.append)
    threads.leave()
    reads.set()
    screen.wait()
    assert len(used) == 1


def test_an_earlier_reading_says_nothing_any_more(screen: Screen) -> None:
    threads = threads_of(screen)
    filled: list[ExchangeIndex] = []
    reads, fill = threading.Event(), threads._reading.fill

    def slow(index: ExchangeIndex, predicate: Any, **how: Any) -> bool:
        if not filled:
            filled.append(index)
            assert reads.wait(WAIT)
            raise CaptureError("only its beginning was seen")
        return fill(index, predicate, **how)

    threads._reading.fill = slow
    first = threads.begin(None)
    second = threads.begin(parse_filter('api == "Fetch"'))
    reads.set()
    screen.wait()
    assert (len(first), len(second), threads.state) == (0, 2, "")


def test_errors_are_shown(screen: Screen) -> None:
    threads = ReadingThreads(screen, CaptureReading((str(ERRORS.parent / "none\n.pcap"),), dict))
    threads.begin(None)
    screen.wait()
    assert "none\\x0a.pcap: cannot be opened" in threads.state
