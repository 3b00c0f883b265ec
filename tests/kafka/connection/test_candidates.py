"""Positions that could be a frame's start: which there are, and how they move when bytes are dropped."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkasniff.kafka.connection import candidates as module
from kafkasniff.kafka.connection.candidates import CHUNK, MAX_CANDIDATES, FrameCandidates
from kafkasniff.kafka.connection.framing import MAX_FRAME
from tests.craft.kafka_bytes import metadata_request, metadata_response
from tests.kafka.segments import run_of

REQUEST = metadata_request(7, ["orders"])
ANSWER = metadata_response(7, "h", 9092, ["orders"])
NOISE = b"\xff" * 50
"""No size begins with these bytes."""


def fed(segments: Sequence[bytes], *, aligned: bool = False, forced: bool = False) -> FrameCandidates:
    made = FrameCandidates(aligned=aligned, max_size=MAX_FRAME, forced=forced)
    add(made, segments)
    return made


def add(made: FrameCandidates, segments: Sequence[bytes]) -> None:
    run = run_of(segments)
    for index in range(run.last):
        made.add(run, index)


def starts(made: FrameCandidates) -> tuple[list[int], list[int]]:
    """Where requests and where responses may begin."""
    return [one.start for one in made._requests], [one.start for one in made._responses]


def test_the_first_byte_of_a_stream_is_its_only_candidate() -> None:
    made = fed([b"abc", b"def"], aligned=True)
    assert starts(made) == ([0], [0])
    assert not made.began
    made._requests[0].frames = 1
    assert made.began
    made.strip(4)
    assert starts(made) == ([0], [0])
    assert (made.beginning(9), made.dropped, made.began) == (b"ef", 0, False)


def test_responses_may_begin_where_segments_do() -> None:
    assert starts(fed([b"abc", b"def", b"g"])) == ([], [0, 3, 6])
    assert starts(fed([b"abc", b"def", b"g"], forced=True)) == ([0, 3, 6], [0, 3, 6])
    many = fed([b"a"] * (MAX_CANDIDATES + 9), forced=True)
    assert [len(one) for one in starts(many)] == [MAX_CANDIDATES, MAX_CANDIDATES]


def test_requests_are_found_anywhere() -> None:
    made = fed([NOISE + REQUEST[:5], REQUEST[5:] + NOISE])
    made._scan_for_requests()
    assert len(NOISE) in starts(made)[0]
    before = starts(made)
    made._scan_for_requests()
    assert starts(made) == before, "nothing is scanned twice"
    add(made, [REQUEST])
    made._scan_for_requests()
    assert 2 * len(NOISE) + len(REQUEST) in starts(made)[0]


def test_responses_are_found_by_the_id_of_a_request() -> None:
    made = fed([NOISE + ANSWER])
    made._scan_for_responses({8})
    assert starts(made)[1] == [0]
    made = fed([NOISE + ANSWER])
    made._scan_for_responses({7})
    assert starts(made)[1] == [0, len(NOISE)]


def test_responses_are_scanned_piece_by_piece() -> None:
    noise = b"\xff" * (2 * CHUNK)
    made = fed([noise + ANSWER])
    scans = 0
    while len(noise) not in starts(made)[1]:
        made._scan_for_responses({7})
        scans += 1
    assert scans == 3


def test_dropped_bytes_take_their_candidates_along() -> None:
    made = fed([b"x" * 10, b"y" * 10, b"z" * 10])
    last = made._responses[-1]
    last.at, last.expected, last.needed = 25, 22, 40
    assert made.drop(12) == 12
    assert starts(made)[1] == [8]
    assert (last.at, last.expected, last.needed) == (13, 10, 28)


def test_bytes_before_all_candidates_are_not_kept() -> None:
    made = fed([NOISE, b"abc"])
    made._responses = made._responses[1:]
    made.forget()
    assert made.beginning(9) == b"abc"
    assert starts(made)[1] == [0]
    aligned = fed([NOISE], aligned=True)
    aligned.forget()
    assert len(aligned) == len(NOISE)


def test_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEARCH_LIMIT", 100)
    made = fed([b"\xff" * 100])
    assert not made._is_hopeless(made._responses)
    add(made, [b"\xff"])
    assert made._is_hopeless(made._responses)
    made._responses[0].frames = 1
    assert not made._is_hopeless(made._responses)
    aligned = fed([b"\xff"], aligned=True)
    assert not aligned._is_hopeless(aligned._responses)
    assert aligned._is_hopeless([])
    assert not fed([], aligned=True)._is_hopeless([])


def test_ends_of_frames() -> None:
    made = fed([REQUEST + ANSWER[:3]])
    (candidate,) = made._responses
    assert made._frame_end(candidate) == len(REQUEST)
    candidate.at = len(REQUEST)
    assert made._frame_end(candidate) == len(REQUEST), "its size is not known yet"
