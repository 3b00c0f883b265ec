"""Lines of the list: only what is visible is made, and it is what the whole line shows there."""

from __future__ import annotations

import numpy as np
from rich.style import Style

from kafkasniff.browse.list_columns import LIST_COLUMNS
from kafkasniff.browse.screen.line_places import LineJump
from kafkasniff.browse.screen.list_lines import LineWindow, row_line
from tests.browse.opened import capture, fill, rows_of
from tests.browse.screen.driving import ERRORS

WIDTH = sum(one.width + 1 for one in LIST_COLUMNS)
ORDER = np.array([3, 0, 2, 1], np.int32)
"""The order of four rows; two more were added later."""


def styles(strip) -> list[Style]:
    return [one.style for one in strip for _ in one.text]


def test_a_window_shows_a_part_of_the_line() -> None:
    for row in rows_of(fill(capture(ERRORS.stem)))[::16]:
        for cursor, most in ((None, 3), (0, 6), (3, 6), (len(LIST_COLUMNS) - 1, 6)):
            whole = row_line(row, LIST_COLUMNS, LineWindow(0, WIDTH + 80), cursor=cursor, since=0, clock=0)
            assert whole.cell_length == WIDTH + 80
            # Drawing takes time by segments.
            line = row_line(row, LIST_COLUMNS, LineWindow(0, WIDTH), cursor=cursor, since=0, clock=0)
            assert len(list(line)) <= most
            for left in (0, 1, 9, 10, 11, 60, WIDTH - 80, WIDTH - 20):
                part = row_line(row, LIST_COLUMNS, LineWindow(left, 80), cursor=cursor, since=0, clock=0)
                wanted = whole.crop(left, left + 80)
                assert (part.cell_length, part.text) == (80, wanted.text), (cursor, left)
                assert styles(part) == styles(wanted), (cursor, left)


def test_the_first_line_of_a_jump_and_what_repeats_it() -> None:
    for way, near, far, line in [
        (1, 1, 5, 3),
        (1, 2, 5, 3),
        (1, 1, 2, None),
        (-1, 1, 2, 0),
        (1, 4, 4, None),
        (1, 3, 5, 4),
    ]:
        # The rows at 1, 3 and 4 are in the lines 3, 0 and 4.
        jump = LineJump(1, ORDER, "odd", way, 5, lambda places: np.isin(places, [1, 3, 4]))
        assert jump.first(near, far) == line, (way, near, far)
    jump = LineJump(1, ORDER, "api", 1, 5, lambda places: places > 0)
    assert jump.repeats(jump._replace(wanted=lambda places: places > 1))
    others = [("start", 2), ("order", ORDER.copy()), ("along", "error"), ("way", -1)]
    assert not any(jump.repeats(jump._replace(**{name: other})) for name, other in others)
