"""A pane of rows with a cursor: only visible rows are drawn, so their number does not matter."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region, Size
from textual.message import Message as Notice
from textual.scroll_view import ScrollView
from textual.strip import Strip

__all__ = ["CURSOR", "RowPane"]

CURSOR: Final = Style(reverse=True)


class RowPane(ScrollView, can_focus=True):
    """Subclasses draw the rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Next row"),
        Binding("k,up", "move(-1)", "Previous row"),
        Binding("space,ctrl+f,pagedown", "page(1)", "Next page"),
        Binding("b,ctrl+b,pageup", "page(-1)", "Previous page"),
        Binding("g,home", "end(-1)", "First row"),
        Binding("G,end", "end(1)", "Last row"),
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
        return Strip(text.render(self.app.console, end="")).crop_extend(x, x + width, Style.null())
