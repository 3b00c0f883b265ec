"""Search in a pane of the detail: all places whose text contains what is searched for, found in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

__all__ = ["MAX_EXAMINED", "MAX_FOUND", "PaneSearch", "SearchedPane"]

MAX_FOUND: Final = 10_000
"""Maximum number of places that a search finds; it ends there."""
MAX_EXAMINED: Final = 64 << 20
"""Number of characters that a search examines before it ends, some seconds of work. A place counts as at least
`PLACE_COST` of them."""
PLACE_COST: Final = 100


class SearchedPane(Protocol):
    """What a pane offers. A place is whatever the pane understands."""

    def texts(self) -> Iterator[tuple[Any, str]]:
        """All places and their texts, in order; they are asked for in another thread."""

    def here(self) -> Any:
        """The place under the cursor."""

    def go(self, place: Any) -> None:
        """Put the cursor on a place."""


class PaneSearch:
    """Places with a text, whatever its case. `run` finds them, `step` goes to one."""

    def __init__(self, pane: SearchedPane, text: str) -> None:
        self.pane = pane
        self.text = text
        self._texts = pane.texts()
        self._here = pane.here()
        self._found: list[Any] = []
        self._next = 0
        """Number of the next place from the cursor on."""
        self._at: int | None = None
        self._has_more = False
        self._ended_early = False

    def run(self, stopped: Callable[[], bool]) -> None:
        """Find the places; called once, in a thread."""
        wanted, left = self.text.casefold(), MAX_EXAMINED
        for place, text in self._texts:
            if stopped():
                return
            left -= max(len(text), PLACE_COST)
            if left < 0:
                self._ended_early = True
                return
            if place == self._here:
                self._next = len(self._found)
            if wanted in text.casefold():
                if len(self._found) == MAX_FOUND:
                    self._has_more = True
                    return
                self._found.append(place)

    def step(self, way: int) -> str:
        """Go to the next place, or with -1 to the previous one; returns what the pane says about it."""
        count = len(self._found)
        rest = "; the rest was not searched" if self._ended_early else ""
        if not count:
            return f"not found{rest}"
        first = self._next if way > 0 else self._next - 1
        self._at = (first if self._at is None else self._at + way) % count
        self.pane.go(self._found[self._at])
        return f"match {self._at + 1:,} of {'the first ' if self._has_more else ''}{count:,}{rest}"
