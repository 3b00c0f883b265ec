"""Messages of a batch as lines of text, made by the kernel; `kernel/text_lines.zig` has the same structures."""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.calls import SummaryCall, address_of
from kafkasniff.native.feed import KEYS, VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.lines import MAX_CAPTURES, Source
from kafkasniff.native.names import LineNames

__all__ = ["NO_DAY", "TABLE", "TOLD", "State", "TextFacts", "TextLines", "TextTable"]

OUTPUT: Final = 256 << 10
"""Bytes of the lines of one call, at most."""
MAX_KEPT: Final = 64 << 10
"""Texts of connections and APIs that are kept; when there are more, all are asked for again."""
NO_DAY: Final = -(1 << 63)
"""`State.day` where no line has a time so far."""

_, _, _LEFT, _NEW_CONNECTION, _NEW_LABEL, _NEW_CAPTURE, _NEW_TABLE, _ASKS = range(8)

TOLD: Final = np.dtype([("at", np.uint64), ("size", np.uint32), ("known", np.uint32)])
"""What lines show of bodies: the place and the bytes of each text, and 1; 0 for the summary that the kernel makes."""
_TEXT: Final = [("text", np.uint64), ("size", np.uint64)]
_ENDS: Final = np.dtype([("request", _TEXT), ("response", _TEXT)])
TABLE: Final = np.dtype(
    [("address", np.uint64), ("known", np.uint32), ("bare", np.uint32), ("tells", np.uint64), ("below", _TEXT)]
)
_CAPTURE: Final = np.dtype([("name", np.int64), ("line", _TEXT)])


class State(ctypes.Structure):
    """What lines depend on that came before."""

    _fields_ = (
        ("day", ctypes.c_int64),
        ("capture", ctypes.c_int64),
        ("exchange_width", ctypes.c_uint64),
        ("correlation_width", ctypes.c_uint64),
        ("client_width", ctypes.c_uint64),
    )


