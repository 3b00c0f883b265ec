"""Streams that are not in step: where frames begin, who is the client, and reasons why it is not Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.connection.boundaries import Boundaries
from kafkasniff.kafka.connection.dialogue import Dialogue
from kafkasniff.kafka.connection.events import EventLog
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.tcp.segments import Gap
from tests.craft.kafka_bytes import frame, int16, int32, metadata_request, metadata_response
from tests.kafka.segments import pieces, run_of

ASKED = metadata_request(7, ["orders"])
ANSWER = metadata_response(7, "h", 9092, ["orders"])
MORE = [metadata_request(number, ["orders"]) for number in (8, 9)]
ANSWERS = [metadata_response(number, "h", 9092, ["orders"]) for number in (7, 8, 9)]
V1 = b"PROXY TCP4 10.0.0.7 10.0.0.8 5000 9092\r\n"


def streams(*, client: int | None = None, forced: bool = False) -> Boundaries:
    options = ConnectionOptions()
    log = EventLog(client)
    return Boundaries(log, Dialogue(log, options.detail), forced=forced, max_frame=options.max_frame)


def collect(boundaries: Boundaries, direction: int, *segments: bytes) -> None:
    run = run_of(segments)
    for index in range(run.last):
        boundaries.searcher(direction).add(run, index)


def test_a_stream_that_is_captured_from_its_first_byte() -> None:
    """It begins with a frame if it is Kafka; before the verdict it has to be one."""
    boundaries = streams()
    boundaries.begin(0)
    collect(boundaries, 0, ASKED)
    assert boundaries.find(0, kafka=False) == 0
    boundaries.begin(1)
    collect(boundaries, 1, b"\xff" * 9)
    assert boundaries.find(1, kafka=True) == 0
    assert boundaries.find(1, kafka=False) is None


def test_a_second_beginning_keeps_the_bytes() -> None:
    boundaries = streams()
    boundaries.begin(0)
    collect(boundaries, 0, ASKED)
    boundaries.begin(0)
    assert boundaries.collected(0) == len(ASKED)
    boundaries.release(0)
    assert (boundaries.collected(0), boundaries.memory_bytes(0)) == (0, 0)


def test_segments_take_memory_besides_their_bytes() -> None:
    boundaries = streams()
    collect(boundaries, 0, *([b"\x80"] * 10))
    assert boundaries.collected(0) == 10
    assert boundaries.memory_bytes(0) > 10
    assert boundaries.memory_bytes(1) == 0


@given(st.lists(st.integers(0x80, 0xFF), max_size=20).map(bytes), st.lists(st.integers(0, 200), max_size=5))
def test_roles_follow_from_the_frames_that_were_found(garbage: bytes, cuts: list[int]) -> None:
    for direction in (0, 1):
        asking, answering = streams(), streams()
        collect(asking, direction, *pieces(garbage + ASKED, cuts))
        assert asking.find(direction, kafka=False) == len(garbage)
        assert asking.client_by(direction) == direction
        # Without requests only frames at the start of a segment count as responses.
        collect(answering, direction, *pieces(garbage, cuts), *ANSWERS)
        assert answering.find(direction, kafka=False) == len(garbage)
        assert answering.client_by(direction) == 1 - direction


def test_a_known_client_sends_no_responses() -> None:
    boundaries = streams(client=0)
    collect(boundaries, 0, b"\xff", *ANSWERS)
    assert boundaries.find(0, kafka=False) is None
    collect(boundaries, 1, b"\xff", ASKED)
    assert boundaries.find(1, kafka=False) is None
    assert boundaries.client_by(1) == 0


def test_an_odd_request_needs_its_answer() -> None:
    """A request with surplus bytes proves nothing alone."""
    odd = frame(ASKED[4:] + b"\0\0\0")
    boundaries = streams()
    collect(boundaries, 0, odd)
    assert boundaries.find(0, kafka=False) is None
    assert boundaries.find_exchange() is None
    collect(boundaries, 1, ANSWER)
    assert boundaries.find_exchange() == (0, 0)
    assert boundaries.client_by(0) == 0
    # Not if the other side is known to be the client.
    known = streams(client=1)
    collect(known, 0, odd)
    collect(known, 1, ANSWER)
    assert known.find_exchange() is None


@pytest.mark.parametrize(
    ("data", "aligned", "found"),
    [
        (ANSWER, True, 7),
        (ANSWER, False, None),
        (ANSWER[:-1], True, None),
        (ANSWER[:7], True, None),
        (int32(0) + ANSWER, True, None),
        (int32(-4) + bytes(20), True, None),
        (b"", True, None),
    ],
)
def test_the_first_id_of_a_broker(data: bytes, aligned: bool, found: int | None) -> None:
    boundaries = streams()
    if aligned:
        boundaries.begin(1)
    if data:
        collect(boundaries, 1, *pieces(data, [5, 30]))
    assert boundaries.first_id(1) == (None if found is None else (found, 2))
    assert boundaries.first_id(0) is None


def test_a_load_balancers_header_is_removed_once() -> None:
    boundaries = streams()
    boundaries.begin(0)
    collect(boundaries, 0, V1[:10])
    assert boundaries.take_prologue(0) is None
    collect(boundaries, 0, V1[10:] + ASKED)
    length, description = boundaries.take_prologue(0) or (0, "")
    assert length == len(V1)
    assert "10.0.0.7 port 5000" in description
    assert boundaries.find(0, kafka=False) == 0
    assert boundaries.collected(0) == len(ASKED)
    assert boundaries.take_prologue(0) == (0, "")


def test_only_the_beginning_of_the_clients_stream_has_such_a_header() -> None:
    middle, broker, begun = streams(), streams(client=1), streams()
    broker.begin(0)
    begun.begin(0)
    begun.without_prologue(0)
    for boundaries in (middle, broker, begun):
        collect(boundaries, 0, V1)
        assert boundaries.take_prologue(0) == (0, "")
        assert boundaries.collected(0) == len(V1)


def gap(direction: int, size: int, *, snapped: bool = True) -> Gap:
    return Gap(5, direction, size, 5, 5000, snapped)


def test_truncated_segments_are_cut_on_trial() -> None:
    """Requests with visible headers: two of them if nothing else is known."""
    cut = len(ASKED) - 20
    boundaries = streams()
    collect(boundaries, 0, ASKED, MORE[0][:20])
    trial = boundaries.begin_trial(gap(0, cut), kafka=False)
    assert trial is not None
    assert len(trial.frames) == 1
    assert boundaries.judge_trial(trial, 0, kafka=False) is None
    assert boundaries.judge_trial(trial, 0, kafka=True) is True
    trial.add(trial.frames[:])
    assert boundaries.judge_trial(trial, 0, kafka=False) is True


@pytest.mark.parametrize(
    "data",
    [
        ASKED[:11],
        # An implausible API key, version or size.
        int32(40) + int16(999) + int16(0) + int32(7) + int16(1) + b"a",
        int32(40) + int16(3) + int16(999) + int32(7) + int16(1) + b"a",
        int32(-40) + ASKED[4:14],
        int32(3) + ASKED[4:14],
    ],
)
def test_no_trial_of_anything_else(data: bytes) -> None:
    boundaries = streams(client=0)
    collect(boundaries, 0, data)
    assert boundaries.begin_trial(gap(0, 30), kafka=False) is None


def test_a_hole_in_mid_stream_is_no_truncation() -> None:
    boundaries = streams(client=0)
    collect(boundaries, 0, ASKED[:20])
    assert boundaries.begin_trial(gap(0, 30, snapped=False), kafka=False) is None
    boundaries = streams(client=0)
    boundaries.begin(0)
    collect(boundaries, 0, ASKED[:20])
    assert boundaries.begin_trial(gap(0, 30, snapped=False), kafka=False) is not None


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" + b"x" * 20, "HTTP"),
        (b"\xff\xfe\xfd\xfc secret", "it begins with ff fe fd fc"),
    ],
)
def test_reasons_against_kafka(first: bytes, reason: str) -> None:
    boundaries = streams(client=0)
    boundaries.begin(0)
    collect(boundaries, 0, first)
    assert boundaries.find(0, kafka=False) is None
    found = boundaries.reason_against(0, peer_held=False)
    assert found is not None
    assert reason in found
    assert "secret" not in found


def test_the_clients_stream_decides() -> None:
    """The broker's alone only if nothing of the client's was seen, and nothing is held back."""
    boundaries = streams(client=0)
    boundaries.begin(1)
    collect(boundaries, 1, b"\xff" * 30)
    boundaries.find(1, kafka=False)
    assert boundaries.reason_against(1, peer_held=True) is None
    assert boundaries.reason_against(1, peer_held=False) is not None
    boundaries.begin(0)
    collect(boundaries, 0, ASKED[:20])
    boundaries.find(0, kafka=False)
    assert boundaries.reason_against(0, peer_held=False) is None
    assert boundaries.reason_against(1, peer_held=False) is None
