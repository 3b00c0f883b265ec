"""The panes of one exchange: its bodies as a tree, its records as a table, and its bytes.

What is under the cursor in the tree or the table is marked in the bytes; a byte selects its field in the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, Final, NamedTuple

from rich.cells import chop_cells
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Offset
from textual.message import Message as Notice
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from kafkasniff.browse.body_view import (
    FORMS,
    MAX_RECORDS,
    ByteRows,
    RecordRow,
    ValueForm,
    are_decoded,
    records,
    whole_record,
)
from kafkasniff.browse.screen.body_tree import BodyField, BodyTree, BytesPane
from kafkasniff.browse.screen.row_pane import CURSOR, PaneSearch, RowPane
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


class DetailPanes(Vertical):
    """Panes, each as high as the list of exchanges. `show` is called only while one is open."""

    DEFAULT_CSS = """
    DetailPanes { display: none; }
    DetailPanes > * { height: 1fr; display: none; }
    DetailPanes > RowPane, DetailPanes BodyTree { border-top: solid $foreground; }
    DetailPanes BodyTree { width: 1fr; }
    DetailPanes > Input { height: 1; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search in this pane"),
        Binding("n", "step(1)", "Next, previous match"),
        Binding("N", "step(-1)", "Next, previous match"),
        Binding("m", "more", "Decode more records"),
        Binding("r", "records", "Records as a table, or tree"),
        Binding("percent_sign", "other", "Go to response, or request"),
        Binding("vertical_line", "beside", "Bodies side by side, or not"),
    ]

    class MoreWanted(Notice):
        """More records of the exchange are to be decoded."""

    def __init__(self) -> None:
        super().__init__(id="detail")
        self.exchange: Exchange | None = None
        self.tree_pane = BodyTree("body")
        self.response_pane = BodyTree("response")
        """Beside the other tree, if the user wants it."""
        self._trees = Horizontal(self.tree_pane, self.response_pane)
        self._wants_two = False
        self.record_table = RecordTable()
        self.bytes_pane = BytesPane()
        self._input = Input(placeholder="search in this pane", id="search", compact=True)
        self._search: PaneSearch | None = None
        self._searched: BodyTree | RecordTable | BytesPane = self.tree_pane
        """The pane that had the focus when the search was asked for."""
        self._wanted_rows: object | None = None
        """Identifies the last request for rows of bytes: results of earlier ones are dropped."""

    def compose(self) -> ComposeResult:
        """The panes from top to bottom."""
        yield self._trees
        yield self.record_table
        yield self.bytes_pane
        yield self._input

    @property
    def _panes(self) -> tuple[BodyTree, BodyTree, RecordTable, BytesPane]:
        return self.tree_pane, self.response_pane, self.record_table, self.bytes_pane

    @property
    def is_open(self) -> bool:
        """Whether a pane is open."""
        return any(pane.display for pane in self._shown_in_turn)

    @property
    def _shown_in_turn(self) -> tuple[Widget, ...]:
        """What is shown one above the other."""
        return self._trees, self.record_table, self.bytes_pane

    @property
    def _has_two(self) -> bool:
        """Whether request and response are side by side."""
        seen = self.exchange
        return self._wants_two and seen is not None and None not in (seen.request, seen.response)

    def _show_trees(self, shown: bool) -> None:
        self._trees.display = self.tree_pane.display = shown
        self.response_pane.display = shown and self._has_two

    def _arrange(self) -> None:
        count = sum(pane.display for pane in self._shown_in_turn)
        self.display = count > 0
        self.styles.height = f"{max(count, 1)}fr"

    def open(self) -> None:
        """Open the tree, unless records are shown."""
        self._show_trees(not self.record_table.display)
        self._arrange()
        self._focus()

    def toggle_bytes(self) -> None:
        """Show or hide the bytes."""
        self.bytes_pane.display = not self.bytes_pane.display
        self._arrange()

    def action_records(self) -> None:
        """Show the records instead of the tree, or the tree again."""
        shown = not self.record_table.display
        self.record_table.display = shown
        self._show_trees(not shown)
        if shown:
            self.record_table.show(self.exchange)
        self._arrange()
        self._focus()
        self._mark()

    def action_more(self) -> None:
        """Ask for more records, if there are."""
        if self.exchange is not None and not are_decoded(self.exchange):
            self.post_message(self.MoreWanted())

    def _focus(self) -> None:
        for pane in (self.record_table, self.tree_pane):
            if pane.display:
                pane.focus()

    def close(self) -> bool:
        """Close the search, bytes, records or tree; False if none is open."""
        if self._input.display:
            self._input.display = False
        elif self.bytes_pane.display:
            self.bytes_pane.display = False
        elif self.record_table.display:
            self.action_records()
        elif self._trees.display:
            self._show_trees(False)
        else:
            return False
        self._arrange()
        self._focus()
        return True

    def show(self, exchange: Exchange | None, matches: tuple[BodyField, ...] = ()) -> None:
        """Show an exchange; None: it was not found. `matches`: the records that the filter selects."""
        if exchange is None or exchange is not self.exchange:
            self.exchange, self._wanted_rows = exchange, None
            self.record_table.matches = matches
            self._forget_search()
            self._fill_trees()
            if self.record_table.display:
                self.record_table.show(exchange)
            if matches:
                self._select(matches[0])
        self._show_bytes()

    def _fill_trees(self) -> None:
        self.response_pane.clear()
        self.tree_pane.show(self.exchange, 0, 1 if self._has_two else None)
        if self._has_two:
            self.response_pane.show(self.exchange, 1)
        self._show_trees(self._trees.display)

    def action_beside(self) -> None:
        """Show request and response in two trees, or in one."""
        field = self.field
        self._wants_two = not self._wants_two
        self._forget_search()
        self._fill_trees()
        self._focus()
        if field is not None:
            self._select(field)
            if self._has_two and field.message:
                self.response_pane.focus()

    def action_other(self) -> None:
        """To the response from the request, or back."""
        seen, field = self.exchange, self.field
        if seen is None or None in (seen.request, seen.response):
            return
        other = 1 if field is None or field.message == 0 else 0
        if self.bytes_pane.has_focus:
            self.bytes_pane.go_to_message(other)
        elif self._trees.display:
            tree = self.response_pane if self._has_two and other else self.tree_pane
            tree.focus()
            tree.select(BodyField(other, ""))

    def _select(self, field: BodyField) -> None:
        for tree in (self.tree_pane, self.response_pane):
            tree.select(field)

    def _show_bytes(self) -> None:
        pane, exchange = self.bytes_pane, self.exchange
        if not pane.display:
            return
        wanted = self._wanted_rows = object()
        width, whole = pane.size.width, pane.whole

        def make() -> None:
            rows = ByteRows(exchange, width, whole=whole)
            if self._wanted_rows is wanted:
                self.app.call_from_thread(shown, rows)

        def shown(rows: ByteRows) -> None:
            if self._wanted_rows is not wanted:
                return
            self._forget_search()
            pane.show(rows)
            self._mark()

        self.run_worker(make, thread=True, group="bytes")

    def on_bytes_pane_outdated(self) -> None:
        """Make the rows again."""
        self._show_bytes()

    @property
    def field(self) -> BodyField | None:
        """The field or record under the cursor, if the tree or the table has the focus."""
        pane = self._focused
        return pane.field if self.is_open and pane.has_focus else None

    def _mark(self) -> None:
        tree = self.response_pane if self.response_pane.has_focus else self.tree_pane
        field = (self.record_table if self.record_table.display else tree).field
        if field is not None:
            self.bytes_pane.mark(field)

    def on_body_tree_field_moved(self) -> None:
        """Mark the bytes of the field."""
        if not self.bytes_pane.has_focus:
            self._mark()

    def on_row_pane_row_moved(self, event: RowPane.RowMoved) -> None:
        """Go to the field of the byte, or mark the bytes of the record."""
        if event.pane is self.record_table:
            self._mark()
        field = self.bytes_pane.field
        if event.pane is self.bytes_pane and field is not None:
            self._select(field)
            self.record_table.select(field)

    def action_search(self) -> None:
        """Ask what to search for in the pane that has the focus."""
        self._searched = self._focused
        self._input.display = True
        self._input.focus()

    @property
    def _focused(self) -> BodyTree | RecordTable | BytesPane:
        return next((pane for pane in self._panes if pane.has_focus), self.tree_pane)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep it from the filter."""
        event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search; nothing is searched for if the text is empty."""
        event.stop()
        self._input.display = False
        self._searched.focus()
        self._find(self._searched, event.value, 1)

    def action_step(self, way: int) -> None:
        """Go to the next or previous match, in the pane that has the focus."""
        search, pane = self._search, self._focused
        if search is not None and search.pane is pane:
            pane.border_title = search.step(way)
        else:
            self._find(pane, self._input.value, way)

    def _forget_search(self) -> None:
        """The places that it found are no longer there."""
        self._search = None
        for pane in self._panes:
            pane.border_title = ""

    def _find(self, pane: BodyTree | RecordTable | BytesPane, text: str, way: int) -> None:
        if not text:
            return
        search = self._search = PaneSearch(pane, text)
        pane.border_title = "searching"

        def run() -> None:
            search.run(lambda: self._search is not search)
            self.app.call_from_thread(done)

        def done() -> None:
            if self._search is search:
                pane.border_title = search.step(way)

        self.run_worker(run, thread=True, group="search")
