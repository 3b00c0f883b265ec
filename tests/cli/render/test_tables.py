"""Tables that fit their screen."""

from __future__ import annotations

import io
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafkasniff.cli.render.tables import MIN_TEXT, FittedTable, as_text, wrapped
from kafkasniff.report.answer_tables import ReportColumn
from kafkasniff.text.printable import display_width

NAME = ReportColumn("name", itemgetter(0))
COUNT = ReportColumn("count", itemgetter(1), number=True)
WHY = ReportColumn("why", itemgetter(2), level=1)
BOTH = ReportColumn("both", itemgetter(1), number=True, until=2)
SENT = ReportColumn("sent", itemgetter(1), number=True, level=2)


def shown(columns: list[ReportColumn], *rows: tuple[str, ...], width: int) -> list[str]:
    return as_text([FittedTable(columns, rows)], width=width, coloured=False).splitlines()


def test_the_highest_levels_are_hidden_first_and_named() -> None:
    columns, row = [NAME, COUNT, WHY, BOTH, SENT], ("orders", "12,345", "because it is slow")
    assert shown(columns, row, width=60) == [
        "name     count  why                   sent",
        "orders  12,345  because it is slow  12,345",
    ]
    assert shown(columns, row, width=42)[1:] == ["orders  12,345  because it is slow  12,345"]
    # What stands for a hidden column takes as much room here.
    assert shown(columns, row, width=41) == [
        "name     count    both",
        "orders  12,345  12,345",
        "hidden: why, sent (--wide)",
    ]
    assert shown([NAME, COUNT, WHY], row, width=20)[:2] == ["name     count", "orders  12,345"]


@given(
    st.lists(st.tuples(st.integers(1, 90), st.booleans(), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(20, 200),
)
def test_widths(columns: list[tuple[int, bool, int]], width: int) -> None:
    """A table is too wide only if its columns of level 0 are; no text is narrow while a level could be hidden."""
    made = [
        ReportColumn("h", itemgetter(place), number=number, level=level if place else 0)
        for place, (_, number, level) in enumerate(columns)
    ]
    table = FittedTable(made, [tuple("x" * size for size, _, _ in columns)])
    places, hidden = table._choice(width)
    widths = dict(zip(places, table._widths(places, width), strict=True))
    assert {made[place].level for place in places} <= set(
        range(min((made[p].level for p in hidden_of(made, places)), default=9))
    )
    assert bool(hidden) == (len(places) < len(made))
    for place, wide in widths.items():
        assert wide <= columns[place][0]
        assert not made[place].number or wide == columns[place][0]
    least = [columns[place][0] if made[place].number else min(columns[place][0], MIN_TEXT) for place in places]
    if sum(least) + 2 * len(least) - 2 <= width:
        assert sum(widths.values()) + 2 * len(widths) - 2 <= width
        assert all(wide >= one for wide, one in zip(widths.values(), least, strict=True))
    else:
        assert all(made[place].level == 0 for place in places)


def hidden_of(columns: list[ReportColumn], places: list[int]) -> list[int]:
    return [place for place in range(len(columns)) if place not in places]


def test_a_clipped_column_keeps_one_line_per_row() -> None:
    columns = [NAME, ReportColumn("summary", itemgetter(1), clipped=True)]
    assert shown(columns, ("a", "word " * 30), width=40)[1:] == ["a     " + ("word " * 30)[:33] + "…"]


@given(
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.lists(
        st.lists(st.sampled_from(["", "a", "12.5 kB", "größer", "東京", "a b  c", "[x]"]), min_size=4, max_size=4)
    ),
)
def test_rows_that_need_no_wrapping_are_those_of_rich(numbers: list[bool], rows: list[list[str]]) -> None:
    columns = [ReportColumn(f"c{place}", itemgetter(place), number=number) for place, number in enumerate(numbers)]
    oracle = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        oracle.add_column(column.heading, justify="right" if column.number else "left")
    for row in rows:
        oracle.add_row(*map(Text, row[: len(numbers)]))
    buffer = io.StringIO()
    Console(file=buffer, width=200, highlight=False, markup=False, emoji=False).print(oracle)
    assert shown(columns, *map(tuple, rows), width=200) == [line.rstrip() for line in buffer.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("connect-cluster-worker-1-shared-admin", 26, ["connect-cluster-worker-1-", "shared-admin"]),
        ("orders.payments_v2", 10, ["orders.", "payments_", "v2"]),
        ("one two three", 8, ["one two", "three"]),
        ("  current_leader_epoch", 12, ["  current_", "leader_epoch"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("漢字漢字", 5, ["漢字", "漢字"]),
    ],
)
def test_names_break_where_their_parts_end(text: str, width: int, lines: list[str]) -> None:
    assert wrapped(text, width).split("\n") == lines


@given(st.text("ab-_. 漢"), st.integers(2, 20))
def test_wrapped_text_fits_and_is_complete(text: str, width: int) -> None:
    lines = wrapped(text, width).split("\n")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(display_width(line) <= width for line in lines) or text == lines[0]
