"""The records of an exchange as a table, and one of them as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, Final, NamedTuple

from rich.cells import chop_cells
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.screen import ModalScreen

from kafkasniff.browse.body_view import FORMS, MAX_RECORDS, RecordRow, ValueForm, records, whole_record
from kafkasniff.browse.screen.body_tree import BodyField
from kafkasniff.browse.screen.row_pane import CURSOR, RowPane
from kafkasniff.model import Exchange
from kafkasniff.text.printable import clipped, display_width

_TITLE: Final = Style(bold=True)
_MATCH: Final = Style(color="green", bold=True)


class _RecordColumn(NamedTuple):
    title: str
    width: int
    right: bool = False


_COLUMNS: Final = (
    _RecordColumn("part.", 5, True),
    _RecordColumn("offset", 8, True),
    _RecordColumn("key", 16),
    _RecordColumn("value", 47),
    _RecordColumn("timestamp", 24),
    _RecordColumn("schema", 9),
    _RecordColumn("headers", 30),
    _RecordColumn("topic", 30),
)
"""In order of importance: a narrow terminal shows the first ones, and scrolls to the others."""
_WIDTH: Final = sum(column.width + 1 for column in _COLUMNS)
_STEP: Final = 20
"""Columns of the terminal by which the table scrolls to the side."""


class RecordTable(RowPane):
    """A row for each record. Cells are made when they are drawn."""

    HINTS: ClassVar = (
        "Enter all of it",
        "v text, JSON, hex",
        "h l columns",
        "/ search",
        "F follow",
        "r tree",
        "Esc close",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "form", "As text, JSON, hex"),
        Binding("l,right", "side(1)", "Scroll right, left"),
        Binding("h,left", "side(-1)", "Scroll right, left"),
        Binding("enter", "whole", "Show all of a record"),
    ]
    TITLES = 1

    def __init__(self) -> None:
        super().__init__(id="records")
        self.rows: list[RecordRow] = []
        self.matches: tuple[BodyField, ...] = ()
        """Records that the filter selects: they are marked, and the cursor begins at the first."""
        self.form: ValueForm = "text"
        self._has_more = False
        self._marked: set[tuple[int, str]] = set()

    @property
    def count(self) -> int:
        """Number of records, at most `MAX_RECORDS`."""
        return len(self.rows)

    def show(self, exchange: Exchange | None) -> None:
        """Show the records of an exchange."""
        record_rows = iter(()) if exchange is None else records(exchange)
        self.rows = list(islice(record_rows, MAX_RECORDS))
        self._has_more = next(record_rows, None) is not None
        self.reset(_WIDTH)
        self._marked = {(body_field.message, body_field.path) for body_field in self.matches}
        if self.matches:
            self.select(self.matches[0])

    @property
    def record(self) -> RecordRow | None:
        """The record under the cursor."""
        return self.rows[self.cursor] if self.rows else None

    @property
    def field(self) -> BodyField | None:
        """The record under the cursor as a field of the tree."""
        return None if self.record is None else BodyField(self.record.message, self.record.path)

    def select(self, field: BodyField) -> None:
        """Put the cursor on the record that a field is in, if it is in one."""
        for index, row in enumerate(self.rows):
            if row.message == field.message and f"{field.path}.".startswith(f"{row.path}."):
                self.cursor = index
                self.show_cursor()
                return

    def action_form(self) -> None:
        """Show keys and values in another format."""
        self.form = _after(self.form)
        self.refresh()

    def action_side(self, by: int) -> None:
        """To other columns."""
        self.scroll_relative(x=by * _STEP, animate=False)

    def action_whole(self) -> None:
        """Open the record under the cursor."""
        if self.record is not None:
            self.app.push_screen(RecordScreen(self.record, self.form))

    def click(self, row: int, place: Offset, *, again: bool) -> None:
        """Put the cursor on a record; on the second click, open it."""
        super().click(row, place, again=again)
        if again:
            self.action_whole()

    def texts(self) -> Iterator[tuple[int, str]]:
        """All records with their texts."""
        return (
            (index, " ".join((*self._cells(row), *whole_record(row, "text")))) for index, row in enumerate(self.rows)
        )

    def drawn(self, row: int) -> Text:
        """A record, or the titles."""
        if row < 0:
            rest = f" (the first {MAX_RECORDS:,} records)" if self._has_more else "" if self.rows else " (no records)"
            titles = [column.title for column in _COLUMNS]
            titles[3] = f"value as {self.form}{rest}"
            return Text(_line(titles), _TITLE)
        record_row = self.rows[row]
        style = _MATCH if (record_row.message, record_row.path) in self._marked else Style.null()
        return Text(_line(self._cells(record_row)), style + CURSOR if row == self.cursor else style)

    def _cells(self, row: RecordRow) -> list[str]:
        return [
            "-" if row.partition is None else str(row.partition),
            str(row.offset),
            row.cell("key", self.form),
            row.cell("value", self.form),
            row.time,
            row.schema,
            row.headers,
            row.topic,
        ]


def _after(form: ValueForm) -> ValueForm:
    return FORMS[(FORMS.index(form) + 1) % len(FORMS)]


def _line(cells: list[str]) -> str:
    shown = []
    for text, column in zip(cells, _COLUMNS, strict=True):
        cell = clipped(text, column.width)
        blank = " " * (column.width - display_width(cell))
        shown.append(blank + cell if column.right else cell + blank)
    return " ".join(shown)


class _RecordLines(RowPane):
    """The lines of one record; long ones continue in the next row."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.lines)

    def drawn(self, row: int) -> Text:
        """A row."""
        return Text(self.lines[row], CURSOR if row == self.cursor else "")


class RecordScreen(ModalScreen[None]):
    """A whole record."""

    CSS = """
    RecordScreen { align: center middle; }
    RecordScreen > * { width: 94%; height: 90%; border: solid $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close"),
        Binding("v", "form", "As text, as JSON, in hex"),
    ]

    def __init__(self, record: RecordRow, form: ValueForm) -> None:
        super().__init__()
        self._record = record
        self._form: ValueForm = form
        self._pane = _RecordLines()

    def compose(self) -> ComposeResult:
        """The lines."""
        yield self._pane

    def on_mount(self) -> None:
        """Show them once the width is known."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        pane = self._pane
        width = max(pane.size.width, 20)
        pane.border_title = f"record as {self._form}"
        pane.lines = [
            part for line in whole_record(self._record, self._form) for part in chop_cells(line, width) or [""]
        ]
        pane.reset(width)

    def action_form(self) -> None:
        """Show key and value in another format."""
        self._form = _after(self._form)
        self._show()
