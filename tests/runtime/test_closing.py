"""Objects that a `with` block closes."""

from __future__ import annotations

import pytest

from kafkasniff.runtime.closing import ClosedAtExit


class Door(ClosedAtExit):
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_it_is_closed_at_the_end_of_the_block() -> None:
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1


def test_errors_close_it_and_pass_on() -> None:
    door = Door()
    with pytest.raises(ZeroDivisionError), door:
        assert 1 / 0
    assert door.closed == 1
