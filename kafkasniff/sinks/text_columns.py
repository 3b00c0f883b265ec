"""Columns of a line of text that grow as their contents require.

A sink marks where the text of a column ends. `ColumnOutput` pads it, in the order in which lines leave: a filter may
decide on a line after later ones were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkasniff.model import Endpoint
from kafkasniff.native.library import kernel
from kafkasniff.native.text_lines import TextPadding, capture_mark, column_mark
from kafkasniff.sinks.lines import ByteOutput
from kafkasniff.text.printable import Paint, printable, word

LINE_CACHE: Final = 4096
"""Maximum numbers of cached connections, APIs and client ids."""
NAME_WIDTH: Final = 40
"""Maximum length of a host's name."""

EndsText = tuple[Endpoint | None, Endpoint | None, str, str]
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


class ColumnOutput:
    """Pads the columns of lines on their way to `stream`, and adds the lines at the beginning of captures and days."""

    def __init__(self, stream: ByteOutput, paint: Paint, widths: ColumnWidths) -> None:
        self._stream = stream
        self._paint = paint
        self._padding = TextPadding(kernel(), (paint.dim.encode(), paint.reset.encode()), widths._asdict())
        self._captures: dict[str | None, str] = {None: capture_mark(0)}
        """Marks of the captures so far, by name."""

    def capture(self, name: str | None) -> str:
        """The mark of a capture."""
        mark = self._captures.get(name)
        if mark is None:
            line = f"{self._paint.dim}capture {printable(name or '')}{self._paint.reset}"
            mark = self._captures[name] = capture_mark(self._padding.add_capture(line.encode()))
        return mark

    def write(self, data: bytes | memoryview, /) -> None:
        """Write complete lines, or a piece of a long one."""
        self._stream.write(self._padding.pad(bytes(data)))

    def flush(self) -> None:
        """Flush what was written."""
        self._stream.flush()


class EncodedOutput:
    """Passes UTF-8 on in another encoding; characters that it lacks are written as backslash escapes."""

    def __init__(self, stream: ByteOutput, encoding: str) -> None:
        self._stream = stream
        self._encoding = encoding

    def write(self, data: bytes | memoryview, /) -> None:
        """Write whole characters."""
        self._stream.write(bytes(data).decode().encode(self._encoding, "backslashreplace"))

    def flush(self) -> None:
        """Flush what was written."""
        self._stream.flush()


class EndsTexts:
    """Both ends of connections with an arrow between them; cached by the connection's number.

    `names`: address, or address:port, → the name shown for it; may grow. `arrows`: from client to broker and back.
    """

    __slots__ = ("_arrows", "_names", "_paint", "cleared", "ready")

    def __init__(self, names: Mapping[str, str], paint: Paint, arrows: tuple[str, str]) -> None:
        self._names = names
        self._paint = paint
        self._arrows = arrows
        self.cleared = 0
        """How often `ready` was cleared: earlier results would now be named differently."""
        self.ready: dict[int | None, EndsText] = {}

    def of(self, connection: int | None, client: Endpoint | None, broker: Endpoint | None) -> EndsText:
        """The text for these ends, cached in `ready` under `connection`."""
        ready = self.ready.get(connection)
        if ready is None or ready[0] != client or ready[1] != broker:
            if len(self.ready) >= LINE_CACHE:
                self.ready.clear()
                self.cleared += 1
            left, right = self._name(client), self._name(broker)
            mark = column_mark("ends", len(left) + len(right) + 3)
            there, back = self._arrows
            paint = self._paint
            ready = self.ready[connection] = (
                client,
                broker,
                f"{left} {paint.request}{there}{paint.reset} {right}{mark}",
                f"{left} {paint.response}{back}{paint.reset} {right}{mark}",
            )
        return ready

    def _name(self, endpoint: Endpoint | None) -> str:
        if endpoint is None:
            return "?"
        shown = str(endpoint)
        # A name for this port alone is more specific.
        name = self._names.get(shown) or self._names.get(endpoint.address)
        return shown if name is None else f"{word(name, NAME_WIDTH)}:{endpoint.port}"
