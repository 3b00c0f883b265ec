"""Finding frames without known boundaries: the same in any segments, and none in data that is not Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.connection import candidates, segmented_bytes
from kafkasniff.kafka.connection.framing import MAX_FRAME
from kafkasniff.kafka.connection.search import MIN_CHAIN, RESPONSE_CHAIN, Searcher
from kafkasniff.tcp.segments import Run
from tests.craft.kafka_bytes import frame, int32, metadata_request, metadata_response
from tests.kafka.segments import pieces, run_of

REQUESTS = b"".join(metadata_request(number, ["orders"]) for number in (7, 8, 9))
ANSWERS = [metadata_response(number, "h", 9092, ["orders"]) for number in (7, 8, 9)]
# No size begins with a byte of 0x80 or more.
GARBAGE = st.lists(st.integers(0x80, 0xFF), max_size=60).map(bytes)
CUTS = st.lists(st.integers(0, 300), max_size=12)


class Asked:
    """Outstanding requests whose responses are identified by their bytes."""

    def __init__(self, answers: Iterable[tuple[int, bytes]] = (), *, exact: bool = True) -> None:
        self._answers = dict(answers)
        self._exact = exact

    def __contains__(self, correlation_id: object) -> bool:
        return correlation_id in self._answers

    def is_next(self, correlation_id: int) -> bool:
        return not self._answers

    def is_exact(self, correlation_id: int, message: bytes) -> bool:
        return self._exact and self._answers[correlation_id] == message


SEVEN = Asked([(7, ANSWERS[0][4:])])


def fed(segments: Sequence[bytes], *, aligned: bool = False, forced: bool = False) -> Searcher:
    searcher = Searcher(aligned=aligned, max_size=MAX_FRAME, forced=forced)
    run = run_of(segments)
    for index in range(run.last):
        searcher.add(run, index)
    return searcher


def run_bytes(run: Run | None) -> bytes:
    assert run is not None
    return b"".join(run.buffer[start : start + size] for start, size in zip(run.offset, run.length, strict=True))


@given(GARBAGE, CUTS)
def test_requests_after_garbage(garbage: bytes, cuts: list[int]) -> None:
    """One request that decodes to its last byte is enough; it is found as soon as it is complete, in any segments."""
    first = metadata_request(7, ["orders"])
    run = run_of(pieces(garbage + REQUESTS, cuts))
    searcher = Searcher(aligned=False, max_size=MAX_FRAME)
    for index in range(run.last):
        searcher.add(run, index)
        found = searcher.find_request(None)
        assert found == (len(garbage) if run.end[index] >= len(garbage + first) else None)
        if found is not None:
            assert searcher.accepted_requests
            taken = searcher.take(found)
            assert run_bytes(taken) == (garbage + REQUESTS)[len(garbage) : run.end[index]]
            assert not searcher.segments
            return
    raise AssertionError("not found")


def test_plausible_requests_in_a_row() -> None:
    """With trailing bytes, none decodes exactly: several in a row count if the stream is known to be the client's."""
    odd = [frame(metadata_request(number, ["orders"])[4:] + b"\0") for number in range(MIN_CHAIN)]
    assert fed([b"\xff" * 9, *odd]).find_request(None) is None
    assert fed([b"\xff" * 9, *odd]).find_request(MIN_CHAIN) == 9
    assert fed([b"\xff" * 9, *odd[1:]]).find_request(MIN_CHAIN) is None


def test_the_beginning_of_a_stream_is_the_only_candidate() -> None:
    assert fed([b"\xff", REQUESTS], aligned=True).find_request(None) is None
    assert fed([b"\xff", REQUESTS], aligned=True).hopeless_for_requests is False
    searcher = fed([b"\xff" * 4, REQUESTS], aligned=True)
    assert searcher.find_request(None) is None
    assert searcher.hopeless_for_requests
    assert searcher.find_response(Asked()) is None
    assert searcher.hopeless_for_responses
    stripped = fed([b"prologue", REQUESTS], aligned=True)
    stripped.strip(8)
    assert stripped.find_request(None) == 0


@given(GARBAGE, CUTS)
def test_a_response_that_answers_a_request(garbage: bytes, cuts: list[int]) -> None:
    data = garbage + b"".join(ANSWERS)
    assert fed(pieces(data, cuts)).find_response(SEVEN) == len(garbage)
    assert not fed(pieces(data, cuts)).accepted_requests


