"""The list of exchanges: its columns as text, its lines, and the places of their rows in the index.

Lines are hot: only visible cells are made, and neighbours of the same style are one segment, since what a screen costs
is mostly the number of its segments. An order has the places of the first lines; each line after them shows the row at
its own place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kafkasniff.browse.index import Row
from kafkasniff.text.printable import display_width
from kafkasniff.text.times import clock_time, duration

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
    of_api = style if style.color is not None or cursor is not None else _api_style(row.api)
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


CLOCKS: Final = ("time", "since start", "since previous")
"""How the list shows times."""


class ListColumn(NamedTuple):
    """A column of the list; widths in columns of the terminal."""

    name: str
    title: str
    width: int
    least: int
    """It may be this narrow before a column after it is no longer visible."""
    right: bool = False
    """Aligned to the right."""


LIST_COLUMNS: Final = (
    ListColumn("number", "#", 9, 5, True),
    ListColumn("time", "time", 15, 12, True),
    ListColumn("api", "API", 26, 11),
    ListColumn("latency", "latency", 8, 7, True),
    ListColumn("subject", "topic, group", 40, 10),
    ListColumn("client_id", "client id", 30, 8),
    ListColumn("error", "error", 35, 11),
    ListColumn("request", "request", 9, 9, True),
    ListColumn("response", "response", 9, 9, True),
    ListColumn("client", "client", 21, 21),
    ListColumn("broker", "broker", 21, 21),
    ListColumn("packet", "packet", 9, 9, True),
    ListColumn("problems", "problems", 8, 8, True),
)
"""In order of importance: 80 columns show those up to the error, 120 the sizes, too."""
_OF_ANY_WIDTH: Final = frozenset({"time", "latency", "request", "response"})
"""Columns whose contents are not measured."""
PINNED: Final = 3
"""Columns that stay when the others scroll."""


def laid_out(columns: Sequence[ListColumn], widest: Mapping[str, int], room: int) -> list[ListColumn]:
    """The columns in widths that use the room for what they contain.

    `widest`: of the texts in a column. Those that do not fit in their least width are visible once the list scrolls.
    """
    wanted = [_wanted(column, widest) for column in columns]
    leasts = [min(column.least, width) for column, width in zip(columns, wanted, strict=True)]
    middles = [(least + width) // 2 for least, width in zip(leasts, wanted, strict=True)]
    count = spare = 0
    for end, column in enumerate(columns, 1):
        # Columns that cannot be narrow wait until those before them are not, either.
        before = leasts if column.least < column.width else middles
        left = room - sum(before[: end - 1]) - leasts[end - 1] - end
        if left < 0:
            break
        count, spare = end, room - sum(leasts[:end]) - end
    widths = [*leasts[:count], *wanted[count:]]
    # The digits of times come last: they are cut without loss of meaning.
    for are_times in (False, True):
        growing = [at for at in range(count) if (columns[at].name == "time") is are_times]
        while growing := [at for at in growing if widths[at] < wanted[at]][:spare]:
            for at in growing:
                widths[at] += 1
            spare -= len(growing)
    return [column._replace(width=width) for column, width in zip(columns, widths, strict=True)]


def _wanted(column: ListColumn, widest: Mapping[str, int]) -> int:
    """The width in which a column shows all it contains, if that is not too wide."""
    width = widest.get(column.name, column.width if column.name in _OF_ANY_WIDTH else 0)
    if column.name == "subject":
        width += widest.get("others", 0)
    # A mark may follow the title.
    return min(max(width, len(column.title) + 1), column.width)


def cell(row: Row, column: ListColumn, since: int | None, clock: int) -> str:
    """A cell, in any width. `clock`: of `CLOCKS`; `since`: the time that it counts from."""
    value = getattr(row, column.name)
    if value is None:
        return "-"
    if column.name == "subject" and row.others:
        return f"{value} +{row.others}"
    if column.name == "latency":
        return duration(value)
    if column.name == "time":
        if clock == 0:
            return clock_time(value)
        return "-" if since is None else f"{(value - since) / 1e9:+.6f}"
    if column.name == "number":
        return str(value)
    if isinstance(value, int):
        return "" if column.name == "problems" and not value else f"{value:,}"
    return str(value)


def fitted(text: str, column: ListColumn) -> str:
    """A cell in the width of its column."""
    width = display_width(text)
    if width > column.width and column.name == "time":
        text, width = text[: column.width], column.width
    elif width > column.width:
        while display_width(text) > column.width - 1:
            text = text[:-1]
        text, width = f"{text}…", display_width(text) + 1
    blank = " " * (column.width - width)
    return blank + text if column.right else text + blank


Wanted = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
"""Whether the rows at some places are wanted."""


def place_of(line: int, order: NDArray[np.int32]) -> int:
    """The place of the row in a line."""
    return int(order[line]) if line < len(order) else line


def places_of(lines: NDArray[np.int64], order: NDArray[np.int32]) -> NDArray[np.int64]:
    """The places of the rows in lines."""
    places = lines.copy()
    is_sorted = lines < len(order)
    places[is_sorted] = order[lines[is_sorted]]
    return places


def line_of(place: int, order: NDArray[np.int32]) -> int:
    """The line of a row; rows that were added after sorting follow in order of reading."""
    return int(np.argmax(order == place)) if place < len(order) else place


class LineJump(NamedTuple):
    """A jump from a line to the next one (`way` 1) or previous one (-1) whose rows have something in common."""

    start: int
    order: NDArray[np.int32]
    along: str
    """What they have in common."""
    way: int
    end: int
    """Number of lines in this direction, with the first one."""
    wanted: Wanted
    missed: Callable[[], object] | None = None
    """Called if there is no such line."""

    def starts_at(self, line: int, order: NDArray[np.int32]) -> bool:
        """Whether the list is still as it was when the jump began."""
        return self.start == line and self.order is order

    def repeats(self, other: LineJump) -> bool:
        """Whether another one would find the same line."""
        return self.starts_at(other.start, other.order) and (self.along, self.way) == (other.along, other.way)

    def first(self, near: int, far: int) -> int | None:
        """The first line that is wanted, at least `near` and less than `far` lines away; None if there is none."""
        lines = self.start + self.way * np.arange(near, far, dtype=np.int64)
        found = np.flatnonzero(self.wanted(places_of(lines, self.order)))
        return int(lines[found[0]]) if len(found) else None
