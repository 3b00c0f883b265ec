"""Calls of the kernel with the memory that they need: results are `bytes`, compressed batches are requested."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct as Packing
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.library import (
    COMPRESSED,
    DONE,
    NO_ROOM,
    ODD,
    Base,
    Call,
    CompressedBatch,
    Control,
    Hiding,
    Item,
    Kernel,
    Noted,
    address_of,
)

FIRST_OUTPUT: Final = 256 << 10
MAX_OUTPUT: Final = 16 << 20
"""Maximum size of the JSON of one body; larger ones are left to Python."""
NOTES: Final = 128 << 10
"""Size of the error codes and problems of one call, with their paths."""
KEPT_OUTPUT: Final = 1 << 20
"""Memory for MessagePack that is kept from one body to the next, in bytes."""
MAX_BATCHES: Final = 4096
"""Compressed batches of one message; messages with more are left to Python."""
MAX_RECORDS: Final = 1_000_000
"""Records, or headers of them, of one message; likewise."""

ITEM: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("program", "start", "end", "output_end", "notes_end", "after")),
        ("status", np.int32),
        *((name, np.uint32) for name in ("records", "truncated")),
        *((name, np.uint16) for name in ("looked_at", "extensions")),
    ]
)
"""`library.Item` as columns."""

PLACE_AT: Final = Call.program.offset
put_place: Final = Packing("=QQQ").pack_into
_RESULTS: Final = Packing("=7Q")
_RESULTS_AT: Final = Call.written.offset
_note: Final = Packing("<HHQ3q")
NOTE: Final = _note.size
"""Bytes of a note before its path."""
HEAD_OF_ARRAY: Final = 5
"""Bytes before the bodies of `Caller.pack_bodies`."""

Code = tuple[int, str]
"""An error code and its place in the body."""


class Made(msgspec.Struct, frozen=True):
    """Result for a message."""

    json: bytes
    codes: list[Code]
    problems: list[Noted]
    records: int
    truncated: int
    after: int
    """Where in the data the body ends."""


class WantedBatch(msgspec.Struct, frozen=True):
    """A compressed batch."""

    position: int
    end: int
    """For magic 2 the whole batch, else only the compressed bytes."""
    codec: int
    magic: int
    records: int
    """Number of records in its header."""


class Program:
    """The bytes of a program in memory for the kernel. Raises ValueError if they are invalid."""

    __slots__ = ("_bytes", "address")

    def __init__(self, kernel: Kernel, program: bytes) -> None:
        if not kernel.check(program, len(program)):
            raise ValueError("not a program of the kernel")
        self._bytes = ctypes.create_string_buffer(program, len(program))
        self.address = ctypes.addressof(self._bytes)


class ControlType(msgspec.Struct, frozen=True):
    """A type of control records, at one version of its value."""

    type: int
    version: int
    fronted: bool
    """An int16 version is in front of the fields, whatever it is; else it is the first of them."""
    name: bytes
    program: Program


class Caller:
    """Memory for calls, one at a time.

    `headers`, `marks`: keys of record headers, and prefixes of record keys, that Python has to interpret.
    `traces`: keys of headers with trace ids, and their kinds; the kernel interprets them for JSON, Python otherwise.
    `controls`: returns the types of control records that the kernel decodes for JSON; called with the first of them.
    `most_output`: maximum bytes of output, by default `MAX_OUTPUT`.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        headers: Iterable[bytes] = (),
        marks: Iterable[bytes] = (),
        traces: Mapping[bytes, int] = MappingProxyType({}),
        controls: Callable[[], Sequence[ControlType]] = tuple,
        most_output: int | None = None,
    ) -> None:
        self._kernel = kernel
        self.most_output = MAX_OUTPUT if most_output is None else most_output
        self._call = Call()
        notes = bytearray(NOTES)
        self._notes = memoryview(notes)
        self._batches = (CompressedBatch * MAX_BATCHES)()
        kinds = {**dict.fromkeys(headers, 0), **traces}
        self._headers = b"".join(bytes((kind, len(name))) + name for name, kind in kinds.items())
        self._marks = listed(marks)
        self._control_types = controls
        self._controls: tuple[object, ...] = ()
        """Objects whose addresses the kernel has."""
        call = self._call
        call.notes, call.notes_size = ctypes.addressof(ctypes.c_char.from_buffer(notes)), NOTES
        call.batches, call.batches_size = self._batches, MAX_BATCHES
        call.headers, call.headers_size = self._headers, len(self._headers)
        call.marks, call.marks_size = self._marks, len(self._marks)
        call.max_records = MAX_RECORDS
        self._pointer = ctypes.pointer(call)
        self.address = ctypes.addressof(call)
        """Address of the `library.Call`."""
        self.size = 0
        """Bytes of `view`."""
        self._grow(FIRST_OUTPUT)

    @property
    def wants(self) -> int:
        """Flags for the requested output (`calls`)."""
        found: int = self._call.wants
        return found

    @wants.setter
    def wants(self, bits: int) -> None:
        self._call.wants = bits

    def hide(self, hiding: Hiding) -> None:
        """Set the salt and personalization of hashes; `wants` decides whether there are any."""
        call = self._call
        call.salt, call.salt_size, call.person = hiding.salt, len(hiding.salt), hiding.person

    @property
    def most_records(self) -> int:
        """Maximum number of records, or of their headers; messages with more are left to Python."""
        found: int = self._call.max_records
        return found

    @most_records.setter
    def most_records(self, count: int) -> None:
        self._call.max_records = min(count, MAX_RECORDS)

    def learns_controls(self) -> bool:
        """Whether the call ended because the kernel did not know how to decode a control record; now it does."""
        call = self._call
        if not call.controls_wanted:
            return False
        types, kept = self._control_types(), list[bytes]()
        rows = control_rows(types, kept)
        self._controls = types, kept, rows
        call.controls, call.controls_size, call.controls_wanted = ctypes.addressof(rows), len(types), 0
        return True

    def _grow(self, size: int) -> None:
        output = np.empty(size, np.uint8)
        self.view, self.size = output.data, size
        self._address = output.ctypes.data
        self._call.output, self._call.output_size = self._address, size

    def renew(self) -> None:
        """Use other memory from now on: somebody else keeps `view`."""
        self._grow(self.size)

    def more(self) -> bool:
        """Enlarge the output memory; False at the maximum."""
        if self.size >= self.most_output:
            return False
        self._grow(min(4 * self.size, self.most_output))
        return True

    def reserve(self, size: int) -> None:
        """Reserve memory for this many bytes of JSON of records, up to the maximum: writing it all again costs more.

        The content of `view` is lost.
        """
        size = min(size + size // 2, self.most_output)
        if size > self.size:
            self._grow(size)

    def body(
        self, program: Program, data: bytes, start: int, end: int, decompress: Callable[[WantedBatch], bytes | None]
    ) -> Made | None:
        """The body `data[start:end]`; None if Python has to decode it."""
        function, pointer, address = self._kernel.body, self._pointer, program.address
        self.reserve(end - start)
        return self._run(lambda: function(pointer, address, data, start, end), decompress)

    def records(
        self, data: bytes, start: int, end: int, decompress: Callable[[WantedBatch], bytes | None]
    ) -> Made | None:
        """The `records` field `data[start:end]`; likewise."""
        function, pointer = self._kernel.records, self._pointer
        self.reserve(end - start)
        return self._run(lambda: function(pointer, data, start, end), decompress)

    def _run(self, function: Callable[[], int], decompress: Callable[[WantedBatch], bytes | None]) -> Made | None:
        call = self._call
        call.batches_given = 0
        given: list[bytes] = []  # kept while the kernel uses them
        while True:
            status = function()
            if status == DONE:
                json = ctypes.string_at(self._address, call.written)
                size = call.notes_written
                codes, problems = read_notes(self.notes(size), 0, size)
                return Made(json, codes, problems, call.records, call.truncated, call.after)
            if status == COMPRESSED and not given:
                if not self.give(decompress, given):
                    return None
                self.reserve(sum(map(len, given)))
            elif status == ODD and self.learns_controls():
                continue
            elif status != NO_ROOM or not self.more():
                return None

    def give(self, decompress: Callable[[WantedBatch], bytes | None], given: list[bytes]) -> bool:
        """Decompress the requested batches into `given`, which has to outlive the next call.

        False if one of them is left to Python.
        """
        call = self._call
        for batch in self._batches[: call.batches_wanted]:
            wanted = WantedBatch(batch.position, batch.end, batch.codec, batch.magic, batch.count)
            records = decompress(wanted)
            if records is None:
                return False
            given.append(records)
            batch.records, batch.size = records, len(records)
        call.batches_given = call.batches_wanted
        return True

    def begin(self) -> None:
        """The next call has no batches."""
        self._call.batches_given = 0

    # -- MessagePack, which `wants` has to request --------------------------------------------------------------------

    def pack(self, program: int, data: bytes, start: int, end: int) -> int:
        """The body `data[start:end]` by the program at an address, as MessagePack in `view`. Hot.

        Returns twice its size, plus 1 if `results` have more to report than that it ends at `end`; a negative number if
        Python has to decode it.
        """
        put_place(self._call, PLACE_AT, program, start, end)
        made: int = self._kernel.pack(self.address, data)
        while made == -NO_ROOM and self.more():
            made = self._kernel.pack(self.address, data)
        return made

    def results(self) -> tuple[int, int, int, int, int]:
        """Results of the last call.

        Size of notes, end of the body, number of records, size of a truncated batch at the end of a field, and whether
        interpreters may add something.
        """
        _, notes, _, records, truncated, after, looked_at = _RESULTS.unpack_from(self._call, _RESULTS_AT)
        return notes, after, records, truncated, looked_at

    def record_list(self, data: bytes, start: int, end: int, base: Base) -> memoryview | None:
        """The records that fill `data[start:end]` as MessagePack; None if Python has to decode them.

        It is valid until the next call.
        """
        function, pointer = self._kernel.record_list, self._pointer
        status = function(pointer, data, start, end, base)
        while status == NO_ROOM and self.more():
            status = function(pointer, data, start, end, base)
        return self.view[: self._call.written] if status == DONE else None

    def shrink(self) -> None:
        """Release the memory of a large body."""
        if self.size > KEPT_OUTPUT:
            self._grow(KEPT_OUTPUT)

    def notes(self, size: int) -> bytes:
        """The first `size` bytes of the notes of the last call, for `read_notes`."""
        return bytes(self._notes[:size])

    def pack_bodies(self, data: bytes, items: NDArray[np.void]) -> tuple[int, memoryview]:
        """Bodies as one MessagePack array, with null for those that are not done, and the number of processed items.

        It is valid until the next call.
        """
        looked = self._run_items(data, items)
        return looked, self.view[: self._call.written]

    def bodies(self, data: bytes, items: NDArray[np.void]) -> tuple[int, bytes, bytes]:
        """Concatenated bodies; `items` are of `ITEM`, whose results are filled in.

        Returns the number of processed items, their JSON, and their notes.
        """
        looked = self._run_items(data, items)
        call = self._call
        return looked, ctypes.string_at(self._address, call.written), self.notes(call.notes_written)

    def _run_items(self, data: bytes, items: NDArray[np.void]) -> int:
        """The number of processed items: the first one alone, and without result, if it is too large."""
        call = self._call
        call.batches_given = 0
        place = ctypes.cast(items.ctypes.data, ctypes.POINTER(Item))
        looked = 0
        while looked == 0:
            looked = self._kernel.bodies(self._pointer, data, len(data), place, len(items))
            if looked == 0 and not self.more():
                items["status"][0] = NO_ROOM
                call.written = call.notes_written = 0
                return 1
        self.learns_controls()
        return looked


def control_rows(types: Sequence[ControlType], kept: list[bytes]) -> ctypes.Array[Control]:
    """Control record types for the kernel, valid while the programs and `kept` are; at least one row."""
    return (Control * (len(types) or 1))(
        *[
            Control(
                address_of(control_type.name, kept),
                len(control_type.name),
                control_type.program.address,
                control_type.type,
                control_type.version,
                control_type.fronted,
            )
            for control_type in types
        ]
    )


def listed(texts: Iterable[bytes]) -> bytes:
    """Texts, each preceded by its length."""
    return b"".join(bytes((len(text),)) + text for text in texts)


def read_notes(notes: bytes, begin: int, end: int) -> tuple[list[Code], list[Noted]]:
    """Error codes and problems, each in the order of their places, from this range of notes."""
    codes: list[Code] = []
    problems: list[Noted] = []
    while begin < end:
        kind, size, position, *numbers = _note.unpack_from(notes, begin)
        begin += NOTE
        path = notes[begin : begin + size].decode("ascii")
        begin += size
        if kind:
            problems.append(Noted(kind, path, position, (numbers[0], numbers[1], numbers[2])))
        else:
            codes.append((numbers[0], path))
    return codes, problems
