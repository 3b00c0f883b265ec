"""The list of exchanges: only visible rows are drawn, so its length does not matter."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message as Notice
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kafkasniff.browse.index import ExchangeIndex, Row
from kafkasniff.text.printable import display_width
from kafkasniff.text.times import clock_time, duration

__all__ = ["CLOCKS", "ExchangeList"]

CLOCKS: Final = ("time", "since start", "since previous")
"""How the list shows times."""


class _Column(NamedTuple):
    name: str
    title: str
    width: int
    right: bool = False


_COLUMNS: Final = (
    _Column("packet", "packet", 9, True),
    _Column("time", "time", 15, True),
    _Column("latency", "latency", 8, True),
    _Column("api", "API", 24),
    _Column("error", "error", 26),
    _Column("subject", "topic, group", 28),
    _Column("client_id", "client id", 20),
    _Column("client", "client", 21),
    _Column("broker", "broker", 21),
    _Column("request", "request", 9, True),
    _Column("response", "response", 9, True),
    _Column("problems", "problems", 8, True),
)
"""In order of importance: a narrow terminal shows the first ones, and scrolls to the others."""
_WIDTH: Final = sum(column.width + 1 for column in _COLUMNS)
_STEP: Final = 20
"""Columns of the terminal by which the list scrolls to the side."""
SORTED_AT_ONCE: Final = 200_000
"""Most rows that are sorted before the next key is read, which takes a few ms; a thread sorts more."""
JUMP: Final = 1 << 16
"""Lines that a jump looks at in one step."""
_ERROR: Final = Style(color="red")
_WARNING: Final = Style(color="yellow")
_TITLE: Final = Style(bold=True)
_CURSOR: Final = Style(reverse=True)


class ExchangeList(ScrollView, can_focus=True):
    """Rows of an index in some order, with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Next exchange"),
        Binding("k,up", "move(-1)", "Previous exchange"),
        Binding("space,ctrl+f,pagedown", "page(1)", "Next page"),
        Binding("b,ctrl+b,pageup", "page(-1)", "Previous page"),
        Binding("g,home", "first", "First exchange"),
        Binding("G,end", "last", "Last exchange"),
        Binding("l,right", "side(1)", "Columns to the right"),
        Binding("h,left", "side(-1)", "Columns to the left"),
        Binding("s", "sort", "Sort by the next column"),
        Binding("r", "reverse", "Reverse the order"),
        Binding("t", "clock", "Time: of day, since start, since previous"),
        Binding("right_square_bracket", "same('connection', 1)", "Next of this connection"),
        Binding("left_square_bracket", "same('connection', -1)", "Previous of this connection"),
        Binding("right_curly_bracket", "same('client_id', 1)", "Next of this client id"),
        Binding("left_curly_bracket", "same('client_id', -1)", "Previous of this client id"),
        Binding("n", "same('api', 1)", "Next of this API and version"),
        Binding("N", "same('api', -1)", "Previous of this API and version"),
        Binding("enter", "open", "Show bodies"),
    ]

    class Moved(Notice):
        """The cursor is on another exchange."""

    class Opened(Notice):
        """The exchange under the cursor is to be shown."""

    def __init__(self) -> None:
        super().__init__(id="list")
        self.index = ExchangeIndex()
        self.cursor = 0
        self.clock = 0
        self.column = "time"
        """What it is sorted by."""
        self.descending = False
        self._order: NDArray[np.int32] = np.zeros(0, np.int32)
        """The places of the first lines; while captures are read, each other line shows the row at its own place."""
        self._count = 0
        self._wanted: tuple[ExchangeIndex, str, bool, int] | None = None
        """What a thread is to sort, or sorts now."""

    def on_unmount(self) -> None:
        """End the thread."""
        self._wanted = None

    @property
    def is_settled(self) -> bool:
        """Whether the list shows all rows of the index, in order."""
        return self._count == len(self.index) and (len(self._order) == self._count or not self.index.is_complete)

    @property
    def is_sorting(self) -> bool:
        """Whether a thread sorts; until then, rows are in the order before."""
        return self._wanted is not None

    def show(self, index: ExchangeIndex) -> None:
        """Show another index, from its beginning."""
        self.index, self.cursor = index, 0
        self._order, self._count = np.zeros(0, np.int32), 0
        self._sort()
        self.scroll_to(0, 0, animate=False)

    def grow(self) -> None:
        """Show the rows that the index has by now. The cursor stays on its exchange.

        Sorting again for a few rows would take more time than reading them. So they are appended until the rows have
        doubled, or all are read.
        """
        if self.index.is_complete or len(self.index) >= 2 * len(self._order):
            self._sort()
        self._count = len(self.index)
        self._resized()

    def _sort(self) -> None:
        """Sort all rows, at once or in a thread."""
        index = self.index
        wanted = index, self.column, self.descending, len(index)
        if len(index) <= SORTED_AT_ONCE:
            self._wanted = None
            self._take(index.order(self.column, descending=self.descending))
        elif self._wanted is None:
            self._wanted = wanted
            self.run_worker(self._sort_wanted, thread=True)
        else:
            self._wanted = wanted

    def _sort_wanted(self) -> None:
        """Sort what is wanted, in a thread, until nothing else is."""
        while (wanted := self._wanted) is not None:
            index, column, descending, _ = wanted
            order = index.order(column, descending=descending)
            if self._wanted == wanted:
                self.app.call_from_thread(self._take_wanted, wanted, order)

    def _take_wanted(self, wanted: tuple[ExchangeIndex, str, bool, int], order: NDArray[np.int32]) -> None:
        if self._wanted == wanted:
            self._wanted = None
            self._take(order)
            self.move_to(self.cursor)

    def _take(self, order: NDArray[np.int32]) -> None:
        place = self.place
        self._order = order
        self._count = max(self._count, len(order))
        self.cursor = 0
        if place is not None:
            self.cursor = int(np.argmax(order == place)) if place < len(order) else place
        self._resized()

    def _resized(self) -> None:
        self.virtual_size = Size(_WIDTH, self._count + 1)
        self.refresh()

    @property
    def place(self) -> int | None:
        """The place of the exchange under the cursor in the index; None if there is none."""
        return self._place(self.cursor) if self.cursor < self._count else None

    @property
    def row(self) -> Row | None:
        """The exchange under the cursor."""
        return None if self.place is None else self.index.row(self.place)

    def _place(self, line: int) -> int:
        return int(self._order[line]) if line < len(self._order) else line

    def move_to(self, line: int) -> None:
        """Put the cursor on a line of the list, or on the nearest there is."""
        self.cursor = max(0, min(line, self._count - 1))
        # The title covers the first line.
        self.scroll_to_region(Region(self.scroll_offset.x, self.cursor, 1, 2), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """One line up or down."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """One page up or down."""
        self.move_to(self.cursor + by * max(self.size.height - 2, 1))

    def action_first(self) -> None:
        """To the first line."""
        self.move_to(0)

    def action_last(self) -> None:
        """To the last line."""
        self.move_to(self._count - 1)

    def action_side(self, by: int) -> None:
        """To other columns."""
        self.scroll_relative(x=by * _STEP, animate=False)

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = [column.name for column in _COLUMNS]
        self.column = names[(names.index(self.column) + 1) % len(names)]
        self._reorder()

    def action_reverse(self) -> None:
        """The other way round."""
        self.descending = not self.descending
        self._reorder()

    def _reorder(self) -> None:
        self._sort()
        self.move_to(self.cursor)

    def action_clock(self) -> None:
        """Show times in another way."""
        self.clock = (self.clock + 1) % len(CLOCKS)
        self.refresh()
        self.post_message(self.Moved())

    def action_same(self, column: str, way: int) -> None:
        """To the next or previous line with the same value in a column."""
        if self.place is None:
            return
        same = self.index.same(column, self.place)
        first, last = (self.cursor + 1, self._count) if way > 0 else (self.cursor - 1, -1)
        for start in range(first, last, JUMP * way):
            lines = np.arange(start, last, way)[:JUMP]
            found = np.flatnonzero(same[self._places(lines)])
            if len(found):
                self.move_to(start + int(found[0]) * way)
                return

    def _places(self, lines: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of lines."""
        places = lines.copy()
        sorted_ = lines < len(self._order)
        places[sorted_] = self._order[lines[sorted_]]
        return places

    def action_open(self) -> None:
        """Show the exchange under the cursor."""
        if self.place is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; on the second click, open."""
        line = event.y + self.scroll_offset.y - 1
        if event.y > 0 and line < self._count:
            self.move_to(line)
            if event.chain > 1:
                self.action_open()

    def render_line(self, y: int) -> Strip:
        """A line of the screen: titles first, then rows. Hot."""
        x, width = self.scroll_offset.x, self.size.width
        if y == 0:
            titles = (self._title(column) for column in _COLUMNS)
            text = " ".join(_fitted(title, column) for title, column in zip(titles, _COLUMNS, strict=True))
            return Strip([Segment(text, _TITLE)]).crop_extend(x, x + width, _TITLE)
        line = y - 1 + self.scroll_offset.y
        if line >= self._count:
            return Strip.blank(width, Style.null())
        row = self.index.row(self._place(line))
        style = Style.null()
        if row.error:
            style = _ERROR
        elif row.problems:
            style = _WARNING
        if line == self.cursor:
            style += _CURSOR
        text = " ".join(_fitted(self._cell(row, column.name, line), column) for column in _COLUMNS)
        return Strip([Segment(text, style)]).crop_extend(x, x + width, style)

    def _title(self, column: _Column) -> str:
        mark = "" if column.name != self.column else "↓" if self.descending else "↑"
        return f"{column.title}{mark}"

    def _cell(self, row: Row, name: str, line: int) -> str:
        value = getattr(row, name)
        if value is None:
            return "-"
        if name == "subject" and row.others:
            return f"{value} +{row.others}"
        if name == "latency":
            return duration(value)
        if name == "time":
            return self._time(value, line)
        if isinstance(value, int):
            return "" if name == "problems" and not value else f"{value:,}"
        return str(value)

    def _time(self, time: int, line: int) -> str:
        if self.clock == 0:
            return clock_time(time)
        before = self.index.start
        if self.clock == 2:
            before = self.index.row(self._place(line - 1)).time if line else None
        return "-" if before is None else f"{(time - before) / 1e9:+.6f}"


def _fitted(text: str, column: _Column) -> str:
    """A cell in the width of its column."""
    width = display_width(text)
    if width > column.width:
        while display_width(text) > column.width - 1:
            text = text[:-1]
        text, width = f"{text}…", display_width(text) + 1
    blank = " " * (column.width - width)
    return blank + text if column.right else text + blank
