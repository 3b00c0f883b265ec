"""The bytes of an exchange with their fields; a cursor on one byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.message import Message as Notice

from kafkasniff.browse.byte_rows import ByteRows, body_path
from kafkasniff.browse.screen.body_tree import BodyField
from kafkasniff.browse.screen.row_pane import CURSOR, RowPane
from kafkasniff.sinks.hex_view import ROW, HexRow

__all__ = ["BytesPane"]

_MARKED: Final = Style(bgcolor="blue", bold=True, underline=True)
_TITLE: Final = Style(bold=True)
_TEXT: Final = ROW * 3 + 1
"""Columns from the first byte in hex to the first as text."""


class BytesPane(RowPane):
    """Rows of bytes; those of a field are marked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "next_byte(1)", "Next byte; the tree shows its field"),
        Binding("h,left", "next_byte(-1)", "Previous byte"),
        Binding("plus", "whole", "Show all bytes of long fields, or only the first"),
    ]

    class Outdated(Notice):
        """The rows are to be made again, for another width or another length of fields."""

    def __init__(self) -> None:
        super().__init__(id="bytes")
        self.rows = ByteRows(None, 0)
        self.whole = False
        self._byte = 0
        self._marked = range(0)
        self._width = 0

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.rows.rows)

    def show(self, rows: ByteRows) -> None:
        """Show other rows; the cursor goes to the first."""
        self.rows, self._byte, self._marked = rows, 0, range(0)
        self.reset(max(self.size.width, 80))

    def mark(self, field: BodyField) -> None:
        """Mark the bytes of a field of the tree, and go there."""
        if self.count:
            self._marked = self.rows.find(*field)
            self.cursor, self._byte = self._marked.start, 0
            self.show_cursor()

    @property
    def field(self) -> BodyField | None:
        """The field of the tree under the cursor; None if nothing is shown."""
        if not self.count:
            return None
        return BodyField(self.rows.message_of(self.cursor), body_path(self._row.path))

    def go_to_message(self, message: int) -> None:
        """Put the cursor on the first row of a message."""
        self.move_to(self.rows.find(message, "").start)

    @property
    def _row(self) -> HexRow:
        return self.rows.rows[self.cursor]

    def move_to(self, row: int) -> None:
        """Put the cursor on a row, and mark the bytes of its field."""
        super().move_to(row)
        if not self.count:
            return
        self._byte = max(0, min(self._byte, self._row.size - 1))
        first = last = self.cursor
        path = self._row.path
        while path and self.rows.rows[first - 1].path == path:
            first -= 1
        while path and last + 1 < self.count and self.rows.rows[last + 1].path == path:
            last += 1
        self._marked = range(first, last + 1)

    def action_next_byte(self, by: int) -> None:
        """The next or previous byte, which may be in another row."""
        if not self.count:
            return
        byte, row = self._byte + by, self.cursor
        if not 0 <= byte < self._row.size and 0 <= row + by < self.count:
            row += by
            byte = 0 if by > 0 else ROW
        self._byte = byte
        self.move_to(row)

    def action_whole(self) -> None:
        """Show more or less of long fields."""
        self.whole = not self.whole
        self.post_message(self.Outdated())

    def on_resize(self) -> None:
        """Have the rows made for the new width."""
        if self.size.width != self._width:
            self._width = self.size.width
            self.post_message(self.Outdated())

    def click(self, row: int, place: Offset, *, again: bool) -> None:
        """Put the cursor on the byte, in hex or as text."""
        at = place.x - self.rows.rows[row].column
        self._byte = at - _TEXT if at >= _TEXT else at // 3
        self.move_to(row)

    def texts(self) -> Iterator[tuple[int, str]]:
        """All rows with their texts."""
        return ((place, row.text) for place, row in enumerate(self.rows.rows))

    def drawn(self, row: int) -> Text:
        """A row of bytes."""
        shown = self.rows.rows[row]
        text = Text(shown.text, "" if shown.path else _TITLE)
        if not shown.size and row == self.cursor and self.has_focus:
            text.stylize(CURSOR)
        if row in self._marked and not shown.size:
            text.stylize(_MARKED)
        for begin, size, step in (shown.column, 2, 3), (shown.column + _TEXT, 1, 1):
            if row in self._marked and shown.size:
                text.stylize(_MARKED, begin, begin + (shown.size - 1) * step + size)
            if row == self.cursor and shown.size:
                at = begin + self._byte * step
                text.stylize(CURSOR, at, at + size)
        return text
