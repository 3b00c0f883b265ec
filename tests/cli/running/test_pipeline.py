"""Packets to a sink: parts of batches, the limit, the order of what is written."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from kafkasniff.cli.environment import Interrupted
from kafkasniff.cli.running import pipeline
from kafkasniff.cli.running.pipeline import BatchParts, Pipeline
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.filters import Selector
from kafkasniff.model import Lines, Message
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


def test_a_limit_cuts_lines() -> None:
    lines = Lines(b"one\ntwo\nthree\n", 3)
    assert (lines.first(2), lines.first(3)) == (Lines(b"one\ntwo\n", 2), lines)


def test_parts_are_bounded_in_bytes_and_have_a_packet_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_BYTES", 250)
    assert [len(part) for part in BatchParts().of(many(10, 100))] == [3, 3, 3, 1]
    monkeypatch.setattr(pipeline, "MAX_BYTES", 10)
    assert [len(part) for part in BatchParts().of(many(4, 100))] == [1, 1, 1, 1]


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
