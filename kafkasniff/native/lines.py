"""Messages of a batch as JSON lines, made in groups by the kernel; `kernel/lines.zig` has the same structures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import Caller, WantedBatch
from kafkasniff.native.feed import KEYS, VERSIONS, grown
from kafkasniff.native.library import Kernel, address_of
from kafkasniff.native.names import LineNames, Session

# -- words of problems (`kernel/line_problems.zig` has the same structures) --------------------------------------------


_TEXT: Final = np.dtype([("text", np.uint64), ("size", np.uint64)])
_WORDING: Final = np.dtype([("kind", _TEXT), ("words", _TEXT), ("misread", np.uint64)])
CAREFUL: Final = np.dtype([("trailing", _TEXT), ("marks", _TEXT)])


class Wording(NamedTuple):
    """A problem of bodies."""

    kind: bytes
    words: bytes
    """What follows the path; `{}` stands for each number."""
    misread: bool
    """A wrong length may have caused it, so that secrets may be in other fields."""


class Careful(NamedTuple):
    """What the problems of a version's bodies need besides, in one direction."""

    trailing: bytes = b""
    """The words for bytes after a body."""
    marks: tuple[bytes, ...] = ()
    """If a body that may be misread has one of these, Python judges it. An empty one: in any case."""

    def row(self, kept: list[bytes]) -> tuple[tuple[int, int], tuple[int, int]]:
        """As a row of `CAREFUL`, valid while the texts are kept."""
        marks = b"".join(bytes((len(mark),)) + mark for mark in self.marks)
        return (address_of(self.trailing, kept), len(self.trailing)), (address_of(marks, kept), len(marks))


class LineWordings(ctypes.Structure):
    """The wordings of all problems, by their numbers in the kernel."""

    _fields_ = (("words", ctypes.c_void_p), ("size", ctypes.c_uint64))

    @classmethod
    def of(cls, wordings: Iterable[Wording]) -> LineWordings:
        """Those of the problems 1, 2, ..."""
        kept: list[bytes] = []
        rows = np.array(
            [
                ((address_of(kind, kept), len(kind)), (address_of(words, kept), len(words)), misread)
                for kind, words, misread in wordings
            ],
            _WORDING,
        )
        made = cls(rows.ctypes.data, len(rows))
        made.kept = rows, kept
        return made


# -- lines -------------------------------------------------------------------------------------------------------------


CONNECTION_TEXT: Final = 128
"""Maximum size of a connection's text; lines of others are left to Python."""
MAX_CAPTURES: Final = 1 << 20
"""Maximum number of captures with kept names; messages of others are left to Python."""
AT_ONCE: Final = 4096
"""Messages that are written ahead of the requested one, as far as the initial output memory holds their lines."""
USUAL_RATIO: Final = 6
"""JSON bytes reserved per byte of a compressed message, more than most need."""
FEW: Final = 64
"""The same after topics were learned: more may follow, and then later lines are written again."""

RAW, REDACTED = 1, 2
READ, WRITTEN, LEFT, AGAIN = range(4)
"""What happens with a message: it is decoded for its problems but has no line; it has one; it is left to Python; it has
a line after it was decoded."""
_DONE, _NO_ROOM, _COMPRESSED, _NEW_KIND, _NEW_CONNECTION, _NEW_CAPTURE, _ASKS, _NEW_CONTROLS = range(8)
_LEFT: Final = b"\0"

_CONNECTION: Final = np.dtype(
    [("number", np.int64), ("size", np.uint32), ("left", np.uint32), ("text", f"V{CONNECTION_TEXT}")]
)
_KIND: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("text", "size", "program")),
        *((name, np.uint32) for name in ("bare", "teaches", "raw", "spare")),
        ("problems", _TEXT),
        ("careful", CAREFUL),
    ]
)


Offsets = NDArray[np.uint64]


