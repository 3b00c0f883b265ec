"""Envelopes: real ones between brokers, crafted ones, nested and damaged ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkasniff.kafka.messages.envelope import MAX_DEPTH
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.schema.context import DecodeOptions
from tests.craft.kafka_bytes import NO_TAGS, compact_array, compact_string, int8, int16, int32, string
from tests.kafka.embedded.metadata_craft import compact_bytes
from tests.vectors.matching import compare
from tests.vectors.reader import vectors

SHOWN = DecodeOptions(show_secrets=True)

PRINCIPAL = int16(0) + compact_string("User") + compact_string("alice") + b"\x00" + NO_TAGS
SALT, PASSWORD = b"SALT-of-carol", b"SALTED-password-of-carol"


def request(key: int, version: int, body: bytes, *, flexible: bool = True) -> bytes:
    """A message without its length prefix."""
    return int16(key) + int16(version) + int32(9) + string("admin") + (NO_TAGS if flexible else b"") + body


def enclosed(data: bytes, principal: bytes | None = PRINCIPAL, address: bytes = b"\x0a\x00\x00\x05") -> bytes:
    body = compact_bytes(data) + (b"\x00" if principal is None else compact_bytes(principal)) + compact_bytes(address)
    return request(58, 0, body + NO_TAGS)


def answered(data: bytes | None, error: int = 0) -> bytes:
    body = (b"\x00" if data is None else compact_bytes(data)) + int16(error) + NO_TAGS
    return int32(9) + NO_TAGS + body


def scram_user() -> bytes:
    upsertion = (
        compact_string("carol") + int8(1) + int32(4096) + compact_bytes(SALT) + compact_bytes(PASSWORD) + NO_TAGS
    )
    return request(51, 0, compact_array([]) + compact_array([upsertion]) + NO_TAGS)


def delete_topics() -> bytes:
    """Version 5: names in an array of strings."""
    return request(20, 5, compact_array([compact_string("orders")]) + int32(30_000) + NO_TAGS)


def topics_deleted(error: int) -> bytes:
    entry = compact_string("orders") + int16(error) + compact_string("no") + NO_TAGS
    return int32(9) + NO_TAGS + int32(0) + compact_array([entry]) + NO_TAGS


def body_of(decoded: Decoded) -> dict[str, Any]:
    assert decoded.body is not None
    return decoded.body


def opened(data: bytes, options: DecodeOptions | None = None) -> tuple[Decoded, dict[str, Any]]:
    decoded = decode_request(data, 0, len(data), options or DecodeOptions())
    return decoded, body_of(decoded)


def kinds(decoded: Decoded) -> list[str]:
    return [problem.kind for problem in decoded.problems]


def test_message_inside() -> None:
    decoded, body = opened(enclosed(delete_topics()))
    assert body["request_data"] == {"redacted": len(delete_topics())}
    assert body["request_principal"] == {"redacted": len(PRINCIPAL)}
    assert body["_request"] == {
        "api_key": 20,
        "api": "DeleteTopics",
        "api_version": 5,
        "correlation_id": 9,
        "client_id": "admin",
        "body": {"topic_names": ["orders"], "timeout_ms": 30_000},
    }
    value = {"type": "User", "name": "alice", "token_authenticated": False}
    assert body["_request_principal"] == {"type": "DefaultPrincipalData", "version": 0, "value": value}
    assert body["_client_host_address"] == "10.0.0.5"
    assert decoded.problems == ()
    json.dumps(body["_request"])
    _, body = opened(enclosed(delete_topics()), DecodeOptions(inside=False))
    assert body.keys() == {"request_data", "request_principal", "client_host_address"}, "it stays closed on request"
    assert body["request_data"] == {"redacted": len(delete_topics())}


def test_response_inside() -> None:
    carry = opened(enclosed(delete_topics()))[0].carry
    for error in (0, 29):
        data = answered(topics_deleted(error))
        decoded = decode_response(data, 0, len(data), 58, 0, request=carry)
        body = body_of(decoded)
        assert body["response_data"] == {"redacted": len(topics_deleted(error))}
        assert (body["_response"]["api"], body["_response"]["api_version"]) == ("DeleteTopics", 5)
        reported = {"name": "orders", "error_code": error, "error_message": "no"}
        assert body["_response"]["body"] == {"throttle_time_ms": 0, "responses": [reported]}
        errors = [(one.code, one.name, one.path) for one in decoded.errors]
        path = "_response.body.responses[0].error_code"
        assert errors == ([(29, "TOPIC_AUTHORIZATION_FAILED", path)] if error else [])
        assert decoded.problems == ()
    # A message that cannot be read without the request, and a controller that refused.
    decoded = decode_response(data, 0, len(data), 58, 0)
    assert "_response" not in body_of(decoded)
    refused = answered(None, 41)
    decoded = decode_response(refused, 0, len(refused), 58, 0, request=carry)
    assert "_response" not in body_of(decoded)
    assert [error.name for error in decoded.errors] == ["NOT_CONTROLLER"]


def test_every_request_that_kafkas_classes_wrote() -> None:
    count = 0
    for vector in vectors():
        if vector.kind != "request" or vector.variant != "full" or vector.key == 58:
            continue
        decoded, body = opened(enclosed(vector.data), SHOWN)
        inside = body["_request"]
        assert (inside["api_key"], inside["api_version"]) == (vector.key, vector.version)
        assert list(compare(vector.body, inside["body"], "")) == []
        assert body["request_data"] == vector.data
        assert all(problem.detail.startswith("_request: ") for problem in decoded.problems)
        count += 1
    assert count > 300


def test_secrets_inside_are_hidden_field_by_field() -> None:
    data = enclosed(scram_user())
    decoded, body = opened(data)
    (upsertion,) = body["_request"]["body"]["upsertions"]
    assert upsertion["salt"] == {"redacted": len(SALT)}
    assert upsertion["salted_password"] == {"redacted": len(PASSWORD)}
    assert upsertion["name"] == "carol"
    assert not any(secret.decode() in repr(decoded) for secret in (SALT, PASSWORD))
    _, body = opened(data, SHOWN)
    assert body["_request"]["body"]["upsertions"][0]["salt"] == SALT
    assert body["request_data"] == scram_user()


def test_envelopes_in_envelopes() -> None:
    data = scram_user()
    for _ in range(MAX_DEPTH):
        data = enclosed(data)
    decoded, body = opened(data)
    for _ in range(MAX_DEPTH):
        body = body["_request"]["body"]
    assert "upsertions" in body
    assert decoded.problems == ()
    for _ in range(50):
        data = enclosed(data)
    decoded, body = opened(data)
    for _ in range(MAX_DEPTH):
        body = body["_request"]["body"]
    assert "_request" not in body
    assert kinds(decoded) == ["envelope-nesting"]
    # Their responses: each is read with the request inside.
    carry = opened(enclosed(enclosed(delete_topics())))[0].carry
    answer = answered(answered(topics_deleted(3)))
    responded = decode_response(answer, 0, len(answer), 58, 0, request=carry)
    assert body_of(responded)["_response"]["body"]["_response"]["body"]["responses"][0]["name"] == "orders"
    (error,) = responded.errors
    assert error.path == "_response.body._response.body.responses[0].error_code"


def test_problems_inside_are_reported_outside() -> None:
    for inner, reported in (
        (b"", "header-truncated"),
        (delete_topics()[:-3], "body-truncated"),
        (delete_topics() + b"x", "trailing-bytes"),
        (request(20, 99, b""), "version-unknown"),
        (request(999, 0, b""), "api-unknown"),
    ):
        decoded, body = opened(enclosed(inner))
        assert kinds(decoded) == [reported]
        assert decoded.problems[0].detail.startswith("_request: ")
        assert decoded.problems[0].offset is None
        assert "raw" not in body["_request"]
        assert (decoded.raw, decoded.raw_redacted) == (None, None)


@pytest.mark.parametrize("principal", [None, b"", b"\x00", int16(7), b"alice", PRINCIPAL + b"x", PRINCIPAL[:-1]])
def test_principals_of_other_builders(principal: bytes | None) -> None:
    decoded, body = opened(enclosed(delete_topics(), principal))
    assert "_request_principal" not in body
    assert decoded.problems == ()
