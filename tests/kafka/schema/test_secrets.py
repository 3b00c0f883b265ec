from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from kafkasniff.kafka.messages.message import decode_request
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.secrets import (
    is_sensitive,
    is_sensitive_name,
    may_be_misread,
    redact_config,
    redacted_content,
)
from tests.choice import fewer
from tests.craft.from_layout import request_bytes
from tests.kafka.records_craft import Record, batch_of

# Settings that Kafka declares as passwords (ConfigDef.Type.PASSWORD), plain and for one listener.
PASSWORDS = """
ssl.key.password ssl.keystore.password ssl.truststore.password ssl.keystore.key ssl.keystore.certificate.chain
ssl.truststore.certificates sasl.jaas.config password.encoder.secret password.encoder.old.secret
delegation.token.master.key delegation.token.secret.key sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.assertion.private.key.passphrase
""".split()  # noqa: SIM905 - a list of words reads better as words

PLAIN = """
retention.ms cleanup.policy ssl.keystore.location ssl.keystore.type ssl.truststore.location ssl.protocol
sasl.enabled.mechanisms listeners advertised.listeners delegation.token.max.lifetime.ms log.dirs ssl.client.auth
message.timestamp.type min.insync.replicas key.converter key.separator group.initial.rebalance.delay.ms compression.type
sasl.oauthbearer.token.endpoint.url
""".split()  # noqa: SIM905


def test_names() -> None:
    for name in PASSWORDS:
        for form in (name, f"listener.name.internal.scram-sha-256.{name}", name.upper()):
            assert is_sensitive_name(form), form
    for name in ("github.access.token", "token", "api_token", "aws.access.key.id", "s3.secret.key"):
        assert is_sensitive_name(name), "a connector's"
    assert [name for name in PLAIN if is_sensitive_name(name)] == []
    # A name that cannot be read.
    assert is_sensitive_name(None)
    assert is_sensitive_name(b"\xff")


def test_redact_config() -> None:
    plain = {"name": "a", "value": "größe"}
    redact_config(plain)
    assert plain == {"name": "a", "value": "größe"}
    redact_config(plain, complete=False)
    assert plain == {"name": "a", "value": {"redacted": 7}}
    synonyms = [{"name": "a", "value": "cc"}, {"value": None}]
    reported = {"name": "a", "value": "b", "is_sensitive": True, "synonyms": synonyms}
    redact_config(reported)
    assert reported["value"] == {"redacted": 1}
    assert reported["synonyms"] == [{"name": "a", "value": {"redacted": 2}}, {"value": None}]
    empty = {"name": "x.password", "value": None, "synonyms": None}
    redact_config(empty)
    assert empty["value"] is None


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("jdbc:postgresql://app:pw@db/x", True),
        ("mongodb://:pw@db", True),
        ('x.PlainLoginModule required username="u" PASSWORD = "p";', True),
        ("https://example.org/a?b=c@d", False),
        ("localhost:9092,other:9092", False),
        ("PLAINTEXT://:9092,SASL://10.0.0.1:9093", False),
        (None, False),
        (b"\xff", False),
    ],
)
def test_values_with_a_password_in_them(value: object, secret: bool) -> None:
    assert is_sensitive("a", value) is secret
    config = {"name": "a", "value": None, "synonyms": [{"name": "b", "value": value}]}
    redact_config(config)
    assert isinstance(config["synonyms"][0]["value"], dict) is secret


def test_bodies_that_may_be_read_in_the_wrong_places() -> None:
    assert not may_be_misread([], cut=False)
    assert not may_be_misread(["crc-mismatch", "null-not-allowed"], cut=False)
    assert may_be_misread(["body-truncated"], cut=False)
    assert not may_be_misread(["crc-mismatch", "body-truncated", "frame-incomplete"], cut=True)
    assert may_be_misread(["string-not-utf8", "body-truncated"], cut=True)
    assert may_be_misread(["trailing-bytes"], cut=True)


def test_secrets_are_revealed_to_decoders_only() -> None:
    """By the identity of the replacement: equal lengths do not mean equal secrets."""
    context = DecodeContext(DecodeOptions(), withheld=[])
    first, second = context.withhold(b"abc"), context.withhold(b"xyz")
    assert first == second == {"redacted": 3}
    assert (context.revealed(first), context.revealed(second)) == (b"abc", b"xyz")
    assert context.revealed({"redacted": 3}) is None
    # They are kept only if something decodes them.
    other = DecodeContext(DecodeOptions())
    assert other.revealed(other.withhold(b"abc")) is None


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
