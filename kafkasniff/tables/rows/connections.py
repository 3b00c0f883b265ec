"""Rows of the table `connections`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafkasniff.kafka.apis.entities import text
from kafkasniff.model import Connection
from kafkasniff.tables.rows.exchanges import capture_name, microseconds
from kafkasniff.tables.rows.staged import STAGED
from kafkasniff.tables.rows.waiting_rows import WaitingRows

__all__ = ["ConnectionRows", "connection_row"]


def connection_row(connection: Connection) -> dict[str, Any]:
    """One row of `connections`, values by column in the order of `CONNECTIONS`; `broker_id` is not known yet."""
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
        "sasl_mechanism": connection.sasl_mechanism,
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
    }


class ConnectionRows:
    """Rows of `connections` that wait to become a record batch."""

    def __init__(self) -> None:
        self._rows = WaitingRows(STAGED["connections"])

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, connection: Connection) -> None:
        """Add the row of a connection that has ended."""
        self._rows.append(connection_row(connection))

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        return self._rows.take()
