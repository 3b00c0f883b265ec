"""Who connects as whom, as text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.security.identities import ClientIdentity, Transport
from kafkasniff.cli.render.security_text import identity_object, security_text
from kafkasniff.text.printable import display_width

_LONG = ClientIdentity(
    *("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff", ("billing-service-" * 6,), "apache-kafka-java", "4.3.1"),
    "[2001:db8::9]:9093",
    Transport(
        tls=True,
        version="TLS 1.2",
        cipher="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        server_name="broker-17.kafka.internal.example.com",
        certificate_note="none: a session is resumed",
    ),
    *("SCRAM-SHA-512", "principal-with-a-long-name", False, True, "failed"),
    "SASL_AUTHENTICATION_FAILED: Authentication failed during authentication due to invalid credentials",
    *(1234, 0, 0, [(7, 1, 4, 0)]),
)


def _text(*identities: ClientIdentity, width: int = 80, connections: int = 1234, **options: Any) -> str:
    values = {"connections": connections, "width": width, "coloured": False, **options}
    return security_text(identities, [], "a.pcap", captures=["a.pcap"], **values)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_lines_fit_and_nothing_is_lost(width: int) -> None:
    text = _text(_LONG, width=width)
    words = text.split()
    assert all(display_width(line) <= width or len(line.split()) == 1 for line in text.splitlines()[3:])
    for word in ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,", "broker-17.kafka.internal.example.com,", "credentials"):
        assert word in words
    assert "1,234 connections" in text


def test_connections_that_are_not_shown() -> None:
    assert "6 of 1,240 connections are not shown" in _text(_LONG, connections=1240)
    assert "not shown" not in _text(_LONG)


def test_an_object_has_times_and_places() -> None:
    found = identity_object(_LONG)
    assert found["first"] == "1970-01-01T00:00:00.000000000Z"
    assert found["examples"] == [{"connection": 1, "exchange": 4, "time": "1970-01-01T00:00:00.000000000Z"}]
    without = msgspec.structs.replace(_LONG, first=None, last=None, examples=[])
    assert identity_object(without)["first"] is None
