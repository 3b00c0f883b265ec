from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.live.traffic import FETCHED, PRODUCED, topic_traffic
from kafkasniff.model import Exchange, Message
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.live.scenes import Scene, Talk, fetched_body, produce_body, produced_body


def message(kind: Any, key: int, body: dict[str, Any] | None) -> Message:
    return Message(kind, 10, 1, key, "?", 9, body=body)


def test_the_same_records_as_in_the_tables() -> None:
    """`entities` finds them by the definitions."""
    inspector = Inspector(records="metadata")
    events = inspector.feed(batch(mixed())) + inspector.close()
    found: Counter[tuple[object, str]] = Counter()
    reported: Counter[tuple[object, str]] = Counter()
    for event in events:
        if isinstance(event, Message):
            for traffic in topic_traffic(event):
                found[traffic.topic, "records"] += traffic.records
                found[traffic.topic, "bytes"] += traffic.bytes
                found[traffic.topic, "errors"] += traffic.errors
        elif isinstance(event, Exchange):
            for facts in mentions(event.request, event.response).partitions.values():
                if facts.batch_count is not None:
                    reported[facts.topic, "records"] += facts.record_count or 0
                    reported[facts.topic, "bytes"] += facts.bytes or 0
                reported[facts.topic, "errors"] += bool(facts.error_code)
    assert +found == +reported
    assert found["orders", "records"] > 200


def test_direction_of_records() -> None:
    (produced,) = topic_traffic(message("request", 0, produce_body("a", 3, 4)))
    assert (produced.topic, produced.flow, produced.records, produced.errors) == ("a", PRODUCED, 7, 0)
    (answered,) = topic_traffic(message("response", 0, produced_body("a", 6)))
    assert (answered.flow, answered.records, answered.bytes, answered.errors) == (PRODUCED, 0, 0, 1)
    (fetched,) = topic_traffic(message("response", 1, fetched_body(b"\xff", 5)))
    assert (fetched.topic, fetched.flow, fetched.records) == (b"\xff", FETCHED, 5)
    assert topic_traffic(message("request", 1, fetched_body("a", 5))) == []
    assert topic_traffic(message("response", 3, fetched_body("a", 5))) == []


def test_names_of_topics_with_ids() -> None:
    body = fetched_body("a", 1)
    (topic,) = body["responses"]
    del topic["topic"]
    assert topic_traffic(message("response", 1, body)) == []
    topic["topic_id"] = "AAAAAAAAAAAAAAAAAAAABg"
    assert topic_traffic(message("response", 78, body))[0].topic == "AAAAAAAAAAAAAAAAAAAABg"
    topic["_topic_name"] = "named"
    assert topic_traffic(message("response", 1, body))[0].topic == "named"


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"topic_data": None},
        {"topic_data": [{}]},
        {"topic_data": [{"name": None, "partition_data": []}]},
        {"topic_data": [{"name": "a", "partition_data": None}]},
        {"topic_data": [{"name": "a", "partition_data": [{}]}]},
        {"topic_data": [{"name": "a", "partition_data": [{"records": None}]}]},
    ],
)
def test_truncated_bodies(body: dict[str, Any] | None) -> None:
    assert sum(traffic.records for traffic in topic_traffic(message("request", 0, body))) == 0


def test_an_unknown_count_is_none() -> None:
    body = produce_body("a", 3)
    body["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["record_count"] = None
    assert topic_traffic(Talk(Scene(), 1, "c", "10.0.0.1", "").request(0, "Produce", body))[0].records == 0
