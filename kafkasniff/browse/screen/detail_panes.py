"""The panes of one exchange: its bodies as a tree, and its bytes. What one shows under its cursor, the other marks."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from kafkasniff.browse.byte_rows import ByteRows
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.model import Exchange

__all__ = ["DetailPanes"]


class DetailPanes(Vertical):
    """Panes, each as high as the list of exchanges. `show` is called only while one is open."""

    DEFAULT_CSS = """
    DetailPanes { display: none; }
    DetailPanes > * { height: 1fr; border-top: solid; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self) -> None:
        super().__init__(id="detail")
        self.exchange: Exchange | None = None
        self.tree_pane = BodyTree()
        self.bytes_pane = BytesPane()

    def compose(self) -> ComposeResult:
        """The panes from top to bottom."""
        yield self.tree_pane
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
        """Open the tree."""
        self.tree_pane.display = True
        self._arrange()
        self.tree_pane.focus()

    def toggle_bytes(self) -> None:
        """Show or hide the bytes."""
        self.bytes_pane.display = not self.bytes_pane.display
        self._arrange()

    def close(self) -> bool:
        """Close the pane that was opened last; False if none is open."""
        for pane in (self.bytes_pane, self.tree_pane):
            if pane.display:
                pane.display = False
                self._arrange()
                if self.tree_pane.display:
                    self.tree_pane.focus()
                return True
        return False

    def show(self, exchange: Exchange | None) -> None:
        """Show an exchange; None: it was not found."""
        self.exchange = exchange
        self.tree_pane.show(exchange)
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
        field = self.tree_pane.field
        if field is not None:
            self.bytes_pane.mark(field)

    def on_body_tree_field_moved(self) -> None:
        """Mark the bytes of the field."""
        if not self.bytes_pane.has_focus:
            self._mark()

    def on_bytes_pane_byte_moved(self) -> None:
        """Go to the field of the byte."""
        field = self.bytes_pane.field
        if field is not None:
            self.tree_pane.select(field)
