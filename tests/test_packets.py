"""Batches of packets: types of their columns, and cutting them in two."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.model import Problem
from kafkasniff.packets import COLUMNS, Note, PacketBatch, connection_hash
from tests.oracle.tcp.batches import Raw, batch


def sample(rows: int, notes: list[int], *, ticks: bool = True) -> PacketBatch:
    """Packets of orders 10, 11 …, with a clock, and with notes of these orders."""
    made = batch([Raw(row % 2, 100 * row, b"%03d" % row) for row in range(rows)], start=10)
    made.notes = [Note(order, Problem("odd", str(order))) for order in notes]
    made.clock = made.time_ns + 5
    made.end_clock = 99
    if ticks:
        # The batch of which this is a share had twice as many rows.
        made.ticks = np.arange(10, 10 + 2 * rows), np.arange(2 * rows) * 3
    return made


@given(st.integers(0, 8), st.data(), st.lists(st.integers(8, 20), max_size=5), st.booleans())
def test_both_parts_together_are_the_batch(rows: int, data: st.DataObject, notes: list[int], ticks: bool) -> None:
    whole = sample(rows, sorted(notes), ticks=ticks)
    row = data.draw(st.integers(0, rows))
    head, tail = whole.split(row)
    assert (len(head), len(tail), head.packets + tail.packets) == (row, rows - row, rows)
    for name in (*COLUMNS, "clock"):
        together = np.concatenate((getattr(head, name), getattr(tail, name)))
        assert together.tolist() == getattr(whole, name).tolist()
    assert [*head.notes, *tail.notes] == whole.notes
    # What precedes a packet stays before it.
    assert all(note.order < head.end_order for note in head.notes)
    assert all(note.order >= head.end_order for note in tail.notes)
    assert (tail.end_order, tail.end_clock) == (whole.end_order, whole.end_clock)
    assert head.buffer is tail.buffer is whole.buffer
    assert head.captures == tail.captures == whole.captures
    if not ticks:
        assert head.ticks is tail.ticks is None
        return
    assert head.ticks is not None
    assert tail.ticks is not None
    assert whole.ticks is not None
    for at in (0, 1):
        assert [*head.ticks[at].tolist(), *tail.ticks[at].tolist()] == whole.ticks[at].tolist()
    assert all(order < head.end_order for order in head.ticks[0].tolist())


@given(
    st.integers(0, 8), st.lists(st.integers(0, 8), max_size=3), st.lists(st.integers(8, 20), max_size=5), st.booleans()
)
def test_joined_parts_are_the_batch(rows: int, cuts: list[int], notes: list[int], ticks: bool) -> None:
    whole = sample(rows, sorted(notes), ticks=ticks)
    parts, rest = [], whole
    for cut in cuts:
        head, rest = rest.split(min(cut, len(rest)))
        parts.append(head)
    # As after a capture: notes of its end, no packets, no clock.
    end = batch([], start=10 + rows)
    end.notes = [Note(10 + rows, Problem("odd", "the end"))]
    found = PacketBatch.joined([*parts, rest, end])
    assert len(found) == found.packets == rows
    for name in (*set(COLUMNS) - {"offset"}, "clock"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()
    for one in (found, whole):
        places = zip(one.offset.tolist(), one.length.tolist(), strict=True)
        assert [one.buffer[at : at + size] for at, size in places] == [b"%03d" % row for row in range(rows)]
    assert found.notes == [*whole.notes, *end.notes]
    assert (found.end_order, found.end_clock, found.captures) == (10 + rows, 99, whole.captures)
    assert (found.ticks is None) == (whole.ticks is None)
    if found.ticks is not None and whole.ticks is not None:
        assert [one.tolist() for one in found.ticks] == [one.tolist() for one in whole.ticks]


@pytest.mark.parametrize("ticks", [True, False])
def test_a_share_has_some_rows_and_all_ticks(ticks: bool) -> None:
    """Silent connections in it end at the packets of others, too."""
    whole = sample(4, [10], ticks=ticks)
    found = whole.share(np.array([False, True, False, True]), packets=3, notes=[])
    assert found.order.tolist() == [11, 13]
    assert [bytes(found.buffer[at : at + 3]) for at in found.offset.tolist()] == [b"001", b"003"]
    assert found.clock is not None
    assert found.clock.tolist() == (found.time_ns + 5).tolist()
    assert (found.packets, found.notes, found.end_order, found.end_clock) == (3, [], 14, 99)
    assert whole.clock is not None
    order, clock = (whole.order, whole.clock) if whole.ticks is None else whole.ticks
    assert found.ticks is not None
    assert (found.ticks[0].tolist(), found.ticks[1].tolist()) == (order.tolist(), clock.tolist())


@pytest.mark.parametrize(
    ("bounds", "sizes"),
    [
        ([(4, 1000)], [4, 4, 2]),
        # A part ends with the packet that reaches the bytes; each packet here has three.
        ([(4, 7)], [3, 3, 3, 1]),
        ([(4, 0)], [1] * 10),
        ([(1, 1000), (2, 1000), (4, 1000), (8, 1000)], [1, 2, 4, 3]),
    ],
)
def test_parts_have_no_more_than_their_bounds(bounds: list[tuple[int, float]], sizes: list[int]) -> None:
    whole = sample(10, [])
    parts = list(whole.parts(cycle(bounds)))
    assert [len(part) for part in parts] == sizes
    assert [order for part in parts for order in part.order.tolist()] == whole.order.tolist()


def test_hashes_are_those_of_any_machine() -> None:
    """Shards of a run on several machines are cut by them. Computed with Python's integers from the formula."""
    found = connection_hash(batch([Raw(0, 1), Raw(0, 1, conversation=1)])).tolist()
    assert found == [6425202369641478842, 15989436381652154458]
