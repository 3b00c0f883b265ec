"""Columns of a line of text that grow as their contents require: padded texts, and both ends of a connection.

Padded texts are cached with their colours, since nearly every line repeats some. Widening a column clears its cache, so
earlier results must not be kept without looking at its `width`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkasniff.model import Endpoint
from kafkasniff.text.paint import Paint
from kafkasniff.text.printable import display_width, word

__all__ = ["FILE_COLUMNS", "LINE_CACHE", "ColumnWidths", "EndsColumn", "PaddedColumn", "PaddedEnds", "column_widths"]

LINE_CACHE: Final = 4096
"""Maximum numbers of cached connections, APIs and client ids with padded columns."""
NAME_WIDTH: Final = 40
"""Maximum length of a host's name."""

PaddedEnds = tuple[Endpoint | None, Endpoint | None, str, str]
"""The ends of a connection, client first, and their column on a request and on a response."""


class ColumnWidths(NamedTuple):
    """Widths of the columns of a listing at its beginning."""

    ends: int
    api: int
    exchange: int
    correlation: int
    client: int


FILE_COLUMNS: Final = ColumnWidths(ends=0, api=12, exchange=4, correlation=7, client=8)
_NARROW: Final = ColumnWidths(ends=36, api=16, exchange=6, correlation=9, client=14)
_WIDE: Final = ColumnWidths(ends=44, api=25, exchange=7, correlation=11, client=24)
_WIDE_TERMINAL: Final = 180
"""Columns of a terminal from which nearly every endpoint, API and client id has room."""


def column_widths(terminal: int) -> ColumnWidths:
    """Widths for a terminal of this many columns: what is usual has room, so that nothing moves during reading."""
    return _WIDE if terminal >= _WIDE_TERMINAL else _NARROW


class PaddedColumn:
    """A growing column: texts padded to the widest so far, cached by key."""

    __slots__ = ("blank", "ready", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.blank = " " * width
        self.ready: dict[object, str] = {}

    def widen(self, width: int) -> None:
        """Pad to this width from now on."""
        self.ready.clear()
        self.width = width
        self.blank = " " * width

    def pad(self, key: object, text: str, before: str = "", after: str = "") -> str:
        """`text` in its colours, padded without colour, and cached in `ready` under `key`."""
        width = display_width(text)
        if width > self.width or len(self.ready) >= LINE_CACHE:
            self.widen(max(width, self.width))
        padded = self.ready[key] = f"{before}{text}{after}{' ' * (self.width - width)}"
        return padded


class EndsColumn:
    """The column of both ends of a connection, with an arrow between them; cached by the connection's number.

    `names`: address, or address:port, → the name shown for it; may grow. `arrows`: from client to broker and back.
    `width`: at the beginning.
    """

    __slots__ = ("_arrows", "_names", "_paint", "cleared", "ready", "width")

    def __init__(self, names: Mapping[str, str], paint: Paint, arrows: tuple[str, str], width: int) -> None:
        self._names = names
        self._paint = paint
        self._arrows = arrows
        self.width = width
        self.cleared = 0
        """How often `ready` was cleared: earlier results would now be padded or named differently."""
        self.ready: dict[int | None, PaddedEnds] = {}

    def pad(self, connection: int | None, client: Endpoint | None, broker: Endpoint | None) -> PaddedEnds:
        """The column for these ends, cached in `ready` under `connection`."""
        ready = self.ready.get(connection)
        if ready is None or ready[0] != client or ready[1] != broker:
            left, right = self._name(client), self._name(broker)
            width = len(left) + len(right) + 3
            if width > self.width or len(self.ready) >= LINE_CACHE:
                self.ready.clear()
                self.cleared += 1
                self.width = max(width, self.width)
            pad = " " * (self.width - width)
            there, back = self._arrows
            paint = self._paint
            ready = self.ready[connection] = (
                client,
                broker,
                f"{left} {paint.request}{there}{paint.reset} {right}{pad}",
                f"{left} {paint.response}{back}{paint.reset} {right}{pad}",
            )
        return ready

    def _name(self, endpoint: Endpoint | None) -> str:
        if endpoint is None:
            return "?"
        shown = str(endpoint)
        # A name for this port alone is more specific.
        name = self._names.get(shown) or self._names.get(endpoint.address)
        return shown if name is None else f"{word(name, NAME_WIDTH)}:{endpoint.port}"
