"""Work that other threads do ahead."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from kafkasniff.capture import open_captures
from kafkasniff.capture.timeline.source import ReadAhead
from kafkasniff.errors import UsageError
from kafkasniff.packets import COLUMNS
from kafkasniff.runtime.threads import RESERVE, Threads

CAPTURES = Path(__file__).resolve().parents[2] / "captures"


def test_abandoned_work() -> None:
    done: list[int] = []
    with Threads(1, "test") as threads:
        threads.hold(held=True)
        # The thread may have taken the first one, and waits at the gate.
        tasks = [threads.begin(done.append) for _ in range(3)]
        assert tasks[1].leave()
        assert tasks[1].leave()
        assert not tasks[1].is_done
        threads.hold(held=False)
        tasks[0].result()
        tasks[2].result()
        assert not tasks[2].leave()
    assert len(done) == 2


def test_work_that_fails() -> None:
    def fails(_: int) -> None:
        raise UsageError("no")

    with Threads(1, "test") as threads:
        for _ in range(20):
            task = threads.begin(fails)
            with pytest.raises(UsageError, match="no"):
                task.result()


@pytest.mark.parametrize("chunk_size", [1000, 1 << 20])
def test_captures_read_ahead(chunk_size: int) -> None:
    paths = sorted(CAPTURES.glob("*.pcap"))[:3]
    with open_captures(paths, chunk_size=chunk_size) as source:
        expected = list(source)
    with open_captures(paths, chunk_size=chunk_size) as source, Threads(1, "test") as threads:
        ahead = ReadAhead(source, threads)
        found = []
        read = 0
        for batch in ahead:
            assert ahead.bytes_read >= read
            read = ahead.bytes_read
            found.append(batch)
        assert read == ahead.bytes_total
        assert not ahead.broken
    assert len(found) == len(expected) > 1
    for one, other in zip(found, expected, strict=True):
        assert one.packets == other.packets
        for name in COLUMNS:
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_help_instead_of_waiting() -> None:
    go = threading.Event()
    with Threads(1, "test") as threads:
        begun = threading.Event()
        first = threads.begin(lambda _: begun.set() or go.wait(20))
        assert begun.wait(20)
        tasks = [threads.begin(lambda thread: thread) for _ in range(RESERVE + 3)]
        assert [threads.help() for _ in range(4)] == [True] * 3 + [False]
        assert not first.is_done
        go.set()
        assert [task.result() for task in tasks[:3]] == [0] * 3
        threads.hold(held=True)
        assert not threads.help()
