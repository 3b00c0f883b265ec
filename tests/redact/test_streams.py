"""What packets that are captured again look up does not grow with what became known before them."""

from __future__ import annotations

from kafkasniff.redact.streams import MAX_REPEATED, _Repeated
from tests.steps import steps


def known(count: int) -> _Repeated:
    """Pieces of four bytes, with four between any two that nobody understood."""
    pieces = _Repeated()
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
