"""The table `transport`: network facts of each connection, from its packets. Only captures have it, exports do not.

It has one row for each TCP connection, including refused and unanswered ones: the table `connections` has only those
that carried data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from kafkasniff.engine.connection_stats import connection_id, endpoint
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.tcp.packets import PacketBatch
from kafkasniff.timing import Link, LinkHalf, LinkWatch

__all__ = ["TABLE", "TRANSPORT", "TransportRows"]

TABLE: Final = "transport"
ROWS: Final = 4096
"""Rows that are passed on at once."""

_STALL: Final = [
    ("sender", pa.string()),
    ("since", pa.int64()),
    ("until", pa.int64()),
    ("kind", pa.string()),
    ("retries", pa.int64()),
    ("size", pa.int64()),
    ("passed", pa.int64()),
    ("heard", pa.int64()),
    ("over", pa.bool_()),
]
TRANSPORT: Final = pa.schema(
    [
        ("connection_id", pa.int64()),
        ("time_ns", pa.int64()),
        ("end_time_ns", pa.int64()),
        ("client_ip", pa.string()),
        ("client_port", pa.int32()),
        ("broker_ip", pa.string()),
        ("broker_port", pa.int32()),
        ("opening", pa.string()),
        ("syns", pa.int64()),
        ("ended_by", pa.string()),
        ("ended_with", pa.string()),
        ("ended_ns", pa.int64()),
        ("quiet_ns", pa.int64()),
        ("broker_round_trip_us", pa.int64()),
        ("client_round_trip_us", pa.int64()),
        ("client_packets", pa.int64()),
        ("broker_packets", pa.int64()),
        ("client_data", pa.int64()),
        ("broker_data", pa.int64()),
        ("client_again", pa.int64()),
        ("broker_again", pa.int64()),
        ("client_late", pa.int64()),
        ("broker_late", pa.int64()),
        ("client_closed", pa.int64()),
        ("broker_closed", pa.int64()),
        ("client_closed_us", pa.int64()),
        ("broker_closed_us", pa.int64()),
        ("client_lost", pa.int64()),
        ("broker_lost", pa.int64()),
        ("lost_longest_us", pa.int64()),
        ("stalls", pa.list_(pa.struct(_STALL))),
    ]
)
"""`opening`: answered, refused, unanswered; null where the beginning is not in the capture, and then the client is the
end with the higher port. `syns`: how often the client asked. `ended_by` (client, broker), `ended_with` (fin, rst) and
`ended_ns`: who closed or reset the connection first, how and when; null where the capture does not have it; `quiet_ns`:
how long the client had sent nothing then. Round trips from the capture point, the least. `data`: bytes of payload,
including retransmitted segments. `again`, `late`, `closed`: as `timing.Trouble`, by the sender; `closed_us`: total time
for which its windows were closed. `lost`: late segments that had been lost before the capture point, and
`lost_longest_us` the longest time for which one was missing. `stalls`: times in which data of the client or the broker
(`sender`) did not arrive, as `timing.stalls.Stall`."""

_END: Final = 1 << 63


class TransportRows:
    """Follows the packets of captures and passes on rows; `ports` as for `Inspector`, `memory` as for `LinkWatch`.

    Counts limited by `timing.trouble_log.MAX_TROUBLE` are never too low.
    """

    def __init__(
        self, take: Callable[[pa.RecordBatch, str], object], *, ports: Iterable[int] = (), memory: int = DEFAULT_MEMORY
    ) -> None:
        self._take = take
        self._rows: list[dict[str, Any]] = []
        self._watch = LinkWatch(ports=ports, over=self._over, memory=memory)

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packets."""
        self._watch.feed(batch)

    def close(self) -> None:
        """End after the last packet."""
        self._watch.close()
        self._hand_on()

    def _over(self, link: Link) -> None:
        self._rows.append(_row(link))
        if len(self._rows) >= ROWS:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._rows:
            self._take(pa.RecordBatch.from_pylist(self._rows, schema=TRANSPORT), TABLE)
            self._rows = []


def _row(link: Link) -> dict[str, Any]:
    client, broker = link.client, link.broker
    ends = endpoint(link.end(client)), endpoint(link.end(broker))
    row: dict[str, Any] = {
        "connection_id": connection_id(link.ends, link.first_time),
        "time_ns": link.first_time,
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
        "broker_round_trip_us": _microseconds(link.to_broker(_END)),
        "client_round_trip_us": _microseconds(link.to_client(_END)),
    }
    row["lost_longest_us"] = max(client.lost_longest_ns, broker.lost_longest_ns) // 1000
    row["stalls"] = [
        {"sender": name, **stall._asdict()}
        for name, half in (("client", client), ("broker", broker))
        for stall in half.stalls_until(link.last_time)
    ]
    return {**row, **_of_half("client", client, link), **_of_half("broker", broker, link)}


def _of_half(name: str, half: LinkHalf, link: Link) -> dict[str, int]:
    closed_ns = half.trouble.between(link.first_time, link.last_time).closed_ns
    return {
        f"{name}_packets": half.packets,
        f"{name}_data": half.data,
        # Trouble that was forgotten counts as the most frequent kind.
        f"{name}_again": len(half.trouble.again) + half.trouble.lost_count,
        f"{name}_late": len(half.trouble.late),
        f"{name}_closed": len(half.trouble.closed),
        f"{name}_closed_us": closed_ns // 1000,
        f"{name}_lost": half.lost,
    }


def _microseconds(nanoseconds: int | None) -> int | None:
    return None if nanoseconds is None else nanoseconds // 1000
