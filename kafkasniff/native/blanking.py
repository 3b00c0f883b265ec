"""Messages without secrets and payload, and their bytes in packets; `kernel/redact.zig` has the same structures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import Program, WantedBatch, listed
from kafkasniff.native.feed import KEYS, REQUEST, VERSIONS
from kafkasniff.native.library import Kernel

PREFIX: Final = 4
"""Bytes in front of a message."""
PLACE: Final = np.dtype(
    [
        ("stream", np.uint64),
        *((name, np.int64) for name in ("position", "end", "at", "header")),
        *((name, np.uint32) for name in ("known", "pseudo", "touched", "far", "fresh", "padding")),
    ]
)
"""The payload of a written packet: positions of its first byte in its stream, and after its last; offsets in the file
of the payload and of the TCP header. `known`: bytes that became known in a call of `patch`; `pseudo`: sum of what a TCP
checksum covers besides header and payload; `touched`: its bytes have changed; `far`: they should, but are not at hand;
`fresh`: it is to be blank first, and `padding` bytes after it 0.
"""
PIECE: Final = np.dtype([("stream", np.uint64), ("position", np.int64), ("start", np.uint64), ("size", np.uint64)])
"""Bytes of a stream that may be shown; `start`: where they are in the arena."""


_COMPRESSED: Final = np.dtype(
    [*((name, np.uint64) for name in ("message", "start", "size")), ("codec", np.uint32), ("count", np.uint32)]
)
MOST_COMPRESSED: Final = 4_096
"""Compressed batches of one call; messages with further ones are left to Python."""

Inflates = Callable[[memoryview], Callable[[WantedBatch], bytes | None]]
"""Given a message, returns what decompresses its batches; None for one that Python has to decode."""


class StreamPieces(NamedTuple):
    """Bytes of streams that may be shown."""

    rows: NDArray[np.void]
    """`PIECE`."""
    arena: bytearray


class _Blanking(ctypes.Structure):
    _fields_ = (
        ("messages", ctypes.c_void_p),
        ("messages_size", ctypes.c_uint64),
        ("buffer", ctypes.c_char_p),
        ("buffer_size", ctypes.c_uint64),
        ("arena", ctypes.c_char_p),
        ("arena_size", ctypes.c_uint64),
        ("programs", ctypes.c_void_p),
        ("marks", ctypes.c_char_p),
        ("marks_size", ctypes.c_uint64),
        ("topics", ctypes.c_char_p),
        ("topics_count", ctypes.c_uint64),
        ("shows_secrets", ctypes.c_uint32),
        ("shows_payload", ctypes.c_uint32),
        ("max_records", ctypes.c_uint64),
        ("starts", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("output_size", ctypes.c_uint64),
        ("outcomes", ctypes.c_void_p),
        ("compressed", ctypes.c_void_p),
        ("compressed_size", ctypes.c_uint64),
        ("compressed_count", ctypes.c_uint64),
    )


class _Patching(ctypes.Structure):
    _fields_ = (
        ("places", ctypes.c_void_p),
        ("places_count", ctypes.c_uint64),
        ("pieces", ctypes.c_void_p),
        ("pieces_count", ctypes.c_uint64),
        ("arena", ctypes.c_void_p),
        ("arena_size", ctypes.c_uint64),
        ("file", ctypes.c_void_p),
        ("file_size", ctypes.c_uint64),
        ("base", ctypes.c_int64),
        ("reach", ctypes.c_void_p),
    )


class MessageBlanks:
    """Blanks regular messages.

    - `program`: returns the program for messages of a code and whether they are requests; None if Python blanks them
    - `marks`: prefixes of keys of records that may hold secrets
    - `topics`: ids of the brokers' own topics
    - `inflates`: decompresses batches whose records may be secret
    """

    def __init__(
        self,
        kernel: Kernel,
        program: Callable[[int, bool], Program | None],
        *,
        marks: Sequence[bytes],
        topics: Sequence[bytes],
        inflates: Inflates,
        secrets: bool,
        payload: bool,
        max_records: int,
    ) -> None:
        self._kernel = kernel
        self._program = program
        self._addresses = np.zeros(2 * KEYS * VERSIONS, np.uint64)
        self._known = np.zeros(2 * KEYS * VERSIONS, np.bool_)
        self._programs: list[Program] = []
        self._inflates = inflates
        self._compressed = np.zeros(MOST_COMPRESSED, _COMPRESSED)
        self._marks, self._topics = listed(marks), b"".join(topics)
        self._call = _Blanking(marks=self._marks, marks_size=len(self._marks), topics=self._topics)
        self._call.topics_count, self._call.max_records = len(topics), max_records
        self._call.shows_secrets, self._call.shows_payload = secrets, payload
        self._call.programs = self._addresses.ctypes.data
        self._call.compressed, self._call.compressed_size = self._compressed.ctypes.data, MOST_COMPRESSED

    def run(
        self, rows: NDArray[np.void], buffer: bytes, arena: bytes, starts: NDArray[np.uint64], output: bytearray
    ) -> NDArray[np.bool_]:
        """Write the messages that need no judgement, each with its length prefix at its start; returns which they are.

        `buffer`, `arena`: where the bytes of the messages are.
        """
        call = self._call
        kinds = rows["code"].astype(np.int64)
        kinds[(rows["flags"] & REQUEST) == 0] += KEYS * VERSIONS
        for kind in np.unique(kinds[~self._known[kinds]]).tolist():
            self._learn(kind)
        outcomes = np.zeros(len(rows), np.uint8)
        starts = np.ascontiguousarray(starts, np.uint64)
        call.messages, call.messages_size = rows.ctypes.data, len(rows)
        call.buffer, call.buffer_size = buffer, len(buffer)
        call.arena, call.arena_size = arena, len(arena)
        call.starts, call.outcomes = starts.ctypes.data, outcomes.ctypes.data
        view = np.frombuffer(output, np.uint8)
        call.output, call.output_size = view.ctypes.data, len(output)
        self._kernel.blank(ctypes.byref(call))
        self._judge(outcomes, output)
        return outcomes.astype(np.bool_)

    def _judge(self, outcomes: NDArray[np.uint8], output: bytearray) -> None:
        """Leave messages to Python whose compressed records may be secret, or cannot be read."""
        # The views end with this call: afterwards the output may grow.
        data, call = memoryview(output), ctypes.byref(self._call)
        last, inflate = -1, self._inflates(data)
        for message, start, size, codec, count in self._compressed[: self._call.compressed_count].tolist():
            if message != last:
                # All batches of a message share its bound.
                last, inflate = message, self._inflates(data)
            if outcomes[message]:
                records = inflate(WantedBatch(start, start + size, codec, 2, count))
                is_shown = records is not None and self._kernel.may_show(call, records, len(records), count, size)
                outcomes[message] = bool(is_shown)

    def _learn(self, kind: int) -> None:
        self._known[kind] = True
        code = kind % (KEYS * VERSIONS)
        program = self._program(code, kind == code)
        if program is not None:
            self._programs.append(program)
            self._addresses[kind] = program.address


def patch(kernel: Kernel, places: NDArray[np.void], pieces: StreamPieces, file: bytearray, base: int) -> None:
    """Write pieces into the places that have them, and compute the checksums of those that were touched.

    `places`: by stream and position; `file`: bytes of the file from the offset `base` on.
    """
    if not len(places):
        return
    reach = np.empty(len(places), np.int64)
    rows, arena = pieces
    source, target = np.frombuffer(arena or b"\0", np.uint8), np.frombuffer(file or b"\0", np.uint8)
    call = _Patching(places.ctypes.data, len(places), rows.ctypes.data, len(rows), source.ctypes.data, len(arena))
    call.file, call.file_size, call.base, call.reach = target.ctypes.data, len(file), base, reach.ctypes.data
    kernel.patch(ctypes.byref(call))