class LineBatch(NamedTuple):
    """Messages whose lines are written. All of it stays as it is until the last line is taken."""

    messages: NDArray[np.void]
    """As `feed.MESSAGE`."""
    here: int
    """Those after this many are only requests of others."""
    buffer: NDArray[np.uint8]
    """This and the next one: where their bytes are."""
    arena: NDArray[np.uint8]
    shown: NDArray[np.uint8] | None = None
    """How each is handled: one of `READ`, `WRITTEN`, `LEFT` and `AGAIN`."""
    places: NDArray[np.uint32] | None = None
    """1 plus the index of its fetch session in `sessions` for each; 0: it is in none."""
    sessions: Sequence[Session] = ()

    def bytes_at(self, address: int, size: int) -> memoryview:
        """Bytes of a message in place, by their address. Raises RuntimeError if none of the messages has them."""
        for source in (self.buffer, self.arena):
            begin = address - source.ctypes.data
            if 0 <= begin <= len(source) - size:
                return source.data[begin : begin + size]
        raise RuntimeError("the kernel requests records without a message")


class LineSource(ctypes.Structure):
    """The messages of a batch."""

    _fields_ = (
        ("messages", ctypes.c_void_p),
        ("messages_size", ctypes.c_uint64),
        ("buffer", ctypes.c_void_p),
        ("buffer_size", ctypes.c_uint64),
        ("arena", ctypes.c_void_p),
        ("arena_size", ctypes.c_uint64),
        ("shown", ctypes.c_void_p),
    )

    def bind(self, batch: LineBatch) -> LineBatch:
        """Set all of them; returns what has to be kept as long as they are used."""
        messages, here, buffer, arena, shown, *_ = batch
        if shown is not None and (len(shown) < here or shown.dtype != np.uint8):
            raise ValueError("not all messages are shown or not")
        self.messages, self.messages_size = messages.ctypes.data, len(messages)
        self.buffer, self.buffer_size = buffer.ctypes.data, len(buffer)
        self.arena, self.arena_size = arena.ctypes.data, len(arena)
        self.shown = None if shown is None else shown.ctypes.data
        return batch


