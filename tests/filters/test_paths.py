"""Paths into bodies, and into the records in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.filters.places import _producer_paths, values_at
from kafkasniff.kafka.apis import dissectors
from tests.choice import one_in
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.filters.expressions import at, exchange, holds
from tests.sinks.messages import message

BODIES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=10,
)


@given(BODIES, st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple))
def test_paths_through_anything(body: Any, path: tuple[str, ...]) -> None:
    found = values_at(body, path)
    assert not any(value is None or isinstance(value, list) for value in found)
    if not isinstance(body, list):
        assert repr(found) == repr(at(body, *path))
    holder = message(body={"_x": body})
    for comparison in ("== 1", '!= "a"', "=~ 'a'", "> 0", "in (1, 'a', true)", "!~ 'b'", "== true", "== null"):
        assert holds(f"request._x.{'.'.join(path)} {comparison}", exchange(holder, None)) in (True, False)


def lines(capture: str, expression: str) -> list[dict]:
    path = ROOT / "captures" / f"{capture}.pcap"
    return command("decode", "-q", "--json", "--records", "--two-pass", "--filter", expression, path).objects


@pytest.mark.parametrize("capture", one_in(2, ["java-transactions", "java-codecs", "librdkafka-codecs"]))
def test_a_record_is_found_where_it_was_appended_and_fetched(capture: str) -> None:
    responses = [one for one in lines(capture, 'api == "Produce"') if one["type"] == "response"]
    appended = {
        (topic.get("_topic_name") or topic.get("name"), one["index"], one["base_offset"])
        for response in responses for topic in response["body"]["responses"]
        for one in topic["partition_responses"] if one["base_offset"] >= 0
    }  # fmt: skip
    assert appended
    for topic, partition, offset in one_in(3, sorted(appended)):
        found = lines(capture, f'record.place == "{topic}-{partition}@{offset}"')
        apis = [one["api"] for one in found if one["type"] == "response"]
        assert apis.count("Produce") == 1
        named = lines(capture, f'topic_partition == "{topic}-{partition}"')
        assert {one["exchange"] for one in found} <= {one["exchange"] for one in named}


def test_producer_ids_and_generations() -> None:
    apis = {one["api"] for one in lines("java-transactions", "producer_id == 0")}
    assert apis >= {"InitProducerId", "Produce", "Fetch", "EndTxn"}
    assert not lines("java-transactions", "producer_id < 0")
    apis = {one["api"] for one in lines("java-group-classic", "generation == 1")}
    assert apis >= {"JoinGroup", "SyncGroup", "OffsetCommit"}
    assert not lines("java-group-classic", "generation < 0")


def test_every_field_with_a_producer_id_is_found() -> None:
    found = {
        (key, direction, path)
        for key in dissectors.api_keys() for direction in ("request", "response")
        for path in _producer_paths(key, direction)
    }  # fmt: skip
    assert (22, "response", ("producer_id",)) in found
    assert (24, "request", ("v3_and_below_producer_id",)) in found
    assert (0, "request", ("topic_data", "partition_data", "records", "batches", "producer_id")) in found
    assert _producer_paths(30_000, "request") == ()
