"""Records and exchanges as columns in Arrow's layout, many at a time."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.native.caller import Caller, listed
from kafkasniff.native.feed import copied
from kafkasniff.native.library import ASKS, DONE, FORMS, NO_ROOM, ODD, RECORDS, SHOW_SECRETS, Kernel
from kafkasniff.native.lines import LineWordings
from kafkasniff.native.names import LineNames, NameFacts

# -- records (`kernel/columns.zig` has the same structures) ------------------------------------------------------------


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
            msgspec.structs.replace(binary, nulls=getattr(call, name).nulls)
            for binary, name in zip(made, ("key", "value", "header_key", "header_value"), strict=True)
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


def buffer_address(data: bytes | memoryview) -> int:
    """The address of the bytes; 0 if there are none."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0]) if len(data) else 0


def count_messages(kernel: Kernel, data: bytes, magic: int, most: int) -> int:
    """Number of messages of a magic in `data`; 0 if one is malformed, or compressed, or there are more."""
    batch = np.zeros(1, BATCH)
    batch["records"], batch["size"], batch["magic"], batch["most_records"] = (
        buffer_address(data),
        len(data),
        magic,
        most,
    )
    reader = ColumnReader(kernel, marks=(), headers=(), times=(0, 0))
    return int(batch["rows"][0]) if reader.measure(batch)[0] else 0


# -- exchanges (`kernel/exchange_columns.zig` has the same structures) -------------------------------------------------


VALUES: Final = 8
"""Maximum numbers of both messages in a row."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "mixed")
"""By the `codec` of a partition."""

MAX_ROWS: Final = 16_384
MAX_TEXT: Final = 4 << 20
"""Limits per call: rows, bytes of requests as text, and of responses. An exchange with more is left to Python."""
MAX_INSIDE: Final = 32_768
"""Limit per call for topics, partitions, batches and error codes of all rows, each."""
MAX_PROBLEMS: Final = 8_192
MAX_DETAILS: Final = 1 << 20
"""Problems per call, and bytes of what they say."""
MAX_NAMES: Final = 32_768
MAX_NAME_BYTES: Final = 2 << 20
"""Different names of topics, groups and clients per call."""
MAX_ASKS: Final = 8
"""Times that the kernel may ask for names in one exchange: each time for many, or for a larger table."""

PAIR: Final = np.dtype([("request", np.uint32), ("response", np.uint32)])
"""The messages of an exchange, by their indices. If the response is `NONE`, the row is about the request."""
ROW: Final = np.dtype(
    [
        ("pair", np.uint64),
        ("records", np.int64),
        ("values", np.int64, (VALUES,)),
        ("has", np.uint32),
        *((name, np.int32) for name in ("throttle", "code")),
        *((name, np.uint32) for name in ("codes", "client_id", "group", "transaction", "asked_member", "given_member")),
        *((name, np.uint32) for name in ("topics", "partitions", "batches", "asked_topics", "asked_partitions")),
        *((name, np.uint32) for name in ("facts", "facts_size", "problems")),
    ],
    align=True,
)
"""An exchange (`exchange_columns.Row`)."""
HAS_RECORDS, HAS_THROTTLE, HAS_GROUPS, HAS_TRANSACTIONS = 1, 2, 4, 8
PARTITION: Final = np.dtype(
    [
        *((name, np.int64) for name in ("offset", "watermark", "stable_offset", "records", "bytes")),
        *((name, np.int64) for name in ("uncompressed", "producer_id")),
        ("topic", np.uint32),
        *((name, np.int32) for name in ("partition", "code", "batches", "producer_epoch", "base_sequence", "codec")),
        ("has", np.uint32),
        ("topic_id", np.uint32),
    ],
    align=True,
)
"""Facts of an exchange about a partition (`exchange_columns.Partition`)."""
HAS_OFFSET, HAS_WATERMARK, HAS_STABLE_OFFSET, HAS_CODE, HAS_BATCHES, HAS_CODEC, HAS_UNCOMPRESSED, HAS_PRODUCER = (
    1 << at for at in range(8)
)
SHARED: Final = np.dtype(
    [
        ("producer_id", np.int64),
        ("count", np.int64),
        ("row", np.uint32),
        ("partition", np.int32),
        ("topic", np.uint32),
        ("producer_epoch", np.int32),
        ("topic_id", np.uint32),
        ("place", np.uint32),
        *((name, np.uint8) for name in ("is_request", "appended", "transactional", "codec")),
        ("spare", np.uint8, (4,)),
    ],
    align=True,
)
"""Common fields of the records of a batch (`exchange_columns.Shared`)."""

PROBLEM: Final = np.dtype(
    [
        ("offset", np.int64),
        ("bytes", np.int64),
        ("row", np.uint32),
        ("kind", np.uint16),
        ("is_request", np.uint8),
        ("spare", np.uint8),
    ],
    align=True,
)
"""A problem of a body (`exchange_columns.Reported`)."""

UNNAMED: Final = 1 << 31
"""Added to the index of a topic id that has no name (`exchange_columns.UNNAMED`)."""


class _Texts(ctypes.Structure):
    _fields_ = (
        ("offsets", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
    )


class _Names(ctypes.Structure):
    _fields_ = (
        ("texts", _Texts),
        ("table", ctypes.c_void_p),
        ("table_size", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
    )


class _Exchanges(ctypes.Structure):
    _fields_ = (
        ("messages", ctypes.c_void_p),
        ("messages_size", ctypes.c_uint64),
        ("buffer", ctypes.c_void_p),
        ("buffer_size", ctypes.c_uint64),
        ("arena", ctypes.c_void_p),
        ("arena_size", ctypes.c_uint64),
        ("pairs", ctypes.c_void_p),
        ("pairs_size", ctypes.c_uint64),
        ("programs", ctypes.c_void_p),
        ("bodies", ctypes.c_void_p),
        ("call", ctypes.c_void_p),
        ("headers", ctypes.c_uint32),
        ("records", ctypes.c_uint32),
        ("continues", ctypes.c_uint32),
        ("unnamed", ctypes.c_uint32),
        ("topic_names", ctypes.c_void_p),
        ("wordings", LineWordings),
        ("careful", ctypes.c_void_p),
        ("most", ctypes.c_uint64),
        ("requests", _Texts),
        ("responses", _Texts),
        ("names", _Names),
        ("rows", ctypes.c_void_p),
        ("rows_size", ctypes.c_uint64),
        ("topics", ctypes.c_void_p),
        ("topics_size", ctypes.c_uint64),
        ("partitions", ctypes.c_void_p),
        ("partitions_size", ctypes.c_uint64),
        ("batches", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("batches_size", ctypes.c_uint64),
        ("codes", ctypes.c_void_p),
        ("codes_size", ctypes.c_uint64),
        ("problems", ctypes.c_void_p),
        ("problems_size", ctypes.c_uint64),
        ("details", _Texts),
        ("next", ctypes.c_uint64),
        ("rows_used", ctypes.c_uint64),
        ("topics_used", ctypes.c_uint64),
        ("partitions_used", ctypes.c_uint64),
        ("batches_used", ctypes.c_uint64),
        ("codes_used", ctypes.c_uint64),
        ("problems_used", ctypes.c_uint64),
    )


class Strings(NamedTuple):
    """Texts in Arrow's layout."""

    offsets: NDArray[np.int32]
    """One more than there are texts."""
    data: NDArray[np.uint8]


