"""Rows of the table `exchanges`."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.model import Endpoint, ErrorCode, Exchange, Message, Problem
from kafkasniff.tables.rows import PARTITION, TABLES, exchange_row
from kafkasniff.tables.rows.staged import STAGED


def message(kind: str = "request", **fields: Any) -> Message:
    defaults = {
        **{"size": 40, "correlation_id": 5, "api_key": 12, "api": "Heartbeat", "api_version": 4, "client_id": "member"},
        **{"capture": "a.pcap", "time_ns": 1_700_000_000_123_456_789},
        **{"client": Endpoint("10.0.0.5", 51334), "broker": Endpoint("fe80::1", 9092)},
    }
    return Message(type=kind, **{**defaults, **fields})  # type: ignore[arg-type]


def row(request: Message | None, response: Message | None, status: str = "answered", **fields: Any) -> dict[str, Any]:
    exchange = Exchange(3, 1, status, request, response, **fields)  # type: ignore[arg-type]
    return exchange_row(exchange, lambda message: json.dumps(message.body, default=repr))


def test_the_schema_has_only_types_that_spark_can_read() -> None:
    """No unsigned 64-bit integers, no nanoseconds in timestamps."""
    for field in (*(field for schema in TABLES.values() for field in schema), *PARTITION):
        assert not pa.types.is_unsigned_integer(field.type)
        assert not pa.types.is_timestamp(field.type) or field.type.unit == "us"


def test_an_answered_exchange() -> None:
    request = message(body={"group_id": "g", "generation_id": 2, "member_id": "m"})
    errors = (ErrorCode(27, "REBALANCE_IN_PROGRESS", "error_code"),)
    response = message("response", size=10, body={"throttle_time_ms": 7, "error_code": 27}, errors=errors)
    facts = {"connection_id": -5, "exchange_id": 9, "retransmits": 2}
    times = {"latency_ns": 1_234_567, "duration_ns": 2_000_000, "behind_ns": 1_999, "muted_ns": 0}
    made = row(request, response, problems=(Problem("late", "x"),), **facts, **times)
    assert made == {
        **dict.fromkeys(STAGED["exchanges"].names),
        **facts,
        **{"capture": "a.pcap", "time": 1_700_000_000_123_456, "time_ns": 1_700_000_000_123_456_789},
        **{"client_ip": "10.0.0.5", "client_port": 51334, "broker_ip": "fe80::1", "broker_port": 9092},
        **{"api_key": 12, "api": "Heartbeat", "api_version": 4, "correlation_id": 5, "client_id": "member"},
        **{"status": "answered", "request_size": 40, "response_size": 10, "latency_us": 1234, "duration_us": 2000},
        **{"throttle_time_ms": 7, "error_code": 27, "error": "REBALANCE_IN_PROGRESS", "error_count": 1},
        **{"group_id": "g", "member_id": "m", "topics": [], "partitions": []},
        "request_body": '{"group_id": "g", "generation_id": 2, "member_id": "m"}',
        "response_body": '{"throttle_time_ms": 7, "error_code": 27}',
        **{"problems": ["late"], "behind_us": 1, "muted_us": 0, "wait_us": 0},
    }
    assert list(made) == STAGED["exchanges"].names


def test_requested_waits() -> None:
    names = ("sender", "behind_us", "muted_us", "wait_us", "waits_for")

    def waits(made: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(made[name] for name in names)

    fetch = {"api_key": 1, "api": "Fetch", "api_version": 4}
    asked = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "topics": []}
    request, response = message(**fetch, body=asked), message("response", **fetch, body={"responses": []})
    answered = {"latency_ns": 600_000_000, "duration_ns": 600_000_000}
    # Time before it is not part of the wait.
    made = row(request, response, behind_ns=200_000_000, muted_ns=50_000_000, **answered)
    assert waits(made) == ("client", 200_000, 50_000, 350_000, "data")
    assert waits(row(request, response, **answered)) == ("client", None, None, 500_000, "data")
    # Without a response: how long it may wait.
    assert waits(row(request, None, "open", behind_ns=0, muted_ns=7_000)) == ("client", 0, 7, 500_000, "data")
    sync = message(api_key=14, api="SyncGroup", api_version=3, body={"assignments": []})
    assert waits(row(sync, None, "open")) == (None, None, None, 60_000_000, "leader")
    # Not decoded, so unknown.
    assert waits(row(message(**fetch, body=None), response, **answered)) == (None,) * 5
    replica = message(**fetch, body={**asked, "replica_id": 2})
    assert waits(row(replica, response, **answered))[0] == "replica"


def test_an_orphan_response() -> None:
    response = message("response", api_key=None, api=None, api_version=None, client_id=None, body=None, size=99)
    made = row(None, response, "orphan")
    assert (made["status"], made["api"], made["request_size"], made["response_size"]) == ("orphan", None, None, 99)
    assert (made["client_ip"], made["time_ns"]) == ("10.0.0.5", 1_700_000_000_123_456_789)
    assert (made["error_code"], made["error_count"]) == (None, None), "not decoded, so not free of errors"


def test_success_differs_from_no_answer() -> None:
    answered = row(message(body={}), message("response", body={"error_code": 0}))
    silent = row(message(body={}), None, "unanswered")
    assert (answered["error_code"], answered["error"], answered["error_count"]) == (0, None, 0)
    assert (silent["error_code"], silent["error"], silent["error_count"]) == (None, None, None)


def test_durations_are_floored_and_may_be_negative() -> None:
    made = row(message(), message("response"), latency_ns=-1, duration_ns=1999)
    assert (made["latency_us"], made["duration_us"]) == (-1, 1)
    assert row(message(time_ns=None), None)["time"] is None


def test_member_id() -> None:
    for request_body, response_body, expected in (
        ({"member_id": "m"}, {}, "m"),
        ({"member_id": ""}, {"member_id": "given"}, "given"),
        ({"member_id": ""}, None, ""),
        ({"members": [{"member_id": "m"}]}, {}, "m"),
        ({"members": [{"member_id": "a"}, {"member_id": "b"}]}, {}, None),
        ({}, {}, None),
    ):
        response = None if response_body is None else message("response", body=response_body)
        assert row(message(body=request_body), response)["member_id"] == expected, request_body


def test_an_exchange_has_at_least_one_message() -> None:
    with pytest.raises(ValueError, match="without request and response"):
        row(None, None)


def test_bytes_instead_of_strings() -> None:
    made = row(message(client_id=b"\xff\x00", body={"group_id": b"g\xe9"}), None)
    assert (made["client_id"], made["group_id"]) == ("\\xff\x00", "g\\xe9")
