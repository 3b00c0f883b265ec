"""A pane of rows with a cursor, and search in it. Only visible rows are drawn, so their number does not matter."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Protocol

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region, Size
from textual.message import Message as Notice
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

CURSOR: Final = Style(reverse=True)


def hint(pane: Widget | None, width: int) -> str:
    """The most useful keys of the pane that has the focus (its `HINTS`), as many as fit into a line."""
    # In a line of text, `?` is a character.
    end = "" if isinstance(pane, Input) else "? all keys"
    shown: list[str] = []
    for one in getattr(pane, "HINTS", ()):
        if len(" · ".join((*shown, one, end))) > width:
            break
        shown.append(one)
    return " · ".join((*shown, end) if end else shown)


def bar(text: str, width: int) -> Text:
    """A line that its colours fill to the end, cut with an ellipsis."""
    line = Text(text, no_wrap=True)
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


class RowPane(ScrollView, can_focus=True):
    """Subclasses draw the rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Next, previous row"),
        Binding("k,up", "move(-1)", "Next, previous row"),
        Binding("space,ctrl+f,pagedown", "page(1)", "Next, previous page"),
        Binding("b,ctrl+b,pageup", "page(-1)", "Next, previous page"),
        Binding("g,home", "end(-1)", "First, last row"),
        Binding("G,end", "end(1)", "First, last row"),
    ]
    TITLES: ClassVar = 0
    """Rows at the top that do not scroll."""

    class RowMoved(Notice):
        """The cursor is on another place."""

        def __init__(self, pane: RowPane) -> None:
            super().__init__()
            self.pane = pane

        @property
        def control(self) -> RowPane:
            """The pane."""
            return self.pane

    cursor = 0
    """The row."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of rows."""

    @abstractmethod
    def drawn(self, row: int) -> Text:
        """A row; those of titles are negative. Hot."""

    def reset(self, width: int) -> None:
        """Begin anew: the rows have changed, and are so wide."""
        self.cursor = 0
        self.virtual_size = Size(width, self.count + self.TITLES)
        self.scroll_to(0, 0, animate=False)
        self.refresh()

    def show_cursor(self) -> None:
        """Scroll to the cursor."""
        region = Region(self.scroll_offset.x, self.cursor, 1, 1 + self.TITLES)
        self.scroll_to_region(region, animate=False, force=True)
        self.refresh()

    def move_to(self, row: int) -> None:
        """Put the cursor on a row, or on the nearest there is."""
        if self.count:
            self.cursor = max(0, min(row, self.count - 1))
            self.show_cursor()
            self.post_message(self.RowMoved(self))

    def here(self) -> int:
        """The row of the cursor, for searches."""
        return self.cursor

    def go(self, place: int) -> None:
        """Put the cursor on a row that a search has found."""
        self.move_to(place)

    def action_move(self, by: int) -> None:
        """Some rows up or down."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """One page up or down."""
        self.move_to(self.cursor + by * max(self.size.height - 1 - self.TITLES, 1))

    def action_end(self, way: int) -> None:
        """To the first or the last row."""
        self.move_to(self.count * way)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is."""
        place = event.get_content_offset(self)
        if place is not None and place.y >= self.TITLES:
            row = place.y + self.scroll_offset.y - self.TITLES
            if row < self.count:
                self.click(row, place + Offset(self.scroll_offset.x, 0), again=event.chain > 1)

    def click(self, row: int, place: Offset, *, again: bool) -> None:
        """A click on a row; `place` is that in the row; `again`: it is the second of two."""
        self.move_to(row)

    def render_line(self, y: int) -> Strip:
        """A line of the screen. Hot."""
        x, width = self.scroll_offset.x, self.size.width
        row = y - self.TITLES
        if row >= 0:
            row += self.scroll_offset.y
        if row >= self.count:
            return Strip.blank(width, Style.null())
        text = self.drawn(row)
        # Rich omits the style of a text without spans.
        style = self.app.console.get_style(text.style)
        segments = Segment.apply_style(text.render(self.app.console), style)
        return Strip(segments).crop_extend(x, x + width, style if style.reverse else Style.null())


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