class _TextLines(ctypes.Structure):
    _fields_ = (
        ("source", Source),
        ("connections", ctypes.c_void_p),
        ("connections_size", ctypes.c_uint64),
        ("labels", ctypes.c_void_p),
        ("captures", ctypes.c_void_p),
        ("captures_size", ctypes.c_uint64),
        ("day_before", ctypes.c_char_p),
        ("day_before_size", ctypes.c_uint64),
        ("day_after", ctypes.c_char_p),
        ("day_after_size", ctypes.c_uint64),
        ("tables", ctypes.c_void_p),
        ("summaries", SummaryCall),
        ("told", ctypes.c_void_p),
        ("texts", ctypes.c_void_p),
        ("texts_size", ctypes.c_uint64),
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("wanted", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("state", State),
    )


class TextTable(NamedTuple):
    """How messages of an API's version are shown."""

    address: int
    """Of the table that summaries are made by; 0: such messages are Python's, unless they are `bare`."""
    bare: bool = False
    """Nothing is shown of bodies, which needs no table."""
    tells: bool = False
    """They report the topics that they name."""
    below: bytes = b""
    """Lines below that of each message."""


class TextFacts(Protocol):
    """What lines say beside the messages' own bytes. Each is asked for once, until it is forgotten."""

    def ends(self, index: int) -> tuple[bytes, bytes]:
        """The columns of both ends of a connection, on a request and on a response. It may call `forget`."""

    def label(self, key: int, version: int) -> bytes:
        """The column of an API's version; likewise."""

    def table(self, key: int, version: int, is_request: bool, /) -> TextTable:
        """How messages of an API's version are shown, in one direction, until `forget_tables`."""

    def capture(self, index: int) -> tuple[int, bytes]:
        """A number that captures of the same name share, and the line where one begins."""


class TextLines:
    """Lines of one batch after the other (`bind`).

    `day`: what is in front of the date in its line, and behind it; `names`: what is added to bodies.
    """

    def __init__(
        self, kernel: Kernel, facts: TextFacts, day: tuple[bytes, bytes], names: LineNames | None = None
    ) -> None:
        self._function = kernel.text_lines
        self._facts = facts
        self._names = names
        self._labels = np.zeros(KEYS * VERSIONS, _TEXT)
        self._connections = np.zeros(0, _ENDS)
        self._captures = np.zeros(0, _CAPTURE)
        self._kept: list[bytes] = []
        """Texts of ends and labels that the kernel has the addresses of."""
        self._kept_captures: list[bytes] = []
        self._kept_below: list[bytes] = []
        self._bound: tuple[object, ...] = ()
        output = bytearray(OUTPUT)
        self._output = memoryview(output)
        lines = self._lines = _TextLines()
        self._pointer = ctypes.pointer(lines)
        self._tables = np.zeros(2 * KEYS * VERSIONS, TABLE)
        lines.tables = self._tables.ctypes.data
        lines.labels = self._labels.ctypes.data
        lines.output, lines.output_size = ctypes.addressof(ctypes.c_char.from_buffer(output)), OUTPUT
        lines.day_before, lines.day_before_size = day[0], len(day[0])
        lines.day_after, lines.day_after_size = day[1], len(day[1])
        lines.summaries.names = None if names is None else names.address
        self.state: State = lines.state
        """What the next line depends on."""

    def forget(self) -> None:
        """Ask again for all ends and labels."""
        self._connections[:] = 0
        self._labels[:] = 0
        self._kept.clear()

    def forget_tables(self) -> None:
        """Ask again how messages are shown."""
        self._tables[:] = 0
        self._kept_below.clear()

    def forget_connections(self, connections: list[int]) -> None:
        """Ask again for the ends of these."""
        for index in connections:
            if index < len(self._connections):
                self._connections[index] = 0

    def bind(
        self,
        messages: NDArray[np.void],
        numbers: NDArray[np.int64],
        buffer: NDArray[np.uint8],
        arena: NDArray[np.uint8],
        earlier: NDArray[np.void] | None = None,
        *,
        told: tuple[NDArray[np.void], NDArray[np.uint8]] | None = None,
    ) -> None:
        """From here on write these messages, as `JsonLines.bind`.

        `told`: what lines show, of `TOLD`, one for each, and the texts.
        """
        lines = self._lines
        bound: list[Any] = [lines.source.bind(messages, numbers, buffer, arena, earlier)]
        if self._names is not None:
            self._names.bind(len(messages))
        lines.told, lines.texts, lines.texts_size = None, 0, 0
        if told is not None:
            if len(told[0]) < len(messages) or told[0].dtype != TOLD:
                raise ValueError("texts of messages that are none")
            bound += (says := np.ascontiguousarray(told[0])), told[1]
            lines.told, lines.texts, lines.texts_size = says.ctypes.data, told[1].ctypes.data, len(told[1])
        self._bound = tuple(bound)

    def write(self, first: int, last: int) -> tuple[bytes, int, bool]:
        """The lines of the messages from `first` up to `last`, or in front of another one. Hot.

        Returns them, the index of that one, and whether it is Python's; else it is to be asked for again.
        """
        lines = self._lines
        lines.next, lines.last, lines.used = first, last, 0
        if self._names is not None:
            self._names.changed()
        while True:
            outcome = self._function(self._pointer)
            if outcome <= _LEFT:
                found = bytes(self._output[: lines.used])
                # A line for which there is no room at all is Python's, too.
                return found, lines.next, outcome == _LEFT or not found
            if outcome == _NEW_CONNECTION:
                self._new_connection(lines.wanted)
            elif outcome == _NEW_LABEL:
                text = self._facts.label(*divmod(lines.wanted, VERSIONS))
                self._labels[lines.wanted] = (address_of(text, self._kept), len(text))
            elif outcome == _NEW_TABLE:
                direction, code = divmod(lines.wanted, KEYS * VERSIONS)
                key, version = divmod(code, VERSIONS)
                table = self._facts.table(key, version, not direction)
                lines_below = address_of(table.below, self._kept_below), len(table.below)
                self._tables[lines.wanted] = (table.address, 1, table.bare, table.tells, lines_below)
            elif outcome == _ASKS:
                assert self._names is not None
                if not self._names.answer():
                    return bytes(self._output[: lines.used]), lines.next, True
            elif outcome == _NEW_CAPTURE and lines.wanted < MAX_CAPTURES:
                self._new_capture(lines.wanted)
            elif outcome == _NEW_CAPTURE:
                return bytes(self._output[: lines.used]), lines.next, True
            else:
                raise RuntimeError(f"the kernel refuses to write lines: {outcome}")

    def _new_connection(self, index: int) -> None:
        if len(self._kept) >= MAX_KEPT:
            self.forget()
        request, response = self._facts.ends(index)
        if index >= len(self._connections):
            more = np.zeros(max(2 * index, 64), _ENDS)
            more[: len(self._connections)] = self._connections
            self._connections = more
            self._lines.connections, self._lines.connections_size = more.ctypes.data, len(more)
        self._connections[index] = (
            (address_of(request, self._kept), len(request)),
            (address_of(response, self._kept), len(response)),
        )

    def _new_capture(self, index: int) -> None:
        if index >= len(self._captures):
            more = np.zeros(max(2 * index, 16), _CAPTURE)
            more[: len(self._captures)] = self._captures
            self._captures = more
            self._lines.captures, self._lines.captures_size = more.ctypes.data, len(more)
        name, line = self._facts.capture(index)
        self._captures[index] = (name, (address_of(line, self._kept_captures), len(line)))
