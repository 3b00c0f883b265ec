"""What can be followed from an exchange, as filters."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest

import kafkasniff
from kafkasniff.browse.following import MAX_EACH, MAX_TEXT, Followed, followed
from kafkasniff.filters import Candidate, Compare, Moment, all_of, compiled
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Exchange
from tests.choice import one_in
from tests.conftest import ROOT
from tests.filters.expressions import exchange
from tests.sinks.messages import message


@functools.cache
def exchanges(name: str) -> list[Exchange]:
    return list(kafkasniff.read(ROOT / "captures" / f"{name}.pcap", records="full"))


def selected(of: Followed, among: list[Exchange]) -> list[Exchange]:
    holds = compiled(parse_filter(of.expression))
    return [one for one in among if holds(Candidate(request=one.request, response=one.response, ended=one))]


@pytest.mark.parametrize(
    "name", one_in(2, ["java-transactions", "java-group-classic", "java-codecs", "java-group-consumer"])
)
def test_an_exchange_is_among_those_that_it_leads_to(name: str) -> None:
    among = exchanges(name)
    found = [(one, of) for one in among for of in followed(one)]
    assert {of.kind for _, of in found} >= {"partition", "record", "group", "generation"} - (
        {"group", "generation"} if name == "java-codecs" else set()
    )
    for one, of in found:
        assert one in selected(of, among), of


def _batch(topic: str, *keys: bytes) -> dict[str, Any]:
    records = [{"offset": at, "key": key, "value": b"", "headers": [], "timestamp": 0} for at, key in enumerate(keys)]
    batch = {"records": records, "compression": "none", "batch_length": 9, "producer_id": -1}
    partition = {"index": 0, "records": {"batches": [batch], "truncated_bytes": 0}}
    return {"name": topic, "partition_data": [partition]}


def _selected_by(expression: str, **more: Any) -> list[str]:
    """Titles of the record and the key that are offered for an exchange found by a filter."""
    request = message(body={"topic_data": [_batch("a", b"k1", b"k2"), _batch("b", b"k2", b"k3")]})
    partitions = [{"index": 0, "base_offset": 10, "error_code": 0}]
    response = message(body={"responses": [{"name": name, "partition_responses": partitions} for name in "ab"]})
    response = msgspec.structs.replace(response, type="response")
    # A time since the beginning of the capture is unknown for a single exchange.
    late = Compare("time", ">", Moment(offset_ns=1))
    found = followed(exchange(request, response), predicate=all_of([late, parse_filter(expression)]), **more)
    return [one.title for one in found if one.kind in ("record", "key")]


def test_the_record_that_the_filter_has_found_comes_first() -> None:
    for expression, titles in (
        ('record.key == "k1"', ["a-0@10", "k1 of a"]),
        ('record.key == "k2"', ["a-0@11", "k2 of a"]),
        ('record.key == "k3"', ["b-0@11", "k3 of b"]),
        ('record.place == "b-0@10"', ["b-0@10", "k2 of b"]),
        ('topic == "a" and record.key == "k2" and acks != 7', ["a-0@11", "k2 of a"]),
        # Different records satisfy the conditions, or the filter is about the exchange.
        ('record.key == "k1" and record.key == "k3"', ["a-0@10", "k1"]),
        ('api == "Produce"', ["a-0@10", "k1 of a"]),
    ):
        assert _selected_by(expression) == titles, expression
    # The field under the cursor takes precedence.
    place = "topic_data[0].partition_data[0].records.batches[0].records[0].key"
    assert _selected_by('record.key == "k3"', path=place)[0] == "a-0@10"


def _produced(topic: Any, key: Any, *, base: int | None = 5) -> Exchange:
    record = {"offset": 2, "key": key, "value": b"", "headers": [], "timestamp": 0, "_trace_ids": ["ab" * 16]}
    batch = {"records": [record], "compression": "none", "batch_length": 9, "producer_id": -1}
    partition = {"index": 3, "records": {"batches": [batch], "truncated_bytes": 0}}
    request = message(body={"topic_data": [{"name": topic, "partition_data": [partition]}]})
    answer = {"index": 3, "error_code": 0, "base_offset": base}
    response = message("response", body={"responses": [{"name": topic, "partition_responses": [answer]}]})
    return exchange(request, None if base is None else response)


def test_bounds() -> None:
    assert "key" not in {one.kind for one in followed(_produced("t", b"x" * MAX_TEXT))}
    topics = [{"name": f"t{number}", "partitions": [{"partition_index": 0}]} for number in range(3 * MAX_EACH)]
    of = exchange(message(api_key=8, api="OffsetCommit", api_version=8, body={"topics": topics}), None)
    assert len(list(followed(of))) == MAX_EACH
