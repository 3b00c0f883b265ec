"""The states of a stream: random traffic makes only changes that the table has, and the table has no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkasniff.kafka.connection.connection import KafkaConnection
from kafkasniff.kafka.connection.framing import Framer
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.kafka.connection.stream_progress import TRANSITIONS, StreamProgress, StreamState
from kafkasniff.kafka.connection.trial import Trial
from kafkasniff.tcp.segments import Started
from tests.craft.kafka_bytes import metadata_request, metadata_response
from tests.kafka.segments import Talk

Change = tuple[StreamState, StreamState]

UNSEEN, SEARCH, TRIAL, IN_STEP = StreamState


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Change]]:
    """All changes of state within a test."""
    found: set[Change] = set()
    become = StreamProgress._become

    def observed(stream: StreamProgress, framer: Framer | None, trial: Trial | None) -> None:
        before = stream.state
        become(stream, framer, trial)
        found.add((before, stream.state))

    monkeypatch.setattr(StreamProgress, "_become", observed)
    yield found
    assert {(before, after) for before, after in found if before is not after} <= set(TRANSITIONS)


def request(number: int) -> bytes:
    return metadata_request(number, ["orders"])


def response(number: int) -> bytes:
    return metadata_response(number, "h", 9092, ["orders"])


def test_a_usual_connection(changes: set[Change]) -> None:
    talk = Talk()
    assert [talk.connection.state_of(side) for side in (0, 1)] == [UNSEEN, UNSEEN]
    talk.send(1, [response(1)[:7]])
    assert talk.connection.state_of(1) is SEARCH
    talk.send(0, [request(2), request(3)])
    assert talk.connection.state_of(0) is IN_STEP
    assert (SEARCH, IN_STEP) in changes


def test_a_gap_between_frames_starts_a_search(changes: set[Change]) -> None:
    talk = Talk()
    talk.send(0, [request(1), request(2)])
    talk.lose(0, 100)
    assert talk.connection.state_of(0) is SEARCH
    assert (IN_STEP, SEARCH) in changes


def test_a_request_that_is_cut_is_tried(changes: set[Change]) -> None:
    """Until its response proves it, or an impossible size disproves it."""
    for proven in (True, False):
        talk = Talk()
        talk.connection.feed([Started(0, 0, True), Started(0, 1, False)])
        talk.send(0, [request(7)[:-4]])
        talk.lose(0, 4)
        assert talk.connection.state_of(0) is TRIAL
        if proven:
            talk.send(1, [response(7)])
            assert talk.connection.state_of(0) is IN_STEP
        else:
            talk.send(0, [b"\xff" * 8])
            assert talk.connection.state_of(0) is SEARCH
    assert {(SEARCH, TRIAL), (TRIAL, SEARCH), (SEARCH, IN_STEP)} <= changes


def test_the_kernel_follows_a_connection_from_its_first_byte(changes: set[Change]) -> None:
    connection = KafkaConnection(ConnectionOptions())
    connection.begin_in_step(0)
    assert connection.state_of(0) is IN_STEP
    assert (UNSEEN, IN_STEP) in changes


def test_each_change_of_the_table_has_a_test_here() -> None:
    text = Path(__file__).read_text()
    for before, after in TRANSITIONS:
        # The first bytes change the state without a framer or a trial.
        assert f"({before.name}, {after.name})" in text or (before, after) == (UNSEEN, SEARCH)


def test_a_change_that_is_not_in_the_table_is_a_bug() -> None:
    stream = StreamProgress()
    with pytest.raises(AssertionError, match="UNSEEN to TRIAL"):
        stream.begin_trial(Trial(Framer(0, 1000), []))


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
def test_random_traffic(changes: set[Change], actions: list[tuple[str, int, int, int]]) -> None:
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
    assert {one for one in changes if one[0] is not one[1]} <= set(TRANSITIONS)
