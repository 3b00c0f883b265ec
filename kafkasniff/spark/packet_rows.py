"""Packets as rows of the table `packets`, and back; notes as rows of the table `notes`.

Columns are converted as wholes in both directions, payloads with one copy. Only addresses and names become Python
objects, one each.
"""

from __future__ import annotations

import functools
import ipaddress
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.capture.timeline.parts import PlacedNote
from kafkasniff.errors import UsageError
from kafkasniff.model import NO_TIME, Problem
from kafkasniff.packets import PacketBatch, connection_hash
from kafkasniff.spark.options import NOTES, PACKETS, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

PACKETS_SCHEMA: Final = arrow_schema(PACKETS)
NOTES_SCHEMA: Final = arrow_schema(NOTES)

_MAPPED: Final = 0xFFFF_0000_0000
"""Prefix of an IPv4 address, in the lower half of its IPv4-mapped form."""

Rows = NDArray[np.int64]


def packet_rows(
    batch: PacketBatch,
    columns: Sequence[str] = tuple(PACKETS),
    *,
    ports: Iterable[int] = (),
    keep: Callable[[pa.RecordBatch], NDArray[np.bool_]] | None = None,
    looked_at: Sequence[str] = (),
) -> pa.RecordBatch:
    """A batch as rows of these columns of the table `packets`.

    `ports`: only packets from or to one of them. `keep` decides which rows to keep from the columns in `looked_at`,
    before payloads are copied.
    """
    rows: Rows | None = None
    wanted = np.array(sorted(set(ports)), np.int64)
    if len(wanted):
        rows = np.flatnonzero(np.isin(batch.src_port, wanted) | np.isin(batch.dst_port, wanted))
    if keep is not None:
        kept = keep(_rows(batch, looked_at, rows))
        rows = np.flatnonzero(kept) if rows is None else rows[kept]
    return _rows(batch, columns, rows)


def _rows(batch: PacketBatch, columns: Sequence[str], rows: Rows | None) -> pa.RecordBatch:
    fields = [PACKETS_SCHEMA.field(name) for name in columns]
    arrays = [_COLUMNS[name](batch, rows).cast(field.type) for name, field in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _of(column: NDArray[Any], rows: Rows | None) -> NDArray[Any]:
    return column if rows is None else column[rows]


def _plain(name: str) -> Callable[[PacketBatch, Rows | None], pa.Array]:
    return lambda batch, rows: pa.array(_of(getattr(batch, name), rows))


def _times(column: NDArray[np.int64]) -> pa.Array:
    return pa.array(column, mask=column == NO_TIME)


def _time(batch: PacketBatch, rows: Rows | None) -> pa.Array:
    column = _of(batch.time_ns, rows)
    return pa.array(column // 1000, mask=column == NO_TIME)


def _clock(batch: PacketBatch, rows: Rows | None) -> pa.Array:
    return _times(_of(batch.time_ns if batch.clock is None else batch.clock, rows))


def _capture(batch: PacketBatch, rows: Rows | None) -> pa.Array:
    which, places = np.unique(_of(batch.capture, rows), return_inverse=True)
    return pa.array([batch.captures[index] for index in which.tolist()], pa.string()).take(pa.array(places))


def _addresses(end: str) -> Callable[[PacketBatch, Rows | None], pa.Array]:
    def make(batch: PacketBatch, rows: Rows | None) -> pa.Array:
        high, low = _of(getattr(batch, f"{end}_hi"), rows), _of(getattr(batch, f"{end}_lo"), rows)
        if not high.any():
            lows, places = np.unique(low, return_inverse=True)
            highs = np.zeros_like(lows)
        else:
            both = np.rec.fromarrays((high, low))
            pairs, places = np.unique(both, return_inverse=True)
            highs, lows = pairs["f0"], pairs["f1"]
        texts = [_text(*halves) for halves in zip(highs.tolist(), lows.tolist(), strict=True)]
        return pa.array(texts, pa.string()).take(pa.array(places))

    return make


def _text(high: int, low: int) -> str:
    if not high and low & ~0xFFFF_FFFF == _MAPPED:
        return str(ipaddress.IPv4Address(low & 0xFFFF_FFFF))
    return str(ipaddress.IPv6Address(high << 64 | low))


def _hash(batch: PacketBatch, rows: Rows | None) -> pa.Array:
    return pa.array(_of(connection_hash(batch), rows).view(np.int64))


def payloads(batch: PacketBatch, rows: Rows | None) -> pa.Array:
    """The payload of each of these rows."""
    offset = _of(batch.offset, rows)
    end = offset + _of(batch.length, rows)
    count = len(offset)
    if not count:
        return pa.array([], pa.binary())
    places = np.arange(count)
    if not (offset[1:] >= end[:-1]).all():
        order = np.lexsort((end, offset))  # both: empty payloads may be where others begin
        places[order] = np.arange(count)
        offset, end = offset[order], end[order]
    if (offset[1:] >= end[:-1]).all():
        # An array that alternates between payloads and the bytes between them, in the order of the buffer; taking
        # payloads from it leaves the copying to Arrow.
        borders = np.empty(2 * count, np.int32)
        borders[0::2], borders[1::2] = offset, end
        turns = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(borders), pa.py_buffer(batch.buffer)]
        )
        return turns.take(pa.array(2 * places))
    offset, end = offset[places], end[places]
    pieces = [batch.buffer[first:last] for first, last in zip(offset.tolist(), end.tolist(), strict=True)]
    return pa.array(pieces, pa.binary())


