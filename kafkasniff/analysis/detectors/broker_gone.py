"""Brokers that were killed, stopped or restarted, as seen by their clients and the other brokers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import broker_endpoint, in_any, only
from kafkasniff.analysis.detectors.absences import (
    AT_LEAST,
    REACH_NS,
    TOGETHER_NS,
    TRANSPORT_READING,
    Absence,
    TcpLink,
    absences,
    add_links,
    links_by_broker,
    links_shape,
)
from kafkasniff.analysis.detectors.broker_history import BODIES, EXCHANGES, BrokerHistory, add_facts, fact_shapes
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity, worst_first
from kafkasniff.analysis.detectors.tally import BROKER, in_all
from kafkasniff.analysis.detectors.wording import elapsed, in_cluster, plural, some
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies
from kafkasniff.model import Endpoint
from kafkasniff.tables.rows.transport import TABLE
from kafkasniff.text.times import clock_time

_HOW: Final = {"refused": "refused", "unanswered": "unanswered"}
MAX_TOPICS: Final = 20
"""Maximum number of topics in the values of a finding."""
_CONTROLLER: Final = (
    " It was the active controller: until another one is elected, no leader moves, topics cannot be created or "
    "changed, and brokers that stop or start are not noticed, so the metadata of the others is outdated."
)
RETURNED: Final = 3
"""So many connections, at least, show that a broker is back."""
OFTEN: Final = 3
"""This many absences of a broker are an error although it returns."""
SLACK_NS: Final = 30_000_000_000
"""How long after an absence the first message with the new epoch may follow."""
PLANNED_NS: Final = 30_000_000_000
"""A planned shutdown is a note if connects fail no longer than this: clients need some time to move on."""
BEFORE_NS: Final = 5_000_000_000
"""A broker that was gone when the capture began is reported if metadata lacks it for this long."""
NODE_NS: Final = 100_000_000
"""Listeners of one address that are gone within this time belong to one node."""


class BrokerGoneThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `BrokerGone`."""

    reach: Annotated[
        Duration,
        Meta(
            ge=1, description="Connections dropped up to this long before a failed connect belong to the same outage."
        ),
    ] = REACH_NS
    together: Annotated[
        Duration, Meta(ge=1, description="Without failed connects: the longest pause between two dropped connections.")
    ] = TOGETHER_NS
    connections: Annotated[
        int,
        Meta(
            ge=2,
            description="Without failed connects: the broker must drop all its connections, and at least this many.",
        ),
    ] = AT_LEAST