class ExchangeColumns(NamedTuple):
    """Output of one call: a row per exchange, in the order of the pairs."""

    rows: NDArray[np.void]
    """`ROW`; numbers of topics, partitions and batches of each, which are concatenated for all rows."""
    requests: Strings
    """Bodies as JSON; empty if not wanted."""
    responses: Strings
    names: Strings
    """The strings that `client_id`, `group` … are indices of; NONE: null."""
    topics: NDArray[np.uint32]
    """Names, and ids without a name plus `UNNAMED`."""
    partitions: NDArray[np.void]
    """`PARTITION`."""
    batches: NDArray[np.void]
    """`BATCH`, which refer to the messages' bytes; empty if records are not requested."""
    shared: NDArray[np.void]
    """`SHARED`, for the batches."""
    codes: NDArray[np.int32]
    """Error codes, none of them zero."""
    problems: NDArray[np.void]
    """`PROBLEM`."""
    details: Strings
    """What each of them says."""


class _Room:
    """Memory for texts."""

    def __init__(self, texts: Any, count: int, size: int) -> None:
        self._texts = texts
        self._offsets, self._data = np.zeros(count + 1, np.int32), np.empty(size, np.uint8)
        texts.offsets, texts.data, texts.size = self._offsets.ctypes.data, self._data.ctypes.data, size

    def take(self, count: int) -> Strings:
        return Strings(self._offsets[: count + 1].copy(), self._data[: self._texts.used].copy())


