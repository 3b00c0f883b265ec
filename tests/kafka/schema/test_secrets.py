from __future__ import annotations

import pytest

from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.secrets import is_sensitive, is_sensitive_name, may_be_misread, redact_config

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
