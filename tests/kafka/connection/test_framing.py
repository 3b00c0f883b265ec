"""Frames of one stream: the same for any segments, and what remains of them after a gap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.connection.framing import SMALL_PART, Frame, Framer
from kafkasniff.tcp.segments import Gap, Run
from tests.craft.kafka_bytes import frame, int32
from tests.kafka.segments import pieces, run_of

MESSAGES = st.lists(st.binary(max_size=40), max_size=6)
CUTS = st.lists(st.integers(0, 300), max_size=12)


def cut(framer: Framer, run: Run, *, one_by_one: bool = False) -> list[Frame]:
    """A framer's output for a run, or for its segments one by one."""
    if not one_by_one:
        return framer.cut(run, run.first, run.last) if run.last else []
    return [found for index in range(run.last) for found in framer.cut(run, index, index + 1)]


def message(one: Frame) -> bytes:
    return one.data[one.start : one.end]


def gap(size: int, *, exact: bool = True, snapped: bool = False) -> Gap:
    return Gap(50, 1, size, 50, 50_000, snapped, 60_000, exact)


@given(MESSAGES, CUTS, st.booleans())
def test_frames_do_not_depend_on_segments(messages: list[bytes], cuts: list[int], each: bool) -> None:
    data = b"".join(map(frame, messages))
    segments = pieces(data, cuts)
    framer = Framer(1)
    found = cut(framer, run_of(segments), one_by_one=each)
    assert [(message(one), one.size, one.direction) for one in found] == [(one, len(one), 1) for one in messages]
    assert framer.at_boundary
    assert framer.is_plain
    # The packets with a frame's first and last byte.
    brought = [number for number, segment in enumerate(segments) for _ in segment]
    start = 0
    for one in found:
        end = start + 4 + one.size
        first, last = brought[start], brought[end - 1]
        assert (one.first_packet, one.last_packet, one.order, one.last_seen) == (first, last, last, last)
        assert (one.first_time, one.time_ns) == (1000 * first, 1000 * last)
        start = end


@given(st.binary(min_size=1, max_size=40), st.integers(0, 50), CUTS)
def test_a_frame_that_is_not_whole_is_pending(last: bytes, there: int, cuts: list[int]) -> None:
    there %= len(last) + 4
    framer = Framer(0)
    found = cut(framer, run_of(pieces(frame(b"whole") + frame(last)[:there], cuts)))
    assert [message(one) for one in found] == [b"whole"]
    assert framer.pending == there
    assert framer.announced == (len(last) if there >= 4 else None)
    assert framer.at_boundary is (there == 0)
    assert framer.is_within(len(last) + 4 - there) is (there >= 4)
    assert not framer.is_within(len(last) + 5 - there)


@pytest.mark.parametrize("size", [-1, 1001, 0x7FFFFFFF])
@pytest.mark.parametrize("cuts", [[], [5], [11], list(range(40))], ids=str)
def test_a_stream_loses_its_frames_at_an_impossible_size(size: int, cuts: list[int]) -> None:
    data = frame(b"good") + int32(size) + bytes(20)
    framer = Framer(0, max_size=1000)
    found = cut(framer, run_of(pieces(data, cuts)))
    assert [message(one) for one in found] == [b"good"]
    assert (framer.lost_size, framer.is_plain) == (size, False)
    assert framer.lost_at is not None


def test_the_largest_size_is_possible() -> None:
    framer = Framer(0, max_size=1000)
    (found,) = cut(framer, run_of([frame(bytes(1000))]))
    assert found.size == 1000
    assert framer.lost_at is None


def incomplete(framer: Framer, data: bytes, lost: Gap) -> tuple[bool, Frame | None]:
    """A framer's output for a gap in a stream that was cut here."""
    assert cut(framer, run_of([data])) == []
    return framer.gap(lost)


@given(st.binary(min_size=9, max_size=60), st.integers(4, 63), st.integers(1, 60), CUTS)
def test_a_gap_within_a_frame(body: bytes, there: int, missing: int, cuts: list[int]) -> None:
    """The frame is emitted with the bytes that exist; its rest is skipped, and the next frame is whole."""
    whole = frame(body)
    there = min(there, len(whole) - 1)
    missing = min(missing, len(whole) - there)
    framer = Framer(1)
    in_step, found = incomplete(framer, whole[:there], gap(missing))
    assert in_step
    assert found is not None
    assert (message(found), found.size) == (body[: there - 4], len(body))
    # If the frame ended in the gap, the last packet counts, otherwise the one that came after it.
    assert found.time_ns == (60_000 if missing < len(whole) - there else 0)
    rest = whole[there + missing :] + frame(b"next")
    assert framer.is_plain is (there + missing == len(whole))
    assert [message(one) for one in cut(framer, run_of(pieces(rest, cuts)))] == [b"next"]


def test_a_gap_over_a_boundary() -> None:
    in_step, found = incomplete(Framer(1), frame(b"a message")[:8], gap(6))
    assert not in_step
    assert found is not None
    assert message(found) == b"a me"


def test_a_gap_before_a_size_is_known() -> None:
    assert incomplete(Framer(1), b"", gap(1)) == (False, None)
    assert incomplete(Framer(1), b"\0\0\0", gap(1)) == (False, None)


def test_a_gap_of_an_unknown_number_of_bytes() -> None:
    framer = Framer(1)
    in_step, found = incomplete(framer, frame(b"a message")[:8], gap(2, exact=False))
    assert not in_step
    assert found is not None


def test_gaps_in_skipped_bytes() -> None:
    framer = Framer(1)
    assert incomplete(framer, frame(bytes(30))[:10], gap(5))[0]
    assert framer.gap(gap(9)) == (True, None)
    assert framer.gap(gap(3, exact=False)) == (False, None)
    assert framer.gap(gap(11)) == (False, None)


def state(framer: Framer) -> dict[str, object]:
    return {name: getattr(framer, name) for name in Framer.__slots__}


@given(st.binary(min_size=1, max_size=60), st.integers(0, 62), CUTS)
def test_a_framer_is_taken_over_and_copied(body: bytes, there: int, cuts: list[int]) -> None:
    """Both continue unchanged, and a copy is independent of the original."""
    whole = frame(body)
    there %= len(whole)
    framer, plain = Framer(0), Framer(0)
    for one in (framer, plain):
        assert cut(one, run_of(pieces(whole[:there], cuts))) == []
    copied = framer.copy()
    piece = framer.hand_over()
    assert framer.at_boundary
    assert piece.data == whole[:there]
    framer.take_back(piece)
    rest = run_of([whole[there:]])
    for one in (framer, plain, copied):
        (found,) = cut(one, rest)
        assert message(found) == body
    assert state(framer) == state(plain) == state(copied)


@pytest.mark.parametrize("length", [1, 7, SMALL_PART - 1, SMALL_PART])
def test_small_parts_are_joined(length: int) -> None:
    """Storing single bytes as objects would take forty bytes each."""
    framer = Framer(0)
    data = frame(bytes(10 * SMALL_PART))[:-1]
    segments: Sequence[bytes] = [data[start : start + length] for start in range(0, len(data), length)]
    assert cut(framer, run_of(segments)) == []
    assert len(framer._parts) <= 2 * len(data) // SMALL_PART + 2
    assert b"".join(framer._parts) == data