class ExchangeReader:
    """Reads exchanges of one batch after the other.

    `programs`: the addresses of programs by direction and code, which may change (`roles.ExchangeKinds`); `headers`:
    bodies are not needed; `bodies`: whether their JSON is, by direction and code (`exchange_columns.Wanted`; None:
    never); `records`: the locations of batches are; `most`: maximum size of a message, and `max_records` of its
    records. `names`: of topic ids; None: no program needs any. `unnamed`: ids without a name are among the topics.
    `problems`: how problems of bodies are worded, and what they need besides, by direction and code; None: exchanges
    with problems have no rows.
    """

    def __init__(
        self,
        kernel: Kernel,
        programs: NDArray[np.uint64],
        *,
        headers: bool,
        bodies: NDArray[np.uint8] | None = None,
        records: bool = False,
        show_secrets: bool = False,
        most: int,
        max_records: int = 0,
        names: NameFacts | None = None,
        unnamed: bool = False,
        problems: tuple[LineWordings, NDArray[np.void]] | None = None,
    ) -> None:
        self._kernel = kernel
        self._caller = Caller(kernel)
        self._caller.wants = FORMS["auto"] | RECORDS["batches"] | (SHOW_SECRETS if show_secrets else 0)
        self._caller.most_records = max_records
        self._kept = programs, bodies, problems
        call = self.call = _Exchanges()
        call.call, call.programs, call.most = self._caller.address, programs.ctypes.data, most
        call.headers, call.records, call.unnamed = headers, records, unnamed
        call.bodies = None if bodies is None else bodies.ctypes.data
        self._topic_names = None if names is None else LineNames(names)
        call.topic_names = None if self._topic_names is None else self._topic_names.address
        self._requests = _Room(call.requests, MAX_ROWS, 0 if headers else MAX_TEXT)
        self._responses = _Room(call.responses, MAX_ROWS, 0 if headers else MAX_TEXT)
        self._names = _Room(call.names.texts, MAX_NAMES, MAX_NAME_BYTES)
        most_problems = 0
        if problems is not None:
            most_problems = MAX_PROBLEMS
            call.wordings, call.careful = problems[0], problems[1].ctypes.data
        self._problems = np.zeros(most_problems, PROBLEM)
        call.problems, call.problems_size = self._problems.ctypes.data, most_problems
        self._details = _Room(call.details, most_problems, MAX_DETAILS if problems is not None else 0)
        self._table = np.zeros(2 * MAX_NAMES, np.uint32)
        call.names.table, call.names.table_size = self._table.ctypes.data, len(self._table)
        call.names.seed = int.from_bytes(os.urandom(8))
        inside = 0 if headers else MAX_INSIDE
        self._rows, self._topics = np.zeros(MAX_ROWS, ROW), np.zeros(inside, np.uint32)
        self._partitions, self._codes = np.zeros(inside, PARTITION), np.zeros(inside, np.int32)
        batches = MAX_INSIDE if records else 0
        self._batches, self._shared = np.zeros(batches, BATCH), np.zeros(batches, SHARED)
        call.rows, call.rows_size = self._rows.ctypes.data, MAX_ROWS
        call.topics, call.topics_size = self._topics.ctypes.data, inside
        call.partitions, call.partitions_size = self._partitions.ctypes.data, inside
        call.codes, call.codes_size = self._codes.ctypes.data, inside
        call.batches, call.shared, call.batches_size = self._batches.ctypes.data, self._shared.ctypes.data, batches

    def read(
        self, messages: NDArray[np.void], buffer: bytes, arena: bytes, pairs: NDArray[np.void], first: int
    ) -> tuple[ExchangeColumns, int]:
        """The exchanges from `first` on that have rows, as many as fit, and the index of the next one.

        `pairs`: of `PAIR`. Those without a row are left to Python. The batches of the result refer to `buffer` and
        `arena`.
        """
        call = self.call
        messages, pairs = np.ascontiguousarray(messages), np.ascontiguousarray(pairs)
        kept = [np.frombuffer(data, np.uint8) for data in (buffer, arena)]
        call.messages, call.messages_size = messages.ctypes.data, len(messages)
        call.buffer, call.buffer_size = kept[0].ctypes.data, len(buffer)
        call.arena, call.arena_size = kept[1].ctypes.data, len(arena)
        call.pairs, call.pairs_size, call.next = pairs.ctypes.data, len(pairs), first
        outcome = self._run()
        if outcome not in {DONE, NO_ROOM}:
            raise RuntimeError(f"the kernel refuses to read exchanges: {outcome}")
        count = call.rows_used
        exchange_columns = ExchangeColumns(
            copied(self._rows[:count]),
            self._requests.take(count),
            self._responses.take(count),
            self._names.take(call.names.count),
            self._topics[: call.topics_used].copy(),
            copied(self._partitions[: call.partitions_used]),
            copied(self._batches[: call.batches_used]),
            copied(self._shared[: call.batches_used]),
            self._codes[: call.codes_used].copy(),
            copied(self._problems[: call.problems_used]),
            self._details.take(call.problems_used),
        )
        # An exchange that does not fit into the empty output is left to Python.
        return exchange_columns, call.next + (outcome == NO_ROOM and not count)

    def _run(self) -> int:
        """The exchanges from `next` on; names that they need are added."""
        call, names = self.call, self._topic_names
        if names is not None:
            names.changed()
        call.continues = 0
        asked, times = -1, 0
        while (outcome := int(self._kernel.exchanges(ctypes.byref(call)))) == ASKS:
            assert names is not None
            times = times + 1 if call.next == asked else 1
            asked = call.next
            if not names.answer() or times > MAX_ASKS:
                call.next += 1
            call.continues = 1
        return outcome
