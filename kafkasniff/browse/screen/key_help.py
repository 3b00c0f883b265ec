"""The screen that lists all keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from kafkasniff.browse.screen.body_tree import BodyTree, BytesPane
from kafkasniff.browse.screen.choices import Choices
from kafkasniff.browse.screen.detail_panes import DetailPanes
from kafkasniff.browse.screen.exchange_list import ExchangeList
from kafkasniff.browse.screen.filter_line import FilterLine
from kafkasniff.browse.screen.out_screens import CopyMenu
from kafkasniff.browse.screen.overview import Histogram, OverviewScreen, ReportPane
from kafkasniff.browse.screen.record_table import RecordTable
from kafkasniff.browse.screen.row_pane import RowPane

KEYS_WIDTH: Final = 16
"""Columns for keys, so that descriptions fit into 80 columns."""
_KEYS: Final = {
    "percent_sign": "%",
    "plus": "+",
    "vertical_line": "|",
    "equals_sign": "=",
    "exclamation_mark": "!",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "question_mark": "?",
    "slash": "/",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "right_curly_bracket": "}",
    "left_curly_bracket": "{",
}


class KeyHelp(ModalScreen[None]):
    """All keys; any of its own closes it. `everywhere`: those of the explorer itself."""

    CSS = """
    KeyHelp { align: center middle; }
    KeyHelp VerticalScroll { width: 78; height: 90%; border: solid $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, everywhere: Sequence[BindingType]) -> None:
        super().__init__()
        self._everywhere = everywhere

    def compose(self) -> ComposeResult:
        """The list of keys."""
        lines = Text()
        for title, bindings in (
            ("Everywhere", self._everywhere),
            ("In the list", ExchangeList.BINDINGS),
            ("In bodies, records and bytes", DetailPanes.BINDINGS),
            ("In bodies", BodyTree.BINDINGS),
            ("In records and bytes", RowPane.BINDINGS),
            ("In records", RecordTable.BINDINGS),
            ("In bytes", BytesPane.BINDINGS),
            ("In menus", Choices.BINDINGS),
            ("In the menu of copies", CopyMenu.BINDINGS),
            ("In the overview", OverviewScreen.BINDINGS),
            ("In its histograms", Histogram.BINDINGS),
            ("In its reports", ReportPane.BINDINGS),
            ("In the filter", FilterLine.BINDINGS),
        ):
            lines.append(f"{title}\n", "bold")
            for one in bindings:
                assert isinstance(one, Binding)
                keys = " ".join(_KEYS.get(key, key) for key in one.key.split(","))
                lines.append(f"  {keys:<{KEYS_WIDTH}} {one.description}\n")
        yield VerticalScroll(Static(lines))
