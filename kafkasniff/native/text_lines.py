"""Messages of a batch as lines of text, made by the kernel; `kernel/text_lines.zig` has the same structures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import Caller, WantedBatch
from kafkasniff.native.feed import KEYS, VERSIONS, grown
from kafkasniff.native.library import Kernel, SummaryCall, address_of
from kafkasniff.native.lines import (
    AT_ONCE,
    CAREFUL,
    MAX_CAPTURES,
    USUAL_RATIO,
    Careful,
    LineBatch,
    LineSource,
    LineWordings,
    texts_of,
)
from kafkasniff.native.names import LineNames

# -- columns of lines (`kernel/text_columns.zig` has the same structure and marks) -------------------------------------


OUTPUT: Final = 1 << 20
"""Bytes padded at a time: most blocks of lines fit."""
MAX_WIDTH: Final = 1023
"""Width of the widest column: two digits."""
LAST: Final = "\x1fl"
"""Ends a line that has no spaces at its end."""

_TEXT: Final = np.dtype([("text", np.uint64), ("size", np.uint64)])
_COLUMNS: Final = {"ends": "e", "api": "a", "exchange": "x", "correlation": "r", "client": "c"}


def _digits(count: int, number: int) -> str:
    return "".join(chr(0x40 + (number >> 5 * place & 31)) for place in reversed(range(count)))


_MARKS: Final = {
    name: tuple(f"\x1f{kind}{_digits(2, width)}" for width in range(MAX_WIDTH + 1)) for name, kind in _COLUMNS.items()
}


def column_mark(column: str, width: int) -> str:
    """The end of a column, after its text of `width` terminal columns. Hot."""
    return _MARKS[column][min(width, MAX_WIDTH)]


def day_mark(date: str | None) -> str:
    """The beginning of a message's line; None: it has no time. Times of captures end in 2262."""
    return f"\x1fd{(date or '')[-10:]:10}"


def capture_mark(number: int) -> str:
    """Before that, the capture (`TextPadding.add_capture`), if captures are shown; 0: it has no name."""
    return f"\x1ff{_digits(4, number)}"


class _Columns(ctypes.Structure):
    _fields_ = (
        ("input", ctypes.c_void_p),
        ("input_size", ctypes.c_uint64),
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("read", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in _COLUMNS),
        ("day_before", ctypes.c_char_p),
        ("day_before_size", ctypes.c_uint64),
        ("day_after", ctypes.c_char_p),
        ("day_after_size", ctypes.c_uint64),
        ("captures", ctypes.c_void_p),
        ("captures_size", ctypes.c_uint64),
        ("capture", ctypes.c_uint64),
        ("day", ctypes.c_char * 10),
    )


class TextPadding:
    """Pads consecutive lines. `day`: text before and after a date in its line; `widths`: at the beginning, by name."""

    def __init__(self, kernel: Kernel, day: tuple[bytes, bytes], widths: dict[str, int]) -> None:
        self._function = kernel.text_columns
        self._output = ctypes.create_string_buffer(OUTPUT)
        self._view = memoryview(self._output).cast("B")
        self._captures = np.zeros(1, _TEXT)
        self._count = 1
        self._kept: list[bytes] = []
        columns = self._columns = _Columns(**widths)
        columns.output, columns.output_size = ctypes.addressof(self._output), OUTPUT
        columns.day_before, columns.day_before_size = day[0], len(day[0])
        columns.day_after, columns.day_after_size = day[1], len(day[1])
        self._pointer = ctypes.pointer(columns)

    def add_capture(self, line: bytes) -> int:
        """The number of a capture that begins with this line."""
        number, self._count = self._count, self._count + 1
        known = self._captures = grown(self._captures, number, 16)
        known[number] = (address_of(line, self._kept), len(line))
        self._columns.captures, self._columns.captures_size = known.ctypes.data, self._count
        return number

    def pad(self, data: bytes) -> bytes | memoryview:
        """The next lines, or a piece of one without marks, as they are shown; a view is valid until the next call."""
        columns = self._columns
        pieces: list[bytes] = []
        columns.input, columns.input_size = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data)
        columns.read = 0
        while columns.read < len(data):
            columns.written = 0
            self._function(self._pointer)
            if not pieces and columns.read == len(data):
                # Copying large blocks takes as long as padding them.
                return self._view[: columns.written]
            pieces.append(bytes(self._view[: columns.written]))
        return b"".join(pieces)


# -- tables of summaries, and errors (`kernel/summary_errors.zig`) -----------------------------------------------------


class SummaryTable:
    """The bytes of a table in memory for the kernel. Raises ValueError if they are invalid."""

    __slots__ = ("_bytes", "address")

    def __init__(self, kernel: Kernel, table: bytes) -> None:
        if not kernel.check_summary(table, len(table)):
            raise ValueError("not a table of the kernel")
        self._bytes = ctypes.create_string_buffer(table, len(table))
        self.address = ctypes.addressof(self._bytes)


class _Paint(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64 * 2) for name in ("failure", "warning", "dim", "reset")),
        ("names", ctypes.c_void_p),
        ("names_size", ctypes.c_uint64),
        ("first", ctypes.c_int64),
    )


