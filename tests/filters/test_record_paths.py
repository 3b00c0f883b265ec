"""Fields of records, and JSON in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.filters.record_paths import MAX_JSON, values_at
from kafkasniff.model import Exchange
from tests.choice import one_in
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT
from tests.filters.expressions import at, exchange, holds
from tests.sinks.messages import message


def _record(key: Any = None, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"offset": 0, "timestamp": 1_700_000_000_000, "key": key, "value": value, "headers": [], **more}


def _records(*records: dict[str, Any]) -> dict[str, Any]:
    return {"batches": [{"records": list(records)}], "truncated_bytes": 0}


def _produced(*records: dict[str, Any]) -> Exchange:
    partition = {"index": 0, "records": _records(*records)}
    return exchange(message(body={"topic_data": [{"name": "t", "partition_data": [partition]}]}), None)


def _fetched(*records: dict[str, Any]) -> Exchange:
    body = {"responses": [{"topic": "t", "partitions": [{"partition_index": 0, "records": _records(*records)}]}]}
    fetch = {"api_key": 1, "api": "Fetch", "api_version": 12}
    return exchange(message(body={}, **fetch), message("response", body=body, **fetch))


@pytest.mark.parametrize("make", [_produced, _fetched])
def test_records_of_both_directions(make: Any) -> None:
    of = make(
        _record(b"k1", b"v1", headers=[{"key": b"a", "value": b"x"}, {"key": "b", "value": b"y"}]),
        _record(b"k2", None, offset=7),
    )
    for expression, answer in {
        'record.key == "k2"': True,
        'record.key != "k1"': False,
        'record.value == "v1"': True,
        'record.value in ("v2", "v3")': False,
        'record.header[a] == "x"': True,
        'record.header["b"] =~ "^y$"': True,
        'record.header[c] == "x"': False,
        "record.header[c] == null": True,
        "record.offset > 6": True,
        "record.timestamp < 2030-01-01T00:00:00Z": True,
        "has record": True,
        # The two may be different records.
        'record.key == "k2" and record.value == "v1"': True,
    }.items():
        assert holds(expression, of) is answer, expression


def test_an_exchange_without_records() -> None:
    of = exchange(message(api_key=3, api="Metadata", api_version=9, body={"topics": None}), None)
    assert not holds("record", of)
    assert not holds('record.key != "a"', of)
    assert holds("record.key == null", of)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        *(("record.value.$.id == 4711", True), ("record.value.$.id > 5000", False)),
        *(('record.value.$.lines.sku contains "b-"', True), ("record.value.$.paid == true", True)),
        *(("record.value.$.paid == 1", False), ("record.value.$.none == null", True)),
        *(("exists(record.value.$.lines)", True), ('record.value.$."a.b" startswith "x"', True)),
        *(('record.value.$.a.b == "xyz"', False), ("record.value.$.total == 9.5", True)),
    ],
)
def test_json(expression: str, answer: bool) -> None:
    value = b'{"id":4711,"paid":true,"none":null,"total":9.5,"a.b":"xyz","lines":[{"sku":"a-1"},{"sku":"b-2"}]}'
    for data in (value, b"\0\0\0\0\7" + value):
        assert holds(expression, _produced(_record(None, data))) is answer
    assert holds(expression.replace("record.value", "record.key"), _produced(_record(value))) is answer


def test_what_is_no_json_has_no_members() -> None:
    large = b'{"a":"' + b"x" * MAX_JSON + b'"}'
    for value in (b"", b"\0", b"{", b"[" * 100_000, b'"\xff"', b'{"a":' * 50_000, {"redacted": 4}, large):
        assert not holds("has record.value.$.a", _produced(_record(None, value)))
    for value in (b"5", b"[4, [5]]"):
        assert holds("record.value.$ == 5", _produced(_record(None, value)))


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
