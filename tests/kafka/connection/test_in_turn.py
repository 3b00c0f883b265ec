"""Connections in step, which the kernel takes over: which they are, and what changes when they come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.connection.events import ExchangeEvent, MessageEvent
from kafkasniff.tcp.segments import Gap, Hole
from tests.craft.kafka_bytes import (
    frame,
    metadata_request,
    metadata_response,
)
from tests.kafka.connection.test_connection import CLOSED, CUTS, SAID, STARTED, fed, reported, segments_of, stretches
from tests.kafka.segments import Talk, pieces


@given(st.integers(2, 7), CUTS)
def test_a_copied_state_continues_like_the_original(place: int, cuts: list[int]) -> None:
    segments = segments_of(SAID, cuts)
    middle = sum(len(pieces(data, cuts)) for _, data in SAID[:place])
    parts = stretches(segments, [middle])
    _, expected = fed([*STARTED, *parts, CLOSED])
    connection, events = fed([*STARTED, parts[0]])
    if connection.is_plain():
        state = connection.hand_over()
        assert connection.buffered == 0
        connection.take_back(state)
    _, rest = fed([*parts[1:], CLOSED], connection)
    assert reported([*events, *rest]) == reported(expected)


def test_states_that_the_kernel_does_not_take_over() -> None:
    """A gap, the rest of a gap, or a connection without a verdict."""
    assert not fed(STARTED)[0].is_plain()
    connection, _ = fed([*STARTED, *stretches(SAID, [])])
    assert connection.is_plain()
    connection.feed([Hole(100, 0, True)])
    assert not connection.is_plain()
    connection.feed([Hole(101, 0, False)])
    assert connection.is_plain()
    connection.feed(stretches([(1, frame(bytes(90))[:30])], []))
    connection.feed([Gap(200, 1, 20, 200, 200_000, False, 200_000)])
    assert not connection.is_plain()


def test_the_kernel_has_it_from_its_first_bytes() -> None:
    """The broker's stream begins when it has bytes."""
    connection, _ = fed([])
    connection.begin_in_step(0)
    assert (connection.verdict, connection.client) == ("kafka", 0)
    request = metadata_request(1, ["orders"])
    events = connection.feed(stretches([(0, request)], []))
    assert [one.is_request for one in events if isinstance(one, MessageEvent)] == [True]
    _, more = fed([*stretches([(1, metadata_response(1, "h", 9092, ["orders"]))], []), CLOSED], connection)
    assert [one.status for one in more if isinstance(one, ExchangeEvent)] == ["answered"]


def test_what_the_kernel_has_seen_is_counted() -> None:
    connection, _ = fed([*STARTED, *stretches(SAID, [])])
    assert connection.is_plain()
    seen, framed = connection.bytes_of, connection.framed_of
    connection.take_back(connection.hand_over(), (100, 50), (90, 50), 3)
    assert connection.bytes_of == [seen[0] + 100, seen[1] + 50]
    assert connection.framed_of == [framed[0] + 90, framed[1] + 50]
    assert connection.retransmits == 3
    assert connection.is_plain()


def test_a_hole_that_the_kernel_has_seen() -> None:
    connection, _ = fed([*STARTED, *stretches(SAID, [])])
    connection.take_back(connection.hand_over(), holes=(True, False))
    assert not connection.is_plain()
    connection.feed([Hole(100, 0, False)])
    assert connection.is_plain()


def test_the_position_of_its_last_frame() -> None:
    connection, _ = fed([*STARTED, *stretches(SAID, [])])
    state = connection.hand_over()
    last = len(SAID) - 1
    assert state.place == (last, 1000 * last, last)
    assert (state.turn.last_id, state.turn.last_answer) == (3, 3)
    assert (state.waiting, state.most) == ([], 1)
    assert state.loss == 0


def test_a_gap_is_part_of_the_state() -> None:
    talk = Talk()
    talk.send(0, [metadata_request(number, ["orders"]) for number in (1, 2)])
    answers = [metadata_response(number, "h", 9092, ["orders"]) for number in (1, 2)]
    talk.send(1, [answers[0], answers[1][:20]])
    talk.lose(1, 10)
    talk.send(1, [answers[1][30:]])
    assert talk.connection.is_plain()
    assert talk.connection.hand_over().loss == 1
