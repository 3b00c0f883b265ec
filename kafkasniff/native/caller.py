"""Calls of the kernel with the memory that they need: results come as `bytes`, compressed batches are asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from struct import Struct as Packing
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.calls import COMPRESSED, DONE, NO_ROOM, Base, Batch, Call, Hiding, Item, Noted
from kafkasniff.native.library import Kernel

__all__ = [
    "MAX_BATCHES",
    "MAX_OUTPUT",
    "NOTE",
    "Caller",
    "Code",
    "Made",
    "Noted",
    "Program",
    "Wanted",
    "listed",
    "read_notes",
]

FIRST_OUTPUT: Final = 256 << 10
MAX_OUTPUT: Final = 16 << 20
"""Bytes of JSON of one body at most: larger ones are Python's."""
NOTES: Final = 128 << 10
"""Bytes of the error codes and problems of one call, with their paths."""
KEPT_OUTPUT: Final = 1 << 20
"""Bytes of memory for MessagePack that are kept from one body to the next."""
MAX_BATCHES: Final = 4096
"""Compressed batches of one message; messages with more are Python's."""
MAX_RECORDS: Final = 1_000_000
"""Records, or headers of them, of one message; as above."""

ITEM: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("program", "start", "end", "output_end", "notes_end", "after")),
        ("status", np.int32),
        *((name, np.uint32) for name in ("records", "truncated", "looked_at")),
    ]
)
"""`calls.Item` as columns."""

PLACE_AT: Final = Call.program.offset
put_place: Final = Packing("=QQQ").pack_into
_RESULTS: Final = Packing("=7Q")
_RESULTS_AT: Final = Call.written.offset
_note: Final = Packing("<HHQ3q")
NOTE: Final = _note.size
"""Bytes of a note in front of its path."""

Code = tuple[int, str]
"""An error code and where in the body it is."""


class Made(NamedTuple):
    """What came of a message."""

    json: bytes
    codes: list[Code]
    problems: list[Noted]
    records: int
    truncated: int
    after: int
    """Where in the data a body ends."""


class Wanted(NamedTuple):
    """A compressed batch."""

    position: int
    end: int
    """Of magic 2 the whole batch, else the compressed bytes alone."""
    codec: int
    magic: int
    records: int
    """How many its header states."""


class Program:
    """The bytes of a program where the kernel finds them. Raises ValueError where they are none."""

    __slots__ = ("_bytes", "address")

    def __init__(self, kernel: Kernel, program: bytes) -> None:
        if not kernel.check(program, len(program)):
            raise ValueError("not a program of the kernel")
        self._bytes = ctypes.create_string_buffer(program, len(program))
        self.address = ctypes.addressof(self._bytes)