class SummaryPaint:
    """The texts before errors, throttling and a broker's words, the text after each, and the names of error codes."""

    def __init__(self, failure: str, warning: str, dim: str, reset: str, names: Mapping[int, str | None]) -> None:
        self._kept: list[bytes] = []
        first = min(names)
        known = (names.get(code) for code in range(first, max(names) + 1))
        self._names = texts_of((None if name is None else name.encode() for name in known), self._kept)
        paint = self._paint = _Paint(names=self._names.ctypes.data, names_size=len(self._names), first=first)
        for member, text in (("failure", failure), ("warning", warning), ("dim", dim), ("reset", reset)):
            encoded = text.encode()
            setattr(paint, member, (ctypes.c_uint64 * 2)(address_of(encoded, self._kept), len(encoded)))
        self.address = ctypes.addressof(paint)


# -- trees of bodies (`kernel/tree_style.zig` has the same structures) -------------------------------------------------


TIME, ERROR_CODE, FIRST_ENUM = 1, 2, 3
"""Roles of ops in programs of trees: times in milliseconds, error codes, and from here on the values of enums."""
TIMES: Final = 0x80
"""Added to the role of an enum some of whose values are times."""
MAX_ENUMS: Final = TIMES - FIRST_ENUM
PAGE: Final = 256
"""Characters that are described at once."""

_NAME: Final = np.dtype([("number", np.int64), ("key", _TEXT), ("name", _TEXT)])
_ENUM: Final = np.dtype([("values", np.uint64), ("size", np.uint64)])


class Colours(NamedTuple):
    """Codes before names, annotations and the place of the message, and after each."""

    name: bytes
    note: bytes
    dim: bytes
    reset: bytes


class EnumName(NamedTuple):
    """A value of an enum and its name."""

    value: int | bytes
    name: bytes


class _Style(ctypes.Structure):
    _fields_ = (
        ("width", ctypes.c_uint64),
        ("enums", ctypes.c_void_p),
        ("enums_size", ctypes.c_uint64),
        ("pages", ctypes.c_void_p),
        *((name, ctypes.c_uint64 * 2) for name in Colours._fields),
    )


class TreeStyle:
    """What trees have in common. `address` is that of the structure.

    `width`: columns available; `characters`: how the characters of a page are shown (`printable.shown_characters`).
    """

    def __init__(self, colours: Colours, width: int, characters: Callable[[int], bytes]) -> None:
        style = self._style = _Style()
        self.address = ctypes.addressof(style)
        self._characters = characters
        self._kept: list[bytes] = []
        """Texts whose addresses the kernel has."""
        self._names: list[object] = []
        self._enums = np.zeros(MAX_ENUMS, _ENUM)
        self._pages = np.zeros(0x11_0000 // PAGE, np.uint64)
        style.width, style.enums, style.pages = width, self._enums.ctypes.data, self._pages.ctypes.data
        for name, code in zip(Colours._fields, colours, strict=True):
            getattr(style, name)[:] = address_of(code, self._kept), len(code)

    def add_enum(self, values: Iterable[EnumName]) -> int | None:
        """The role of fields with the values of an enum; None if there are too many enums."""
        style, kept = self._style, self._kept
        if style.enums_size == MAX_ENUMS:
            return None
        rows = [
            (value, (0, 0), (address_of(name, kept), len(name)))
            if isinstance(value, int)
            else (0, (address_of(value, kept), len(value)), (address_of(name, kept), len(name)))
            for value, name in values
        ]
        names = np.array(rows, _NAME)
        self._names.append(names)
        self._enums[style.enums_size] = names.ctypes.data, len(names)
        style.enums_size += 1
        return FIRST_ENUM + int(style.enums_size) - 1

    def add_page(self, number: int) -> None:
        """Describe the characters of a page."""
        self._pages[number] = address_of(self._characters(number * PAGE), self._kept)


# -- lines -------------------------------------------------------------------------------------------------------------


MAX_KEPT: Final = 64 << 10
"""Cached texts of connections and APIs; beyond that, all are requested again."""

_, _NO_ROOM, _LEFT, _NEW_CONNECTION, _NEW_LABEL, _NEW_CAPTURE, _NEW_TABLE, _ASKS = range(8)
_COMPRESSED, _NEW_CONTROLS, _NEW_PAGE = range(8, 11)

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
        ("ends", ctypes.c_void_p),
        ("ends_size", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
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
        self._line_ends = np.zeros(0, np.uint64)
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

    @property
    def line_ends(self) -> NDArray[np.uint64]:
        """Where the lines of each message end that were written by the last call. Valid until the next one."""
        return self._line_ends[: self._lines.next - self._lines.first]

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
            self._names.bind(batch.places, batch.sessions)

    def write(self, first: int, last: int) -> tuple[bytes, int, bool]:
        """The lines of the messages from `first` up to `last`, or up to an earlier one. Hot.

        Returns them, the index of that one, and whether it is left to Python; else it has to be requested again.
        """
        lines = self._lines
        lines.next, lines.last, lines.used, lines.problems = first, last, 0, 0
        lines.first = first
        if last - first > len(self._line_ends):
            self._line_ends = np.zeros(max(2 * (last - first), AT_ONCE), np.uint64)
            lines.ends, lines.ends_size = self._line_ends.ctypes.data, len(self._line_ends)
        self._caller.begin()
        if self._names is not None:
            self._names.changed()
        return self._write()

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
