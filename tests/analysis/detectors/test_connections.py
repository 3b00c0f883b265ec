"""Connections that look alike, counted together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkasniff.analysis.detectors import connections
from kafkasniff.analysis.detectors.connections import Identities, Transport, identities_of
from kafkasniff.analysis.security import SecurityView
from kafkasniff.model import Connection, Endpoint, TlsHandshake
from kafkasniff.tables.rows.connections import ConnectionRows, Login

CONNECTION = Connection(
    *(1, 11, "kafka", "fin", Endpoint("10.0.0.1", 50_000), Endpoint("10.0.0.9", 9092)),
    time_ns=5,
    syn_seen=True,
    client_ids=("app",),
    protocol="Kafka",
)


def _counted(*connections: Connection, login: Login | None = None) -> Identities:
    rows, view = ConnectionRows(), SecurityView()
    for one in connections:
        rows.append(one, login or Login())
    view.update(rows.take())
    return identities_of(view.parts["logins"], 2)


def _with(**changes: Any) -> Connection:
    return msgspec.structs.replace(CONNECTION, **changes)


def test_the_number_of_identities_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_IDENTITIES", 2)
    counted = _counted(*(_with(client_ids=(str(number),)) for number in (1, 2, 3, 1)))
    assert (len(counted.found), counted.beyond) == (2, 1)


def test_handshakes() -> None:
    def of(seen: TlsHandshake) -> Transport:
        (one,) = _counted(_with(tls=seen)).found.values()
        return one.transport

    assert of(TlsHandshake(0x0304, 0x1301)).certificate_note == "not visible in TLS 1.3"
    assert of(TlsHandshake(0x0303, 0xC02F, resumed=True)).certificate_note == "none: a session is resumed"
    assert of(TlsHandshake(0x0303, 0x000A)).cipher == "0x000a"
    assert of(TlsHandshake(0x0301)).version == "TLS 1.0"
    assert of(TlsHandshake(certificate=b"garbage")).certificate_note == "not readable"
