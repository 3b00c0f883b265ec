"""Brokers that were killed, stopped or restarted, as their clients saw it, and as brokers tell it of each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, Reading
from kafkasniff.analysis.columns import broker_endpoint, in_any, only
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.detectors.absences import (
    AT_LEAST,
    REACH_NS,
    TOGETHER_NS,
    TRANSPORT_READING,
    Absence,
    Link,
    absences,
    add_links,
    links_by_broker,
    links_shape,
)
from kafkasniff.detectors.detector import Bodies, Detector
from kafkasniff.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.detectors.members_told import (
    BODIES,
    EXCHANGES,
    add_told,
    epochs_of,
    listed_again,
    node_of,
    told_shapes,
)
from kafkasniff.detectors.tally import BROKER
from kafkasniff.detectors.wording import elapsed, in_cluster, plural, some
from kafkasniff.exports.transport import TABLE
from kafkasniff.model import Endpoint
from kafkasniff.sinks.times import clock_time

__all__ = ["BrokerGone"]

_HOW: Final = {"refused": "refused", "unanswered": "not answered"}
SLACK_NS: Final = 30_000_000_000
"""How long after an absence a broker may take to tell its new epoch to whoever is captured."""


class BrokerGoneThresholds(Parameters, frozen=True, kw_only=True):
    """Of `BrokerGone`."""

    reach: Annotated[
        Duration, Meta(ge=1, description="Connections dropped within this time before a failed connect belong to it.")
    ] = REACH_NS
    together: Annotated[
        Duration, Meta(ge=1, description="Without failed connects: the longest pause between two dropped connections.")
    ] = TOGETHER_NS
    connections: Annotated[
        int, Meta(ge=2, description="Without failed connects: so many connections, all there are, must be dropped.")
    ] = AT_LEAST


class BrokerGone(Detector[BrokerGoneThresholds]):
    """Brokers that let go of their connections and then refuse new ones, or answer none (captures alone show it).

    Also those that register again with their controller, which brokers do when they start.
    """

    name: ClassVar[str] = "broker-gone"
    summary: ClassVar[str] = "Brokers that were killed, stopped or restarted."
    parameters_type = BrokerGoneThresholds
    bodies: ClassVar[Bodies] = BODIES
    not_in_exports = "failed connects and who closed first: they show restarts by new broker epochs alone"
    parts_clusters = True

    def reads(self) -> Mapping[str, Reading]:
        return {
            "exchanges": EXCHANGES,
            "connections": Reading(("broker_ip", "broker_port", "verdict")),
            TABLE: TRANSPORT_READING,
        }

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = (("count", pa.int64(), "sum"),)
        return {
            "links": links_shape(),
            "brokers": Shape(keys=BROKER, measures=count, weight="count"),
            **told_shapes(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            add_links(self, "links", batch)
        elif table == "connections":
            batch = only(batch, in_any(batch, "verdict", ("kafka",)))
            self.parts["brokers"].add({"broker": broker_endpoint(batch), "count": np.ones(batch.num_rows, np.int64)})
        else:
            add_told(self, batch)

    def findings(self) -> list[Finding]:
        brokers = {row["broker"] for row in self.parts["brokers"].table().to_pylist()}
        limits = self.thresholds
        found: list[Finding] = []
        unknown: list[Absence] = []
        """Those of endpoints that nobody says which broker is at."""
        explained: set[tuple[str | None, int, int]] = set()
        """Clusters, nodes and epochs whose beginning an absence explains."""
        epochs = epochs_of(self)
        for broker, links in links_by_broker(self, "links").items():
            if broker not in brokers:
                continue
            node = node_of(self, broker)
            cluster = self.clusters.group(broker)
            own = epochs.get((cluster, node), []) if node is not None else []
            for gone in absences(
                links, reach_ns=limits.reach, together_ns=limits.together, at_least=limits.connections
            ):
                if node is None:
                    unknown.append(gone)
                again = next((row for row in own[1:] if _began(row, gone)), None)
                if node is not None and again is not None:
                    explained.add((cluster, node, again["epoch"]))
                found.append(self._finding(broker, node, gone, again))
        return [*found, *self._restarts(epochs, explained, unknown)]

    def _finding(self, broker: str, node: int | None, gone: Absence, again: dict[str, Any] | None) -> Finding:
        """`again`: the epoch in which the broker registered afterwards, where that is known."""
        moved = {} if node is None else self._moved(broker, node, gone)
        back, how = gone.back_ns, ""
        if back is None and again is not None:
            back, how = again["first"], ", by its new epoch"
        elif back is None and node is not None:
            back, how = (
                listed_again(self, self.clusters.group(broker), node, gone.first_ns),
                ", by the metadata of other brokers",
            )
        first = clock_time(gone.first_ns)[:-3]
        if back is None:
            span = f"since {first}, not seen again by the end of the capture"
        else:
            span = f"from {first} to {clock_time(back)[:-3]} ({elapsed(back - gone.first_ns)}{how})"
        what = "gone" if gone.worked else "not up yet"
        facts = [plural(len(gone.dropped), "connection") + " dropped"] if gone.dropped else []
        for opening, result in _HOW.items():
            count = sum(link.opening == opening for link in gone.failed)
            if count:
                facts.append(f"{plural(count, 'connect')} {result}")
        facts.append(f"{plural(len(gone.clients), 'client')} ({some(gone.clients)})")
        if moved:
            told = [f"{plural(count, 'partition')} to broker {leader}" for leader, count in sorted(moved.items())]
            facts.append(f"leaders moved: {', '.join(told)}")
        if again is not None:
            facts.append(f"restarted (broker epoch {again['epoch']})")
        links = sorted((*gone.dropped, *gone.failed), key=_time)
        severity: Severity = "error" if back is None else "warning" if gone.worked else "note"
        return self.finding(
            severity,
            f"broker {broker} {what} {span}: {', '.join(facts)}",
            meaning=_meaning(gone),
            advice=(
                "Compare the time with the broker's log and with what restarts brokers (deployments, the kernel's OOM "
                "killer, health checks). A planned restart moves the leaders first (controlled shutdown)."
            ),
            subject={"broker": broker},
            count=len(links),
            first=gone.first_ns,
            last=max(_time(link) for link in links),
            evidence=tuple(
                Evidence(link.connection_id, None, link.time_ns, _note(link)) for link in links[:MAX_EVIDENCE]
            ),
            values={
                "dropped": len(gone.dropped),
                "refused": sum(link.opening == "refused" for link in gone.failed),
                "unanswered": sum(link.opening == "unanswered" for link in gone.failed),
                "clients": gone.clients,
                "back": back is not None,
                "leaders_moved": {str(leader): count for leader, count in sorted(moved.items())},
                "broker_epoch": None if again is None else again["epoch"],
            },
        )

    def _restarts(
        self,
        epochs: Mapping[tuple[str | None, int], list[dict[str, Any]]],
        explained: set[tuple[str | None, int, int]],
        unknown: list[Absence],
    ) -> Iterator[Finding]:
        """Brokers with a new epoch of which no client's connection shows that they were gone."""
        for (cluster, node), rows in epochs.items():
            for before, after in pairwise(rows):
                if (cluster, node, after["epoch"]) in explained or after["first"] < before["last"]:
                    continue  # two clusters, if epochs overlap
                seen = any(before["last"] <= gone.first_ns <= after["first"] for gone in unknown)
                span = f"between {clock_time(before['last'])[:-3]} and {clock_time(after['first'])[:-3]}"
                yield self.finding(
                    "note",
                    f"broker {node}{in_cluster(self.clusters, cluster)} restarted {span}: "
                    f"broker epoch {before['epoch']} became {after['epoch']}",
                    meaning=(
                        "A broker gets a new epoch when it registers with the controller, which it does when it starts."
                        + ("" if seen else " No connection of a client in the capture shows the time without it.")
                    ),
                    advice="Compare the time with the broker's log and with what restarts brokers.",
                    subject={"broker": str(node)},
                    count=1,
                    first=before["last"],
                    last=after["first"],
                    values={"epochs": [before["epoch"], after["epoch"]]},
                )

    def _moved(self, broker: str, node: int, gone: Absence) -> dict[int, int]:
        """New leaders of partitions that the broker led when it went: leader and number of partitions."""
        before: set[tuple[str, int]] = set()
        after: dict[tuple[str, int], tuple[int, int]] = {}
        cluster = self.clusters.group(broker)
        for row in self.told("leaders").to_pylist():
            if row["cluster"] != cluster:
                continue
            place = (row["topic"], row["partition"])
            if row["leader"] == node and row["first"] is not None and row["first"] < gone.first_ns:
                before.add(place)
            elif row["leader"] >= 0 and row["first"] is not None and gone.holds(row["first"]):
                after[place] = min(after.get(place, (row["first"], row["leader"])), (row["first"], row["leader"]))
        found: dict[int, int] = {}
        for place, (_, leader) in after.items():
            if place in before and leader != node:
                found[leader] = found.get(leader, 0) + 1
        return found


