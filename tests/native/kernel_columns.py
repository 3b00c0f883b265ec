"""Columns of records that the kernel makes, in the form that Python's readers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kafkasniff.kafka.record_facts import TRACE_HEADERS
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS
from kafkasniff.native import kernel
from kafkasniff.native.columns import BATCH, Binary, ColumnReader, RecordColumns, buffer_address
from kafkasniff.tables.rows.record_arrays import FIRST_TIME, LAST_TIME

MANY = 1 << 40


class Given(NamedTuple):
    """Records of a batch, decompressed."""

    data: bytes
    magic: int = 2
    base_offset: int = 0
    base_timestamp: int = 0
    append_timestamp: int | None = None
    base_sequence: int = -1
    most_records: int = MANY
    most_headers: int = MANY


def read(batches: Sequence[Given]) -> tuple[list[list[dict[str, Any]] | None], RecordColumns]:
    """The rows of each batch, None where the kernel refuses it; and the columns.

    A row is what `record_list` makes of it, but for the timestamp, which is in microseconds, None where it is invalid,
    and with its `sequence`.
    """
    reader = ColumnReader(
        kernel(), marks=CONNECT_KEYS, headers=[name.encode() for name in TRACE_HEADERS], times=(FIRST_TIME, LAST_TIME)
    )
    rows = [
        (
            *(buffer_address(one.data), len(one.data), one.base_offset, one.base_timestamp, one.append_timestamp or 0),
            *(one.most_records, one.most_headers, one.base_sequence, one.magic, one.append_timestamp is not None),
            *(0,) * 10,
        )
        for one in batches
    ]
    made = np.array(rows, BATCH)
    right = reader.measure(made)
    columns = reader.read(made, right.copy())
    assert columns is not None
    found, begin = _rows(columns), 0
    result: list[list[dict[str, Any]] | None] = []
    for taken, count in zip(right.tolist(), made["rows"].tolist(), strict=True):
        result.append(found[begin : begin + count] if taken else None)
        begin += count if taken else 0
    assert begin == len(found)
    return result, columns


def expected(record: dict[str, Any]) -> dict[str, Any]:
    """A record as Python's readers have it, with the timestamp of the columns."""
    time = record["timestamp"]
    shown = time is not None and time != -1 and FIRST_TIME <= time <= LAST_TIME
    return {**record, "timestamp": time * 1000 if shown else None, "headers": record.get("headers", [])}


def _values(column: Binary) -> list[bytes | None]:
    data, offsets = column.data.tobytes(), column.offsets.tolist()
    bits = np.unpackbits(column.valid, bitorder="little").tolist()
    assert offsets[0] == 0
    assert offsets[-1] == len(data)
    values = [
        data[start:stop] if bit else None for start, stop, bit in zip(offsets[:-1], offsets[1:], bits, strict=False)
    ]
    assert sum(value is None for value in values) == column.nulls
    return values


def _rows(columns: RecordColumns) -> list[dict[str, Any]]:
    names, contents = _values(columns.header_key), _values(columns.header_value)
    headers = [{"key": (name or b"").decode(), "value": content} for name, content in zip(names, contents, strict=True)]
    borders = columns.header_offsets.tolist()
    bits = np.unpackbits(columns.timestamp_valid, bitorder="little").tolist()
    times = [time if bit else None for time, bit in zip(columns.timestamp.tolist(), bits, strict=False)]
    assert times.count(None) == columns.timestamp_nulls
    own = zip(
        *(columns.offset.tolist(), times, _values(columns.key), _values(columns.value), columns.sequence.tolist()),
        *(borders[:-1], borders[1:]),
        strict=True,
    )
    return [
        {
            **{"offset": offset, "timestamp": time, "key": key, "value": value, "sequence": sequence},
            "headers": headers[start:stop],
        }
        for offset, time, key, value, sequence, start, stop in own
    ]
