"""The panes of one exchange: its bodies as a tree, its records as a table, and its bytes.

What is under the cursor in the tree or the table is marked in the bytes; a byte selects its field in the tree.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from kafkasniff.browse.byte_rows import ByteRows
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.record_table import RecordTable
from kafkasniff.browse.screen.row_pane import RowPane
from kafkasniff.model import Exchange

__all__ = ["DetailPanes"]


class DetailPanes(Vertical):
    """Panes, each as high as the list of exchanges. `show` is called only while one is open."""

    DEFAULT_CSS = """
    DetailPanes { display: none; }
    DetailPanes > * { height: 1fr; border-top: solid; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "records", "Show records as a table, or the tree again"),
    ]

    def __init__(self) -> None:
        super().__init__(id="detail")
        self.exchange: Exchange | None = None
        self.tree_pane = BodyTree()
        self.record_table = RecordTable()
        self.bytes_pane = BytesPane()

    def compose(self) -> ComposeResult:
        """The panes from top to bottom."""
        yield self.tree_pane
        yield self.record_table
        yield self.bytes_pane

    @property
    def is_open(self) -> bool:
        """Whether a pane is open."""
        return any(pane.display for pane in self.children)

    def _arrange(self) -> None:
        count = sum(pane.display for pane in self.children)
        self.display = count > 0
        self.styles.height = f"{max(count, 1)}fr"

    def open(self) -> None:
        """Open the tree, unless records are shown."""
        self.tree_pane.display = not self.record_table.display
        self._arrange()
        self._focus()

    def toggle_bytes(self) -> None:
        """Show or hide the bytes."""
        self.bytes_pane.display = not self.bytes_pane.display
        self._arrange()

    def action_records(self) -> None:
        """Show the records instead of the tree, or the tree again."""
        shown = not self.record_table.display
        self.record_table.display, self.tree_pane.display = shown, not shown
        if shown:
            self.record_table.show(self.exchange)
        self._arrange()
        self._focus()
        self._mark()

    def _focus(self) -> None:
        for pane in (self.record_table, self.tree_pane):
            if pane.display:
                pane.focus()

    def close(self) -> bool:
        """Close bytes, records or tree; False if none is open."""
        if self.bytes_pane.display:
            self.bytes_pane.display = False
        elif self.record_table.display:
            self.action_records()
        elif self.tree_pane.display:
            self.tree_pane.display = False
        else:
            return False
        self._arrange()
        self._focus()
        return True

    def show(self, exchange: Exchange | None) -> None:
        """Show an exchange; None: it was not found."""
        self.exchange = exchange
        self.tree_pane.show(exchange)
        if self.record_table.display:
            self.record_table.show(exchange)
        self._show_bytes()

    def _show_bytes(self) -> None:
        pane, exchange = self.bytes_pane, self.exchange
        if not pane.display:
            return
        width, whole = pane.size.width, pane.whole

        def make() -> None:
            rows = ByteRows(exchange, width, whole=whole)
            if self.exchange is exchange:
                self.app.call_from_thread(shown, rows)

        def shown(rows: ByteRows) -> None:
            pane.show(rows)
            self._mark()

        self.run_worker(make, thread=True, group="bytes", exclusive=True)

    def on_bytes_pane_outdated(self) -> None:
        """Make the rows again."""
        self._show_bytes()

    def _mark(self) -> None:
        field = (self.record_table if self.record_table.display else self.tree_pane).field
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
            self.tree_pane.select(field)
            self.record_table.select(field)
