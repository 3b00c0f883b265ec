from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from kafkasniff.kafka.messages.message import decode_request
from kafkasniff.kafka.schema.connect_configs import redacted_content
from kafkasniff.kafka.schema.context import DecodeOptions
from tests.choice import fewer
from tests.craft.from_layout import request_bytes
from tests.kafka.records_craft import Record, batch_of


def produced(*pairs: tuple[bytes | None, bytes | None], show_secrets: bool = False) -> list[dict[str, Any]]:
    records = batch_of([Record(offset, 0, key, value) for offset, (key, value) in enumerate(pairs)])
    data = [{"name": "connect-configs", "partition_data": [{"index": 0, "records": records}]}]
    message = request_bytes(0, 9, 1, acks=1, topic_data=data)[4:]
    decoded = decode_request(message, 0, len(message), DecodeOptions(show_secrets=show_secrets))
    assert decoded.body is not None
    assert decoded.problems == ()
    found: list[dict[str, Any]] = decoded.body["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"]
    return found


# Written by a worker of Connect 4.3 (captures/java-connect.pcap).
SESSION = b'{"key":"PuxOL3kPqJ+t0rxGpQZmM0MkoMZ5dualNwrmX2P4aX8=","algorithm":"HmacSHA256","creation-timestamp":17}'
CONNECTOR = {"properties": {"connector.class": "x", "db.password": "größe", "url": "jdbc://u:p@h/x", "n": None}}


def test_records_with_secrets_are_reported() -> None:
    value = json.dumps(CONNECTOR).encode()
    session, connector, task, deleted = produced(
        (b"session-key", SESSION), (b"connector-a", value), (b"task-a-0", value), (b"connector-a", None)
    )
    assert session["value"] == {"redacted": len(SESSION)}
    assert session["_value"] == {
        "format": "connect-config",
        "value": {"key": {"redacted": 44}, "algorithm": "HmacSHA256", "creation-timestamp": 17},
    }
    assert connector["value"] == task["value"] == {"redacted": len(value)}
    assert connector["_value"]["value"] == {
        "properties": {"connector.class": "x", "db.password": {"redacted": 7}, "url": {"redacted": 14}, "n": None}
    }
    assert (connector["key"], deleted["value"], "_value" in deleted) == (b"connector-a", None, False)
    shown = produced((b"session-key", SESSION), show_secrets=True)[0]
    assert (shown["value"], "_value" in shown) == (SESSION, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"connector-a", b'{"properties":{"tasks.max":"1"}}'),
        (b"commit-a", b'{"tasks":1}'),
        (b"task-17", b'{"password":"of an order"}'),
        (b"task-17", b"no JSON"),
        (b"orders", SESSION),
        (None, SESSION),
    ],
)
def test_other_records_are_left_alone(key: bytes | None, value: bytes) -> None:
    (record,) = produced((key, value))
    assert (record["key"], record["value"], "_value" in record) == (key, value, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"session-key", b""),
        (b"session-key", b"\xff"),
        (b"session-key", b'["a"]'),
        (b"session-key", SESSION[:-3]),
        (b"connector-a", b'{"properties":{"password":"a"}'),
        (b"connector-a", b'{"properties":["password"]}'),
        (b"task-a-0", b'{"properties":' + b"[" * 100_000),
    ],
)
def test_unreadable_values_may_be_secrets(key: bytes, value: bytes) -> None:
    (record,) = produced((key, value))
    assert record["value"] == {"redacted": len(value)}
    assert record["_value"] == {"format": "connect-config", "value": None}


def test_values_other_than_strings() -> None:
    text = b'{"properties":{"password":[1,{"a":2}],"a":12345678901234567890123,"b":{"c":"d"},"e":7,"f":true}}'
    reported = redacted_content(b"connector-a", text)
    assert reported is not None
    settings = reported["value"]["properties"]
    assert (settings["e"], settings["f"]) == (7, True)
    assert all(set(settings[name]) == {"redacted"} for name in ("password", "a", "b"))
    json.dumps(reported)


@pytest.mark.parametrize("key", [b"session-key", b"connector-a"])
def test_nested_as_deep_as_python_allows(key: bytes) -> None:
    """Some depths can be read but not written, which takes a few more calls."""
    begin, end = (b'{"key":', b"}") if key == b"session-key" else (b'{"properties":{"password":', b"}}")
    for depth in range(sys.getrecursionlimit() - 250, sys.getrecursionlimit() + 10, fewer(3, 1)):
        reported = redacted_content(key, begin + b"[" * depth + b"]" * depth + end)
        assert reported is not None
        assert b"[" not in json.dumps(reported).encode()
