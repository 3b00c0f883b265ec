"""The bytes of an exchange with their fields; a cursor on one byte. Only visible rows are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message as Notice
from textual.scroll_view import ScrollView
from textual.strip import Strip

from kafkasniff.browse.byte_rows import ByteRows, body_path
from kafkasniff.browse.screen.body_tree import BodyField
from kafkasniff.sinks.hex_view import ROW, HexRow

__all__ = ["BytesPane"]

_MARKED: Final = Style(bgcolor="blue", bold=True, underline=True)
_CURSOR: Final = Style(reverse=True)
_TITLE: Final = Style(bold=True)
_TEXT: Final = ROW * 3 + 1
"""Columns from the first byte in hex to the first as text."""


class BytesPane(ScrollView, can_focus=True):
    """Rows of bytes; those of a field are marked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "move(0, 1)", "Next byte; the tree shows its field"),
        Binding("h,left", "move(0, -1)", "Previous byte"),
        Binding("j,down", "move(1)", "Next row"),
        Binding("k,up", "move(-1)", "Previous row"),
        Binding("space,ctrl+f,pagedown", "page(1)", "Next page"),
        Binding("b,ctrl+b,pageup", "page(-1)", "Previous page"),
        Binding("g,home", "end(-1)", "First row"),
        Binding("G,end", "end(1)", "Last row"),
        Binding("plus", "whole", "Show all bytes of long fields, or only the first"),
    ]

    class ByteMoved(Notice):
        """The cursor is on another byte."""

    class Outdated(Notice):
        """The rows are to be made again, for another width or another length of fields."""

    def __init__(self) -> None:
        super().__init__(id="bytes")
        self.rows = ByteRows(None, 0)
        self.whole = False
        self.cursor = 0
        """The row."""
        self._byte = 0
        self._marked = range(0)
        self._width = 0

    def show(self, rows: ByteRows) -> None:
        """Show other rows; the cursor goes to the first."""
        self.rows, self.cursor, self._byte, self._marked = rows, 0, 0, range(0)
        self.virtual_size = Size(max(self.size.width, 80), len(rows.rows))
        self.scroll_to(0, 0, animate=False)
        self.refresh()

    def mark(self, field: BodyField) -> None:
        """Mark the bytes of a field of the tree, and go there."""
        if self.rows.rows:
            self._marked = self.rows.find(*field)
            self.cursor, self._byte = self._marked.start, 0
            self._scroll()

    def _scroll(self) -> None:
        self.scroll_to_region(Region(self.scroll_offset.x, self.cursor, 1, 1), animate=False, force=True)
        self.refresh()

    @property
    def field(self) -> BodyField | None:
        """The field of the tree under the cursor; None if nothing is shown."""
        if not self.rows.rows:
            return None
        return BodyField(self.rows.message_of(self.cursor), body_path(self._row.path))

    @property
    def _row(self) -> HexRow:
        return self.rows.rows[self.cursor]

    def move_to(self, row: int, byte: int = 0) -> None:
        """Put the cursor on a byte, or on the nearest there is, and mark the bytes of its field."""
        if not self.rows.rows:
            return
        self.cursor = max(0, min(row, len(self.rows.rows) - 1))
        self._byte = max(0, min(byte, self._row.size - 1))
        first = last = self.cursor
        path = self._row.path
        while path and self.rows.rows[first - 1].path == path:
            first -= 1
        while path and last + 1 < len(self.rows.rows) and self.rows.rows[last + 1].path == path:
            last += 1
        self._marked = range(first, last + 1)
        self._scroll()
        self.post_message(self.ByteMoved())

    def action_move(self, rows: int, by: int = 0) -> None:
        """Some rows, or one byte, which may be in another row."""
        if not self.rows.rows:
            return
        if by and not 0 <= self._byte + by < self._row.size:
            row = self.cursor + by
            if 0 <= row < len(self.rows.rows):
                self.move_to(row, 0 if by > 0 else ROW)
            return
        self.move_to(self.cursor + rows, self._byte + by)

    def action_page(self, by: int) -> None:
        """One page up or down."""
        self.move_to(self.cursor + by * max(self.size.height - 1, 1), self._byte)

    def action_end(self, way: int) -> None:
        """To the first or the last row."""
        self.move_to(len(self.rows.rows) * way)

    def action_whole(self) -> None:
        """Show more or less of long fields."""
        self.whole = not self.whole
        self.post_message(self.Outdated())

    def on_resize(self) -> None:
        """Have the rows made for the new width."""
        if self.size.width != self._width:
            self._width = self.size.width
            self.post_message(self.Outdated())

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the byte, in hex or as text."""
        place = event.get_content_offset(self)
        if place is None:
            return
        row = place.y + self.scroll_offset.y
        if row < len(self.rows.rows):
            at = place.x + self.scroll_offset.x - self.rows.rows[row].column
            self.move_to(row, at - _TEXT if at >= _TEXT else at // 3)

    def texts(self) -> Iterator[tuple[int, str]]:
        """All rows with their texts."""
        for place, row in enumerate(self.rows.rows):
            yield place, row.text

    def render_line(self, y: int) -> Strip:
        """A line of the screen. Hot."""
        x, width = self.scroll_offset.x, self.size.width
        line = y + self.scroll_offset.y
        if line >= len(self.rows.rows):
            return Strip.blank(width, Style.null())
        text = self._drawn(line, self.rows.rows[line])
        return Strip(text.render(self.app.console)).crop_extend(x, x + width, Style.null())

    def _drawn(self, line: int, row: HexRow) -> Text:
        if not row.path:
            return Text(row.text, _TITLE, end="")
        text = Text(row.text, end="")
        if not row.size:
            text.stylize(_MARKED if line in self._marked else Style.null())
        for begin, size, step in (row.column, 2, 3), (row.column + _TEXT, 1, 1):
            if line in self._marked:
                text.stylize(_MARKED, begin, begin + (row.size - 1) * step + size)
            if line == self.cursor and self._byte < row.size:
                at = begin + self._byte * step
                text.stylize(_CURSOR, at, at + size)
        return text
