"""What is noted of one direction: positions, gaps that may still be filled, and the last packets."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tcp.stream import MAX_MISSING, RECENT, Held, Stream

HALF = 1 << 31


@given(st.integers(0, 1 << 40), st.integers(-HALF, HALF - 1))
def test_the_nearest_position_with_these_32_bits(expected: int, apart: int) -> None:
    stream = Stream()
    stream.next = expected
    assert stream.position((expected + apart) % (2 * HALF)) == expected + apart


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=8), st.data())
def test_late_bytes_fill_one_gap(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    """Against sets of single bytes: a late segment counts where only one gap is as long as it."""
    stream, gaps, position = Stream(), list[set[int]](), 0
    for there, gone in lengths:
        position += there
        stream.miss(position, position + gone)
        gaps.append(set(range(position, position + gone)))
        position += gone
    for _ in range(6):
        start = data.draw(st.integers(0, position + 2))
        late = set(range(start, start + data.draw(st.integers(1, 6))))
        expected = any(late <= gap for gap in gaps)
        assert stream.find_missing(start, start + len(late)) is expected
        if expected:
            gaps = [part for gap in gaps for part in (in_one_piece(gap - late) if late <= gap else [gap])]
        assert [set(range(*gap)) for gap in stream.missing] == gaps
    whole = max((max(gap) + 1 for gap in gaps), default=0)
    assert stream.seen_from == whole


def in_one_piece(numbers: set[int]) -> list[set[int]]:
    """A set of numbers as sets without holes."""
    pieces: list[set[int]] = []
    for number in sorted(numbers):
        if pieces and number - 1 in pieces[-1]:
            pieces[-1].add(number)
        else:
            pieces.append({number})
    return pieces


def test_only_so_many_gaps_are_kept() -> None:
    stream = Stream()
    for start in range(0, 3 * MAX_MISSING * 10, 10):
        stream.miss(start, start + 5)
    assert len(stream.missing) == MAX_MISSING
    stream.miss(7, 7)
    assert len(stream.missing) == MAX_MISSING
    # What splits a gap in two costs the oldest one.
    begin, _ = stream.missing[-1]
    oldest = stream.missing[0]
    assert stream.find_missing(begin + 2, begin + 3)
    assert len(stream.missing) == MAX_MISSING
    assert stream.missing[0] != oldest
    assert stream.missing[-2:] == [(begin, begin + 2), (begin + 3, begin + 5)]


KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(0, 1)), max_size=2 * RECENT)


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=5))
def test_packets_in_bulk_are_remembered_as_one_by_one(parts: list[tuple[bool, list[tuple[int, int, int]]]]) -> None:
    one, bulk = Stream(), Stream()
    for in_bulk, keys in parts:
        known = [one.remember(key) for key in keys]
        if in_bulk and keys:
            seq, wire, ident = zip(*keys[-RECENT:], strict=True)
            bulk.delivered_in_bulk(list(seq), list(wire), list(ident))
        else:
            assert [bulk.remember(key) for key in keys] == known
    assert bulk.take_recent() == one.take_recent()
    assert len(one.take_recent()) <= RECENT


def test_what_the_peer_acknowledges_of_a_sender_that_nobody_sees() -> None:
    """Counted from the peer's first packet on, over the end of the numbers, until the sender is seen."""
    stream = Stream()
    for ack in ((1 << 32) - 10, (1 << 32) - 4, 6, 2):
        stream.acknowledge(ack)
    assert stream.passed == 12
    stream.hear()
    stream.acknowledge(100)
    assert stream.passed == 0


def test_a_part_of_a_held_segment() -> None:
    whole = Held(100, b"abcdefgh", 8, 3, 9, 7)
    assert whole.part(102, 105) == msgspec.structs.replace(whole, start=102, data=b"cde", wire=3)