_COLUMNS: Final[dict[str, Callable[[PacketBatch, Rows | None], pa.Array]]] = {
    **{name: _plain(name) for name in PACKETS},
    "capture": _capture,
    "capture_index": _plain("capture"),
    "time": _time,
    "time_ns": lambda batch, rows: _times(_of(batch.time_ns, rows)),
    "clock_ns": _clock,
    "src_ip": _addresses("src"),
    "dst_ip": _addresses("dst"),
    "connection_hash": _hash,
    "payload": payloads,
}


def packet_batches(table: pa.RecordBatch, captures: tuple[str, ...] = (), first_order: int = 0) -> PacketBatch:
    """Rows of the table `packets` as a batch, in their order.

    All columns are needed but `capture`, `time` and `connection_hash`. `captures` are the names by `capture_index`.
    `order` counts rows from `first_order`: to cut a sequence of rows into batches, continue with `end_order`.
    Raises UsageError if a column is missing.
    """
    absent = {"capture_index", "number", "time_ns", "clock_ns", "payload", *_SAME, *_ENDS} - set(table.schema.names)
    if absent:
        raise UsageError(f"missing columns: {', '.join(sorted(absent))}")
    count = table.num_rows
    columns: dict[str, NDArray[Any]] = {name: _ints(table.column(name)) for name in _SAME}
    columns["order"] = np.arange(first_order, first_order + count, dtype=np.int64)
    columns["capture"] = _ints(table.column("capture_index"))
    columns["time_ns"] = _ints(table.column("time_ns"))
    for end in ("src", "dst"):
        columns[f"{end}_hi"], columns[f"{end}_lo"] = _halves(table.column(f"{end}_ip"))
        columns[f"{end}_port"] = _ints(table.column(f"{end}_port"))
    buffer, columns["offset"] = bytes_of(table.column("payload"))
    return PacketBatch(
        columns,
        buffer,
        captures=captures,
        clock=_ints(table.column("clock_ns")),
        end_order=first_order + count,
        packets=count,
    )


_SAME: Final = ("number", "seq", "ack", "flags", "window", "length", "wire_length", "ident")
_ENDS: Final = ("src_ip", "src_port", "dst_ip", "dst_port")


def _ints(column: pa.Array) -> NDArray[np.int64]:
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(NO_TIME)
    found: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return found