class _Lines(ctypes.Structure):
    _fields_ = (
        ("source", LineSource),
        ("call", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("connections", ctypes.c_void_p),
        ("connections_size", ctypes.c_uint64),
        ("kinds", ctypes.c_void_p),
        ("captures", ctypes.c_void_p),
        ("captures_size", ctypes.c_uint64),
        ("errors", ctypes.c_void_p),
        ("errors_size", ctypes.c_uint64),
        ("first_error", ctypes.c_int64),
        ("wordings", LineWordings),
        ("rows", ctypes.c_uint64),
        ("most", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("wanted", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("data_size", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("base", ctypes.c_uint64),
        ("ends", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
    )


class LineKind(msgspec.Struct, frozen=True):
    """Common properties of lines of an API's version, in one direction."""

    text: bytes
    """`"api_key":…,"api":"…","api_version":…`; in CSV three cells."""
    program: int
    """Address of the program of bodies; 0: Python decodes them."""
    bare: bool = False
    """Bodies are not shown; there is no program then."""
    teaches: bool = False
    """They have names of topics."""
    problems: bytes = b""
    """Problems to report with each message: JSON, or a part of the cell."""
    raw: int = 0
    """For `bare` ones: `RAW` if the bytes of bodies are shown, `REDACTED` if their number is."""
    careful: Careful = Careful()


class LineFacts(Protocol):
    """Facts for lines besides the messages' own bytes. Each is requested once."""

    def connection(self, index: int) -> tuple[int, bytes] | None:
        """The number of a connection, and `"client":"…","broker":"…"` or both cells.

        None: its messages are left to Python.
        """

    def kind(self, key: int, version: int, is_request: bool) -> LineKind:
        """Facts of a version of an API."""

    def capture(self, index: int) -> bytes:
        """The name of a capture as JSON or as a cell; empty if lines have none."""

    def inflate(self, data: memoryview) -> Callable[[WantedBatch], bytes | None]:
        """Decompresses batches of the message `data`; None for one that Python has to decode."""


class JsonLines:
    """Lines of consecutive batches (`bind`).

    `caller`: the options for bodies, and exclusive memory; `errors`: names of error codes, as JSON or text; `wordings`:
    of problems; `most`: maximum size of a message that is written here; `names`: fields added to bodies; `rows`: rows
    of CSV instead of JSON.
    """

    def __init__(
        self,
        kernel: Kernel,
        caller: Caller,
        facts: LineFacts,
        *,
        errors: Mapping[int, bytes],
        wordings: LineWordings,
        most: int,
        names: LineNames | None = None,
        rows: bool = False,
    ) -> None:
        self._kernel = kernel
        self._caller = caller
        self._facts = facts
        self._names = names
        self._kept: list[bytes] = []
        """Texts whose addresses the kernel has."""
        self._kinds = np.zeros(2 * KEYS * VERSIONS, _KIND)
        self._connections = np.zeros(0, _CONNECTION)
        self._captures = np.zeros(0, _TEXT)
        self._ends = np.zeros(AT_ONCE, np.uint64)
        self._states = bytearray(AT_ONCE)
        self._counts = np.zeros(AT_ONCE, np.uint8)
        self._bound: LineBatch | None = None
        self._base = self._end = 0
        self._ahead = AT_ONCE
        """Number of messages written ahead: fewer after topics were learned or sessions have changed."""
        self._is_kept = False
        """Somebody keeps the current group."""
        lines = self._lines = _Lines()
        self._pointer = ctypes.pointer(lines)
        lines.call, lines.most, lines.names = caller.address, most, None if names is None else names.address
        lines.kinds, lines.ends = self._kinds.ctypes.data, self._ends.ctypes.data
        lines.states = ctypes.addressof(ctypes.c_char.from_buffer(self._states))
        lines.counts = self._counts.ctypes.data
        self._wordings = lines.wordings = wordings
        lines.rows = rows
        first = min(errors, default=0)
        known = (errors.get(code) for code in range(first, max(errors, default=-1) + 1))
        self._errors = texts_of(known, self._kept)
        lines.errors, lines.errors_size, lines.first_error = self._errors.ctypes.data, len(self._errors), first

    def forget(self, connections: Iterable[int] | None = None) -> None:
        """Request the facts of these connections, or of all, again."""
        for index in range(len(self._connections)) if connections is None else connections:
            if index < len(self._connections):
                self._connections["size"][index] = 0

    def bind(self, batch: LineBatch) -> None:
        """From here on write these messages."""
        self._bound = self._lines.source.bind(batch)
        if self._names is not None:
            self._names.bind(batch.places, batch.sessions)
        self._base = self._end = 0
        self._caller.shrink()

    def take(self, first: int, last: int, *, only: bool = False) -> Iterator[tuple[memoryview, Offsets, int] | int]:
        """The lines of the messages from `first` up to `last`, in groups with their ends and number of problems. Hot.

        A group is only valid until the next one is requested, unless `keep` returns True. For a message that is left to
        Python its index; the caller has processed it before it continues. `only`: later ones will not be requested.
        """
        assert self._bound is not None
        while first < last:
            names = self._names
            if names is not None and names.changed():
                self._end = self._base
                self._ahead = FEW
            if not self._base <= first < self._end:
                self._write(first, last, last if only else self._bound.here)
            base, end = self._base, min(last, self._end)
            left = self._states.find(_LEFT, first - base, end - base)
            stop = end if left < 0 else left + base
            if stop > first:
                begin = int(self._ends[first - base - 1]) if first > base else 0
                problems = int(self._counts[first - base : stop - base].sum())
                ends = self._ends[first - base : stop - base] - np.uint64(begin)
                yield self._caller.view[begin : begin + int(ends[-1])], ends, problems
            if left >= 0:
                yield stop
                stop += 1
            first = stop

    def keep(self, size: int) -> bool:
        """Leave the current group to the caller of `take`, for as long as it wants; False if it has to be copied.

        `size`: bytes of the group. Groups much smaller than the memory that they are in would waste the rest.
        """
        if 2 * size < self._caller.size:
            return False
        self._is_kept = True
        return True

    def _write(self, first: int, last: int, most: int) -> None:
        """Write at least one line from this message on; events may precede the message `last`."""
        lines, function = self._lines, self._kernel.lines
        if self._is_kept:
            self._caller.renew()
            self._is_kept = False
        lines.next = lines.base = self._base = first
        lines.last = min(first + self._ahead, most)
        self._ahead = min(2 * self._ahead, AT_ONCE)
        lines.used = 0
        self._caller.begin()
        given: list[bytes] = []
        while True:
            outcome = function(self._pointer)
            if outcome == _DONE:
                break
            if outcome == _NO_ROOM:
                if lines.next > first:
                    break
                before = self._caller.size
                self._caller.reserve(lines.data_size)
                if self._caller.size == before and not self._caller.more():
                    self._leave()
            elif outcome == _COMPRESSED:
                if lines.used + USUAL_RATIO * lines.data_size > self._caller.size and lines.next > first:
                    # Its line would hardly fit after those: all would be decompressed for nothing.
                    break
                given = []
                assert self._bound is not None
                inflate = self._facts.inflate(self._bound.bytes_at(lines.data, lines.data_size))
                if not self._caller.give(inflate, given):
                    self._leave()
                elif lines.used == 0:
                    self._caller.reserve(sum(map(len, given)))
            elif outcome == _ASKS:
                assert self._names is not None
                if not self._names.answer():
                    self._leave()
            elif outcome == _NEW_KIND:
                self._new_kind(lines.wanted)
            elif outcome == _NEW_CONNECTION:
                self._new_connection(lines.wanted)
            elif outcome == _NEW_CAPTURE:
                self._new_capture(lines.wanted)
            elif outcome == _NEW_CONTROLS:
                self._caller.learns_controls()
            else:
                raise RuntimeError(f"the kernel refuses to write lines: {outcome}")
        self._end = lines.next

    def _leave(self) -> None:
        """The next message is left to Python."""
        lines = self._lines
        self._states[lines.next - lines.base] = self._counts[lines.next - lines.base] = 0
        self._ends[lines.next - lines.base] = lines.used
        lines.next += 1
        self._caller.begin()

    def _new_kind(self, place: int) -> None:
        direction, code = divmod(place, KEYS * VERSIONS)
        line_kind = self._facts.kind(*divmod(code, VERSIONS), not direction)
        problems = address_of(line_kind.problems, self._kept), len(line_kind.problems)
        text = address_of(line_kind.text, self._kept), len(line_kind.text)
        careful = line_kind.careful.row(self._kept)
        self._kinds[place] = (
            *text,
            line_kind.program,
            line_kind.bare,
            line_kind.teaches,
            line_kind.raw,
            0,
            problems,
            careful,
        )

    def _new_connection(self, index: int) -> None:
        known = self._connections = grown(self._connections, index, 64)
        self._lines.connections, self._lines.connections_size = known.ctypes.data, len(known)
        found = self._facts.connection(index)
        if found is None or len(found[1]) > CONNECTION_TEXT:
            self._connections[index] = (0, 1, 1, b"")
        else:
            self._connections[index] = (found[0], len(found[1]), 0, found[1])

    def _new_capture(self, index: int) -> None:
        if index >= MAX_CAPTURES:
            self._leave()
            return
        known = self._captures = grown(self._captures, index, 16)
        self._lines.captures, self._lines.captures_size = known.ctypes.data, len(known)
        text = self._facts.capture(index)
        self._captures[index] = (address_of(text, self._kept), len(text))


def texts_of(texts: Iterable[bytes | None], kept: list[bytes]) -> NDArray[np.void]:
    """Texts in memory for the kernel, valid while they are kept; None: there is none."""
    return np.array([(0, 0) if text is None else (address_of(text, kept), len(text)) for text in texts], _TEXT)
