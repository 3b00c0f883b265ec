"""The cost of a connection is linear in its bytes: four times the input takes four times the steps, never sixteen."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest

from tests.craft.kafka_bytes import metadata_request, metadata_response, request
from tests.kafka.segments import Talk
from tests.steps import steps

MORE = 4
MOST = 6
"""Allowed factor of steps for a larger input, by the input's factor; quadratic work would make it 16."""


def begun(ids: Sequence[int]) -> Talk:
    """A connection that is known to be Kafka, with these requests outstanding."""
    talk = Talk()
    talk.send(0, [metadata_request(number, ["t"]) for number in (-3, -2)])
    talk.send(1, [metadata_response(-3, "h", 1, ["t"])])
    talk.send(0, [metadata_request(number, ["t"]) for number in ids])
    assert talk.connection.verdict == "kafka"
    return talk


def gaps_and_outstanding(count: int) -> Callable[[], object]:
    talk = begun(range(10 * count))
    return lambda: [_gap_and_request(talk, 10 * count + index) for index in range(count)]


def gaps_and_equal_ids(count: int) -> Callable[[], object]:
    talk = begun([7] * (10 * count))
    return lambda: [_gap_and_request(talk, 7) for _ in range(count)]


def _gap_and_request(talk: Talk, correlation_id: int) -> None:
    talk.send(1, [b"\0\0\0"])
    talk.lose(1)
    talk.send(0, [metadata_request(correlation_id, ["t"])])


def overtaken_and_lost(count: int) -> Callable[[], object]:
    """Half of the requests are answered, each before an older one, after a gap."""
    talk = begun(range(4 * count))
    talk.lose(1)
    answers = [metadata_response(number, "h", 1, ["t"]) for number in range(1, 4 * count, 2)]
    return lambda: [talk.send(1, [answer]) for answer in answers]


def in_step_and_out(count: int) -> Callable[[], object]:
    """One segment in which the stream repeatedly loses its frames."""
    requests = metadata_request(1, ["t"]) + metadata_request(2, ["t"])
    return lambda: Talk().send(0, [(requests + b"\xff" * 20) * count])


def small_segments_and_waiting(count: int) -> Callable[[], object]:
    """Frames are found, but wait for one that began at a segment's start, followed by many one-byte segments."""
    waiting = struct.pack(">i", 1 << 20) + request(3, 1, 1, b"")[4:]
    talk = Talk()
    # This keeps the segments before it: a frame that may begin within a segment.
    talk.send(0, [b"\xff" + waiting, *[b"\xff"] * (20 * count)])
    talk.send(0, [waiting, metadata_request(1, ["t"]), metadata_request(2, ["t"])])
    return lambda: talk.send(0, [b"\xff"] * count)


CASES = {
    "gaps × outstanding requests": (gaps_and_outstanding, 40),
    "gaps × requests of one id": (gaps_and_equal_ids, 40),
    "responses × overtaken requests": (overtaken_and_lost, 60),
    "resyncs × bytes of a segment": (in_step_and_out, 100),
    "segments × segments searched": (small_segments_and_waiting, 60),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_linear(name: str) -> None:
    prepare, count = CASES[name]
    prepare(count)()  # decoders are compiled once
    little, much = steps(prepare(count)), steps(prepare(MORE * count))
    assert little > count
    assert much < MOST * little, f"{much:,} steps for {MORE} times of what takes {little:,}"


def test_a_stream_may_lose_its_frames_any_number_of_times() -> None:
    """A segment of 200 kB with thousands of places where frames begin and end raises no exception."""
    talk = Talk()
    requests = metadata_request(1, ["t"]) + metadata_request(2, ["t"])
    talk.send(0, [(requests + b"\xff" * 20) * 2500])
    assert talk.connection.framed_of[0] == 2500 * len(requests)
