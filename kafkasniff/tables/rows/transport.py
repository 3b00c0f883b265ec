"""Rows of the table `transport`: network facts of each connection, from its packets.

It has one row for each TCP connection, including refused and unanswered ones: the table `connections` has only those
that carried data.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kafkasniff.engine.connection_stats import connection_id, endpoint
from kafkasniff.tables.rows.exchanges import microseconds
from kafkasniff.tables.rows.staged import STAGED
from kafkasniff.tables.rows.waiting_rows import WaitingRows
from kafkasniff.timing import Link, LinkHalf

__all__ = ["TABLE", "TransportRows", "transport_row"]

TABLE: Final = "transport"

_END: Final = 1 << 63


class TransportRows:
    """Rows of `transport` that wait to become a record batch."""

    def __init__(self) -> None:
        self._rows = WaitingRows(STAGED[TABLE])

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, link: Link) -> None:
        """Add the row of a connection that is over."""
        self._rows.append(transport_row(link))

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        return self._rows.take()


def transport_row(link: Link) -> dict[str, Any]:
    """One row of `transport`, values by column."""
    client, broker = link.client, link.broker
    ends = endpoint(link.end(client)), endpoint(link.end(broker))
    row: dict[str, Any] = {
        "connection_id": connection_id(link.ends, link.first_time),
        "time": microseconds(link.first_time),
        "time_ns": link.first_time,
        "end_time": microseconds(link.last_time),
        "end_time_ns": link.last_time,
        "client_ip": ends[0].address,
        "client_port": ends[0].port,
        "broker_ip": ends[1].address,
        "broker_port": ends[1].port,
        "opening": link.opening,
        "syns": link.syns,
        "ended_by": None if link.ended_by is None else "client" if link.ended_by is client else "broker",
        "ended_with": None if link.ended is None else "rst" if link.reset else "fin",
        "ended_ns": link.ended,
        "quiet_ns": None if link.ended is None or client.spoke is None else max(link.ended - client.spoke, 0),
        "broker_round_trip_us": microseconds(link.to_broker(_END)),
        "client_round_trip_us": microseconds(link.to_client(_END)),
    }
    row["lost_longest_us"] = max(client.lost_longest_ns, broker.lost_longest_ns) // 1000
    row["stalls"] = [
        {"sender": name, **stall._asdict()}
        for name, half in (("client", client), ("broker", broker))
        for stall in half.stalls_until(link.last_time)
    ]
    return {**row, **_of_half("client", client, link), **_of_half("broker", broker, link)}


def _of_half(name: str, half: LinkHalf, link: Link) -> dict[str, int]:
    trouble = half.total(link.last_time)
    return {
        f"{name}_packets": half.packets,
        f"{name}_data": half.data,
        f"{name}_again": trouble.again,
        f"{name}_late": trouble.late,
        f"{name}_closed": trouble.closed,
        f"{name}_closed_us": trouble.closed_ns // 1000,
        f"{name}_lost": half.lost,
    }
