"""Connections that fall silent and that nobody closes, because something on the path has forgotten them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, first_of_each, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, span, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.tables.rows.transport import TABLE

MAX_CONNECTIONS: Final = 1 << 17
"""Maximum number of connections of producers that are kept, the earliest."""
_PRODUCER: Final = ("producer_id", "producer_epoch")


class ForgottenThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ForgottenConnections`."""

    silent: Annotated[
        Duration, Meta(ge=0, description="A connection is given up if its producer uses another one this much later.")
    ] = 1_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="This many connections of a client to a broker are a warning; fewer are a note.")
    ] = 2


class ForgottenConnections(Detector[ForgottenThresholds]):
    """Connections that fall silent and are never closed, although their producer continues with another one.

    A client that gives up a connection closes it. If its packets no longer arrive at the broker, something between the
    two has forgotten the connection, usually a firewall, NAT or load balancer after an idle time. The producer is known
    by its producer id. At the client's end, the same is an outage (`transport-trouble`): retransmissions.

    Caveats: captures, or exports with the table `transport`, are needed. Producers without a producer id (without
    idempotence) and consumers are not judged. A FIN that is missing from the capture looks the same.
    """

    name: ClassVar[str] = "forgotten-connections"
    summary: ClassVar[str] = "Connections that fall silent and are never closed: a firewall or NAT forgot them."
    parameters_type = ForgottenThresholds
    by_packets: ClassVar[str] = "connections that nobody closes are unknown"

    def reads(self) -> Mapping[str, TableReading]:
        own = (*CLIENT_COLUMNS, "broker_ip", "broker_port", "partitions")
        return {
            "exchanges": TableReading((*ORDER, *own), ("Produce",)),
            TABLE: TableReading(("connection_id", "time_ns", "end_time_ns", "ended_ns"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        keys = (("connection_id", number), *CLIENT, *BROKER, *((name, number) for name in _PRODUCER))
        used: Any = (("first", number, "min"),)
        opened: Any = (("since", number, "min"), ("until", number, "max"))
        return {
            "used": Shape(keys=keys, measures=used, order=("first",), keep="earliest", bound=MAX_CONNECTIONS),
            "open": Shape(keys=keys[:1], measures=opened, order=("since",), keep="earliest", bound=MAX_CONNECTIONS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            batch = only(batch, pc.is_null(column(batch, "ended_ns")))
            times = {"since": column(batch, "time_ns"), "until": column(batch, "end_time_ns")}
            self.parts["open"].add({"connection_id": column(batch, "connection_id"), **times})
            return
        places = first_of_each(column(batch, "partitions"))
        numbers = {name: pc.struct_field(places, name).cast(pa.int64()) for name in _PRODUCER}
        known = pc.and_(
            pc.fill_null(pc.greater_equal(numbers["producer_id"], 0), False), pc.is_valid(column(batch, "time_ns"))
        )
        batch = only(batch, known)
        self.parts["used"].add(
            {
                "connection_id": column(batch, "connection_id"),
                **clients(batch, broker=True),
                **{name: values.filter(known) for name, values in numbers.items()},
                "first": column(batch, "time_ns"),
            }
        )

    def findings(self) -> Iterator[Finding]:
        opened = {row["connection_id"]: row for row in self.parts["open"].table().to_pylist()}
        producers: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in (
            self.parts["used"].table().sort_by([("first", "ascending"), ("connection_id", "ascending")]).to_pylist()
        ):
            key = tuple(row[name] for name in (*CLIENT_COLUMNS, "broker", *_PRODUCER))
            producers.setdefault(key, []).append(row)
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for rows in producers.values():
            for row, later in itertools.pairwise(rows):
                own = opened.get(row["connection_id"])
                if own is not None and later["first"] - own["until"] >= self.thresholds.silent:
                    key = tuple(row[name] for name in (*CLIENT_COLUMNS, "broker"))
                    found.setdefault(key, []).append({**row, **own, "later": later["first"]})
        for rows in found.values():
            yield self._finding(sorted(rows, key=lambda row: (row["until"], row["connection_id"])))

    def _finding(self, rows: list[dict[str, Any]]) -> Finding:
        first, last = rows[0]["until"], rows[-1]["later"]
        shortest = min(row["later"] - row["until"] for row in rows)
        return self.finding(
            "warning" if len(rows) >= self.thresholds.at_least else "note",
            f"{plural(len(rows), 'connection')} of {client(rows[0])} to {rows[0]['broker']} fell silent and "
            f"{'was' if len(rows) == 1 else 'were'} never closed{span(first, last)}: the same producer continued with "
            f"another connection, {elapsed(shortest)} or more later",
            meaning=(
                "A client that gives up a connection closes it, but no packet of that arrived: a firewall, NAT or load "
                "balancer on the path forgets idle connections and drops what comes later. Requests on them wait until "
                "the client's request timeout, and the broker keeps the dead connections for "
                "connections.max.idle.ms."
            ),
            advice=(
                "Raise the idle timeout of firewalls, NAT gateways and load balancers between the two above the "
                "client's connections.max.idle.ms (9 minutes by default), or lower that below the timeout; "
                "socket.keepalive.enable of librdkafka helps, too."
            ),
            subject=subject(rows[0], "client_id", "client_ip", "broker"),
            count=len(rows),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(
                    row["connection_id"],
                    None,
                    row["since"],
                    f"last packet {elapsed(row['later'] - row['until'])} before the next connection was used",
                )
                for row in rows[:MAX_EVIDENCE]
            ),
            values={"shortest_ms": shortest / 1_000_000},
        )
