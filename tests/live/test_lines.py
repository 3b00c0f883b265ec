from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from kafkasniff.live.lines import GAP, Head, beside, exactly, fitting, table_lines

NAMES = st.text("ab日é …", max_size=30)


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_columns_share_the_width_that_others_leave() -> None:
    heads = [Head("name", flexible=True), Head("n"), Head("rest", flexible=True)]
    rows = [[("alpha", ""), ("1", ""), ("x", "")], [("a very long name", ""), ("1000", "red"), ("yy", "")]]
    # 28 columns, less two gaps and four digits: ten for each of the others.
    assert plain(table_lines(heads, rows, 28)) == [
        "name           n  rest      ",
        "alpha          1  x         ",
        "a very lo…  1000  yy        ",
    ]


@pytest.mark.parametrize(
    ("width", "places"),
    [(65, [0, 1, 2, 3]), (64, [0, 1, 3]), (62, [0, 1, 3]), (61, [0, 2, 3]), (21, [0, 2, 3]), (20, [0, 3]), (1, [0, 3])],
)
def test_columns_that_leave_room_for_names(width: int, places: list[int]) -> None:
    """Ten columns for the name; a column that does not fit makes room for those after it."""
    heads = [Head("name", flexible=True), Head("address"), Head("n"), Head("sorted")]
    rows = [[("a name of many letters", ""), ("x" * 42, ""), ("1", ""), ("1", "")]]
    assert fitting(heads, rows, width, {3}) == places


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=5), st.integers(1, 60))
def test_no_line_is_too_long(names: list[tuple[str, str, str]], width: int) -> None:
    """Wide characters take two columns of the terminal."""
    heads = [Head("first", flexible=True), Head("second"), Head("third", flexible=True)]
    lines = table_lines(heads, [[(name, "") for name in row] for row in names], width, marked=0)
    assert len(lines) == len(names) + 1
    assert all(cell_len(line.plain) <= width for line in lines)


def test_a_selected_row_is_highlighted_to_its_end() -> None:
    lines = table_lines([Head("a", flexible=True)], [[("x", "")], [("y", "")]], 10, marked=1)
    assert lines[2].cell_len == 10
    assert [str(span.style) for span in lines[2].spans][-1] == "reverse"
    assert "reverse" not in [str(span.style) for span in lines[1].spans]


def test_the_exact_number_of_lines() -> None:
    assert plain(exactly([Text("a"), Text("b")], 1)) == ["a"]
    assert plain(exactly([Text("a")], 3)) == ["a", "", ""]


def test_side_by_side() -> None:
    assert plain(beside([Text("a"), Text("日")], [Text("b"), Text("c")], 3)) == [
        "a  " + " " * GAP + "b",
        "日 " + " " * GAP + "c",
    ]
    with pytest.raises(ValueError, match="argument"):
        beside([Text("a")], [], 3)
