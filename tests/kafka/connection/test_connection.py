"""One connection as Kafka: the verdict, the bytes of each stream, and the same events from chunks of any size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.connection.connection import KafkaConnection
from kafkasniff.kafka.connection.events import Event, ExchangeEvent, MessageEvent, ProblemEvent, VerdictEvent
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.tcp.segments import Closed, Late, Retransmit, Started, Stretch
from tests.craft.kafka_bytes import (
    api_versions_request,
    api_versions_response,
    metadata_request,
    metadata_response,
)
from tests.kafka.segments import Talk, pieces, run_of

SAID = [
    (0, api_versions_request(0)),
    (1, api_versions_response(0)),
    *((side, make) for number in (1, 2, 3) for side, make in (
        (0, metadata_request(number, ["orders"])), (1, metadata_response(number, "h", 9092, ["orders"])),
    )),
]  # fmt: skip
Segment = tuple[int, bytes]
STARTED = [Started(0, 0, True), Started(0, 1, False)]
CLOSED = Closed(999, "fin", 999, 999_000)


def segments_of(said: Sequence[Segment], cuts: Sequence[int]) -> list[Segment]:
    return [(side, piece) for side, data in said for piece in pieces(data, cuts)]


def stretches(segments: Sequence[Segment], ends: Sequence[int]) -> list[Stretch]:
    """The segments as chunks that end before these places."""
    found = []
    places = sorted({0, len(segments), *(end % (len(segments) + 1) for end in ends)})
    for start, end in itertools.pairwise(places):
        runs = []
        for side in (0, 1):
            orders = [number for number in range(start, end) if segments[number][0] == side]
            runs.append(run_of([segments[number][1] for number in orders], orders) if orders else None)
        found.append(Stretch((runs[0], runs[1])))
    return found


def reported(events: Sequence[Event]) -> list[object]:
    """Events without the buffers of their frames."""
    return [
        (one.order, one.ordinal, one.is_request, one.decoded.api_key, one.frame.data[one.frame.start : one.frame.end])
        if isinstance(one, MessageEvent)
        else one
        for one in events
    ]


def fed(items: Sequence[object], connection: KafkaConnection | None = None) -> tuple[KafkaConnection, list[Event]]:
    connection = connection or KafkaConnection(ConnectionOptions())
    return connection, [event for item in items for event in connection.feed([item])]  # type: ignore[list-item]


CUTS = st.lists(st.integers(0, 200), max_size=4)


@given(CUTS, st.lists(st.integers(0, 100), max_size=8), st.booleans(), st.integers(0, 3))
def test_chunks_of_any_size_yield_the_same(cuts: list[int], ends: list[int], begins: bool, late: int) -> None:
    """From its beginning, and if the capture begins in the middle."""
    segments = segments_of(SAID, cuts)[late:]
    start = STARTED if begins and not late else []
    _, expected = fed([*start, *stretches(segments, range(len(segments))), CLOSED])
    connection, found = fed([*start, *stretches(segments, ends), CLOSED])
    assert reported(found) == reported(expected)
    assert connection.bytes_seen == sum(len(data) for _, data in segments)
    assert connection.buffered == 0


def test_a_whole_connection() -> None:
    connection, events = fed([*STARTED, *stretches(SAID, []), CLOSED])
    assert connection.verdict == "kafka"
    assert connection.client == 0
    assert [type(one) for one in events if not isinstance(one, ExchangeEvent)] == [VerdictEvent, *[MessageEvent] * 8]
    assert {one.status for one in events if isinstance(one, ExchangeEvent)} == {"answered"}
    for side in (0, 1):
        size = sum(len(data) for sender, data in SAID if sender == side)
        assert connection.bytes_of[side] == connection.framed_of[side] == connection.decoded_of(side) == size
    assert connection.lost_of == connection.pending_of == [0, 0]


def test_a_gap_within_a_response_loses_only_that_response() -> None:
    talk = Talk()
    talk.send(0, [metadata_request(number, ["orders"]) for number in (1, 2, 3)])
    answers = [metadata_response(number, "h", 9092, ["orders"]) for number in (1, 2, 3)]
    talk.send(1, [answers[0], answers[1][:20]])
    talk.lose(1, 10)
    talk.send(1, [answers[1][30:], answers[2]])
    responses = [event for event in talk.events if isinstance(event, MessageEvent) and not event.is_request]
    assert [event.ordinal for event in responses] == [0, 1, 2]
    assert [[problem.kind for problem in event.problems] for event in responses] == [[], ["frame-incomplete"], []]
    connection = talk.connection
    assert (connection.bytes_lost, connection.lost_of) == (10, [0, 10])
    assert connection.is_plain()


def test_a_response_that_comes_after_its_gap() -> None:
    talk = Talk()
    talk.send(0, [metadata_request(number, ["orders"]) for number in (1, 2)])
    one, other = (metadata_response(number, "h", 9092, ["orders"]) for number in (1, 2))
    talk.lose(1, len(one))
    talk.events += talk.connection.feed([Late(50, 1, one, 50, 50_000)])
    talk.send(1, [other])
    assert talk.connection.lost_of == [0, 0]
    answered = {event.ordinal for event in talk.events if isinstance(event, MessageEvent) and not event.is_request}
    assert answered == {0, 1}


def test_a_stream_that_ends_within_a_frame() -> None:
    connection, events = fed([*STARTED, *stretches([*SAID, (0, metadata_request(4, ["orders"])[:9])], []), CLOSED])
    problems = [one for one in events if isinstance(one, ProblemEvent)]
    assert [(one.kind, one.bytes, one.is_request) for one in problems] == [("stream-cut", 9, True)]
    assert connection.pending_of == [9, 0]
    assert connection.waiting == 0


def test_retransmitted_segments_are_counted() -> None:
    connection, events = fed([*STARTED, *stretches(SAID[:3], []), Retransmit(5, 0), Retransmit(6, 1)])
    assert connection.retransmits == 2
    _, events = fed([*stretches([*SAID[3:4]], []), CLOSED], connection)
    (end,) = (one for one in events if isinstance(one, ExchangeEvent))
    assert end.retransmits == 2
