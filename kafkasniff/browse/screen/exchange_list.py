"""The list of exchanges: only visible rows are drawn, so its length does not matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message as Notice
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kafkasniff.browse.filter_texts import Sign
from kafkasniff.browse.index import ExchangeIndex, Row
from kafkasniff.browse.screen.list_lines import (
    CLOCKS,
    LIST_COLUMNS,
    PINNED,
    LineJump,
    LineWindow,
    ListColumn,
    Wanted,
    laid_out,
    line_of,
    place_of,
    row_line,
    title_line,
)

SORTED_AT_ONCE: Final = 200_000
"""Maximum number of rows that are sorted before the next key is read: a few ms. A thread sorts longer lists."""
NEAR: Final = (1 << 8, 1 << 16)
"""Lines that a jump examines before the next key is read, in two steps of some ms at most: the next exchange is usually
close. A thread examines the others."""
JUMP: Final = 1 << 20
"""Maximum number of lines that the thread examines at a time."""


class ExchangeList(ScrollView, can_focus=True):
    """Rows of an index in some order, with a cursor."""

    HINTS: ClassVar = (
        "Enter bodies",
        "/ filter",
        "= ! only this, not this",
        "s sort",
        "o overview",
        "x bytes",
        "F follow",
        "y copy",
        "w write",
        "Tab next pane",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Next, previous exchange"),
        Binding("k,up", "move(-1)", "Next, previous exchange"),
        Binding("space,ctrl+f,pagedown", "page(1)", "Next, previous page"),
        Binding("b,ctrl+b,pageup", "page(-1)", "Next, previous page"),
        Binding("g,home", "first", "First, last exchange"),
        Binding("G,end", "last", "First, last exchange"),
        Binding("l,right", "side(1)", "Next, previous column"),
        Binding("h,left", "side(-1)", "Next, previous column"),
        Binding("s", "sort", "Sort by this column"),
        Binding("r", "reverse", "Reverse the order"),
        Binding("equals_sign", "narrow('==')", "Only, or without this value"),
        Binding("exclamation_mark", "narrow('!=')", "Only, or without this value"),
        Binding("greater_than_sign", "narrow('>')", "Only more, less than this"),
        Binding("less_than_sign", "narrow('<')", "Only more, less than this"),
        Binding("c", "hide", "Hide this column"),
        Binding("C", "show_all", "Show all columns"),
        Binding("H", "shift(-1)", "Move column left, right"),
        Binding("L", "shift(1)", "Move column left, right"),
        Binding("t", "clock", "Times of day, since start …"),
        Binding("right_square_bracket", "same('connection', 1)", "Next, previous of connection"),
        Binding("left_square_bracket", "same('connection', -1)", "Next, previous of connection"),
        Binding("right_curly_bracket", "same('client_id', 1)", "Next, previous of client id"),
        Binding("left_curly_bracket", "same('client_id', -1)", "Next, previous of client id"),
        Binding("n", "same('api', 1)", "Next, previous of this API"),
        Binding("N", "same('api', -1)", "Next, previous of this API"),
        Binding("enter", "open", "Show bodies"),
    ]

    class Moved(Notice):
        """The cursor is on another exchange."""

    class Opened(Notice):
        """Request to show the exchange under the cursor."""

    class Narrowed(Notice):
        """Request to filter by the value under the cursor."""

        def __init__(self, row: Row, column: str, sign: Sign) -> None:
            super().__init__()
            self.row, self.column, self.sign = row, column, sign

    def __init__(self) -> None:
        super().__init__(id="list")
        self.columns: list[ListColumn] = list(LIST_COLUMNS)
        """Those that are shown."""
        self._laid_out = list(LIST_COLUMNS)
        """The same, in the widths that fit the screen and what they contain."""
        self.at = 1
        """The column under the cursor."""
        self.index = ExchangeIndex()
        self.cursor = 0
        self.clock = 0
        self.column = "time"
        """The column by which it is sorted."""
        self.descending = False
        self._order: NDArray[np.int32] = np.zeros(0, np.int32)
        """The places of the first lines; while captures are read, each other line shows the row at its own place."""
        self._count = 0
        self._sought: Row | None = None
        """The exchange to go to, unless the cursor has been moved before."""
        self._tails = False
        """The cursor stays at the end when rows are added."""
        self._wanted: tuple[ExchangeIndex, str, bool, int] | None = None
        """The order that a thread sorts next, or now."""
        self._jump: LineJump | None = None
        """The jump whose line a thread looks for."""

    def on_unmount(self) -> None:
        """End the threads."""
        self._wanted = self._jump = None

    @property
    def is_settled(self) -> bool:
        """Whether the list shows all rows of the index, in order, with the cursor on its exchange again."""
        if self.index.is_complete and (self._sought is not None or len(self._order) != self._count):
            return False
        return self._count == len(self.index)

    @property
    def is_sorting(self) -> bool:
        """Whether a thread is sorting; until it is done, rows stay in the previous order."""
        return self._wanted is not None

    def show(self, index: ExchangeIndex) -> None:
        """Show another index from its beginning, and once it is complete, the exchange under the cursor until now."""
        self._sought = self.row
        self.index, self.cursor = index, 0
        self._order, self._count, self._tails = np.zeros(0, np.int32), 0, False
        self._sort()
        self.scroll_to(0, 0, animate=False)

    def grow(self) -> None:
        """Show the rows that were added to the index. The cursor stays on its exchange, or at the end after `G`.

        Sorting again for a few rows would take more time than reading them. So they are appended until the rows have
        doubled, or all are read.
        """
        # Read once, before the rows: a thread may append more and complete the index meanwhile.
        is_complete = self.index.is_complete
        if is_complete or len(self.index) >= 2 * len(self._order):
            self._sort()
        self._count = len(self.index)
        self._resized()
        sought = self._sought
        if is_complete:
            self._sought = None
        if self._tails:
            self.move_to(self._count - 1)
        elif is_complete and sought is not None:
            place = None if self.cursor else self.index.place_of(sought)
            if place is not None:
                self.move_to(line_of(place, self._order))

    def _sort(self) -> None:
        """Sort all rows, immediately or in a thread."""
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
        """Sort the requested orders, in a thread."""
        while (wanted := self._wanted) is not None:
            index, column, descending, _ = wanted
            order = index.order(column, descending=descending)
            place = self.place
            line = None if place is None else line_of(place, order)
            if self._wanted == wanted:
                self.app.call_from_thread(self._take_wanted, wanted, order, place, line)

    def _take_wanted(
        self,
        wanted: tuple[ExchangeIndex, str, bool, int],
        order: NDArray[np.int32],
        place: int | None,
        line: int | None,
    ) -> None:
        if self._wanted == wanted:
            self._wanted = None
            # The cursor may have moved since.
            self._take(order, line if place == self.place else None)
            self.move_to(self.cursor)

    def _take(self, order: NDArray[np.int32], line: int | None = None) -> None:
        """Show rows in an order, of which `line` has the exchange under the cursor; None: that is to be found."""
        place = self.place
        self._order = order
        self._count = max(self._count, len(order))
        self.cursor = 0
        if place is not None:
            self.cursor = line_of(place, order) if line is None else line
        self._resized()

    def _resized(self) -> None:
        # The scroll bar has its place even while there is none.
        room = self.container_size.width - self.styles.scrollbar_size_vertical
        self._laid_out = laid_out(self.columns, self.index.widest, room)
        self.virtual_size = Size(self._left(len(self.columns)), self._count + 1)
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
        return place_of(line, self._order)

    def move_to(self, line: int) -> None:
        """Put the cursor on a line of the list, or on the nearest one."""
        self._tails = self._tails and line >= self._count - 1
        # The title covers the first line. Scrolling draws all lines, otherwise only two have changed.
        self.refresh_line(self.cursor + 1)
        self.cursor = max(0, min(line, self._count - 1))
        self.refresh_line(self.cursor + 1)
        self._show_cursor()
        self.post_message(self.Moved())

    def _show_cursor(self) -> None:
        self.scroll_to_region(Region(self.scroll_offset.x, self.cursor, 1, 2), animate=False, force=True)

    def on_resize(self) -> None:
        """Keep the cursor visible when panes open, and fit the columns."""
        self._resized()
        self._show_cursor()

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
        """To the last line, and to those that are added."""
        self.move_to(self._count - 1)
        self._tails = True

    def _left(self, at: int) -> int:
        """Where a column begins."""
        return sum(column.width + 1 for column in self._laid_out[:at])

    @property
    def _pinned(self) -> int:
        """The width of the first columns, which do not scroll with the others; 0 if the screen is too narrow."""
        width = self._left(PINNED)
        return width if 2 * width <= self.size.width else 0

    def action_side(self, by: int) -> None:
        """To another column."""
        self.at = max(0, min(self.at + by, len(self.columns) - 1))
        left, pinned = self._left(self.at), self._pinned
        x = max(min(self.scroll_offset.x, left - pinned), left + self._laid_out[self.at].width - self.size.width)
        self.scroll_to(x=max(x, 0), animate=False, force=True)
        self.refresh()

    def action_hide(self) -> None:
        """Show the list without a column; the last one stays."""
        if len(self.columns) > 1:
            del self.columns[self.at]
            self._resized()
            self.action_side(0)

    def action_show_all(self) -> None:
        """All columns, in the usual order."""
        self.columns = list(LIST_COLUMNS)
        self._resized()
        self.action_side(0)

    def action_shift(self, by: int) -> None:
        """Exchange a column with its neighbour."""
        if 0 <= self.at + by < len(self.columns):
            self.columns.insert(self.at + by, self.columns.pop(self.at))
            self._resized()
            self.action_side(by)

    def action_narrow(self, sign: Sign) -> None:
        """List only what has this relation to the value under the cursor."""
        row = self.row
        if row is not None:
            self.post_message(self.Narrowed(row, self.columns[self.at].name, sign))

    def action_sort(self) -> None:
        """Sort by the column under the cursor."""
        self.column = self.columns[self.at].name
        self._reorder()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.descending = not self.descending
        self._reorder()

    def _reorder(self) -> None:
        self._sort()
        if self.is_sorting:
            self.post_message(self.Moved())
        else:
            self.move_to(self.cursor)

    def action_clock(self) -> None:
        """Show times in another way."""
        self.clock = (self.clock + 1) % len(CLOCKS)
        self.refresh()
        self.post_message(self.Moved())

    def action_same(self, column: str, way: int) -> None:
        """To the next or previous line with the same value in a column."""
        if self.place is not None:
            self.jump(self.index.same(column, self.place), way, column)

    def jump(self, wanted: Wanted, way: int, along: str, missed: Callable[[], object] | None = None) -> None:
        """To the next or previous line with a row that is wanted. `missed` is called if there is none.

        `along`: what these rows have in common. While a thread looks for a line, the same jump is not begun again.
        """
        end = self._count - self.cursor if way > 0 else self.cursor + 1
        jump, now = LineJump(self.cursor, self._order, along, way, end, wanted, missed), self._jump
        if now is not None and now.repeats(jump):
            return
        self._jump = jump
        first, near = (min(1 + lines, end) for lines in NEAR)
        line = jump.first(1, first)
        if line is None:
            line = jump.first(first, near)
        if line is not None or near == end:
            self._settle(jump, line)
        else:
            # Not a closure: Textual keeps what a worker runs, and so the order, until garbage is collected.
            self.run_worker(self._look_further, thread=True)

    def _look_further(self) -> None:
        """Look for the line of the jump, in a thread."""
        jump = self._jump
        if jump is None:
            return
        line, begin, end = None, 1 + NEAR[-1], jump.end
        while line is None and begin < end and self._jump is jump:
            line = jump.first(begin, min(begin + JUMP, end))
            begin += JUMP
        if self._jump is jump:
            self.app.call_from_thread(self._settle, jump, line)

    def _settle(self, jump: LineJump, line: int | None) -> None:
        """Go to the line that was found, unless the cursor has moved since, or the order has changed."""
        if self._jump is not jump:
            return
        self._jump = None
        if jump.starts_at(self.cursor, self._order):
            if line is not None:
                self.move_to(line)
            elif jump.missed is not None:
                jump.missed()

    def action_open(self) -> None:
        """Show the exchange under the cursor."""
        if self.place is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; on the second click, open."""
        line = event.y + self.scroll_offset.y - 1
        if event.y > 0 and line < self._count:
            x = event.x + (self.scroll_offset.x if event.x >= self._pinned else 0)
            self.at = max(at for at in range(len(self.columns)) if self._left(at) <= x)
            self.move_to(line)
            if event.chain > 1:
                self.action_open()

    def render_line(self, y: int) -> Strip:
        """A line of the screen: titles first, then rows. Hot."""
        width, pinned = self.size.width, self._pinned
        line = y - 1 + self.scroll_offset.y
        if y and line >= self._count:
            return Strip.blank(width, Style.null())
        if not pinned or not self.scroll_offset.x:
            return self._part(y, line, LineWindow(self.scroll_offset.x, width))
        rest = LineWindow(pinned + self.scroll_offset.x, width - pinned)
        return Strip.join((self._part(y, line, LineWindow(0, pinned)), self._part(y, line, rest)))

    def _part(self, y: int, line: int, window: LineWindow) -> Strip:
        if y == 0:
            return title_line(self._laid_out, self.column, window, descending=self.descending)
        row, cursor = self.index.row(self._place(line)), self.at if line == self.cursor else None
        return row_line(row, self._laid_out, window, cursor=cursor, since=self._since(line), clock=self.clock)

    def _since(self, line: int) -> int | None:
        """The time from which the time in a line is counted."""
        if self.clock < 2:
            return self.index.start
        return self.index.row(self._place(line - 1)).time if line else None
