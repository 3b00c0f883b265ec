"""What opens over the list: menus, lines to type (the filter, the name of a file) and the list of all keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import ClassVar, Final

from rich.highlighter import Highlighter
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message as Notice
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static

from kafkasniff.browse.commands import MAX_CLIPBOARD, Copy
from kafkasniff.browse.filter_texts import SavedFilters, completed
from kafkasniff.browse.following import Followed
from kafkasniff.browse.screen.body_tree import BodyTree, BytesPane
from kafkasniff.browse.screen.detail_panes import DetailPanes, RecordTable
from kafkasniff.browse.screen.exchange_list import ExchangeList
from kafkasniff.browse.screen.overview import Histogram, OverviewScreen, ReportPane
from kafkasniff.browse.screen.row_pane import RowPane
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.filters.expression import parse_filter
from kafkasniff.text.printable import printable


class Choices(OptionList):
    """Lines that also move by the keys of vi; titles are never markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Next, previous line"),
        Binding("k", "cursor_up", "Next, previous line"),
    ]

    def __init__(self, titles: Sequence[str]) -> None:
        super().__init__(*titles, markup=False)


class FollowMenu(ModalScreen[str]):
    """What an exchange has in common with others; returns the filter expression of the choice, or nothing."""

    CSS = """
    FollowMenu { align: center middle; }
    Choices { width: 90%; height: auto; max-height: 90%; border: solid $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "give_up", "Close")]

    def __init__(self, found: Sequence[Followed]) -> None:
        super().__init__()
        self._found = found

    def compose(self) -> ComposeResult:
        """A line for each."""
        lines = Choices([f"{one.kind:<18}{one.title}" for one in self._found])
        lines.border_title = "Enter: list only exchanges of this"
        yield lines

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the expression."""
        event.stop()
        self.dismiss(self._found[event.option_index].expression)

    def action_give_up(self) -> None:
        """Return nothing."""
        self.dismiss("")


class PathPrompt(ModalScreen[str]):
    """Asks for a name; the answer is empty if there is none."""

    CSS = "PathPrompt { align: center middle; } PathPrompt Input { width: 80%; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Close")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        """The line."""
        line = Input()
        line.border_title = self._title
        yield line

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the name."""
        event.stop()
        self.dismiss(os.path.expanduser(event.value.strip()))

    def action_give_up(self) -> None:
        """Return none."""
        self.dismiss("")


class CopyMenu(ModalScreen[None]):
    """The forms of an exchange: to the clipboard, or to a file."""

    CSS = """
    CopyMenu { align: center middle; }
    CopyMenu OptionList { width: 60; height: auto; border: solid $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Close"),
        Binding("s", "save", "Save to a file"),
    ]

    def __init__(self, forms: list[Copy], *, looks_only: bool = False) -> None:
        super().__init__()
        self._forms = forms
        self._looks_only = looks_only
        self._list = Choices([form.title for form in forms])

    def compose(self) -> ComposeResult:
        """The forms."""
        self._list.border_title = f"Enter: copy to the clipboard{'' if self._looks_only else ' · s: save to a file'}"
        yield self._list

    @property
    def _text(self) -> str:
        return self._forms[self._list.highlighted or 0].make()

    def on_option_list_option_selected(self) -> None:
        """Copy, by the terminal (OSC 52)."""
        text = self._text
        if len(text) > MAX_CLIPBOARD:
            self._say(f"{len(text):,} characters are too many for the clipboard: press s to save them to a file")
            return
        self.app.copy_to_clipboard(text)
        self._say(f"copied {len(text):,} characters, if the terminal allows it (OSC 52)")
        self.dismiss()

    def action_save(self) -> None:
        """Ask for a name, and write the form to this file."""
        if self._looks_only:
            self._say("an explorer in a browser writes no files")
            return
        self.app.push_screen(PathPrompt("Save to the file"), self._save)

    def _save(self, path: str | None) -> None:
        if not path:
            return
        text = self._text
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(text if text.endswith("\n") else f"{text}\n")
        except (OSError, ValueError) as error:
            self._say(f"cannot write {printable(path)}: {error.strerror if isinstance(error, OSError) else error}")
            return
        self._say(f"saved to {printable(path)}")
        self.dismiss()

    def _say(self, text: str) -> None:
        self.notify(text, markup=False)


_COLUMN: Final = re.compile(r"column (\d+): ")


def flaw_of(expression: str) -> str:
    """The error of an expression; empty if it has none, or if there is no expression."""
    try:
        if expression.strip():
            parse_filter(expression)
    except UsageError as error:
        return printable(str(error))
    return ""


class _Marker(Highlighter):
    """Marks an expression from the place of its error on."""

    def highlight(self, text: Text) -> None:
        match = _COLUMN.match(flaw_of(text.plain))
        if match is not None:
            # Without colours, the line under it shows the place.
            text.stylize("underline red", int(match[1]) - 1)


class _Completion(Suggester):
    def __init__(self, seen: Callable[[str], Iterable[str]]) -> None:
        # What is seen changes.
        super().__init__(use_cache=False, case_sensitive=True)
        self._seen = seen

    async def get_suggestion(self, value: str) -> str | None:
        return completed(value, self._seen)


class FilterLine(Input):
    """`seen`: the texts in a column of the list."""

    HINTS: ClassVar = (
        "Enter apply",
        "Tab complete",
        "↑ ↓ saved filters",
        "Ctrl+S save",
        "Esc give up",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "cursor_right", "Complete a name or value"),
        Binding("up", "saved(-1)", "Saved filters"),
        Binding("down", "saved(1)", "Saved filters"),
        Binding("ctrl+s", "save", "Save the filter"),
    ]

    class Edited(Notice):
        """The expression changed, or was saved; `note`: what is wrong with it, or what became of it."""

        def __init__(self, note: str) -> None:
            super().__init__()
            self.note = note

    def __init__(self, seen: Callable[[str], Iterable[str]], saved: SavedFilters) -> None:
        super().__init__(
            placeholder='api == "Fetch" and latency_ms > 100',
            id="filter",
            compact=True,
            suggester=_Completion(seen),
            highlighter=_Marker(),
        )
        self._saved = saved

    def on_input_changed(self) -> None:
        """Report what is wrong with the expression so far."""
        self.post_message(self.Edited(flaw_of(self.value)))

    def action_saved(self, way: int) -> None:
        """Show another saved filter; the newest one first."""
        known = self._saved.expressions
        if known:
            at = known.index(self.value) if self.value in known else len(known) if way < 0 else -1
            self.value = known[(at + way) % len(known)]
            self.cursor_position = len(self.value)

    def action_save(self) -> None:
        """Save the expression if it is valid."""
        expression = self.value.strip()
        note = flaw_of(expression)
        if expression and not note:
            try:
                self._saved.save(expression)
                note = "saved"
            except OutputError as error:
                note = str(error)
        self.post_message(self.Edited(note))


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
