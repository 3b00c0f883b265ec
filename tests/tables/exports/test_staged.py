"""Merge staged batches in order: any rows, batches and window sizes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.tables.exports import staged
from kafkasniff.tables.rows.staged import SORT_KEYS, STAGED
from tests.choice import examples

SMALL = st.none() | st.integers(-2, 3)
IDS = {"connection_id": st.integers(-2, 2), "exchange_id": st.integers(0, 3)}
API = st.sampled_from(["Fetch", "Produce", "ApiVersions"])
VALUES: dict[str, dict[str, Any]] = {
    "exchanges": {"api": st.none() | API, "time_ns": SMALL, **IDS, "client_id": st.text("xyz", max_size=2)},
    "records": {
        **{"api": API, "_time_ns": SMALL, **IDS},
        **{"_position": st.integers(0, 5), "topic": st.sampled_from([None, "a", "b"])},
    },
    **{name: {"time_ns": SMALL, "connection_id": st.integers(-9, 9)} for name in ("connections", "transport")},
    "problems": {
        **dict.fromkeys(("time_ns", "connection_id", "exchange_id", "packet", "offset"), SMALL),
        **{"kind": st.sampled_from(["a", "b"]), "detail": st.none() | st.text("xy", max_size=2)},
    },
}
ROWS = {table: st.fixed_dictionaries(values) for table, values in VALUES.items()}


def key(row: dict[str, Any], table: str) -> tuple[Any, ...]:
    found: list[Any] = []
    for name in SORT_KEYS[table]:
        value = row.get(name)
        found += [value is not None, value if value is not None else ("" if name in staged._TEXTS else 0)]
    return tuple(found)


# Wide tables have mostly nulls: a few examples with dozens of rows each.
@examples(20)
@pytest.mark.parametrize("table", STAGED)
@given(data=st.data(), rows=st.integers(1, 9), size=st.sampled_from([1, 500, 1 << 20]))
def test_any_rows_are_yielded_in_order(table: str, data: st.DataObject, rows: int, size: int) -> None:
    parts = data.draw(st.lists(st.lists(ROWS[table], max_size=12), max_size=5))
    batches = [staged.in_order(pa.RecordBatch.from_pylist(part, schema=STAGED[table]), table) for part in parts]
    for part, batch in zip(parts, batches, strict=True):
        assert [key(row, table) for row in batch.to_pylist()] == sorted(key(row, table) for row in part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged, "WINDOW_ROWS", rows)
        patch.setattr(staged, "WINDOW_BYTES", size)
        windows = [window.to_pylist() for window in staged.merged(batches, table)]
    found = [row for window in windows for row in window]
    every = [row for part in parts for row in part]
    assert [key(row, table) for row in found] == sorted(key(row, table) for row in every)
    whole = [{**dict.fromkeys(STAGED[table].names), **row} for row in every]
    assert sorted(map(repr, found)) == sorted(map(repr, whole))


def test_equal_rows_keep_their_order() -> None:
    row = {"api": "Fetch", "time_ns": 5, "connection_id": 1, "exchange_id": 1}
    parts = [[{**row, "client_id": f"{part}{place}"} for place in range(3)] for part in range(3)]
    batches = [pa.RecordBatch.from_pylist(part, schema=STAGED["exchanges"]) for part in parts]
    found = [row["client_id"] for window in staged.merged(batches, "exchanges") for row in window.to_pylist()]
    assert found == ["00", "01", "02", "10", "11", "12", "20", "21", "22"]


def test_pages_are_released_within_a_window_of_many_small_parts() -> None:
    rows = [{"api": "Fetch", "time_ns": 5, "connection_id": 1, "exchange_id": place} for place in range(200)]
    batches = [pa.RecordBatch.from_pylist([row], schema=STAGED["exchanges"]) for row in rows]
    released: list[None] = []
    windows = list(staged.merged(batches, "exchanges", release=lambda: released.append(None)))
    assert [row["exchange_id"] for window in windows for row in window.to_pylist()] == list(range(200))
    # Each of the columns is read from 200 places.
    assert len(released) >= len(batches[0].schema) > len(windows)
