"""Headers by columns: spans of packets, what is too short for a header, and tunnels that are too deep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.link.walk import MAX_DEPTH, Layer, LayerSpan, LinkWalk

BUFFER = bytes(range(256))


def span(at: list[int], end: list[int], wire: list[int] | None = None) -> LayerSpan:
    columns = [np.array(one, np.int64) for one in (range(len(at)), at, end, end if wire is None else wire)]
    return LayerSpan(*columns)


@given(st.lists(st.integers(0, 250), max_size=9))
def test_numbers_at_places(places: list[int]) -> None:
    walk = LinkWalk(BUFFER)
    at = np.array(places, np.int64)
    assert walk.byte(at).tolist() == places
    assert walk.short(at).tolist() == [int.from_bytes(BUFFER[place : place + 2], "big") for place in places]
    assert walk.word(at).tolist() == [int.from_bytes(BUFFER[place : place + 4], "big") for place in places]
    layout = np.dtype([("a", "u1"), ("b", ">u2")])
    assert [tuple(one) for one in walk.records(at, layout).tolist()] == [
        (place, int.from_bytes(BUFFER[place + 1 : place + 3], "big")) for place in places
    ]


def test_a_header_at_the_buffers_end() -> None:
    layout = np.dtype([("a", ">u4")])
    found = LinkWalk(b"abcdefgh").records(np.array([4]), layout)
    assert found["a"].tolist() == [int.from_bytes(b"efgh", "big")]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8), st.integers(0, 9))
def test_packets_without_enough_bytes(lengths: list[tuple[int, int]], size: int) -> None:
    """Cut if they had the header on the wire, malformed if not."""
    walk = LinkWalk(BUFFER)
    starts = [20 * index for index in range(len(lengths))]
    ends = [start + captured for start, (captured, _) in zip(starts, lengths, strict=True)]
    wires = [end + more for end, (_, more) in zip(ends, lengths, strict=True)]
    kept = walk.need(span(starts, ends, wires), size)
    expected = {"kept": [], "cut": [], "malformed": []}
    for row, (captured, more) in enumerate(lengths):
        kind = "kept" if captured >= size else "cut" if captured + more >= size else "malformed"
        expected[kind].append(row)
    assert kept.rows.tolist() == expected["kept"]
    assert [row for rows in walk.cut for row in rows.tolist()] == expected["cut"]
    assert [row for rows in walk.malformed for row in rows.tolist()] == expected["malformed"]


def test_rejected_packets_are_malformed() -> None:
    walk, whole = LinkWalk(BUFFER), span([0, 1, 2], [9, 9, 9])
    assert walk.reject(whole, np.array([False, False, False])) is whole
    assert walk.malformed == []
    kept = walk.reject(whole, np.array([True, False, True]))
    assert kept.rows.tolist() == [1]
    assert [rows.tolist() for rows in walk.malformed] == [[0, 2]]


@pytest.mark.parametrize(("depth", "continues"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_tunnels_are_bounded(depth: int, continues: bool) -> None:
    walk, deep = LinkWalk(BUFFER), span([3], [9])
    for _ in range(depth):
        deep = deep.deeper()
    walk.push(Layer.IP, deep)
    assert len(walk.pending) == continues
    assert len(walk.malformed) == (not continues)


def test_no_packets_are_no_work() -> None:
    walk = LinkWalk(BUFFER)
    walk.push(Layer.IP, span([], []))
    assert walk.pending == []


def test_skipping_moves_only_the_position() -> None:
    moved = span([3, 5], [9, 8]).skip(np.array([1, 2]))
    assert (moved.at.tolist(), moved.end.tolist()) == ([4, 7], [9, 8])
    assert moved.pick(np.array([False, True])).rows.tolist() == [1]


def test_datagrams_are_appended() -> None:
    walk = LinkWalk(b"abc")
    assert walk.append(b"defg") == 3
    assert walk.byte(np.array([2, 3, 6])).tobytes() == b"cdg"
