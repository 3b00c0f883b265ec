"""Menus: a list of lines to choose from, and what can be followed from an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList

from kafkasniff.browse.following import Followed


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