def test_a_response_without_a_request() -> None:
    """If requests are known, response ids must match them, and so must the form of a single response."""
    assert fed([b"\xff" * 9, *ANSWERS]).find_response(Asked([(77, b"")])) is None
    assert fed([b"\xff" * 9, ANSWERS[0]]).find_response(Asked([(7, b"")])) is None


def test_responses_alone() -> None:
    """If no requests are known, frames at segment starts with rising ids are responses."""
    assert fed([b"\xff" * 9, *ANSWERS]).find_response(Asked()) == 9
    assert fed([b"\xff" * 9, *ANSWERS[: RESPONSE_CHAIN - 1]]).find_response(Asked()) is None
    assert fed([b"\xff" * 9, ANSWERS[1], ANSWERS[0], ANSWERS[2]]).find_response(Asked()) is None
    assert fed([b"\xff" * 9 + b"".join(ANSWERS)]).find_response(Asked()) is None


def test_the_last_response_of_a_stream() -> None:
    """It begins with a segment, ends with the stream, and its id is expected."""
    unread = Asked([(7, b"")], exact=False)
    searcher = fed([b"\xff" * 9, ANSWERS[0]])
    assert searcher.find_response(unread) is None
    assert searcher.find_last_response() == 9
    searcher = fed([b"\xff" * 9, ANSWERS[0] + b"\0"])
    assert searcher.find_response(unread) is None
    assert searcher.find_last_response() is None


def test_responses_are_searched_again_once_requests_are_known() -> None:
    searcher = fed([b"\xff" * 9, ANSWERS[0]])
    assert searcher.find_response(Asked()) is None
    searcher.restart_responses(-1)
    assert searcher.find_response(SEVEN) == 9


def test_an_odd_request_and_its_answer() -> None:
    """Found together: neither is certain by itself."""
    odd = frame(metadata_request(7, ["orders"])[4:] + b"\0")
    asked = fed([b"\xff" * 5, odd])
    assert asked.find_request(None) is None
    requests = asked.whole_requests()
    assert requests == {7: 5}
    assert asked.message(5) == (odd[4:], 1)
    answers = Searcher(aligned=False, max_size=MAX_FRAME)
    run = run_of([b"\xff" * 3, ANSWERS[0]], [4, 6])
    for index in range(2):
        answers.add(run, index)
    assert answers.find_answer(requests, asked) == 5
    assert answers.find_answer({8: 5}, asked) is None
    # A response before its request is not a response to it.
    early = fed([ANSWERS[0]])
    late = Searcher(aligned=False, max_size=MAX_FRAME)
    late.add(run_of([odd], [9]), 0)
    assert late.find_request(None) is None
    assert early.find_answer(late.whole_requests(), late) is None


def test_kept_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented_bytes, "MAX_SEARCH", 1000)
    searcher = fed([b"\xff" * 90] * 50)
    assert len(searcher) <= 1000
    assert searcher.dropped + len(searcher) == 50 * 90
    run = run_of([REQUESTS], [50])
    searcher.add(run, 0)
    found = searcher.find_request(None)
    assert found is not None
    assert searcher.order_at(found) == 50
    assert searcher.order_at(found - 1) == 49
    assert run_bytes(searcher.take(found)) == REQUESTS


def test_bytes_before_all_candidates_are_dropped() -> None:
    searcher = fed([b"\xff" * 400, b"\xff" * 10 + REQUESTS[:20]])
    assert searcher.find_request(None) is None
    assert searcher.find_response(SEVEN) is None
    searcher.forget()
    # The starts of the segments are ruled out; the incomplete request is what waits.
    assert searcher.beginning(20) == REQUESTS[:20]
    assert searcher.dropped == 410


def test_a_stream_without_a_candidate_is_not_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "SEARCH_LIMIT", 500)
    searcher = fed([b"\xff" * 500])
    assert not searcher.hopeless_for_requests
    searcher.add(run_of([b"\xff"]), 0)
    assert searcher.hopeless_for_requests
    assert searcher.hopeless_for_responses


def test_the_users_ports_are_accepted_as_kafka() -> None:
    """On a port that the user names as Kafka's, a plausible header at a segment's start is enough."""
    unknown = frame(b"\x00\x03\x00\x63" + int32(5) + b"\x00\x01a" + bytes(9))
    assert fed([b"\xff" * 9, unknown]).find_request(1) is None
    assert fed([b"\xff" * 9, unknown], forced=True).find_request(1) == 9
    assert fed([b"\xff" * 9 + unknown], forced=True).find_request(1) is None
