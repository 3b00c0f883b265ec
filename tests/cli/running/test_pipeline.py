"""Packets to a sink: parts of batches, the limit, the order of what is written."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from kafkasniff.cli.environment import Interrupted
from kafkasniff.cli.running import pipeline
from kafkasniff.cli.running.pipeline import FIRST_ROWS, BatchParts, Pipeline
from kafkasniff.engine.inspector import Inspector, Shown
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.filters import Selector
from kafkasniff.model import Connection, Lines, Message
from kafkasniff.tcp.packets import NO_TIME, PacketBatch
from tests.cli.console import environment
from tests.craft.batches import batch
from tests.craft.packet import ACK, Packet
from tests.craft.samples import mixed


class Written:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.closed = 0

    def write(self, event: Any) -> None:
        assert not self.closed
        self.events.append(event)

    def write_lines(self, lines: Lines) -> None:
        self.events.append(lines)

    def close(self) -> None:
        self.closed += 1


def made(sink: Written, inspector: Inspector | None = None, **options: Any) -> Pipeline:
    return Pipeline(environment(), inspector or Inspector(), sink, enricher=Enricher(Catalog()), **options)


def messages(sink: Written) -> list[Message]:
    return [event for event in sink.events if isinstance(event, Message)]


def many(count: int, size: int = 1) -> PacketBatch:
    """Packets of one stream."""
    place = (1, "10.0.0.1", 5000, "10.0.0.2", 9092)
    return batch([Packet(*place, number * size, 0, ACK, b"x" * size) for number in range(count)])


def test_parts_are_small_at_first_and_bounded_later() -> None:
    whole = many(3000)
    parts = BatchParts()
    sizes = [len(part) for part in parts.of(whole)]
    assert sizes == [FIRST_ROWS, 2 * FIRST_ROWS, 3000 - 3 * FIRST_ROWS]
    # The next batch continues with the size that was reached.
    assert [len(part) for part in parts.of(whole)] == [4 * FIRST_ROWS, 3000 - 4 * FIRST_ROWS]
    assert [len(part) for part in parts.of(many(0))] == [0]


def test_parts_never_exceed_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_ROWS", 2 * FIRST_ROWS)
    sizes = [len(part) for part in BatchParts().of(many(6000))]
    assert sizes[:3] == [FIRST_ROWS, 2 * FIRST_ROWS, 2 * FIRST_ROWS]
    assert max(sizes) == 2 * FIRST_ROWS
    assert sum(sizes) == 6000


def test_parts_are_bounded_in_bytes_and_have_a_packet_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_BYTES", 250)
    assert [len(part) for part in BatchParts().of(many(10, 100))] == [3, 3, 3, 1]
    monkeypatch.setattr(pipeline, "MAX_BYTES", 10)
    assert [len(part) for part in BatchParts().of(many(4, 100))] == [1, 1, 1, 1]


@pytest.mark.parametrize("limit", [1, 5])
def test_a_limit_ends_the_run_and_reads_no_further(limit: int) -> None:
    every, sink = Written(), Written()
    whole = made(every)
    whole.run([batch(mixed())])
    whole.close()
    taken: list[int] = []

    def source() -> Any:
        for number in range(5):
            taken.append(number)
            yield batch(mixed())

    run = made(sink, limit=limit)
    run.run(source())
    assert run.full
    assert taken == [0]
    run.close()
    assert sink.closed == 1
    assert messages(sink) == messages(every)[:limit]
    assert run.shown == limit


def test_lines_count_as_their_messages() -> None:
    class InLines(Inspector):
        """An inspector that makes one piece of text of a batch."""

        def feed_lines(self, _: PacketBatch) -> Iterator[Sequence[Shown]]:
            yield [Lines(b"one\ntwo\n", 2)]

        def close_lines(self) -> Iterator[Sequence[Shown]]:
            yield [Lines(b"three\n", 1)]

    for limit, counts in ((None, [2, 1]), (2, [2]), (1, [1])):
        sink = Written()
        run = made(sink, InLines(), limit=limit)
        run.lines = sink
        run.run([many(1)])
        run.close()
        assert [event.count for event in sink.events] == counts
        assert b"".join(event.data for event in sink.events) == b"one\ntwo\nthree\n"[: [14, 4, 8][limit or 0]]
        assert run.shown == sum(counts)


def test_connections_follow_the_events_of_their_batch_and_are_not_written() -> None:
    sink, ended = Written(), list[tuple[Connection, int]]()
    run = made(
        sink,
        Inspector(connections=True),
        ended=lambda connection: ended.append((connection, len(sink.events))),
    )
    run.run([batch(mixed())])
    run.close()
    assert not any(isinstance(event, Connection) for event in sink.events)
    assert len(ended) > 2
    assert all(before <= after for (_, before), (_, after) in pairwise(ended))
    for connection, seen in ended:
        of_it = [one for one in sink.events[:seen] if getattr(one, "connection_id", None) == connection.connection_id]
        later = [one for one in sink.events[seen:] if getattr(one, "connection_id", None) == connection.connection_id]
        assert not later
        assert of_it or not connection.requests


def test_it_flushes_only_after_events() -> None:
    sink, flushed = Written(), list[int]()
    run = made(sink, flush=lambda: flushed.append(len(sink.events)))
    run.feed(batch([]))
    assert flushed == []
    run.feed(batch(mixed()))
    assert flushed[-1] == len(sink.events) > 0


def test_the_selection_starts_at_the_first_packet_with_a_time() -> None:
    packets = [mixed()[0].but(time_ns=NO_TIME), *mixed()]
    selector = Selector(None)
    run = made(Written(), selector=selector)
    run.feed(batch([]))
    assert selector.start_ns is None
    run.feed(batch(packets))
    assert selector.start_ns == mixed()[0].time_ns


def test_a_signal_waits_until_the_events_of_a_batch_are_written() -> None:
    """No line is cut: the signal is raised after the last event."""
    world, sink = environment(), Written()

    class Signalling(Written):
        def write(self, event: Any) -> None:
            if not sink.events:
                signal.raise_signal(signal.SIGINT)
            sink.write(event)

    run = Pipeline(world, Inspector(), Signalling(), enricher=Enricher(Catalog()))
    with world.interrupts.installed(), pytest.raises(Interrupted):
        run.feed(batch(mixed()))
    assert len(messages(sink)) > 40
