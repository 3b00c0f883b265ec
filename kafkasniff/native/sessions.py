"""Fetch sessions that the kernel follows while requests do not change them (`kernel/sessions.zig`).

Of other requests it copies the lists of partitions (`kernel/chosen.zig`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import Program
from kafkasniff.native.calls import address_of
from kafkasniff.native.library import Kernel
from kafkasniff.native.rows import grown

INSIDE: Final = 1
"""Role of a struct, or of an array of structs, with other roles."""
CHOSEN: Final = 2
"""Role of a field that `ChosenFields` copies."""
TOPIC: Final = 2
"""Role of a topic's name or id, before its partitions."""
PARTITION: Final = 3
CHANGE: Final = 4
"""Role of an array that has elements only in requests that change their session."""

MAX_SESSION: Final = 1 << 16
"""Bytes of a session's topics and partitions; the requests of larger ones are left to Python."""
MAX_SESSIONS: Final = 1 << 23
"""Maximum size of all sessions. Beyond it, all are dropped and followed again from their next requests."""
MAX_PARTITION: Final = 1 << 14
"""Partition numbers that the kernel knows; requests for higher ones are left to Python."""

_TOPIC: Final = np.dtype([(name, np.uint64) for name in ("text", "size", "bits", "bits_size")])
_SESSION: Final = np.dtype(
    [
        ("number", np.int64),
        ("program", np.uint64),
        ("topics", np.uint64),
        ("topics_size", np.uint64),
        ("text", np.uint64),
        ("text_size", np.uint64),
        ("partitions", np.int64),
        ("code", np.uint32),
        ("spare", np.uint32),
    ]
)


_NO_STEPS: Final = np.zeros(0, np.uint32)


class NativeSessions(ctypes.Structure):
    """Sessions by connection, the messages that the kernel handled, and the current message."""

    _fields_ = (
        ("places", ctypes.c_void_p),
        ("places_size", ctypes.c_uint64),
        ("steps", ctypes.c_void_p),
        ("steps_size", ctypes.c_uint64),
        ("steps_used", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("data_size", ctypes.c_uint64),
        ("body", ctypes.c_uint64),
        ("session", ctypes.c_void_p),
        ("connection", ctypes.c_uint32),
        ("code", ctypes.c_uint32),
        ("is_step", ctypes.c_uint64),
    )


class KnownSession(msgspec.Struct, frozen=True):
    """What the kernel has to know of a session."""

    number: int
    code: int
    """API and version of the requests that `program` reads."""
    program: Program
    """Its ops have the roles above."""
    partitions: int
    """How many it has; negative: it began before the capture."""
    topics: Iterable[tuple[bytes, Iterable[int]]] = ()
    """Partitions by the name or id of a topic, as requests have it."""
    text: bytes | None = None
    """The JSON that requests show of it; None: nothing."""


class KnownSessions:
    """One session for each connection, by the connection's index in the feed. `address` is that of the structure."""

    def __init__(self) -> None:
        native = self._native = NativeSessions()
        self.address = ctypes.addressof(native)
        self._places = np.zeros(0, _SESSION)
        self._kept: dict[int, tuple[NDArray[np.void], list[bytes], Program, int]] = {}
        """What the kernel has addresses of, and its size, by connection."""
        self._size = 0
        self._taken = 0
        """Steps that were taken."""
        self.is_full = False
        """Whether `add` failed because of the other sessions."""
        self.removed = 0
        """Incremented for each session that is followed no longer."""

    def bind(self, count: int) -> None:
        """Begin with other messages; `count`: their number."""
        self._steps = np.zeros(count, np.uint32)
        self._native.steps, self._native.steps_size = self._steps.ctypes.data, count
        self.drop()

    def drop(self) -> None:
        """Drop the messages that were not taken."""
        self._native.steps_used = self._taken = 0

    def take(self, first: int, last: int) -> NDArray[np.uint32]:
        """The messages of a range that the kernel has handled since the last call, in order; drops earlier ones."""
        begin, end = self._taken, self._native.steps_used
        if begin == end:
            return _NO_STEPS
        steps = self._steps[begin:end]
        begin, end = np.searchsorted(steps, (first, last)).tolist()
        self._taken += end
        return steps[begin:end]

    def add(self, connection: int, session: KnownSession) -> bool:
        """Follow the session of a connection, which has none; False if there is no room for it."""
        kept: list[bytes] = []
        topics = sorted((text, _bits(partitions)) for text, partitions in session.topics)
        rows = np.array(
            [(address_of(text, kept), len(text), address_of(bits, kept), len(bits)) for text, bits in topics], _TOPIC
        )
        text = 0 if session.text is None else address_of(session.text, kept)
        size = _SESSION.itemsize + rows.nbytes + sum(map(len, kept))
        if size > MAX_SESSION:
            return False
        self.is_full = self._size + size > MAX_SESSIONS
        if self.is_full:
            return False
        places = self._places = grown(self._places, connection, 64)
        self._native.places, self._native.places_size = places.ctypes.data, len(places)
        self._kept[connection] = rows, kept, session.program, size
        self._size += size
        self._places[connection] = (
            session.number,
            session.program.address,
            rows.ctypes.data,
            len(rows),
            text,
            len(session.text or b""),
            session.partitions,
            session.code,
            0,
        )
        return True

    def remove(self, connection: int) -> None:
        """Follow the session of a connection no longer."""
        if connection in self._kept:
            self._places["program"][connection] = 0
            self.removed += 1
            self._size -= self._kept.pop(connection)[3]


def _bits(partitions: Iterable[int]) -> bytes:
    bits = bytearray()
    for partition in partitions:
        if 0 <= partition < MAX_PARTITION:
            if partition >> 3 >= len(bits):
                bits.extend(bytes((partition >> 3) + 1 - len(bits)))
            bits[partition >> 3] |= 1 << (partition & 7)
    return bytes(bits)


class ChosenFields:
    """Copies fields of bodies: those that have the role CHOSEN in `program`, at most `most` bytes."""

    def __init__(self, kernel: Kernel, program: bytes, most: int) -> None:
        self._function = kernel.chosen
        self._program = Program(kernel, program)
        self._output = ctypes.create_string_buffer(most)
        self._arguments = ctypes.addressof(self._output), most

    def of(self, address: int, size: int, start: int) -> bytes | None:
        """The copy for the body that begins at `start` of the `size` bytes at `address`.

        Returns None if the body is invalid or the copy too large.
        """
        used: int = self._function(self._program.address, address, size, start, *self._arguments)
        return None if used < 0 else self._output.raw[:used]
