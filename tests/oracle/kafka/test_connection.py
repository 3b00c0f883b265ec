"""Laws of one connection as Kafka: the same events from chunks and segments of any size, and what gaps leave whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkasniff.kafka.connection.events import Event, ExchangeEvent, MessageEvent, ProblemEvent
from kafkasniff.tcp.segments import Closed, Gap, Late, Started, Stretch
from tests.craft.kafka_bytes import api_versions_request, api_versions_response, frame
from tests.kafka.segments import Talk, pieces, run_of
from tests.oracle.kafka.connection import KafkaConnection
from tests.oracle.kafka.outline import request, response
from tests.oracle.kafka.recognition import ConnectionOptions
from tests.oracle.kafka.stream_progress import TRANSITIONS, StreamProgress, StreamState

SAID = [
    (0, api_versions_request(0)),
    (1, api_versions_response(0)),
    *((side, make(number)) for number in (1, 2, 3) for side, make in ((0, request), (1, response))),
]
Segment = tuple[int, bytes]
STARTED = [Started(0, 0, True), Started(0, 1, False)]
CLOSED = Closed(999, "fin", 999, 999_000)
CUTS = st.lists(st.integers(0, 200), max_size=4)


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
        (
            *(one.order, one.ordinal, one.is_request, one.decoded.api_key, one.latency_ns, one.duration_ns),
            *(one.frame.first_packet, one.frame.last_packet, one.frame.first_time, one.frame.time_ns),
            one.frame.data[one.frame.start : one.frame.end],
        )
        if isinstance(one, MessageEvent)
        else one
        for one in events
    ]


def fed(items: Sequence[object], connection: KafkaConnection | None = None) -> tuple[KafkaConnection, list[Event]]:
    connection = connection or KafkaConnection(ConnectionOptions())
    return connection, [event for item in items for event in connection.feed([item])]  # type: ignore[list-item]


def requests_and_responses(events: Sequence[Event]) -> tuple[list[bytes], list[bytes]]:
    """The messages of both sides, with their length prefixes."""
    found: tuple[list[bytes], list[bytes]] = [], []
    for one in events:
        if isinstance(one, MessageEvent):
            found[not one.is_request].append(frame(one.frame.data[one.frame.start : one.frame.end]))
    return found


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


@given(CUTS)
def test_segments_of_any_size_yield_the_same_messages(cuts: list[int]) -> None:
    """With the packets of their first and last bytes; the counts are those of all bytes."""
    segments = segments_of(SAID, cuts)
    connection, events = fed([*STARTED, *stretches(segments, [len(segments) // 2]), CLOSED])
    assert (connection.verdict, connection.client) == ("kafka", 0)
    for side, found in enumerate(requests_and_responses(events)):
        assert found == [data for sender, data in SAID if sender == side]
        size = sum(map(len, found))
        assert connection.bytes_of[side] == connection.framed_of[side] == connection.decoded_of(side) == size
    assert connection.lost_of == connection.pending_of == [0, 0]
    assert [one.status for one in events if isinstance(one, ExchangeEvent)] == ["answered"] * 4
    brought = [number for number, (_, piece) in enumerate(segments) for _ in piece]
    place = 0
    for message, (_, data) in zip((one for one in events if isinstance(one, MessageEvent)), SAID, strict=True):
        first, last = brought[place], brought[place + len(data) - 1]
        assert (message.frame.first_packet, message.frame.last_packet, message.order) == (first, last, last)
        assert (message.frame.first_time, message.frame.time_ns) == (1000 * first, 1000 * last)
        place += len(data)


@given(
    st.lists(st.integers(0x80, 0xFF), min_size=14, max_size=60).map(bytes), CUTS.map(lambda c: c[:1]), st.integers(0, 1)
)
def test_frames_are_found_after_other_bytes(garbage: bytes, cuts: list[int], client: int) -> None:
    """Wherever segments begin, and with any client id; the search is over with the first whole request."""
    sent, answered = garbage + request(7) + request(8), garbage + response(7) + response(8)
    connection, events = fed(stretches(segments_of([(client, sent), (1 - client, answered)], cuts), []))
    assert (connection.verdict, connection.client) == ("kafka", client)
    assert requests_and_responses(events) == ([request(7), request(8)], [response(7), response(8)])
    assert [one.bytes for one in events if isinstance(one, ProblemEvent)] == [len(garbage)] * 2


@given(st.integers(0, 1), st.integers(1, 130), st.integers(1, 60), CUTS, st.booleans())
def test_a_gap_within_a_message_loses_only_that(side: int, start: int, size: int, cuts: list[int], exact: bool) -> None:
    """If its length prefix is there and the size of the gap is known; in any case, earlier messages are whole."""
    make = response if side else request
    sent = [make(number) for number in range(1, 7)]
    data, length = b"".join(sent), len(sent[0])
    talk = Talk()
    talk.send(0, [request(number) for number in range(-1, 7 if side else 1)])
    talk.send(1, [response(number) for number in (-1, 0)])
    talk.send(side, pieces(data[:start], cuts))
    talk.events += talk.connection.feed([Gap(500, side, size, 500, 500_000, False, 500_000, exact)])
    talk.send(side, pieces(data[start + size :], cuts))
    found = requests_and_responses(talk.events)[side][2:]
    number, there = divmod(start, length)
    assert found[:number] == sent[:number]
    if exact and there >= 14 and there + size <= length:
        assert found == [*sent[:number], frame(sent[number][4:there]), *sent[number + 1 :]]
        assert talk.connection.state_of(side) is StreamState.IN_STEP
    assert talk.connection.lost_of[side] == size
    assert talk.connection.bytes_of[side] == (2 + 6) * length - size


def test_a_response_that_comes_after_its_gap() -> None:
    talk = Talk()
    talk.send(0, [request(number) for number in (1, 2)])
    talk.lose(1, len(response(1)))
    talk.events += talk.connection.feed([Late(50, 1, response(1), 50, 50_000)])
    talk.send(1, [response(2)])
    assert talk.connection.lost_of == [0, 0]
    answered = {event.ordinal for event in talk.events if isinstance(event, MessageEvent) and not event.is_request}
    assert answered == {0, 1}


def test_the_syn_or_the_first_request_identifies_the_client() -> None:
    turned = [(1 - side, data) for side, data in SAID]
    assert fed(stretches(turned, []))[0].client == 1
    assert fed([Started(0, 0, False)])[0].client == 1
    assert fed([Started(0, 1, True)])[0].client == 1
    assert fed([])[0].client is None
    assert KafkaConnection(ConnectionOptions(), 1).client == 1


def test_a_stream_that_is_not_kafka_is_not_kept() -> None:
    connection, events = fed([*STARTED, *stretches([(0, b"\xff" * 30), (1, b"\xff" * 30)], []), CLOSED])
    assert [type(one).__name__ for one in events] == ["VerdictEvent"]
    assert connection.verdict == "not-kafka"
    assert connection.feed(stretches(SAID, [])) == []
    assert (connection.buffered, connection.framed_of) == (0, [0, 0])


# -- the states of a stream --------------------------------------------------------------------------------------------


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[StreamState, StreamState]]]:
    """All changes of state within a test: the table has them."""
    found: set[tuple[StreamState, StreamState]] = set()
    become = StreamProgress._become

    def observed(stream: StreamProgress, *after: object) -> None:
        before = stream.state
        become(stream, *after)  # type: ignore[arg-type]
        found.add((before, stream.state))

    monkeypatch.setattr(StreamProgress, "_become", observed)
    yield found
    assert {(before, after) for before, after in found if before is not after} <= set(TRANSITIONS)


def test_a_request_that_is_cut_is_tried(changes: set[tuple[StreamState, StreamState]]) -> None:
    """Until its response proves it, or an impossible size disproves it."""
    for side, more, state in ((1, response(7), StreamState.IN_STEP), (0, b"\xff" * 8, StreamState.SEARCH)):
        talk = Talk()
        talk.connection.feed(STARTED)  # type: ignore[arg-type]
        talk.send(0, [request(7)[:-4]])
        talk.lose(0, 4)
        assert talk.connection.state_of(0) is StreamState.TRIAL
        talk.send(side, [more])
        assert talk.connection.state_of(0) is state
    assert {(StreamState.SEARCH, StreamState.TRIAL), (StreamState.TRIAL, StreamState.SEARCH)} <= changes


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 40)),
        st.tuples(st.just("lose"), st.integers(0, 1), st.integers(1, 60), st.just(0)),
        st.tuples(st.just("junk"), st.integers(0, 1), st.integers(1, 60), st.integers(0, 255)),
    ),
    max_size=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTIONS)
def test_random_traffic(
    changes: set[tuple[StreamState, StreamState]], actions: list[tuple[str, int, int, int]]
) -> None:
    talk = Talk()
    numbers = [0, 0]
    for what, side, size, more in actions:
        if what == "lose":
            talk.lose(side, size)
        elif what == "junk":
            talk.send(side, [bytes([more]) * size])
        else:
            numbers[side] += 1
            data = (response if side else request)(numbers[side])
            talk.send(side, [data[: max(1, len(data) - size * 7)], b"\0" * more] if size else [data])
