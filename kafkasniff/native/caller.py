"""Calls of the kernel with the memory that they need: results come as `bytes`, compressed batches are asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.calls import COMPRESSED, DONE, NO_ROOM, Batch, Call, Item
from kafkasniff.native.library import Kernel

__all__ = ["MAX_BATCHES", "MAX_OUTPUT", "Caller", "Code", "Made", "Program", "Wanted", "listed"]

FIRST_OUTPUT: Final = 256 << 10
MAX_OUTPUT: Final = 8 << 20
"""Bytes of JSON of one body at most: larger ones are Python's."""
ERRORS: Final = 64 << 10
"""Bytes of the error codes of one call, with their paths."""
MAX_BATCHES: Final = 4096
"""Compressed batches of one message; messages with more are Python's."""
MAX_RECORDS: Final = 1_000_000
"""Records, or headers of them, of one message; as above."""

ITEM: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("program", "start", "end", "output_end", "errors_end")),
        ("status", np.int32),
        ("records", np.uint32),
    ]
)
"""`calls.Item` as columns."""

Code = tuple[int, str]
"""An error code and where in the body it is."""


class Made(NamedTuple):
    """What came of a message."""

    json: bytes
    codes: tuple[Code, ...]
    records: int
    truncated: int


class Wanted(NamedTuple):
    """A compressed batch."""

    position: int
    end: int
    codec: int
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

    `headers`, `marks`: keys of record headers, and what is in keys of records, that leave a message to Python.
    """

    def __init__(self, kernel: Kernel, *, headers: Iterable[bytes] = (), marks: Iterable[bytes] = ()) -> None:
        self._kernel = kernel
        self._call = Call()
        self._errors = ctypes.create_string_buffer(ERRORS)
        self._batches = (Batch * MAX_BATCHES)()
        self._headers, self._marks = listed(headers), listed(marks)
        call = self._call
        call.errors, call.errors_size = ctypes.addressof(self._errors), ERRORS
        call.batches, call.batches_size = self._batches, MAX_BATCHES
        call.headers, call.headers_size = self._headers, len(self._headers)
        call.marks, call.marks_size = self._marks, len(self._marks)
        call.max_records = MAX_RECORDS
        self._pointer = ctypes.pointer(call)
        self._grow(FIRST_OUTPUT)

    @property
    def wants(self) -> int:
        """Bits that say what is wanted (`calls`)."""
        found: int = self._call.wants
        return found

    @wants.setter
    def wants(self, bits: int) -> None:
        self._call.wants = bits

    @property
    def most_records(self) -> int:
        """Records, or headers of them, that a message may hold; messages with more are Python's."""
        found: int = self._call.max_records
        return found

    @most_records.setter
    def most_records(self, count: int) -> None:
        self._call.max_records = min(count, MAX_RECORDS)

    def _grow(self, size: int) -> None:
        self._output = ctypes.create_string_buffer(size)
        self._address = ctypes.addressof(self._output)
        self._call.output, self._call.output_size = self._address, size

    def _more(self) -> bool:
        """Make more room; False where there is as much as there may be."""
        size = self._call.output_size
        if size >= MAX_OUTPUT:
            return False
        self._grow(min(4 * size, MAX_OUTPUT))
        return True

    def body(
        self, program: Program, data: bytes, start: int, end: int, decompress: Callable[[Wanted], bytes | None]
    ) -> Made | None:
        """The body `data[start:end]`; None where Python has to read it."""
        function, pointer, address = self._kernel.body, self._pointer, program.address
        return self._run(lambda: function(pointer, address, data, start, end), decompress)

    def records(self, data: bytes, start: int, end: int, decompress: Callable[[Wanted], bytes | None]) -> Made | None:
        """The `records` field `data[start:end]`; likewise."""
        function, pointer = self._kernel.records, self._pointer
        return self._run(lambda: function(pointer, data, start, end), decompress)

    def _run(self, function: Callable[[], int], decompress: Callable[[Wanted], bytes | None]) -> Made | None:
        call = self._call
        call.batches_given = 0
        given: list[bytes] = []  # kept as long as the kernel reads them
        while True:
            status = function()
            if status == DONE:
                json = ctypes.string_at(self._address, call.written)
                codes = _codes(self._errors.raw[: call.errors_written]) if call.errors_written else ()
                return Made(json, codes, call.records, call.truncated)
            if status == COMPRESSED and not given:
                for batch in self._batches[: call.batches_wanted]:
                    records = decompress(Wanted(batch.position, batch.end, batch.codec, batch.count))
                    if records is None:
                        return None
                    given.append(records)
                    batch.records, batch.size = records, len(records)
                call.batches_given = call.batches_wanted
            elif status != NO_ROOM or not self._more():
                return None

    def bodies(self, data: bytes, items: NDArray[np.void]) -> tuple[int, bytes, tuple[Code, ...]]:
        """Bodies one behind the other; `items` are of `ITEM`, whose results are filled in.

        Returns how many items were looked at, their JSON, and their error codes.
        """
        call = self._call
        call.batches_given = 0
        place = ctypes.cast(items.ctypes.data, ctypes.POINTER(Item))
        looked = 0
        while looked == 0:
            looked = self._kernel.bodies(self._pointer, data, len(data), place, len(items))
            if looked == 0 and not self._more():
                # The first one is too large.
                return 1, b"", ()
        json = ctypes.string_at(self._address, call.written)
        return looked, json, _codes(self._errors.raw[: call.errors_written]) if call.errors_written else ()


def listed(texts: Iterable[bytes]) -> bytes:
    """Texts, each behind its length."""
    return b"".join(bytes((len(text),)) + text for text in texts)


def _codes(raw: bytes) -> tuple[Code, ...]:
    """Error codes as the kernel leaves them."""
    found: list[Code] = []
    at = 0
    while at < len(raw):
        code = int.from_bytes(raw[at : at + 2], "little", signed=True)
        size = int.from_bytes(raw[at + 2 : at + 4], "little")
        found.append((code, raw[at + 4 : at + 4 + size].decode("ascii")))
        at += 4 + size
    return tuple(found)
