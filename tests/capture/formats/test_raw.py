"""Columns of captured packets: built, cut, joined and merged."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.formats.raw import RawPackets


def raw(sizes: list[int], *, capture: int = 0, first: int = 1, fcs: int = 0, letter: bytes = b"a") -> RawPackets:
    """Packets of these sizes, with two bytes of something else before each."""
    buffer = b"".join(b"--" + letter * size for size in sizes)
    size = np.array(sizes, np.int64)
    start = np.cumsum(size + 2) - size
    time = np.arange(len(sizes), dtype=np.int64) * 10 + capture
    return RawPackets.build(
        buffer, start, size, size + 1, time, link=1, interface=3, fcs=fcs, capture=capture, first_number=first
    )


def packets(found: RawPackets) -> list[bytes]:
    spans = zip(found.start.tolist(), found.captured.tolist(), strict=True)
    return [found.buffer[start : start + size] for start, size in spans]


def test_constants_and_numbers_of_a_capture() -> None:
    found = raw([3, 5], capture=2, first=7)
    assert packets(found) == [b"aaa", b"aaaaa"]
    assert found.wire.tolist() == [4, 6]
    assert (found.link.tolist(), found.interface.tolist(), found.capture.tolist()) == ([1, 1], [3, 3], [2, 2])
    assert found.number.tolist() == [7, 8]


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 8))
def test_the_frame_check_sequence_is_removed(sizes: list[int], fcs: int) -> None:
    """From the end of the wire's bytes; of a truncated packet it may not have been captured."""
    found = raw(sizes, fcs=fcs)
    assert found.wire.tolist() == [max(size + 1 - fcs, 0) for size in sizes]
    assert found.captured.tolist() == [min(size, max(size + 1 - fcs, 0)) for size in sizes]


@given(st.lists(st.integers(0, 4), max_size=8), st.data())
def test_cut_and_joined_again(sizes: list[int], data: st.DataObject) -> None:
    whole = raw(sizes)
    place = data.draw(st.integers(0, len(sizes)))
    parts = [whole.slice(0, place), whole.slice(place, len(sizes))]
    assert packets(parts[0]) == packets(whole)[:place]
    joined = RawPackets.joined(parts)
    assert joined is not None
    assert joined.buffer is whole.buffer
    assert [column.tolist() for column in joined[1:]] == [column.tolist() for column in whole[1:]]


def test_joining_nothing_or_one_part() -> None:
    one = raw([3])
    assert RawPackets.joined([]) is None
    assert RawPackets.joined([one]) is one


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4), st.randoms())
def test_merged_over_one_buffer(all_sizes: list[list[int]], dice: object) -> None:
    parts = [raw(sizes, capture=index, letter=b"%d" % index) for index, sizes in enumerate(all_sizes)]
    merged = RawPackets.merge(parts)
    expected = [packet for part in parts for packet in packets(part)]
    assert packets(merged) == expected
    assert merged.capture.tolist() == [index for index, sizes in enumerate(all_sizes) for _ in sizes]
    order = list(range(len(expected)))
    dice.shuffle(order)  # type: ignore[attr-defined]
    shuffled = RawPackets.merge(parts, np.array(order, np.int64))
    assert packets(shuffled) == [expected[place] for place in order]
    assert shuffled.time_ns.tolist() == [merged.time_ns.tolist()[place] for place in order]
