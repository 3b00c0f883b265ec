"""Rows of the table `connections`."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kafkasniff.kafka.apis.entities import text
from kafkasniff.model import Connection, TlsHandshake
from kafkasniff.tables.rows.exchanges import capture_name, microseconds
from kafkasniff.tables.rows.logins import Login
from kafkasniff.tables.rows.staged import STAGED
from kafkasniff.tables.rows.waiting_rows import WaitingRows
from kafkasniff.tls.descriptions import suite, version_name

__all__ = ["ConnectionRows", "connection_row"]


_NO_LOGIN: Final = Login()
_TURNS: Final = (
    *("tls_handshake_us", "tls_answers", "tls_answer_p50_us", "tls_answer_p99_us", "tls_answer_max_us"),
    "tls_unanswered_us",
)


def connection_row(connection: Connection, login: Login = _NO_LOGIN) -> dict[str, Any]:
    """One row of `connections`, values by column in the order of `CONNECTIONS`; `broker_id` is not known yet."""
    tls = connection.tls
    known = None if tls is None or tls.suite is None else suite(tls.suite)
    client, broker = connection.client_stream, connection.broker_stream
    return {
        "capture": capture_name(connection.capture),
        "connection_id": connection.connection_id,
        "time": microseconds(connection.time_ns),
        "time_ns": connection.time_ns,
        "end_time": microseconds(connection.end_time_ns),
        "end_time_ns": connection.end_time_ns,
        "client_ip": connection.client.address,
        "client_port": connection.client.port,
        "broker_ip": connection.broker.address,
        "broker_port": connection.broker.port,
        "broker_id": None,
        "software_name": connection.software_name,
        "software_version": connection.software_version,
        "client_ids": [text(one) for one in connection.client_ids],
        "verdict": connection.verdict,
        "ended": connection.ended,
        "syn_seen": connection.syn_seen,
        "packets": connection.packets,
        "requests": connection.requests,
        "responses": connection.responses,
        "unanswered": connection.unanswered,
        "sasl_mechanism": connection.sasl_mechanism or login.mechanism,
        "client_bytes": connection.client_bytes,
        "broker_bytes": connection.broker_bytes,
        "bytes_decoded": connection.bytes_decoded,
        "bytes_skipped": connection.client_bytes + connection.broker_bytes - connection.bytes_decoded,
        "bytes_lost": connection.bytes_lost,
        "retransmits": connection.retransmits,
        "problems": connection.problems,
        "bytes_pending": client.pending + broker.pending,
        "bytes_repeated": client.repeated + broker.repeated,
        "bytes_ignored": client.ignored + broker.ignored,
        "protocol": connection.protocol,
        "captured": connection.captured,
        "authentication": authentication(connection, login),
        "authentication_error": login.reason if login.outcome == "failed" else None,
        "authentication_exchange": login.exchange,
        "principal": login.principal,
        "by_token": login.token,
        "credentials": login.credentials,
        "tls": tls is not None,
        "tls_version": None if tls is None or tls.version is None else version_name(tls.version),
        "tls_cipher": known.name if known else None if tls is None or tls.suite is None else f"0x{tls.suite:04x}",
        "tls_server_name": None if tls is None else tls.server_name,
        "tls_resumed": tls is not None and tls.resumed,
        "tls_certificate": None if tls is None else tls.certificate,
        "tls_client_certificate": None if tls is None else tls.client_certificate,
        "tls_lacks_client_certificate": tls is not None and tls.lacks_certificate,
        **_turns(tls),
    }


def _turns(tls: TlsHandshake | None) -> dict[str, int | None]:
    if tls is None:
        return dict.fromkeys(_TURNS)
    turns = tls.turns
    times = (turns.p50_ns, turns.p99_ns, turns.longest_ns, turns.unanswered_ns)
    handshake, *rest = (microseconds(one) for one in (tls.handshake_ns, *times))
    return dict(zip(_TURNS, (handshake, turns.answers, *rest), strict=True))


def authentication(connection: Connection, login: Login) -> str:
    """The value of that column."""
    if login.outcome != "none":
        return login.outcome
    if connection.tls is not None and connection.protocol != "Kafka over TLS":
        return "hidden"
    if not connection.syn_seen:
        # SASL may have been before the capture.
        return "unknown"
    return "none" if login.served else "unserved"


class ConnectionRows:
    """Rows of `connections` that wait to become a record batch."""

    def __init__(self) -> None:
        self._rows = WaitingRows(STAGED["connections"])

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, connection: Connection, login: Login = _NO_LOGIN) -> None:
        """Add the row of a connection that has ended."""
        self._rows.append(connection_row(connection, login))

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        return self._rows.take()
