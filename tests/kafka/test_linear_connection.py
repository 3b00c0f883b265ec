"""What a connection costs grows as its bytes do: four times the input takes four times the steps, never sixteen."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest

from kafkasniff.kafka.connection import ConnectionOptions, KafkaConnection
from kafkasniff.kafka.events import Event
from kafkasniff.streams import Gap, Run, Stretch
from tests.craft.kafka_bytes import metadata_request, metadata_response, request
from tests.steps import steps

MORE = 4
MOST = 6
"""Times as many steps that so many times as much may take; work that is quadratic takes 16."""


class Talk:
    """A connection that is fed its segments and gaps; `events` is what it yielded."""

    def __init__(self) -> None:
        self.connection = KafkaConnection(ConnectionOptions())
        self.events: list[Event] = []
        self._order = 0

    def send(self, direction: int, segments: Sequence[bytes]) -> None:
        """Segments of one stream, one behind the other."""
        lengths = [len(segment) for segment in segments]
        ends = list(accumulate(lengths))
        orders = list(range(self._order, self._order + len(segments)))
        self._order += len(segments)
        times = [1000 * order for order in orders]
        offsets = [end - length for end, length in zip(ends, lengths, strict=True)]
        run = Run(b"".join(segments), offsets, lengths, ends, orders, times, orders, times, 0, len(segments))
        self.events += self.connection.feed([Stretch((None, run) if direction else (run, None))])

    def lose(self, direction: int) -> None:
        """A gap."""
        order, self._order = self._order, self._order + 1
        gap = Gap(order, direction, 10, order, 1000 * order, False, 1000 * order)
        self.events += self.connection.feed([gap])


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


def passed_over_and_lost(count: int) -> Callable[[], object]:
    """Half of the requests are answered, each before an older one, behind a gap."""
    talk = begun(range(4 * count))
    talk.lose(1)
    answers = [metadata_response(number, "h", 1, ["t"]) for number in range(1, 4 * count, 2)]
    return lambda: [talk.send(1, [answer]) for answer in answers]


def in_step_and_out(count: int) -> Callable[[], object]:
    """One segment in which the stream falls out of step again and again."""
    requests = metadata_request(1, ["t"]) + metadata_request(2, ["t"])
    return lambda: Talk().send(0, [(requests + b"\xff" * 20) * count])


def small_segments_and_waiting(count: int) -> Callable[[], object]:
    """Frames are found, but wait for one that began at a segment's start, with many segments of a byte in front."""
    waiting = struct.pack(">i", 1 << 20) + request(3, 1, 1, b"")[4:]
    talk = Talk()
    # What keeps the segments in front: a frame that may begin within a segment.
    talk.send(0, [b"\xff" + waiting, *[b"\xff"] * (20 * count)])
    talk.send(0, [waiting, metadata_request(1, ["t"]), metadata_request(2, ["t"])])
    return lambda: talk.send(0, [b"\xff"] * count)


CASES = {
    "gaps × outstanding requests": (gaps_and_outstanding, 40),
    "gaps × requests of one id": (gaps_and_equal_ids, 40),
    "responses × requests passed over": (passed_over_and_lost, 60),
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


def test_a_stream_may_fall_out_of_step_at_any_depth() -> None:
    """A segment of 200 kB with thousands of places where frames begin and end again is no exception."""
    talk = Talk()
    requests = metadata_request(1, ["t"]) + metadata_request(2, ["t"])
    talk.send(0, [(requests + b"\xff" * 20) * 2500])
    assert talk.connection.framed_of[0] == 2500 * len(requests)
