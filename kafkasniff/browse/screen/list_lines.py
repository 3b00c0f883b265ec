"""Lines of the list of exchanges. Hot: only visible cells are made, and neighbours of the same style are one segment.

What a screen costs is mostly the number of its segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple
from zlib import crc32

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kafkasniff.browse.index import Row
from kafkasniff.browse.list_columns import ListColumn, cell, fitted

__all__ = ["LineWindow", "row_line", "title_line"]

_APIS: Final = tuple(Style(color=one) for one in ("bright_blue", "green", "cyan"))
"""Colours of APIs, by their names. Errors and problems have red and yellow, and themes show magenta as red."""
_PLAIN: Final = Style.null()
_ERROR: Final = Style(color="red")
_WARNING: Final = Style(color="yellow")
_TITLE: Final = Style(bold=True)
_CURSOR: Final = Style(reverse=True)
_CELL: Final = Style(bold=True, underline=True)
"""The cell under the cursor, marked even without colours."""


class LineWindow(NamedTuple):
    """The visible part of a line."""

    left: int
    width: int

    def shown(self, columns: Sequence[ListColumn]) -> Iterator[tuple[int, int, ListColumn]]:
        """Columns with a visible part: place among all, where each begins, and the column. A blank follows each."""
        begin = 0
        for at, column in enumerate(columns):
            end = begin + column.width + 1
            if begin < self.left + self.width and end > self.left:
                yield at, begin, column
            begin = end


def title_line(columns: Sequence[ListColumn], sorted_by: str, window: LineWindow, *, descending: bool) -> Strip:
    """The titles, with a mark at the column by which the list is sorted."""
    mark = "↓" if descending else "↑"
    shown = list(window.shown(columns))
    titles = (f"{column.title}{mark if column.name == sorted_by else ''}" for _, _, column in shown)
    parts = [(f"{fitted(title, column)} ", _TITLE) for title, (_, _, column) in zip(titles, shown, strict=True)]
    return _line(parts, shown, window, _TITLE)


def row_line(
    row: Row, columns: Sequence[ListColumn], window: LineWindow, *, cursor: int | None, since: int | None, clock: int
) -> Strip:
    """A row. `cursor`: the column under the cursor if it is in this line; `since`, `clock`: see `cell`."""
    style = _ERROR if row.error else _WARNING if row.problems else _PLAIN
    if cursor is not None:
        style += _CURSOR
    of_api = style if style.color is not None else style + _api_style(row.api)
    shown = list(window.shown(columns))
    parts: list[tuple[str, Style]] = []
    for at, _, column in shown:
        text = fitted(cell(row, column, since, clock), column)
        if at == cursor:
            parts += (text, style + _CELL), (" ", style)
        else:
            parts.append((f"{text} ", of_api if column.name == "api" else style))
    return _line(parts, shown, window, style)


def _line(
    parts: Iterable[tuple[str, Style]], shown: list[tuple[int, int, ListColumn]], window: LineWindow, style: Style
) -> Strip:
    """Parts of a line, which begin with the first column shown, cut to the window. `style`: of the blank after them."""
    segments = [
        Segment("".join(text for text, _ in group), of_group)
        for of_group, group in groupby(parts, key=lambda part: part[1])
    ]
    first = shown[0][1] if shown else window.left
    width = sum(column.width + 1 for _, _, column in shown)
    left = window.left - first
    return Strip(segments, width).crop_extend(left, left + window.width, style)


def _api_style(api: str) -> Style:
    """The colour of an API, the same for all its versions."""
    return _APIS[crc32(api.partition(" ")[0].encode()) % len(_APIS)]
