"""Connections that a firewall, NAT or load balancer on the path cuts at a certain age or forgets when idle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, first_of_each, in_any, only
from kafkasniff.analysis.detectors.absences import (
    TRANSPORT_READING,
    Spans,
    TcpLink,
    add_links,
    links_by_broker,
    links_shape,
    usual_absences,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, span, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.tables.rows.transport import TABLE

MAX_USED: Final = 1 << 17
"""Maximum number of connections that are known to have served a request, the earliest."""
_OPENING: Final = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
_IN_USE: Final = 0.25
"""The client was silent for less than this fraction of the connection's life."""
_ALIKE: Final = 0.1
"""Ages differ from their median by at most this fraction."""
_MOST: Final = 0.8
"""Fraction of the connections in use that the broker's side ended; others were ended for a reason of their own."""


class CutThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `CutConnections`."""

    at_least: Annotated[int, Meta(ge=2, description="Report from this many connections of the same age …")] = 3
    age: Annotated[Duration, Meta(ge=0, description="… if they are at least this old.")] = 500_000_000


class CutConnections(Detector[CutThresholds]):
    """Connections in use that the broker's side closes or resets, all of them at the same age.

    Brokers close idle connections, and those whose SASL session is over (`expired-sessions`), but do not limit the age
    of a connection. Proxies, load balancers, service meshes and firewalls do.

    Caveats: captures, or exports with the table `transport`, are needed.
    """

    name: ClassVar[str] = "cut-connections"
    summary: ClassVar[str] = "Connections in use that something ends at a certain age, such as a proxy's limit."
    parameters_type = CutThresholds
    by_packets: ClassVar[str] = "who ended connections is unknown"

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("connection_id", "time_ns", "api", "status")), TABLE: TRANSPORT_READING}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        used = Shape(
            keys=(("connection_id", number),),
            measures=(("time_ns", number, "min"),),
            order=("time_ns", "connection_id"),
            keep="earliest",
            bound=MAX_USED,
        )
        return {"used": used, "links": links_shape()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            add_links(self, batch)
            return
        served = pc.and_(in_any(batch, "status", ["answered"]), pc.invert(in_any(batch, "api", _OPENING)))
        batch = only(batch, pc.and_(served, pc.is_valid(column(batch, "time_ns"))))
        self.parts["used"].add({name: column(batch, name) for name in ("connection_id", "time_ns")})

    def findings(self) -> Iterator[Finding]:
        used = set(self.parts["used"].table().column("connection_id").to_pylist())
        for broker, links in links_by_broker(self).items():
            down = Spans(one.span for one in usual_absences(links))
            cut = [
                link
                for link in links
                if link.connection_id in used and _is_cut(link) and not down.surround(link.over_ns, link.over_ns)
            ]
            if len(cut) < self.thresholds.at_least:
                continue
            usual = median(_age(link) for link in cut)
            alike = [link for link in cut if abs(_age(link) - usual) <= usual * _ALIKE]
            enough = len(alike) >= max(self.thresholds.at_least, _MOST * len(cut))
            if enough and usual >= self.thresholds.age:
                yield self._finding(broker, alike, usual)

    def _finding(self, broker: str, links: list[TcpLink], age: float) -> Finding:
        links.sort(key=lambda link: (link.over_ns, link.connection_id))
        first, last = links[0].over_ns, links[-1].over_ns
        addresses = sorted({link.client_ip for link in links})
        return self.finding(
            "warning",
            f"{broker} ends connections that are in use after {elapsed(age)} each: {plural(len(links), 'connection')} "
            f"of {plural(len(addresses), 'client address', 'client addresses')}{span(first, last)}",
            meaning=(
                "Brokers close connections that are idle, or whose SASL session is over, but set no limit to their "
                "age. So something in front of the broker does: a proxy, a load balancer, a service mesh or a "
                "firewall. Requests that were on their way are lost or sent again, and each new connection costs "
                "authentication and metadata."
            ),
            advice=(
                "Raise or remove the maximum duration of TCP connections there (in Envoy max_connection_duration and "
                "max_downstream_connection_duration, in HAProxy timeout client and timeout server)."
            ),
            subject={"broker": broker},
            count=len(links),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(link.connection_id, None, link.time_ns, f"ended after {elapsed(_age(link))}")
                for link in links[:MAX_EVIDENCE]
            ),
            values={"age_ms": age / 1e6, "connections": len(links), "clients": addresses[:MAX_EVIDENCE]},
        )


def _age(link: TcpLink) -> int:
    return link.over_ns - link.time_ns


def _is_cut(link: TcpLink) -> bool:
    """Whether the broker's side ended the connection, whose beginning is known, and the client was not silent."""
    quiet = link.quiet_ns or 0
    return link.opening == "answered" and link.ended_by == "broker" and quiet < _IN_USE * _age(link)


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
