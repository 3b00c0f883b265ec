"""What decoded messages weigh: the short way for Kafka's own messages gives what the general one does."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.dissectors import api, api_keys
from kafkasniff.kafka.message import decode_request, decode_response
from kafkasniff.kafka.weight import BODY_RATIO, RECORD_BYTES, _counted, _way_of_request, _way_of_response, likely_bytes
from tests.vectors.reader import vectors


def test_the_short_way_is_taken_for_kafkas_messages() -> None:
    ways = {
        (key, direction): way.quick is not None
        for key in api_keys()
        for direction, of in (("request", _way_of_request), ("response", _way_of_response))
        if (way := of(key)) is not None
    }
    assert api(58) is not None
    assert ways == {
        **dict.fromkeys([(0, "request"), (1, "response"), (59, "response"), (78, "response")], True),
        **dict.fromkeys([(58, "request"), (58, "response")], False),
    }


def test_both_ways_count_the_same() -> None:
    found = 0
    for vector in vectors():
        if vector.kind not in {"request", "response"} or vector.key is None:
            continue
        of = _way_of_request if vector.kind == "request" else _way_of_response
        way, data = of(vector.key), vector.data
        if way is None or way.quick is None:
            continue
        if vector.kind == "request":
            body = decode_request(data, 0, len(data)).body
        else:
            body = decode_response(data, 0, len(data), vector.key, vector.version).body
        assert body is not None
        direction = "request" if vector.kind == "request" else "response"
        assert likely_bytes(vector.key, direction, len(data), body) == len(data) + _counted(way, body)
        found += _counted(way, body) > RECORD_BYTES
    assert found > 20


@pytest.mark.parametrize("key", [3, 32_000, None])
def test_what_has_no_records(key: int | None) -> None:
    assert likely_bytes(key, "request", 100, {"topics": []}) == 100 * BODY_RATIO
    assert likely_bytes(key, "response", 100, None) == 100
