"""Columns of record batches: unnested, labelled, rounded and sorted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.columns import (
    column,
    exploded,
    floor_divided,
    integers,
    is_follower,
    keys_of,
    partition_errors,
    repeated,
)
from tests.analysis.tables import Row, batch_of, exchange, partition

numbers = st.lists(st.none() | st.integers(-(10**18), 10**18), max_size=8)


def ints(values: list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64())


def test_a_column_by_name() -> None:
    texts = pa.array(["a", None, "a"]).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([texts, pa.array(["x", "y", None], pa.large_string())], names=["one", "two"])
    assert column(batch, "one").equals(pa.array(["a", None, "a"]))
    assert column(batch, "two").type == pa.string()
    with pytest.raises(KeyError, match="three"):
        column(batch, "three")


rows = st.lists(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2)), max_size=3), max_size=5)


def exchanges(given_: list[list[tuple[str | None, int]]]) -> list[Row]:
    return [
        exchange("Produce", exchange_id=place, partitions=[partition(topic, number) for topic, number in parts])
        for place, parts in enumerate(given_)
    ]


@given(rows)
def test_a_row_for_each_element(given_: list[list[tuple[str | None, int]]]) -> None:
    found = exploded(batch_of(exchanges(given_)), ["exchange_id", "topic", "api"])
    expected = [(place, topic, number) for place, parts in enumerate(given_) for topic, number in parts]
    columns_ = (column(found, name).to_pylist() for name in ("exchange_id", "topic", "partition"))
    assert list(zip(*columns_, strict=True)) == expected
    # The struct has a topic of its own.
    assert found.schema.names.count("topic") == 1


@given(numbers, st.integers(1, 10**9))
def test_rounding_down(values: list[int | None], by: int) -> None:
    assert floor_divided(ints(values), by).to_pylist() == [None if one is None else one // by for one in values]
    assert integers(ints(values), null=-7).tolist() == [-7 if one is None else one for one in values]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2)), max_size=12))
def test_distinct_keys(pairs: list[tuple[str | None, int]]) -> None:
    table = pa.table({"one": pa.array([one for one, _ in pairs], pa.string()), "two": ints([two for _, two in pairs])})
    keys, number = keys_of(table, ["one", "two"])
    found = list(zip(keys.column("one").to_pylist(), keys.column("two").to_pylist(), strict=True))
    assert len(set(found)) == len(found) == len(set(pairs))
    assert [found[place] for place in number.tolist()] == pairs
    assert found == sorted(found, key=lambda key: (key[0] is None, key[0] or "", key[1]))


def test_followers() -> None:
    names = ["broker-1-fetcher-0", "raft-client-3", "broker-x-fetcher-0", "my-broker-1-fetcher-0", None]
    assert is_follower(pa.array(names, pa.string())).to_pylist() == [True, True, False, False, False]


@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=4), st.data())
def test_lists_that_rows_share(lists: list[list[int]], data: st.DataObject) -> None:
    number = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8))
    rows, places = repeated(lists, np.array(number, np.int64))
    flat = [one for some in lists for one in some]
    expected = [(row, one) for row, place in enumerate(number) for one in lists[place]]
    assert [(row, flat[place]) for row, place in zip(rows.tolist(), places.tolist(), strict=True)] == expected


def test_errors_of_partitions_and_others() -> None:
    failed = partition("orders", 1, error_code=3)
    rows = [
        exchange("Fetch", error_count=3, partitions=[failed, partition("orders", 2), failed]),
        exchange("Fetch", error_count=0),
        exchange("Fetch", error_count=1, partitions=[failed]),
    ]
    parts, others = partition_errors(batch_of(rows), ["api"])
    assert column(parts, "row").to_pylist() == [0, 0, 2]
    assert column(parts, "api").to_pylist() == ["Fetch"] * 3
    assert others.tolist() == [1, 0, 0]