def _halves(column: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    encoded = pc.dictionary_encode(column)
    pairs = [_numbers(text) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.to_numpy(zero_copy_only=False)
    halves = np.array(pairs, np.uint64).reshape(-1, 2)
    return halves[places, 0], halves[places, 1]


def _numbers(text: str) -> tuple[int, int]:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return 0, _MAPPED | int(address)
    return int(address) >> 64, int(address) & 0xFFFF_FFFF_FFFF_FFFF


def bytes_of(column: pa.Array) -> tuple[bytes, NDArray[np.int64]]:
    """The bytes of a binary column in one piece, and the offset of each value."""
    wide = pa.types.is_large_binary(column.type)
    _, borders, data = column.buffers()
    places = np.frombuffer(borders, np.int64 if wide else np.int32)[column.offset : column.offset + len(column) + 1]
    offsets = places.astype(np.int64)
    if data is None or not len(column):
        return b"", offsets[:-1]
    first, last = int(offsets[0]), int(offsets[-1])
    # One copy: readers of a batch may keep slices of its buffer, and Arrow's memory belongs to Spark.
    return data.slice(first, last - first).to_pybytes(), offsets[:-1] - first


def note_rows(notes: Sequence[PlacedNote], names: Mapping[int, str], *, show_secrets: bool = False) -> pa.RecordBatch:
    """Notes as rows of the table `notes`; decryption secrets only by their length, unless `show_secrets`.

    `names`: names of captures by index.
    """
    rows = []
    for note in notes:
        place, value = note.place, note.value
        row: dict[str, Any] = dict.fromkeys(NOTES)
        row["capture"] = names.get(place.capture)
        row["capture_index"], row["number"] = place.capture, place.number
        row["clock_ns"] = None if place.clock == NO_TIME else place.clock
        match value:
            case Problem():
                row.update(note="problem", kind=value.kind, detail=value.detail, packet=value.packet, bytes=value.bytes)
                row["capture"] = value.capture or row["capture"]
                row["time_ns"] = value.time_ns
            case (address, name):
                row.update(note="name", address=address, name=name)
            case bytes():
                row.update(note="secrets", bytes=len(value), secrets=value if show_secrets else None)
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=NOTES_SCHEMA)


def secret_rows(notes: Iterable[PlacedNote], names: Mapping[int, str]) -> pa.RecordBatch:
    """The decryption secrets among notes as rows of the table `packets`: without addresses, the block as the payload.

    `names`: names of captures by index.
    """
    rows = []
    for note in notes:
        if isinstance(note.value, bytes):
            row: dict[str, Any] = dict.fromkeys(PACKETS)
            row["capture"], row["capture_index"] = names.get(note.place.capture), note.place.capture
            row["clock_ns"] = None if note.place.clock == NO_TIME else note.place.clock
            row["number"] = note.place.number
            row["length"] = row["wire_length"] = len(note.value)
            row["payload"] = note.value
            rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=PACKETS_SCHEMA)


# -- filters -----------------------------------------------------------------------------------------------------------
#
# Filters applied while packets are read, before their payloads are copied.
#
# They have Spark's semantics: neither a comparison with null nor its negation is true.

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_COMPARABLE: Final = {"int": int, "bigint": int, "string": str}
"""Columns of other types are left to Spark."""


class Condition(msgspec.Struct, frozen=True):
    """Comparison of one column."""

    column: str
    operation: str
    """Name of Spark's filter class."""
    value: Any = None
    negated: bool = False


def condition_of(filter_: Filter) -> Condition | None:
    """The condition of a filter; None if it is left to Spark."""
    kind = type(filter_).__name__
    if kind == "Not":
        inner = condition_of(filter_.child)  # type: ignore[attr-defined]
        return None if inner is None else msgspec.structs.replace(inner, negated=not inner.negated)
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    wanted = _COMPARABLE.get(PACKETS.get(path[0], "")) if len(path) == 1 else None
    if wanted is None:
        return None
    if kind in {"IsNull", "IsNotNull"}:
        return Condition(path[0], kind)
    value = getattr(filter_, "value", None)
    if kind == "In":
        values = tuple(value or ())
        return Condition(path[0], kind, values) if values and all(type(value) is wanted for value in values) else None
    return Condition(path[0], kind, value) if kind in _COMPARISONS and type(value) is wanted else None


def keeper(
    conditions: Iterable[Condition],
) -> tuple[Callable[[pa.RecordBatch], NDArray[np.bool_]] | None, tuple[str, ...]]:
    """A function that selects the rows that meet all conditions, and the columns that it needs; None: all rows do."""
    conditions = tuple(conditions)
    if not conditions:
        return None, ()

    def keep(rows: pa.RecordBatch) -> NDArray[np.bool_]:
        return functools.reduce(operator.and_, (_met(condition, rows) for condition in conditions))

    return keep, tuple(dict.fromkeys(condition.column for condition in conditions))


def _met(condition: Condition, rows: pa.RecordBatch) -> NDArray[np.bool_]:
    column = rows.column(condition.column)
    match condition.operation:
        case "IsNull":
            found = column.is_null()
        case "IsNotNull":
            found = column.is_valid()
        case "In":
            known = pc.is_in(column, value_set=pa.array(condition.value, _wide(column)))
            found = pc.if_else(column.is_valid(), known, None)
        case _:
            found = _COMPARISONS[condition.operation](column, pa.scalar(condition.value, _wide(column)))
    if condition.negated:
        found = pc.invert(found)
    met: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)
    return met


def _wide(column: pa.Array) -> pa.DataType:
    """A type that holds any constant that Spark compares the column with."""
    return pa.string() if pa.types.is_string(column.type) else pa.int64()
