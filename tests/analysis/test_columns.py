"""Columns of record batches: unnested, labelled, rounded and sorted."""

from __future__ import annotations

import ipaddress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis import columns
from kafkasniff.analysis.columns import (
    broker_endpoint,
    column,
    datetimes,
    exploded,
    first_of_each,
    floor_divided,
    header_bytes,
    in_any,
    integers,
    is_follower,
    keys_of,
    looked_up,
    named,
    only,
    per_topic,
    ratio,
    record_bytes,
    table_of,
    with_topics,
)
from tests.analysis.tables import Row, batch_of, exchange, partition, record

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


def test_rows_by_their_values() -> None:
    batch = batch_of([exchange("Produce"), exchange("Fetch"), exchange(None)])
    mask = in_any(batch, "api", ["Fetch", "Metadata"])
    assert mask.to_pylist() == [False, True, False]
    assert only(batch, mask).num_rows == 1
    assert only(batch, pa.array([None, True, False])).num_rows == 1


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


@given(st.lists(st.lists(st.none() | st.integers(0, 9), max_size=3), max_size=5))
def test_the_first_of_each_list(lists: list[list[int | None]]) -> None:
    found = first_of_each(pa.array(lists, pa.list_(pa.int64())))
    assert found.to_pylist() == [next(iter(one), None) for one in lists]


def test_topics_known_only_by_id() -> None:
    parts = [partition("orders", topic_id="A"), partition(None, topic_id="B"), partition(None)]
    found = named(exploded(batch_of([exchange("Fetch", partitions=parts)]), []))
    assert column(found, "topic").to_pylist() == ["orders", "B", None]


@given(rows)
def test_a_row_for_each_topic(given_: list[list[tuple[str | None, int]]]) -> None:
    """And one for exchanges without any."""
    found = with_topics(batch_of(exchanges(given_)), ["exchange_id"])
    pairs = zip(column(found, "exchange_id").to_pylist(), column(found, "topic").to_pylist(), strict=True)
    expected: set[tuple[int, str | None]] = set()
    for place, parts in enumerate(given_):
        topics = {topic for topic, _ in parts if topic is not None}
        expected |= {(place, topic) for topic in topics} or {(place, None)}
    assert sorted(pairs, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("address", ["10.0.0.9", "2001:db8::1", None])
def test_endpoints(address: str | None) -> None:
    (found,) = broker_endpoint(batch_of([exchange(broker_ip=address)])).to_pylist()
    if address is None:
        assert found is None
    else:
        host, _, port = found.rpartition(":")
        assert (str(ipaddress.ip_address(host.strip("[]"))), port) == (address, "9092")


@given(numbers, st.integers(1, 10**9))
def test_rounding_down(values: list[int | None], by: int) -> None:
    assert floor_divided(ints(values), by).to_pylist() == [None if one is None else one // by for one in values]
    assert integers(ints(values), null=-7).tolist() == [-7 if one is None else one for one in values]


def test_times_are_rounded_down() -> None:
    first, before, nothing = datetimes(ints([1_999, -1, None])).to_pylist()
    assert (first.microsecond, first.year) == (1, 1970)
    assert (before.microsecond, before.year) == (999_999, 1969)
    assert nothing is None


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2)), max_size=12))
def test_distinct_keys(pairs: list[tuple[str | None, int]]) -> None:
    table = pa.table({"one": pa.array([one for one, _ in pairs], pa.string()), "two": ints([two for _, two in pairs])})
    keys, number = keys_of(table, ["one", "two"])
    found = list(zip(keys.column("one").to_pylist(), keys.column("two").to_pylist(), strict=True))
    assert len(set(found)) == len(found) == len(set(pairs))
    assert [found[place] for place in number.tolist()] == pairs
    assert found == sorted(found, key=lambda key: (key[0] is None, key[0] or "", key[1]))


def test_each_distinct_text_is_looked_up_once() -> None:
    asked: list[str] = []

    def find(text: str) -> int:
        asked.append(text)
        return len(text)

    batch = pa.RecordBatch.from_arrays([pa.array(["aa", None, "b", "aa"])], names=["x"])
    assert looked_up(batch, "x", find, pa.int64()).to_pylist() == [2, None, 1, 2]
    assert sorted(asked) == ["aa", "b"]


def test_ratios() -> None:
    assert ratio(ints([1, 1, None, 0]), ints([2, 0, 3, None])).to_pylist() == [0.5, None, None, None]


def test_answers_have_fixed_columns_and_an_order() -> None:
    fields = [("name", pa.string()), ("count", pa.int32())]
    given_ = {"count": [1, 3, 2], "other": [0, 0, 0], "name": ["a", "b", "c"]}
    found = table_of(given_, fields, order=[("count", "descending")], top=2)
    assert found.schema.equals(pa.schema(fields))
    assert found.to_pylist() == [{"name": "b", "count": 3}, {"name": "c", "count": 2}]
    assert table_of(given_, fields, order=[("count", "ascending")]).num_rows == 3


def test_bytes_of_records() -> None:
    headers = [{"key": "name", "value": b"1234"}, {"key": "null", "value": None}]
    batch = batch_of([record(headers=headers), record(key=None, value=None), record(key=b"ab", value=b"c")], "records")
    assert header_bytes(batch).to_pylist() == [12, 0, 0]
    assert record_bytes(batch).to_pylist() == [1 + 5 + 12, 0, 3]


@pytest.mark.parametrize(
    ("client_id", "follower"),
    [
        ("broker-1-fetcher-0", True),
        ("raft-client-3", True),
        ("broker-x-fetcher-0", False),
        ("my-broker-1-fetcher-0", False),
        (None, False),
    ],
)
def test_followers(client_id: str | None, follower: bool) -> None:
    assert is_follower(pa.array([client_id], pa.string())).to_pylist() == [follower]


def test_data_per_topic() -> None:
    """A topic that is only listed has no data; the partitions of one add up."""
    parts: list[Any] = [
        partition("a", bytes=10, record_count=1),
        partition("a", 1, bytes=5, record_count=2),
        partition(None, topic_id="B", bytes=7),
    ]
    found = per_topic(batch_of([exchange("Fetch"), exchange("Fetch", partitions=parts, topics=["a", "c"])]))
    rows_ = sorted((row["row"], row["topic"], row["bytes"], row["record_count"]) for row in found.to_pylist())
    assert rows_ == [(1, "B", 7, 0), (1, "a", 15, 3), (1, "c", 0, 0)]


def test_columns_that_order_exchanges() -> None:
    found = columns.order_columns(batch_of([exchange(connection_id=4, exchange_id=9)]))
    assert [one.to_pylist()[0] for one in found.values()][1:] == [4, 9]
