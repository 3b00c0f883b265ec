"""Messages of a batch as lines of text, made by the kernel; `kernel/text_lines.zig` has the same structures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np

from kafkasniff.native.caller import Caller, WantedBatch
from kafkasniff.native.calls import SummaryCall, address_of
from kafkasniff.native.feed import KEYS, VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.line_problems import CAREFUL, Careful, LineWordings
from kafkasniff.native.lines import MAX_CAPTURES, USUAL_RATIO, LineBatch, LineSource
from kafkasniff.native.names import LineNames
from kafkasniff.native.rows import grown
from kafkasniff.native.summaries import SummaryPaint
from kafkasniff.native.trees import TreeStyle

MAX_KEPT: Final = 64 << 10
"""Cached texts of connections and APIs; beyond that, all are requested again."""

_, _NO_ROOM, _LEFT, _NEW_CONNECTION, _NEW_LABEL, _NEW_CAPTURE, _NEW_TABLE, _ASKS = range(8)
_COMPRESSED, _NEW_CONTROLS, _NEW_PAGE = range(8, 11)

_TEXT: Final = [("text", np.uint64), ("size", np.uint64)]
_ENDS: Final = np.dtype([("request", _TEXT), ("response", _TEXT), ("number", np.int64)])
TABLE: Final = np.dtype(
    [
        ("address", np.uint64),
        ("known", np.uint32),
        ("bare", np.uint32),
        ("teaches", np.uint64),
        ("below", _TEXT),
        ("program", np.uint64),
        ("careful", CAREFUL),
    ]
)


class _TextLines(ctypes.Structure):
    _fields_ = (
        ("source", LineSource),
        ("connections", ctypes.c_void_p),
        ("connections_size", ctypes.c_uint64),
        ("labels", ctypes.c_void_p),
        ("captures", ctypes.c_void_p),
        ("captures_size", ctypes.c_uint64),
        ("tables", ctypes.c_void_p),
        ("summaries", SummaryCall),
        ("style", ctypes.c_void_p),
        ("call", ctypes.c_void_p),
        ("wordings", LineWordings),
        ("most", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("wanted", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("data_size", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("problems", ctypes.c_uint64),
    )


class TextTable(NamedTuple):
    """How messages of an API's version are shown."""

    address: int
    """Address of the table for summaries; 0: such messages are left to Python, unless they are `bare`."""
    bare: bool = False
    """Nothing is shown of bodies, so no table is needed."""
    teaches: bool = False
    """They have names of topics."""
    below: bytes = b""
    """Lines below each message's own."""
    program: int = 0
    """Address of the program of bodies; 0: Python reports problems, and shows bodies."""
    careful: Careful = Careful()


class TextFacts(Protocol):
    """Facts for lines besides the messages' own bytes. Each is requested once, until it is forgotten."""

    def ends(self, index: int) -> tuple[int, bytes, bytes]:
        """The number of a connection, and the columns of its ends on a request and on a response.

        It may call `forget`.
        """

    def label(self, key: int, version: int) -> bytes:
        """The column of an API's version."""

    def table(self, key: int, version: int, is_request: bool, /) -> TextTable:
        """How messages of an API's version are shown, in one direction, until `forget_tables`."""

    def capture(self, index: int) -> bytes:
        """What the line of a message of a capture begins with."""

    def inflate(self, data: memoryview, /) -> Callable[[WantedBatch], bytes | None]:
        """Decompresses batches of the message `data`; None for one that Python has to decode."""


