"""The weight of decoded messages."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.apis.dissectors import api_keys
from kafkasniff.kafka.apis.weight import BODY_RATIO, RECORD_BYTES, _parts_of_request, _parts_of_response, likely_bytes
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.model import Direction
from tests.vectors.reader import vectors


def test_records_are_counted_where_definitions_have_them() -> None:
    assert {key for key in api_keys() if _parts_of_request(key) is not None} == {0, 58}
    assert {key for key in api_keys() if _parts_of_response(key) is not None} == {1, 58, 59, 78}


def test_counts_in_kafkas_own_messages() -> None:
    found = 0
    for vector in vectors():
        kind = vector.key, vector.kind
        if kind not in {(0, "request"), (1, "response"), (78, "response")}:
            continue
        assert vector.key is not None
        data = vector.data
        if vector.kind == "request":
            body, topics, partitions = decode_request(data, 0, len(data)).body, "topic_data", "partition_data"
        else:
            body = decode_response(data, 0, len(data), vector.key, vector.version).body
            topics, partitions = "responses", "partitions"
        assert body is not None
        fields = [field for topic in body[topics] for field in (topic, *topic[partitions])]
        batches = [batch for field in fields for batch in (field.get("records") or {"batches": []})["batches"]]
        least = RECORD_BYTES * (len(fields) + len(batches) + sum(len(batch["records"]) for batch in batches))
        direction: Direction = "request" if vector.kind == "request" else "response"
        weight = likely_bytes(vector.key, direction, len(data), body)
        assert len(data) + least <= weight < len(data) + 10 * least + 10 * RECORD_BYTES
        found += bool(batches)
    assert found > 20


@pytest.mark.parametrize("key", [3, 32_000, None])
def test_messages_without_records(key: int | None) -> None:
    assert likely_bytes(key, "request", 100, {"topics": []}) == 100 * BODY_RATIO
    assert likely_bytes(key, "response", 100, None) == 100
