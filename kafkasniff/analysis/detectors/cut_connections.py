"""Connections that something ends at a certain age, although they are in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Annotated, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import column, in_any, only
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
from kafkasniff.analysis.detectors.wording import elapsed, plural, span
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
