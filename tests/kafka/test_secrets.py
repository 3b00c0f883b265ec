from __future__ import annotations

import pytest

from kafkasniff.kafka.secrets import is_sensitive_name, redact_config, redacted

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
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", PASSWORDS)
def test_passwords(name: str) -> None:
    for form in (name, f"listener.name.internal.scram-sha-256.{name}", name.upper()):
        assert is_sensitive_name(form)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_settings(name: str) -> None:
    assert not is_sensitive_name(name)


def test_a_name_that_cannot_be_read_counts_as_sensitive() -> None:
    assert is_sensitive_name(None)
    assert is_sensitive_name(b"\xff")


def test_lengths_are_bytes() -> None:
    assert redacted("größe") == {"redacted": 7}
    assert redacted(b"abc") == {"redacted": 3}
    assert redacted("") == {"redacted": 0}


def test_redact_config() -> None:
    plain = {"name": "a", "value": "b"}
    redact_config(plain)
    assert plain == {"name": "a", "value": "b"}
    redact_config(plain, complete=False)
    assert plain == {"name": "a", "value": {"redacted": 1}}
    told = {
        "name": "a",
        "value": "b",
        "is_sensitive": True,
        "synonyms": [{"name": "a", "value": "cc"}, {"value": None}],
    }
    redact_config(told)
    assert told["value"] == {"redacted": 1}
    assert told["synonyms"] == [{"name": "a", "value": {"redacted": 2}}, {"value": None}]
    empty = {"name": "x.password", "value": None, "synonyms": None}
    redact_config(empty)
    assert empty["value"] is None
