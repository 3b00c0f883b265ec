"""Lines of the list: only what is visible is made, and it is what the whole line shows there."""

from __future__ import annotations

import pytest
from rich.style import Style

import kafkasniff
from kafkasniff.browse.index import ExchangeIndex, Row
from kafkasniff.browse.list_columns import LIST_COLUMNS
from kafkasniff.browse.screen.list_lines import LineWindow, row_line, title_line
from tests.browse.screen.driving import ERRORS

WIDTH = sum(one.width + 1 for one in LIST_COLUMNS)


def rows() -> list[Row]:
    index = ExchangeIndex()
    for exchange in kafkasniff.read(ERRORS):
        index.add(exchange)
    index.publish()
    return [index.row(place) for place in range(len(index))]


@pytest.mark.parametrize("left", [0, 1, 9, 10, 11, 60, WIDTH - 80, WIDTH - 20])
@pytest.mark.parametrize("cursor", [None, 0, 3, len(LIST_COLUMNS) - 1])
def test_a_window_shows_a_part_of_the_line(left: int, cursor: int | None) -> None:
    for row in rows()[::7]:
        whole, part = (
            row_line(row, LIST_COLUMNS, window, cursor=cursor, since=0, clock=0)
            for window in (LineWindow(0, WIDTH + 80), LineWindow(left, 80))
        )
        assert (whole.cell_length, part.cell_length) == (WIDTH + 80, 80)
        wanted = whole.crop(left, left + 80)
        assert part.text == wanted.text
        assert styles(part) == styles(wanted)


def styles(strip) -> list[Style]:
    return [one.style for one in strip for _ in one.text]


def test_a_line_has_few_segments() -> None:
    for row in rows():
        for cursor, most in [(None, 3), (1, 6)]:
            line = row_line(row, LIST_COLUMNS, LineWindow(0, WIDTH), cursor=cursor, since=0, clock=0)
            assert len(list(line)) <= most


def test_titles() -> None:
    line = title_line(LIST_COLUMNS, "latency", LineWindow(10, 30), descending=True)
    assert line.text.split() == ["time", "latency↓", "API"]
    assert (line.cell_length, len(list(line))) == (30, 1)
    assert title_line(LIST_COLUMNS[:1], "packet", LineWindow(0, 30), descending=False).text.split() == ["packet↑"]
