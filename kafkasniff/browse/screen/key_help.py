"""The screen that lists all keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from kafkasniff.browse.screen.body_tree import BodyTree, BytesPane
from kafkasniff.browse.screen.detail_panes import DetailPanes
from kafkasniff.browse.screen.exchange_list import ExchangeList
from kafkasniff.browse.screen.menus import Choices, CopyMenu, FilterLine
from kafkasniff.browse.screen.overview import Histogram, OverviewScreen, ReportPane
from kafkasniff.browse.screen.record_table import RecordTable
from kafkasniff.browse.screen.row_pane import RowPane

KEYS_WIDTH: Final = 7
"""Columns for keys."""
COLUMN: Final = 38
"""Width of a column of the help, so that two fit into 80 columns."""
_PLACES: Final = (
    ("In the list", ExchangeList),
    ("In the bars", Histogram),
    ("In bodies", BodyTree),
    ("In records and bytes", RowPane),
    ("In records", RecordTable),
    ("In bytes", BytesPane),
    ("In bodies, records and bytes", DetailPanes),
    ("In the overview", OverviewScreen),
    ("In its reports", ReportPane),
    ("In menus", Choices),
    ("In the menu of copies", CopyMenu),
    ("In the filter", FilterLine),
)
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
    "up": "↑",
    "down": "↓",
    "space": "Space",
    "enter": "Enter",
    "escape": "Esc",
    "backspace": "BkSp",
    "tab": "Tab",
}


class KeyHelp(ModalScreen[None]):
    """All keys, those of the pane with the focus first; any of its own closes it.

    `everywhere`: those of the explorer itself; `pane`: the pane.
    """

    CSS = """
    KeyHelp { align: center middle; }
    KeyHelp VerticalScroll { width: 100%; height: 100%; }
    KeyHelp Static { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def __init__(self, everywhere: Sequence[BindingType], pane: Widget | None) -> None:
        super().__init__()
        self._everywhere = everywhere
        self._pane = pane

    def compose(self) -> ComposeResult:
        """The list of keys, in two columns."""
        blocks = [list(_lines(title, of.BINDINGS)) for title, of in _PLACES if isinstance(self._pane, of)]
        others = [list(_lines(title, of.BINDINGS)) for title, of in _PLACES if not isinstance(self._pane, of)]
        left, right = [line for block in blocks for line in block], list(_lines("Everywhere", self._everywhere))
        for block in others:
            (left if len(left) <= len(right) else right).extend(["", *block])
        lines = Text(no_wrap=True)
        for one, other in zip_longest(left, right, fillvalue=""):
            for text in (f"{one:<{COLUMN}}", f"{other:<{COLUMN}}\n"):
                lines.append(text, "reverse" if text.strip() and not text.startswith(" ") else "")
        yield VerticalScroll(Static(lines))


def _lines(title: str, bindings: Sequence[BindingType]) -> Iterator[str]:
    """A title, and a line for each key, or for neighbours with the same description."""
    yield title
    for text, same in groupby(bindings, key=lambda one: one.description if isinstance(one, Binding) else ""):
        # The first key of each: the others are arrows and the like.
        keys = [one.key.partition(",")[0] for one in same if isinstance(one, Binding)]
        yield f" {' '.join(_KEYS.get(key, key.replace('ctrl+', '^')) for key in keys):<{KEYS_WIDTH}} {text}"