class Caller:
    """Memory for calls, one at a time.

    `headers`, `marks`: keys of record headers, and what is in keys of records, that Python has to look at.
    `traces`: keys of headers with trace ids, which the kernel reads for JSON, and Python otherwise, with their kinds.
    `most_output`: bytes of output at most, `MAX_OUTPUT` unless given.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        headers: Iterable[bytes] = (),
        marks: Iterable[bytes] = (),
        traces: Mapping[bytes, int] = MappingProxyType({}),
        most_output: int | None = None,
    ) -> None:
        self._kernel = kernel
        self.most_output = MAX_OUTPUT if most_output is None else most_output
        self._call = Call()
        notes = bytearray(NOTES)
        self._notes = memoryview(notes)
        self._batches = (Batch * MAX_BATCHES)()
        kinds = {**dict.fromkeys(headers, 0), **traces}
        self._headers = b"".join(bytes((kind, len(name))) + name for name, kind in kinds.items())
        self._marks = listed(marks)
        call = self._call
        call.notes, call.notes_size = ctypes.addressof(ctypes.c_char.from_buffer(notes)), NOTES
        call.batches, call.batches_size = self._batches, MAX_BATCHES
        call.headers, call.headers_size = self._headers, len(self._headers)
        call.marks, call.marks_size = self._marks, len(self._marks)
        call.max_records = MAX_RECORDS
        self._pointer = ctypes.pointer(call)
        self.address = ctypes.addressof(call)
        """Of `calls.Call`."""
        self.size = 0
        """Bytes of `view`."""
        self._grow(FIRST_OUTPUT)

    @property
    def wants(self) -> int:
        """Bits that say what is wanted (`calls`)."""
        found: int = self._call.wants
        return found

    @wants.setter
    def wants(self, bits: int) -> None:
        self._call.wants = bits

    def hide(self, hiding: Hiding) -> None:
        """From here on the salt and personalization of hashes; whether there are any is a matter of `wants`."""
        call = self._call
        call.salt, call.salt_size, call.person = hiding.salt, len(hiding.salt), hiding.person

    @property
    def most_records(self) -> int:
        """Records, or headers of them, that a message may hold; messages with more are Python's."""
        found: int = self._call.max_records
        return found

    @most_records.setter
    def most_records(self, count: int) -> None:
        self._call.max_records = min(count, MAX_RECORDS)

    def _grow(self, size: int) -> None:
        output = np.empty(size, np.uint8)
        self.view, self.size = output.data, size
        self._address = output.ctypes.data
        self._call.output, self._call.output_size = self._address, size

    def more(self) -> bool:
        """Make more room; False where there is as much as there may be."""
        if self.size >= self.most_output:
            return False
        self._grow(min(4 * self.size, self.most_output))
        return True

    def reserve(self, size: int) -> None:
        """Make room for JSON of as many bytes of records, as far as there may be: writing all of it again costs more.

        What is in `view` is lost.
        """
        size = min(size + size // 2, self.most_output)
        if size > self.size:
            self._grow(size)

    def body(
        self, program: Program, data: bytes, start: int, end: int, decompress: Callable[[Wanted], bytes | None]
    ) -> Made | None:
        """The body `data[start:end]`; None where Python has to read it."""
        function, pointer, address = self._kernel.body, self._pointer, program.address
        self.reserve(end - start)
        return self._run(lambda: function(pointer, address, data, start, end), decompress)

    def records(self, data: bytes, start: int, end: int, decompress: Callable[[Wanted], bytes | None]) -> Made | None:
        """The `records` field `data[start:end]`; likewise."""
        function, pointer = self._kernel.records, self._pointer
        self.reserve(end - start)
        return self._run(lambda: function(pointer, data, start, end), decompress)

    def _run(self, function: Callable[[], int], decompress: Callable[[Wanted], bytes | None]) -> Made | None:
        call = self._call
        call.batches_given = 0
        given: list[bytes] = []  # kept as long as the kernel reads them
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
            elif status != NO_ROOM or not self.more():
                return None

    def give(self, decompress: Callable[[Wanted], bytes | None], given: list[bytes]) -> bool:
        """Decompress the batches that are wanted into `given`, which has to outlive the next call.

        False where one of them is Python's.
        """
        call = self._call
        for batch in self._batches[: call.batches_wanted]:
            wanted = Wanted(batch.position, batch.end, batch.codec, batch.magic, batch.count)
            records = decompress(wanted)
            if records is None:
                return False
            given.append(records)
            batch.records, batch.size = records, len(records)
        call.batches_given = call.batches_wanted
        return True

    def begin(self) -> None:
        """No batches are given to the next call."""
        self._call.batches_given = 0

    # -- MessagePack: what `wants` has to ask for --------------------------------------------------------------------

    def pack(self, program: int, data: bytes, start: int, end: int) -> int:
        """The body `data[start:end]` by the program at an address, as MessagePack in `view`. Hot.

        Returns twice its bytes, and 1 more where `results` have more to say than that it ends at `end`; a negative
        number where Python has to read it.
        """
        put_place(self._call, PLACE_AT, program, start, end)
        made: int = self._kernel.pack(self.address, data)
        while made == -NO_ROOM and self.more():
            made = self._kernel.pack(self.address, data)
        return made

    def results(self) -> tuple[int, int, int, int, int]:
        """Results of the last call.

        Bytes of notes, where the body ends, the number of records, bytes at the end of a field that are no whole
        batch, and whether interpreters may add something.
        """
        _, notes, _, records, truncated, after, looked_at = _RESULTS.unpack_from(self._call, _RESULTS_AT)
        return notes, after, records, truncated, looked_at

    def record_list(self, data: bytes, start: int, end: int, base: Base) -> memoryview | None:
        """The records that fill `data[start:end]` as MessagePack; None where Python has to read them.

        It is valid until the next call.
        """
        function, pointer = self._kernel.record_list, self._pointer
        status = function(pointer, data, start, end, base)
        while status == NO_ROOM and self.more():
            status = function(pointer, data, start, end, base)
        return self.view[: self._call.written] if status == DONE else None

    def shrink(self) -> None:
        """Give back what a large body took."""
        if self.size > KEPT_OUTPUT:
            self._grow(KEPT_OUTPUT)

    def notes(self, size: int) -> bytes:
        """The first `size` bytes of the notes of the last call, for `read_notes`."""
        return bytes(self._notes[:size])

    def pack_bodies(self, data: bytes, items: NDArray[np.void]) -> int:
        """Bodies one behind the other as MessagePack in `view`; returns how many items were looked at, 1 or more."""
        return self._run_items(data, items)

    def bodies(self, data: bytes, items: NDArray[np.void]) -> tuple[int, bytes, bytes]:
        """Bodies one behind the other; `items` are of `ITEM`, whose results are filled in.

        Returns how many items were looked at, their JSON, and their notes.
        """
        looked = self._run_items(data, items)
        call = self._call
        return looked, ctypes.string_at(self._address, call.written), self.notes(call.notes_written)

    def _run_items(self, data: bytes, items: NDArray[np.void]) -> int:
        """How many items were looked at: the first one alone, and for nothing, where it is too large."""
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
        return looked


def listed(texts: Iterable[bytes]) -> bytes:
    """Texts, each behind its length."""
    return b"".join(bytes((len(text),)) + text for text in texts)


def read_notes(notes: bytes, begin: int, end: int) -> tuple[list[Code], list[Noted]]:
    """Error codes and problems, each in the order of their places, from these bytes of notes."""
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