class BrokerGone(Detector[BrokerGoneThresholds]):
    """Brokers that drop their connections and then refuse or ignore new ones.

    It is an error if the broker does not return before the capture ends, a warning if it does, and a note if it had no
    connection before, or if only its broker epoch changed. It is a note, too, if metadata named new leaders of its
    partitions just before (a controlled shutdown), and connects did not fail for long. The listener that accepted
    heartbeats of brokers is the controller's. A broker that clients do not contact is a warning if the metadata of
    others does not list it and shows partitions that lost it as a replica. If clients asked for metadata before and
    afterwards, the finding names the new leaders.

    All absences of a broker are one finding; three are an error.

    Listeners of one address that are gone at the same time are one finding, unless metadata gives them different
    numbers: they are those of one broker, or brokers that share a machine.

    Caveats: exports show only new broker epochs. Planned restarts, a firewall that starts to reject a client, and a
    load balancer that ends all its connections at once look the same.
    """

    name: ClassVar[str] = "broker-gone"
    by_absence = True
    ends_connections = True
    summary: ClassVar[str] = "Brokers that were killed, stopped or restarted."
    parameters_type = BrokerGoneThresholds
    bodies: ClassVar[Bodies] = BODIES
    by_packets = "restarts show only as new broker epochs"
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": EXCHANGES,
            "connections": TableReading(("broker_ip", "broker_port", "verdict")),
            TABLE: TRANSPORT_READING,
        }

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = (("count", pa.int64(), "sum"),)
        return {
            "links": links_shape(),
            "brokers": Shape(keys=BROKER, measures=count, weight="count"),
            **fact_shapes(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            add_links(self, batch)
        elif table == "connections":
            batch = only(batch, in_any(batch, "verdict", ("kafka",)))
            self.parts["brokers"].add({"broker": broker_endpoint(batch), "count": np.ones(batch.num_rows, np.int64)})
        else:
            add_facts(self, batch)

    def findings(self) -> list[Finding]:
        brokers = {row["broker"] for row in self.parts["brokers"].table().to_pylist()}
        limits = self.thresholds
        history = BrokerHistory(self)
        found: list[Finding] = []
        unknown: list[int] = []
        """When brokers of unknown number were gone."""
        explained: set[tuple[str | None, int, int]] = set()
        """Clusters, nodes and epochs whose beginning an absence explains."""
        reported: set[tuple[str | None, int]] = set()
        gone: list[tuple[str, Absence, int | None]] = []
        for broker, links in sorted(links_by_broker(self).items()):
            if broker not in brokers:
                continue
            for absence in absences(
                links, reach_ns=limits.reach, together_ns=limits.together, at_least=limits.connections
            ):
                gone.append((broker, absence, history.node_at(broker)))
        for broker, absence, number, others in _by_node(gone):
            controls = not history.controllers.isdisjoint({broker, *others})
            if number is None:
                unknown.append(absence.first_ns)
                found.append(self._finding(broker, absence, others, None, None, {}, 0, 0, controls=controls))
                continue
            node = (self.clusters.group(broker), number)
            reported.add(node)
            until = None if absence.back_ns is None else absence.back_ns + SLACK_NS
            restarted = history.new_epoch(node, absence.first_ns, until)
            if restarted is not None:
                explained.add((*node, restarted["epoch"]))
            listed = None
            if absence.back_ns is None and restarted is None:
                listed = history.listed_again(node, absence.first_ns)
                if listed is not None and any(link.time_ns >= listed for link in absence.failed):
                    listed = None  # connects prove more than what others believe
            moved = history.new_leaders(node, absence.first_ns, absence.back_ns)
            before = history.moved_before(node, absence.first_ns), history.refused_before(broker, absence.first_ns)
            found.append(self._finding(broker, absence, others, restarted, listed, moved, *before, controls=controls))
        found = [self._again_and_again(findings) for findings in _by_subject(found)]
        found += self._missing(history, brokers, reported, explained)
        return [*found, *self._restarts(history, explained, sorted(unknown))]

    def absent(self, finding: Finding) -> int:
        if finding.values.get("back"):
            return finding.count
        # One response would list a broker again that clients do not contact.
        return RETURNED if "listeners" in finding.values else 1

    @staticmethod
    def _again_and_again(findings: list[Finding]) -> Finding:
        """One finding for all absences of a broker."""
        worst, *others = worst_first(findings)
        if not others:
            return worst
        often = sum(finding.severity != "note" for finding in findings) >= OFTEN
        return msgspec.structs.replace(
            worst,
            severity="error" if often else worst.severity,
            title=f"{worst.title}; {plural(len(others), 'more absence')} in the capture",
            meaning=f"{worst.meaning} It was gone {len(findings):,} times: it stops again and again.",
            **in_all((msgspec.structs.asdict(finding), finding.evidence) for finding in findings),
            values={**worst.values, "absences": len(findings)},
        )

    def _missing(
        self,
        history: BrokerHistory,
        brokers: Iterable[str],
        reported: set[tuple[str | None, int]],
        explained: set[tuple[str | None, int, int]],
    ) -> Iterator[Finding]:
        """Findings for brokers that only Metadata of others shows to be gone: partitions lost a replica."""
        nodes: dict[tuple[str | None, int], list[dict[str, Any]]] = {}
        for row in self.resolved("short").to_pylist():
            if row["first"] is not None and (row["cluster"], row["node"]) not in reported:
                nodes.setdefault((row["cluster"], row["node"]), []).append(row)
        for node, rows in nodes.items():
            first, last = min(row["first"] for row in rows), max(row["last"] for row in rows)
            listed = history.last_listed(node)
            if (listed is None and last - first < BEFORE_NS) or (listed is not None and listed > last):
                continue  # it is back, or may be soon
            since = "before the capture" if listed is None else clock_time(first)[:-3]
            topics = sorted({str(row["topic"]) for row in rows})
            span = f"since {since} according to the metadata of other brokers"
            restarted = history.new_epoch(node, first, None)
            if restarted is None:
                span += ", not back by the end of the capture"
            else:
                explained.add((*node, restarted["epoch"]))
                back = restarted["first"]
                span += f", back at {clock_time(back)[:-3]} ({elapsed(back - first)}) according to its new epoch"
            facts = [f"{plural(len(rows), 'partition')} of {some(topics)} without this replica"]
            own = [one for one in brokers if (self.clusters.group(one), history.node_at(one)) == node]
            before = _handed_over(
                history.moved_before(node, first), sum(history.refused_before(one, first) for one in own)
            )
            facts += before
            yield self.finding(
                "note" if before else "warning",
                f"broker {node[1]}{in_cluster(self.clusters, node[0])} gone {span}: {', '.join(facts)}",
                meaning=(
                    "The other brokers do not list it, and it is not an in-sync replica of these partitions"
                    + (". " if restarted is None else ", until it is back. ")
                    + "If fewer than min.insync.replicas remain, producers with acks=all are refused "
                    "(NOT_ENOUGH_REPLICAS)."
                ),
                advice=(
                    "Find out why this broker stopped"
                    + (", and start it, or move its replicas to other brokers." if restarted is None else ".")
                    + (" A planned restart moves the leaders first, as here." if before else "")
                ),
                subject={"broker": own[0] if len(own) == 1 else str(node[1])},
                count=sum(row["count"] for row in rows),
                first=first,
                last=last if restarted is None else max(last, restarted["first"]),
                values={"topics": topics[:MAX_TOPICS], "partitions": len(rows), "back": restarted is not None},
            )

    def _finding(  # noqa: PLR0917 - all of it describes one absence
        self,
        broker: str,
        absence: Absence,
        others: Sequence[str],
        restarted: dict[str, Any] | None,
        listed: int | None,
        moved: dict[int, int] | None,
        moved_before: int,
        refused_before: int,
        *,
        controls: bool,
    ) -> Finding:
        """The finding for one absence.

        `restarted` is the epoch in which the broker registered afterwards, `listed` when metadata listed it again; None
        if unknown. `moved` are the new leaders of its partitions with partition counts; None if too many absences need
        them. `moved_before` counts partitions that had moved before, `refused_before` requests that the broker refused
        since they had. `others` are further listeners that were gone with it.
        """
        back, how = absence.back_ns, ""
        if back is None and restarted is not None:
            back, how = restarted["first"], ", according to its new epoch"
        elif back is None and listed is not None:
            back, how = listed, ", according to the metadata of other brokers"
        first = clock_time(absence.first_ns)[:-3]
        planned = moved_before + refused_before > 0 and all(
            link.time_ns < absence.first_ns + PLANNED_NS for link in absence.failed
        )
        if back is None:
            span = f"since {first}, " + (
                "and not needed after that" if planned else "not back by the end of the capture"
            )
        else:
            span = f"from {first} to {clock_time(back)[:-3]} ({elapsed(back - absence.first_ns)}{how})"
        what = "gone" if absence.worked else "not up yet"
        facts = [plural(len(absence.dropped), "connection") + " dropped"] if absence.dropped else []
        for opening, result in _HOW.items():
            count = sum(link.opening == opening for link in absence.failed)
            if count:
                facts.append(f"{plural(count, 'connect')} {result}")
        facts.append(f"{plural(len(absence.clients), 'client')} ({some(absence.clients)})")
        if others:
            facts.append(f"also {some(others)} at the same address")
        facts += _handed_over(moved_before, refused_before)
        if moved:
            moves = [f"{plural(count, 'partition')} to broker {leader}" for leader, count in sorted(moved.items())]
            facts.append(f"leaders moved: {', '.join(moves)}")
        if restarted is not None:
            facts.append(f"restarted (broker epoch {restarted['epoch']})")
        links = sorted((*absence.dropped, *absence.failed), key=_time)
        severity: Severity = "error" if back is None else "warning" if absence.worked else "note"
        if planned:
            severity = "note"
        return self.finding(
            severity,
            f"{'controller' if controls else 'broker'} {broker} {what} {span}: {', '.join(facts)}",
            meaning=_meaning(absence) + (_CONTROLLER if controls else ""),
            advice=(
                "Compare the time with the broker's log and with anything that restarts brokers (deployments, the "
                "kernel's OOM killer, health checks). A planned restart moves the leaders first (controlled "
                "shutdown)."
            ),
            subject={"broker": broker},
            count=len(links),
            first=absence.first_ns,
            last=max([*map(_time, links), *([] if back is None else [back])]),
            evidence=tuple(
                Evidence(link.connection_id, None, link.time_ns, _note(link)) for link in links[:MAX_EVIDENCE]
            ),
            values={
                "dropped": len(absence.dropped),
                "refused": sum(link.opening == "refused" for link in absence.failed),
                "unanswered": sum(link.opening == "unanswered" for link in absence.failed),
                "clients": absence.clients,
                "listeners": [broker, *others],
                "back": back is not None,
                "controller": controls,
                "leaders_moved_before": moved_before,
                "leaders_moved": None if moved is None else {str(leader): moved[leader] for leader in sorted(moved)},
                "broker_epoch": None if restarted is None else restarted["epoch"],
            },
        )

    def _restarts(
        self, history: BrokerHistory, explained: set[tuple[str | None, int, int]], unknown: Sequence[int]
    ) -> Iterator[Finding]:
        """Findings for brokers with a new epoch whose absence no connection shows. `unknown`: ascending times."""
        for (cluster, node), rows in history.epochs.items():
            for before, after in pairwise(rows):
                if (cluster, node, after["epoch"]) in explained or after["first"] < before["last"]:
                    continue  # two clusters if epochs overlap
                index = bisect_left(unknown, before["last"])
                seen = index < len(unknown) and unknown[index] <= after["first"]
                span = f"between {clock_time(before['last'])[:-3]} and {clock_time(after['first'])[:-3]}"
                yield self.finding(
                    "note",
                    f"broker {node}{in_cluster(self.clusters, cluster)} restarted {span}: "
                    f"broker epoch {before['epoch']} became {after['epoch']}",
                    meaning=(
                        "A broker gets a new epoch when it registers with the controller, which it does when it "
                        "starts." + ("" if seen else " No client connection in the capture shows when it was gone.")
                    ),
                    advice="Compare the time with the broker's log and with anything that restarts brokers.",
                    subject={"broker": str(node)},
                    count=1,
                    first=before["last"],
                    last=after["first"],
                    values={"epochs": [before["epoch"], after["epoch"]]},
                )


def _by_node(
    gone: Iterable[tuple[str, Absence, int | None]],
) -> Iterator[tuple[str, Absence, int | None, list[str]]]:
    """Absences with those of further listeners at the same address at the same time, unless their nodes differ.

    The listener whose node is known speaks for the others, otherwise the one with the most connections.
    """
    nodes: list[list[tuple[str, Absence, int | None]]] = []
    near: dict[tuple[str, int], list[list[tuple[str, Absence, int | None]]]] = {}
    for one in sorted(gone, key=lambda one: (one[2] is None, one[1].first_ns, one[0])):
        host, moment = one[0].rpartition(":")[0], one[1].first_ns // NODE_NS
        alike = (
            node
            for close in (moment - 1, moment, moment + 1)
            for node in near.get((host, close), ())
            if abs(node[0][1].first_ns - one[1].first_ns) <= NODE_NS
            and one[2] in (None, node[0][2])
            and all(one[0] != other[0] for other in node)
            and (node[0][1].back_ns is None) == (one[1].back_ns is None)
        )
        known = next(alike, None)
        if known is None:
            nodes.append([one])
            near.setdefault((host, moment), []).append(nodes[-1])
        else:
            known.append(one)
    for node in nodes:
        lead = min(node, key=lambda one: (one[2] is None, -len(one[1].dropped) - len(one[1].failed), one[0]))
        whole = msgspec.structs.replace(
            lead[1],
            dropped=tuple(sorted((link for one in node for link in one[1].dropped), key=_time)),
            failed=tuple(sorted((link for one in node for link in one[1].failed), key=_time)),
        )
        yield lead[0], whole, lead[2], sorted(one[0] for one in node if one is not lead)


def _handed_over(moved: int, refused: int) -> list[str]:
    """What shows that a broker had handed over its leaders (controlled shutdown)."""
    if moved:
        return [f"leaders of {plural(moved, 'partition')} moved before that"]
    return [f"no longer leader for {plural(refused, 'request')} just before that"] if refused else []


def _meaning(absence: Absence) -> str:
    if not absence.worked:
        return (
            "The broker accepted no connections until then: the client was started before it, or it had stopped "
            "before the capture began."
        )
    if absence.failed:
        return (
            "The broker accepted no connections in this time: it, or a proxy in front of it, was stopped, killed or "
            "restarted. Its clients retry until it is back or other brokers lead its partitions."
        )
    return (
        "The broker closed all its connections within a moment, and nobody tried to connect until it accepted new "
        "ones. It restarted, or a proxy in front of it ended them."
    )


def _time(link: TcpLink) -> int:
    return link.time_ns if link.ended_ns is None or not link.works else link.ended_ns


def _note(link: TcpLink) -> str:
    if link.works:
        return f"broker {'reset' if link.ended_with == 'rst' else 'closed'} the connection"
    who = Endpoint(link.client_ip, link.client_port)
    if link.opening == "refused":
        return f"connect from {who} refused"
    return f"connect from {who} unanswered, {plural(link.syns, 'SYN')}"


def _by_subject(findings: Iterable[Finding]) -> list[list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(str(finding.subject), []).append(finding)
    return list(groups.values())