class TextLines:
    """Lines of consecutive batches (`bind`).

    `wordings`: of problems; `most`: the largest message whose body is decoded here, in bytes; `names`: fields added to
    bodies; `style`: how bodies are shown below their lines; `paint`: how errors and problems are shown; if None, lines
    with such are left to Python. `use` has to be called before lines are written.
    """

    def __init__(  # noqa: PLR0917 - once for each run
        self,
        kernel: Kernel,
        facts: TextFacts,
        wordings: LineWordings,
        most: int,
        names: LineNames | None = None,
        style: TreeStyle | None = None,
        paint: SummaryPaint | None = None,
    ) -> None:
        self._function = kernel.text_lines
        self._facts = facts
        self._names = names
        self._labels = np.zeros(KEYS * VERSIONS, _TEXT)
        self._connections = np.zeros(0, _ENDS)
        self._captures = np.zeros(0, _TEXT)
        self._kept: list[bytes] = []
        """Texts of ends and labels whose addresses the kernel has."""
        self._kept_captures: list[bytes] = []
        self._kept_below: list[bytes] = []
        self._bound: LineBatch | None = None
        lines = self._lines = _TextLines()
        self._style = style
        self._caller: Caller
        lines.style, lines.most = None if style is None else style.address, most
        self._wordings = lines.wordings = wordings
        self._pointer = ctypes.pointer(lines)
        self._tables = np.zeros(2 * KEYS * VERSIONS, TABLE)
        lines.tables = self._tables.ctypes.data
        lines.labels = self._labels.ctypes.data
        lines.summaries.names = None if names is None else names.address
        self._paint = paint
        lines.summaries.paint = None if paint is None else paint.address

    def use(self, caller: Caller) -> None:
        """Decode bodies as `caller` does, in its memory, and request again how messages are shown."""
        self._caller = caller
        self._lines.call = caller.address
        self._tables[:] = 0
        self._kept_below.clear()

    @property
    def problems(self) -> int:
        """Problems of the bodies whose lines were written by the last call."""
        return int(self._lines.problems)

    def forget(self) -> None:
        """Request all ends and labels again."""
        self._connections[:] = 0
        self._labels[:] = 0
        self._kept.clear()

    def forget_connections(self, connections: list[int]) -> None:
        """Request the ends of these connections again."""
        for index in connections:
            if index < len(self._connections):
                self._connections[index] = 0

    def bind(self, batch: LineBatch) -> None:
        """From here on write these messages."""
        self._bound = self._lines.source.bind(batch)
        self._caller.shrink()
        if self._names is not None:
            self._names.bind(batch.here)

    def write(self, first: int, last: int) -> tuple[bytes, int, bool]:
        """The lines of the messages from `first` up to `last`, or up to an earlier one. Hot.

        Returns them, the index of that one, and whether it is left to Python; else it has to be requested again.
        """
        lines = self._lines
        lines.next, lines.last, lines.used, lines.problems = first, last, 0, 0
        self._caller.begin()
        if self._names is None:
            return self._write()
        self._names.changed()
        found = self._write()
        self._names.settle()
        return found

    def _write(self) -> tuple[bytes, int, bool]:
        lines = self._lines
        given: list[bytes] = []
        while True:
            outcome = self._function(self._pointer)
            if outcome <= _LEFT:
                if outcome == _NO_ROOM and not lines.used and self._caller.more():
                    continue
                # A line that does not fit into the empty memory is left to Python, too.
                return self._made(is_pythons=outcome == _LEFT or not lines.used)
            if outcome == _NEW_CONNECTION:
                self._new_connection(lines.wanted)
            elif outcome == _NEW_LABEL:
                text = self._facts.label(*divmod(lines.wanted, VERSIONS))
                self._labels[lines.wanted] = (address_of(text, self._kept), len(text))
            elif outcome == _NEW_TABLE:
                self._new_table(lines.wanted)
            elif outcome == _ASKS:
                assert self._names is not None
                if not self._names.answer():
                    return self._made(is_pythons=True)
            elif outcome == _NEW_CAPTURE and lines.wanted < MAX_CAPTURES:
                self._new_capture(lines.wanted)
            elif outcome == _NEW_CAPTURE:
                return self._made(is_pythons=True)
            elif outcome == _COMPRESSED:
                given = []
                if (is_pythons := self._inflate(given)) is not None:
                    return self._made(is_pythons=is_pythons)
            elif outcome == _NEW_CONTROLS:
                self._caller.learns_controls()
            elif outcome == _NEW_PAGE and self._style is not None:
                self._style.add_page(lines.wanted)
            else:
                raise RuntimeError(f"the kernel refuses to write lines: {outcome}")

    def _made(self, *, is_pythons: bool) -> tuple[bytes, int, bool]:
        lines = self._lines
        return bytes(self._caller.view[: lines.used]), lines.next, is_pythons

    def _inflate(self, given: list[bytes]) -> bool | None:
        """Decompress the records of the next message into `given`, which the next call uses.

        If its lines cannot be written now, returns whether they are left to Python.
        """
        lines = self._lines
        assert self._bound is not None
        caller = self._caller
        if lines.used and lines.used + USUAL_RATIO * lines.data_size > caller.size:
            # They would hardly fit after those before.
            return False
        if not caller.give(self._facts.inflate(self._bound.bytes_at(lines.data, lines.data_size)), given):
            return True
        if not lines.used:
            caller.reserve(sum(map(len, given)))
        return None

    def _new_table(self, place: int) -> None:
        direction, code = divmod(place, KEYS * VERSIONS)
        table = self._facts.table(*divmod(code, VERSIONS), not direction)
        below = address_of(table.below, self._kept_below), len(table.below)
        careful = table.careful.row(self._kept_below)
        self._tables[place] = (table.address, 1, table.bare, table.teaches, below, table.program, careful)

    def _new_connection(self, index: int) -> None:
        if len(self._kept) >= MAX_KEPT:
            self.forget()
        number, request, response = self._facts.ends(index)
        known = self._connections = grown(self._connections, index, 64)
        self._lines.connections, self._lines.connections_size = known.ctypes.data, len(known)
        self._connections[index] = (
            (address_of(request, self._kept), len(request)),
            (address_of(response, self._kept), len(response)),
            number,
        )

    def _new_capture(self, index: int) -> None:
        known = self._captures = grown(self._captures, index, 16)
        self._lines.captures, self._lines.captures_size = known.ctypes.data, len(known)
        mark = self._facts.capture(index)
        self._captures[index] = (address_of(mark, self._kept_captures), len(mark))