def _began(row: Mapping[str, Any], gone: Absence) -> bool:
    """Whether an epoch began in an absence, or was first told soon after it."""
    until = None if gone.back_ns is None else gone.back_ns + SLACK_NS
    return row["first"] >= gone.first_ns and (until is None or row["first"] <= until)


def _meaning(gone: Absence) -> str:
    if not gone.worked:
        return (
            "Nothing took connections here until then: the client was started before its broker, or the broker went "
            "before the capture began."
        )
    if gone.failed:
        return (
            "The broker took no connections in this time: it was stopped, killed or restarted, or what forwards to it "
            "was. Its clients retry until it is back or other brokers lead its partitions."
        )
    return (
        "The broker closed all its connections within a moment, and nobody tried to connect until it took new ones: a "
        "restart, or whatever forwards to it ended them."
    )


def _time(link: Link) -> int:
    return link.time_ns if link.ended_ns is None or not link.works else link.ended_ns


def _note(link: Link) -> str:
    if link.works:
        return f"broker {'reset' if link.ended_with == 'rst' else 'closed'} the connection"
    who = Endpoint(link.client_ip, link.client_port)
    if link.opening == "refused":
        return f"connect of {who} refused"
    return f"connect of {who} not answered, {plural(link.syns, 'SYN')}"
