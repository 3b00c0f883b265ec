"""Addresses at which different clusters answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, some
from kafkasniff.engine.roles import Bodies
from kafkasniff.text.times import clock_time

_APIS: Final = ("Metadata", "DescribeCluster")
_ID: Final = r'"cluster_id":"(?P<id>[^"\\]{1,256})"'


class OtherClusterThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `OtherClusters`."""

    clusters: Annotated[
        int, Meta(ge=2, description="Report an address at which a client meets this many clusters.")
    ] = 2


class OtherClusters(Detector[OtherClusterThresholds]):
    """Addresses at which the same client meets different clusters: cluster ids differ between its connections.

    Caveats: two programs with one client id at one address count as one client. A cluster that was deleted and made
    again at the same address has another id, too.
    """

    name: ClassVar[str] = "other-clusters"
    summary: ClassVar[str] = "Addresses that lead clients to different clusters."
    parameters_type = OtherClusterThresholds
    bodies: ClassVar[Bodies] = {("response", api): None for api in _APIS}

    _met = Tally("met", (*CLIENT, *BROKER, ("cluster_id", pa.string())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "broker_ip", "broker_port", "response_body")
        return {"exchanges": TableReading((*ORDER, *own), _APIS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        found = pc.struct_field(pc.extract_regex(column(batch, "response_body"), _ID), "id")
        known = pc.is_valid(found)
        batch, found = only(batch, known), found.filter(known)
        notes = pc.binary_join_element_wise("cluster ", found, "")
        self._met.add(self, batch, {**clients(batch, broker=True), "cluster_id": found}, notes)

    def findings(self) -> Iterator[Finding]:
        met: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._met.rows(self):
            met.setdefault(tuple(row[name] for name in (*CLIENT_COLUMNS, "broker")), []).append((row, evidence))
        for some_clusters in met.values():
            if len(some_clusters) >= self.thresholds.clusters:
                yield self._finding(sorted(some_clusters, key=lambda one: (one[0]["first"] or 0, one[0]["cluster_id"])))

    def _finding(self, met: list[tuple[dict[str, Any], tuple[Evidence, ...]]]) -> Finding:
        rows = [row for row, _ in met]
        row, ids = rows[0], [one["cluster_id"] for one in rows]
        times = [one[name] for one in rows for name in ("first", "last") if one[name] is not None]
        first, last = min(times, default=None), max(times, default=None)
        changes = [one["first"] for one in rows[1:] if one["first"] is not None]
        since = f", the second since {clock_time(changes[0])[:-3]}" if changes else ""
        mixed = any(
            one["last"] is not None and other["first"] is not None and one["last"] > other["first"]
            for one, other in itertools.pairwise(rows)
        )
        # The first exchanges of each cluster show it.
        each = max(MAX_EVIDENCE // len(met), 1)
        evidence = sorted((one for _, some in met for one in some[:each]), key=lambda one: one.time_ns or 0)
        return self.finding(
            "error",
            f"{client(row)} meets {len(rows):,} clusters at {row['broker']}: {some(ids)}{since}",
            meaning=(
                "The address leads to brokers of different clusters"
                + (", in turns" if mixed else "")
                + ": a name that resolves to other machines, a load balancer or a port forwarding that was changed, or "
                "a cluster that was made again. Clients find other topics, offsets and groups there, and write records "
                "where nobody reads them."
            ),
            advice=(
                "Compare what the bootstrap name resolves to with the brokers of the cluster, and the targets of load "
                "balancers. Restart clients that still use the wrong cluster, and look for records and offsets that "
                "they have written there."
            ),
            subject={name: row[name] for name in (*CLIENT_COLUMNS, "broker")},
            count=sum(one["count"] for one in rows),
            first=first,
            last=last,
            evidence=tuple(evidence[:MAX_EVIDENCE]),
            values={"clusters": ids, "mixed": mixed},
        )
