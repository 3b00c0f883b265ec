"""Records of many batches as columns in Arrow's layout; `kernel/columns.zig` has the same structures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import listed
from kafkasniff.native.calls import DONE, ODD
from kafkasniff.native.library import Kernel

MAX_COLUMN: Final = (1 << 31) - 2
"""Rows, and bytes of values, of a column: offsets are int32."""

_COUNTS: Final = ("rows", "headers", "key_bytes", "value_bytes", "header_key_bytes", "header_value_bytes")

BATCH: Final = np.dtype(
    [
        ("records", np.uint64),
        ("size", np.uint64),
        ("base_offset", np.int64),
        ("base_timestamp", np.int64),
        ("append_timestamp", np.int64),
        ("most_records", np.uint64),
        ("most_headers", np.uint64),
        ("base_sequence", np.int32),
        ("magic", np.uint8),
        ("appended", np.uint8),
        ("spare", np.uint16),
        ("status", np.int32),
        ("found", np.uint32),
        *((name, np.uint64) for name in _COUNTS),
        ("last_offset", np.int64),
    ]
)
"""A batch: the location of its records and their base values (`columns.Batch`). Fields from `status` on are results."""

MARKS: Final = 1
LISTED: Final = 2
"""Flags of `found`."""

Numbers = NDArray[np.int64]


class _Binary(ctypes.Structure):
    _fields_ = (
        ("offsets", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("nulls", ctypes.c_uint64),
    )


class Columns(ctypes.Structure):
    """Input and output (`columns.Columns`)."""

    _fields_ = (
        ("batches", ctypes.c_void_p),
        ("batches_size", ctypes.c_uint64),
        ("marks", ctypes.c_char_p),
        ("marks_size", ctypes.c_uint64),
        ("headers", ctypes.c_char_p),
        ("headers_size", ctypes.c_uint64),
        ("first_time", ctypes.c_int64),
        ("last_time", ctypes.c_int64),
        ("rows_size", ctypes.c_uint64),
        ("header_rows_size", ctypes.c_uint64),
        ("offset", ctypes.c_void_p),
        ("timestamp", ctypes.c_void_p),
        ("timestamp_valid", ctypes.c_void_p),
        ("sequence", ctypes.c_void_p),
        ("header_offsets", ctypes.c_void_p),
        ("key", _Binary),
        ("value", _Binary),
        ("header_key", _Binary),
        ("header_value", _Binary),
        ("rows", ctypes.c_uint64),
        ("header_rows", ctypes.c_uint64),
        ("timestamp_nulls", ctypes.c_uint64),
    )


class Binary(msgspec.Struct, frozen=True):
    """Binary values: each begins at its offset, and ends where the next begins."""

    offsets: NDArray[np.int32]
    """One more than there are values."""
    data: NDArray[np.uint8]
    valid: NDArray[np.uint8]
    """Bits, the lowest first: 0 is null."""
    nulls: int


class RecordColumns(msgspec.Struct, frozen=True):
    """One row per record, in the order of the batches; headers have rows of their own."""

    offset: Numbers
    timestamp: Numbers
    """Microseconds."""
    timestamp_valid: NDArray[np.uint8]
    """Bits, lowest first: 0 if there is none, or if it is out of range."""
    timestamp_nulls: int
    sequence: NDArray[np.int32]
    header_offsets: NDArray[np.int32]
    """One more than there are rows: number of headers before each, and in total."""
    key: Binary
    value: Binary
    header_key: Binary
    """UTF-8."""
    header_value: Binary
    marked: bool
    """A key may begin with one of the marks."""
    listed: bool
    """A header may have one of the listed keys."""


class ColumnReader:
    """Reads records of many batches: `measure` finds the flawless ones and their sizes, `read` reads records.

    `marks`: prefixes of record keys, and `headers`: keys of headers, whose presence is reported; `times`: the first and
    the last millisecond of a valid timestamp; `allocate`: allocates memory for values, from a pool shared with the
    consumer of the columns.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        marks: Iterable[bytes],
        headers: Iterable[bytes],
        times: tuple[int, int],
        allocate: Callable[[int], Any] = bytearray,
    ) -> None:
        self._kernel = kernel
        self._allocate = allocate
        self._columns = Columns()
        self._marks, self._headers = listed(marks), listed(headers)
        call = self._columns
        call.marks, call.marks_size = self._marks, len(self._marks)
        call.headers, call.headers_size = self._headers, len(self._headers)
        call.first_time, call.last_time = times

    def measure(self, batches: NDArray[np.void]) -> NDArray[np.bool_]:
        """Fill the results of batches (`BATCH`); returns which are flawless. The caller keeps their bytes alive."""
        call = self._columns
        call.batches, call.batches_size = batches.ctypes.data, len(batches)
        self._kernel.columns_measure(ctypes.byref(call))
        right: NDArray[np.bool_] = batches["status"] == DONE
        return right

    def read(self, batches: NDArray[np.void], wanted: NDArray[np.bool_]) -> RecordColumns | None:
        """The records of some of the flawless batches; None if they do not fit into columns.

        `batches` are those of the last `measure`, which refer to the same bytes.
        """
        batches["status"][~wanted] = ODD
        some = batches.compress(wanted)
        if any(int(some[name].sum()) > MAX_COLUMN for name in _COUNTS):
            return None
        rows, headers = int(some["rows"].sum()), int(some["headers"].sum())
        found = int(np.bitwise_or.reduce(some["found"])) if len(some) else 0
        call = self._columns
        call.batches, call.batches_size = batches.ctypes.data, len(batches)
        call.rows_size, call.header_rows_size = rows, headers
        offset, timestamp = np.empty(rows, np.int64), np.empty(rows, np.int64)
        valid, sequence = _bits(rows), np.empty(rows, np.int32)
        header_offsets = np.empty(rows + 1, np.int32)
        call.offset, call.timestamp = offset.ctypes.data, timestamp.ctypes.data
        call.timestamp_valid, call.sequence = valid.ctypes.data, sequence.ctypes.data
        call.header_offsets = header_offsets.ctypes.data
        made = [
            self._room(getattr(call, name), count, int(some[f"{name}_bytes"].sum()))
            for name, count in (("key", rows), ("value", rows), ("header_key", headers), ("header_value", headers))
        ]
        if self._kernel.columns_write(ctypes.byref(call)) != DONE:
            return None
        assert (call.rows, call.header_rows) == (rows, headers)
        key, value, header_key, header_value = (
            msgspec.structs.replace(one, nulls=getattr(call, name).nulls)
            for one, name in zip(made, ("key", "value", "header_key", "header_value"), strict=True)
        )
        return RecordColumns(
            offset,
            timestamp,
            valid,
            call.timestamp_nulls,
            sequence,
            header_offsets,
            key,
            value,
            header_key,
            header_value,
            bool(found & MARKS),
            bool(found & LISTED),
        )

    def _room(self, call: Any, count: int, size: int) -> Binary:
        """Memory for values of `size` bytes in total."""
        data = np.frombuffer(self._allocate(size), np.uint8) if size else np.empty(0, np.uint8)
        made = Binary(np.empty(count + 1, np.int32), data, _bits(count), 0)
        call.offsets, call.data, call.valid = made.offsets.ctypes.data, made.data.ctypes.data, made.valid.ctypes.data
        call.size = size
        return made


def _bits(count: int) -> NDArray[np.uint8]:
    return np.zeros(-(-count // 8), np.uint8)


def address_of(data: bytes | memoryview) -> int:
    """The address of the bytes; 0 if there are none."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0]) if len(data) else 0


def count_messages(kernel: Kernel, data: bytes, magic: int, most: int) -> int:
    """Number of messages of a magic in `data`; 0 if one is malformed, or compressed, or there are more."""
    batch = np.zeros(1, BATCH)
    batch["records"], batch["size"], batch["magic"], batch["most_records"] = address_of(data), len(data), magic, most
    reader = ColumnReader(kernel, marks=(), headers=(), times=(0, 0))
    return int(batch["rows"][0]) if reader.measure(batch)[0] else 0
