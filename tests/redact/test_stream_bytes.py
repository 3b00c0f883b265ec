"""The bytes of a stream that are not identified yet, those that are, and the packets that have them."""

from __future__ import annotations

from random import Random

import pytest

from kafkasniff.redact import stream_bytes
from kafkasniff.redact.stream_bytes import MAX_REPEATED, BlankedStream, PayloadPlace, RepeatedBytes, UncutBytes
from tests.steps import steps


def known(count: int) -> RepeatedBytes:
    """Pieces of four bytes, with four between any two that nobody understood."""
    pieces = RepeatedBytes()
    for number in range(count):
        pieces.add(8 * number, number.to_bytes(4))
    return pieces


def test_a_packet_finds_what_it_has() -> None:
    pieces = known(100)
    assert list(pieces.within(8, 12)) == [(8, b"\0\0\0\1")]
    assert list(pieces.within(11, 17)) == [(16, b"\0\0\0\2"), (8, b"\0\0\0\1")]
    assert list(pieces.within(12, 16)) == []
    pieces.add(20, b"late")
    assert list(pieces.within(19, 25)) == [(24, b"\0\0\0\3"), (20, b"late"), (16, b"\0\0\0\2")]


def test_the_first_go_at_the_bound() -> None:
    pieces = known(MAX_REPEATED // 4 + 10)
    assert list(pieces.within(0, 80)) == []
    assert list(pieces.within(80, 84)) == [(80, (10).to_bytes(4))]


def test_steps_do_not_depend_on_what_is_known() -> None:
    few, many = known(100), known(10_000)
    assert steps(lambda: list(many.within(400, 500))) <= steps(lambda: list(few.within(400, 500)))


def test_delivered_bytes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    uncut = UncutBytes()
    uncut.add(0, b"abc", 100)
    uncut.add(3, b"def", 100)
    uncut.add(10, b"xyz", 100)
    assert list(uncut.pieces) == [(0, b"abcdef"), (10, b"xyz")]
    uncut.cut(4)
    assert (list(uncut.pieces), uncut.size) == ([(4, b"ef"), (10, b"xyz")], 5)
    assert (uncut.drop(), uncut.size) == ((4, b"ef"), 3)
    uncut.cut(3)
    assert (list(uncut.pieces), uncut.size) == ([], 0)
    # The first pieces go if there are too many bytes or pieces.
    uncut.add(20, b"1234", 6)
    uncut.add(30, b"5678", 6)
    assert (list(uncut.pieces), uncut.size) == ([(30, b"5678")], 4)
    monkeypatch.setattr(stream_bytes, "MAX_PIECES", 2)
    for position in (40, 50, 60):
        uncut.add(position, b"9", 100)
    assert (list(uncut.pieces), uncut.size) == ([(50, b"9"), (60, b"9")], 2)
    uncut.clear()
    assert (list(uncut.pieces), uncut.size) == ([], 0)


def place(begin: int, end: int) -> PayloadPlace:
    return PayloadPlace(begin, end, begin, 0, 0)


def test_packets_that_have_some_bytes() -> None:
    """All that overlap are found, whatever their order and lengths; those that are found begin before the end."""
    random = Random(1)
    stream, places = BlankedStream(), []
    for _ in range(200):
        begin = random.randrange(1_000)
        places.append(place(begin, begin + random.choice((1, 5, 90))))
        stream.add_place(places[-1])
    for _ in range(200):
        begin = random.randrange(1_100)
        end = begin + random.randrange(1, 50)
        found = list(stream.places_within(begin, end))
        assert found == sorted(found)
        assert {one for one in places if one.position < end and one.end > begin} <= set(found)
        assert all(begin - 90 <= one.position < end for one in found)


def test_packets_are_dropped_from_the_start() -> None:
    stream = BlankedStream()
    for one in (place(0, 10), place(10, 90), place(20, 30)):
        stream.add_place(one)
    stream.drop_places(50)
    assert stream.places == [place(10, 90), place(20, 30)]
    stream.drop_places(90)
    assert (stream.places, stream.longest) == ([], 0)


def test_too_many_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_bytes, "MAX_PLACES", 4)
    stream = BlankedStream()
    for begin in range(5):
        stream.add_place(place(begin, begin + 1))
    assert [one.position for one in stream.places] == [2, 3, 4]
