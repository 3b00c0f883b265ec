"""Columns of records by the kernel. `tests/tables/exports/test_columns.py` has those of exchanges."""

from __future__ import annotations

import numpy as np

from kafkasniff.native import kernel
from kafkasniff.native.columns import BATCH, ColumnReader, buffer_address
from tests.kafka import records_craft as craft
from tests.kafka.records_craft import Record
from tests.native.kernel_columns import Given, read


def test_a_batch_may_not_hold_more_than_its_bounds() -> None:
    one = craft.record(Record(0, 0, None, None, (("", None),) * 3))
    assert read([Given(one * 4, most_records=4, most_headers=12)])[0] != [None]
    assert read([Given(one * 4, most_records=3, most_headers=12)])[0] == [None]
    assert read([Given(one * 4, most_records=4, most_headers=11)])[0] == [None]
    assert read([Given(b"", most_records=0)])[0] == [[]]


def test_records_with_secrets_or_trace_ids_are_noticed() -> None:
    plain = craft.record(Record(0, 0, b"my-connector-x", b"v", (("Traceparent", b"v"),)))
    connect = craft.record(Record(0, 0, b"connector-x", b"v"))
    traced = craft.record(Record(0, 0, None, b"v", (("h", None), ("traceparent", b"v"))))
    found = [read([Given(plain), Given(one)])[1] for one in (plain, connect, traced)]
    assert [(one.marked, one.listed) for one in found] == [(False, False), (True, False), (False, True)]


def test_timestamps_out_of_range_are_null() -> None:
    times = [-1, 0, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000]
    data = b"".join(craft.record(Record(0, time, None, None)) for time in times)
    _, columns = read([Given(data)])
    shown = [time * 1000 if bit else None for time, bit in zip(times, (0, 1, 1, 0, 1, 0), strict=True)]
    assert [row["timestamp"] for row in read([Given(data)])[0][0] or ()] == shown
    assert columns.timestamp_nulls == 3


def test_columns_that_are_too_small_are_never_overrun() -> None:
    """The sizes of a batch that say less than it holds: nothing is written beyond them."""
    data = b"".join(craft.record(Record(at, 0, b"key", b"value", (("h", b"v"),))) for at in range(10))
    given_batch = (buffer_address(data), len(data), 0, 0, 0, 100, 100, -1, 2, 0, *(0,) * 10)
    reader = ColumnReader(kernel(), marks=(), headers=(), times=(0, 1))
    for name in ("rows", "headers", "key_bytes", "value_bytes", "header_key_bytes", "header_value_bytes"):
        batches = np.array([given_batch], BATCH)
        right = reader.measure(batches)
        assert right.all()
        batches[name] -= 1
        assert reader.read(batches, right) is None
    batches = np.array([given_batch], BATCH)
    right = reader.measure(batches)
    batches["value_bytes"] = 1 << 31
    assert reader.read(batches, right) is None
