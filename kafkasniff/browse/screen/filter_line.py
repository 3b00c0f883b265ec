"""The line for a filter expression: what is wrong is marked, names and values are completed, filters are saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from rich.highlighter import Highlighter
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message as Notice
from textual.suggester import Suggester
from textual.widgets import Input

from kafkasniff.browse.filter_texts import SavedFilters, completed
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.filters.expression import parse_filter
from kafkasniff.text.printable import printable

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
