"""Brokers that were killed, stopped or restarted, as their clients saw it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, Reading
from kafkasniff.analysis.columns import broker_endpoint, column, in_any, only
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
from kafkasniff.detectors.tally import BROKER, CLUSTER, CLUSTER_COLUMNS, clusters
from kafkasniff.detectors.wording import plural, some
from kafkasniff.exports.transport import TABLE
from kafkasniff.model import Endpoint
from kafkasniff.sinks.times import clock_time, duration

__all__ = ["BrokerGone"]

MAX_BODY: Final = 1 << 20
"""Characters of a Metadata response that is looked into for leaders."""
MAX_LEADERS: Final = 1 << 17
"""Partitions by leader."""
_LOCAL: Final = {"localhost": "127.0.0.1"}
_HOW: Final = {"refused": "refused", "unanswered": "not answered"}
_BODY: Final = re.compile(r'"brokers":\[')


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
    """Brokers that let go of their connections and then refuse new ones, or answer none (captures alone show it)."""

    name: ClassVar[str] = "broker-gone"
    summary: ClassVar[str] = "Brokers that were killed, stopped or restarted."
    parameters_type = BrokerGoneThresholds
    bodies: ClassVar[Bodies] = {("response", "Metadata"): None}
    parts_clusters = True

    def reads(self) -> Mapping[str, Reading]:
        return {
            "exchanges": Reading(("time_ns", "api", *CLUSTER_COLUMNS, "response_body")),
            "connections": Reading(("broker_ip", "broker_port", "verdict")),
            TABLE: TRANSPORT_READING,
        }

    def shapes(self) -> Mapping[str, Shape]:
        count: Any = (("count", pa.int64(), "sum"),)
        seen: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        partition = (*CLUSTER, ("topic", pa.string()), ("partition", pa.int64()), ("leader", pa.int64()))
        node = (("node", pa.int64()), ("host", pa.string()), ("port", pa.int64()))
        return {
            "links": links_shape(),
            "brokers": Shape(keys=BROKER, measures=count, weight="count"),
            "nodes": Shape(keys=node, measures=count, weight="count", bound=1 << 14),
            "leaders": Shape(keys=partition, measures=(*count, *seen), weight="count", bound=MAX_LEADERS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            add_links(self, "links", batch)
        elif table == "connections":
            batch = only(batch, in_any(batch, "verdict", ("kafka",)))
            self.parts["brokers"].add({"broker": broker_endpoint(batch), "count": np.ones(batch.num_rows, np.int64)})
        else:
            batch = only(batch, in_any(batch, "api", ("Metadata",)))
            self._metadata(only(batch, pc.is_valid(column(batch, "response_body"))))

    def _metadata(self, batch: pa.RecordBatch) -> None:
        nodes: dict[str, list[Any]] = {name: [] for name in ("node", "host", "port", "count")}
        leaders: dict[str, list[Any]] = {
            name: [] for name in ("cluster", "topic", "partition", "leader", "count", "first", "last")
        }
        told = {**clusters(batch), "time": column(batch, "time_ns"), "body": column(batch, "response_body")}
        rows = pa.table(told)
        # Many requests get the same answer: each text is read once.
        times = [("time", "min"), ("time", "max"), ([], "count_all")]
        for row in rows.group_by(["cluster", "body"]).aggregate(times).to_pylist():
            body = _read(row["body"])
            for one in body.brokers:
                _append(nodes, one.node_id, _LOCAL.get(one.host, one.host), one.port, row["count_all"])
            for topic in body.topics:
                name = topic.name or topic.topic_id
                for partition in topic.partitions:
                    seen = row["count_all"], row["time_min"], row["time_max"]
                    _append(leaders, row["cluster"], name, partition.partition_index, partition.leader_id, *seen)
        self.parts["nodes"].add(nodes)
        self.parts["leaders"].add(leaders)

    def findings(self) -> list[Finding]:
        brokers = {row["broker"] for row in self.parts["brokers"].table().to_pylist()}
        limits = self.thresholds
        return [
            self._finding(broker, absence)
            for broker, links in links_by_broker(self, "links").items()
            if broker in brokers
            for absence in absences(
                links,
                reach_ns=limits.reach,
                together_ns=limits.together,
                at_least=limits.connections,
            )
        ]

    def _finding(self, broker: str, gone: Absence) -> Finding:
        moved = self._moved(broker, gone)
        lasted = None if gone.back_ns is None else gone.back_ns - gone.first_ns
        first = clock_time(gone.first_ns)[:-3]
        if lasted is None:
            span = f"since {first}, not back by the end of the capture"
        else:
            span = f"from {first} to {clock_time(gone.first_ns + lasted)[:-3]} ({duration(lasted)})"
        what = "gone" if gone.worked else "not up yet"
        facts = [plural(len(gone.dropped), "connection") + " dropped"] if gone.dropped else []
        for opening, how in _HOW.items():
            count = sum(link.opening == opening for link in gone.failed)
            if count:
                facts.append(f"{plural(count, 'connect')} {how}")
        facts.append(f"{plural(len(gone.clients), 'client')} ({some(gone.clients)})")
        if moved:
            leaders = some([f"broker {leader} ({count:,})" for leader, count in sorted(moved.items())])
            facts.append(f"leaders moved to {leaders}")
        links = sorted((*gone.dropped, *gone.failed), key=_time)
        severity: Severity = "error" if lasted is None else "warning" if gone.worked else "note"
        return self.finding(
            severity,
            f"broker {broker} {what} {span}: {', '.join(facts)}",
            meaning=(
                "The broker took no connections in this time: it was stopped, killed or restarted, or what forwards to "
                "it was. Its clients retry until it is back or other brokers lead its partitions."
                if gone.failed
                else "The broker closed all its connections within a moment, and nobody tried to connect until it took "
                "new ones: a restart, or whatever forwards to it ended them."
            ),
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
                "back": gone.back_ns is not None,
                "leaders_moved": {str(leader): count for leader, count in sorted(moved.items())},
            },
        )

    def _moved(self, broker: str, gone: Absence) -> dict[int, int]:
        """New leaders of partitions that the broker led when it went: leader and number of partitions."""
        host, _, port = broker.rpartition(":")
        nodes = self.parts["nodes"].table().to_pylist()
        own = {row["node"] for row in nodes if (str(row["host"]), str(row["port"])) == (host.strip("[]"), port)}
        if len(own) != 1:
            return {}  # a name that is not this address, or two clusters
        (node,) = own
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


class _Broker(msgspec.Struct):
    node_id: int = -1
    host: str = ""
    port: int = -1


class _Partition(msgspec.Struct):
    partition_index: int = -1
    leader_id: int = -1


class _Topic(msgspec.Struct):
    name: str | None = None
    topic_id: str | None = None
    partitions: list[_Partition] = []


class _Metadata(msgspec.Struct):
    brokers: list[_Broker] = []
    topics: list[_Topic] = []


_DECODER: Final = msgspec.json.Decoder(_Metadata)


def _read(body: str) -> _Metadata:
    """Brokers and leaders of an answer; nothing where it is too long or has other forms."""
    if len(body) > MAX_BODY or _BODY.search(body) is None:
        return _Metadata()
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError:
        return _Metadata()


def _append(columns: dict[str, list[Any]], *values: Any) -> None:
    for name, value in zip(columns, values, strict=True):
        columns[name].append(value)


def _time(link: Link) -> int:
    return link.time_ns if link.ended_ns is None or not link.works else link.ended_ns


def _note(link: Link) -> str:
    if link.works:
        return f"broker {'reset' if link.ended_with == 'rst' else 'closed'} the connection"
    who = Endpoint(link.client_ip, link.client_port)
    if link.opening == "refused":
        return f"connect of {who} refused"
    return f"connect of {who} not answered, {plural(link.syns, 'SYN')}"
