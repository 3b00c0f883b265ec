"""The stream engine's work is linear, and its memory bounded, whatever the packets are."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.packets import PacketBatch
from tests.craft.batches import batch
from tests.fuzz.costs.streams import alive, exchange, heartbeat
from tests.fuzz.costs.wire import Talk, Wire

ENDLESS = 1 << 40


def begun() -> tuple[Wire, Talk]:
    """A connection whose first request is answered."""
    wire = Wire(ENDLESS)
    talk = Talk(wire)
    talk.open()
    exchange(talk, 0)
    return wire, talk


def outstanding(count: int) -> Wire:
    """Many requests without a response, then their responses in reverse order."""
    wire, talk = begun()
    for number in range(1, count):
        talk.send("client", heartbeat(number))
    for number in range(count - 1, 0, -1):
        talk.send("broker", alive(number))
    return wire


def outstanding_with_gaps(count: int) -> Wire:
    """Requests of one id, and gaps in the stream of their responses."""
    wire, talk = begun()
    for _ in range(count):
        talk.send("client", heartbeat(7))
    for _ in range(count // 4):
        talk.skip("broker", 40)
        exchange(talk, 7)
    return wire


def descending_segments(count: int) -> Wire:
    """Segments after a hole, the last first."""
    wire, talk = begun()
    for number in range(count, 0, -1):
        talk.packet("client", heartbeat(number), talk.next["client"] + 60 * number)
    return wire


def early_responses(count: int) -> Wire:
    """Responses of one id that precede their requests, which are held back after a hole."""
    wire, talk = begun()
    talk.skip("client", 100)
    talk.send("client", heartbeat(1))
    for _ in range(count):
        talk.send("broker", alive(9))
    return wire


def falling_out(count: int) -> Wire:
    """A stream that falls out of step again and again."""
    wire, talk = begun()
    for number in range(count):
        talk.send("client", heartbeat(number + 1) + b"\xff" * 8)
    return wire


def frames_of_nothing(count: int) -> Wire:
    """Length prefixes of 0, from both ends."""
    wire, talk = begun()
    talk.send("client", bytes(4 * count))
    talk.send("broker", bytes(4 * count))
    return wire


def short_connections(count: int) -> Wire:
    """Connections that begin and do not end."""
    wire = Wire(ENDLESS)
    for number in range(count):
        talk = Talk(wire, number)
        talk.open()
        talk.send("client", heartbeat(1))
    return wire


CASES: dict[Callable[[int], Wire], int] = {
    outstanding: 3_000,
    outstanding_with_gaps: 2_000,
    descending_segments: 2_000,
    early_responses: 2_000,
    falling_out: 400,
    frames_of_nothing: 40_000,
    short_connections: 800,
}
each = pytest.mark.parametrize(("make", "count"), CASES.items(), ids=lambda value: getattr(value, "__name__", ""))


def seconds(packets: PacketBatch) -> float:
    times = []
    for _ in range(2):
        engine = Inspector(headers=True)._feeder._engine  # type: ignore[union-attr]
        begin = time.process_time()
        engine.take(packets)
        engine.finish()
        times.append(time.process_time() - begin)
    return max(min(times), 0.002)


@pytest.mark.extended
@each
def test_time_is_linear(make: Callable[[int], Wire], count: int) -> None:
    """24 is above what a busy machine makes of 8, and below the 64 of quadratic work."""
    little, much = (seconds(batch(make(number).packets)) for number in (count, 8 * count))
    assert much < 24 * little, f"{much:.3f} s for 8 times of what takes {little:.3f} s"


@each
def test_memory_is_given_back(make: Callable[[int], Wire], count: int) -> None:
    inspector = Inspector(connections=True)
    inspector.feed(batch(make(count).packets))
    inspector.close()
    assert inspector._feeder._engine.free() == 0  # type: ignore[union-attr]
