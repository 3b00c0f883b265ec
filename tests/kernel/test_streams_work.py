"""The stream engine's work is linear, and its memory bounded, whatever the packets are."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.tcp.packets import PacketBatch
from tests.engine.inspected import Talk
from tests.oracle.tcp.batches import batch


def frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def request(number: int) -> bytes:
    """A small request: Heartbeat 0."""
    return frame(struct.pack(">hhih", 12, 0, number, 1) + b"c" + HEARTBEAT)


HEARTBEAT = struct.pack(">h", 1) + b"g" + struct.pack(">i", 1) + struct.pack(">h", 1) + b"m"
ANSWER = struct.pack(">h", 0)


def begun() -> Talk:
    """A connection whose first request is answered."""
    talk = Talk()
    talk.send(0, request(0))
    talk.send(1, frame(struct.pack(">i", 0) + ANSWER))
    return talk


def outstanding(count: int) -> PacketBatch:
    """Many requests without a response, then their responses in reverse order."""
    talk = begun()
    for number in range(1, count):
        talk.send(0, request(number))
    for number in range(count - 1, 0, -1):
        talk.send(1, frame(struct.pack(">i", number) + ANSWER))
    return batch(talk.packets)


def outstanding_with_gaps(count: int) -> PacketBatch:
    """Requests of one id, and gaps in the stream of their responses."""
    talk = begun()
    for _ in range(count):
        talk.send(0, request(7))
    for _ in range(count // 4):
        talk.seq[1] += 40
        talk.send(1, frame(struct.pack(">i", 7) + ANSWER))
        talk.send(0, request(7))
    return batch(talk.packets)


def descending_segments(count: int) -> PacketBatch:
    """Segments after a hole, the last first."""
    talk = begun()
    first = talk.seq[0]
    for number in range(count, 0, -1):
        talk.seq[0] = first + 60 * number
        talk.send(0, request(number)[:30])
    return batch(talk.packets)


def early_responses(count: int) -> PacketBatch:
    """Responses of one id that precede their requests, which are held back after a hole."""
    talk = begun()
    talk.seq[0] += 100
    talk.send(0, request(1))
    for _ in range(count):
        talk.send(1, frame(struct.pack(">i", 9) + ANSWER))
    return batch(talk.packets)


def falling_out(count: int) -> PacketBatch:
    """A stream that falls out of step again and again."""
    talk = begun()
    for number in range(count):
        talk.send(0, request(number + 1) + b"\xff" * 8)
    return batch(talk.packets)


def frames_of_nothing(count: int) -> PacketBatch:
    """Length prefixes of 0, from both ends."""
    talk = begun()
    talk.send(0, bytes(4 * count)).send(1, bytes(4 * count))
    return batch(talk.packets)


def short_connections(count: int) -> PacketBatch:
    """Connections that begin and end."""
    packets = []
    for number in range(count):
        talk = Talk(conversation=number)
        talk.send(0, request(1))
        packets += talk.packets
    return batch(packets)


CASES: dict[str, tuple[Callable[[int], PacketBatch], int]] = {
    "outstanding requests": (outstanding, 3_000),
    "outstanding requests of one id": (outstanding_with_gaps, 2_000),
    "segments in descending order": (descending_segments, 2_000),
    "early responses": (early_responses, 2_000),
    "falling out of step": (falling_out, 400),
    "frames of nothing": (frames_of_nothing, 40_000),
    "short connections": (short_connections, 800),
}


def seconds(packets: PacketBatch) -> float:
    times = []
    for _ in range(2):
        inspector = Inspector(headers=True)
        begin = time.process_time()
        engine = inspector._feeder._engine
        engine.take(packets)
        engine.finish()
        times.append(time.process_time() - begin)
    return max(min(times), 0.002)


@pytest.mark.parametrize("name", CASES)
def test_time_is_linear(name: str) -> None:
    """24 is above what a busy machine makes of 8, and below the 64 of quadratic work."""
    make, count = CASES[name]
    little, much = seconds(make(count)), seconds(make(8 * count))
    assert much < 24 * little, f"{much:.3f} s for 8 times of what takes {little:.3f} s"


@pytest.mark.parametrize("name", CASES)
def test_memory_is_given_back(name: str) -> None:
    make, count = CASES[name]
    inspector = Inspector(connections=True)
    inspector.feed(make(count))
    inspector.close()
    assert inspector._feeder._engine.free() == 0


def test_the_budget_ends_connections() -> None:
    inspector: Inspector = Inspector(memory=128 << 20)
    kinds = set()
    for number in range(20):
        talk = Talk(conversation=number, segment=60_000)
        # A frame of 100 MB that is never completed.
        talk.send(0, struct.pack(">i", 99 << 20) + request(1)[4:] + bytes(8 << 20))
        packets = batch(talk.packets)
        for slice_ in inspector.feed_slices(packets):
            kinds |= {getattr(output, "kind", None) for output in slice_}
    assert "memory-bound" in kinds
    assert inspector._feeder._engine.memory < 200 << 20
