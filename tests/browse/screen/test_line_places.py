"""Lines of the list and places of the index."""

from __future__ import annotations

import numpy as np
import pytest

from kafkasniff.browse.screen.line_places import LineJump, line_of, place_of, places_of

ORDER = np.array([3, 0, 2, 1], np.int32)
"""The order of four rows; two more were added later."""


def test_lines_and_places_are_inverse() -> None:
    places = [3, 0, 2, 1, 4, 5]
    assert [place_of(line, ORDER) for line in range(6)] == places
    assert [line_of(place, ORDER) for place in places] == [*range(6)]
    assert places_of(np.arange(6), ORDER).tolist() == places


@pytest.mark.parametrize(
    ("way", "near", "far", "line"),
    [(1, 1, 5, 3), (1, 2, 5, 3), (1, 1, 2, None), (-1, 1, 2, 0), (1, 4, 4, None), (1, 3, 5, 4)],
)
def test_first_line(way: int, near: int, far: int, line: int | None) -> None:
    # The rows at 1, 3 and 4 are in the lines 3, 0 and 4.
    jump = LineJump(1, ORDER, "odd", way, 5, lambda places: np.isin(places, [1, 3, 4]))
    assert jump.first(near, far) == line


def test_what_a_jump_repeats() -> None:
    jump = LineJump(1, ORDER, "api", 1, 5, lambda places: places > 0)
    assert jump.repeats(jump._replace(wanted=lambda places: places > 1))
    others = [("start", 2), ("order", ORDER.copy()), ("along", "error"), ("way", -1)]
    assert not any(jump.repeats(jump._replace(**{name: other})) for name, other in others)
