"""How load is spread and limited: slow brokers, skewed partitions, throttled clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading, united
from kafkasniff.analysis.columns import (
    ORDER,
    SelectedRows,
    brokers,
    column,
    encoded,
    exploded,
    in_any,
    integers,
    named,
    only,
)
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import (
    BROKER,
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER_COLUMNS,
    PARTITION,
    Tally,
    clients,
    clusters,
    in_all,
)
from kafkasniff.analysis.detectors.wording import (
    client,
    elapsed,
    in_cluster,
    percent,
    plural,
    some,
    subject,
    times_as_much,
)
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.outliers import SlowBrokerParameters, SlowBrokers
from kafkasniff.analysis.waits import may_have_waited, with_sender, work_us
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word
from kafkasniff.text.times import duration

_REPLICAS: Final = " (acks=all)"
MAX_SLOWEST: Final = 1 << 16
"""Maximum number of exchanges that are kept as evidence, the slowest."""


class SlowBrokerThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SlowBroker`."""

    factor: Annotated[float, Meta(gt=1, description="This many times the median of its peers is slow.")] = 2.0
    at_least: Annotated[
        int, Meta(ge=1, description="Minimum number of responses of a broker to an API; fewer are not judged.")
    ] = 20
    beyond: Annotated[Duration, Meta(ge=0, description="Minimum difference from its peers' median.")] = 5_000_000
    grave: Annotated[Duration, Meta(ge=0, description="A difference of at least this is a warning, less a note.")] = (
        20_000_000
    )


class SlowBroker(Detector[SlowBrokerThresholds]):
    """Brokers whose median time to answer an API is longer than that of their peers.

    Exchanges with a possible requested wait are excluded; time queued after earlier requests and throttle times are
    subtracted. Produce with acks=all is compared with Produce with acks=all only.

    Caveats: network time is included, so a broker in another zone looks slow. With acks=all another replica may be the
    slow one. A higher load is a good reason to be slower.
    """

    name: ClassVar[str] = "slow-broker"
    summary: ClassVar[str] = "Brokers that are slower than their peers."
    parameters_type = SlowBrokerThresholds
    parts_clusters = True

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        limits = self.thresholds
        return {"slow": SlowBrokers(SlowBrokerParameters(factor=limits.factor, at_least=limits.at_least))}

    def reads(self) -> Mapping[str, TableReading]:
        return united(super().reads(), {"exchanges": TableReading(ORDER)})

    def shapes(self) -> Mapping[str, Shape]:
        place = tuple((name, pa.int64()) for name in ORDER)
        keys = (("api", pa.string()), ("broker", pa.string()), ("faster_us", pa.int64()), *place)
        order = ("faster_us", *ORDER)
        slowest = Shape(
            keys=keys, order=order, keep="earliest", group=("api", "broker"), each=MAX_EVIDENCE, bound=MAX_SLOWEST
        )
        span: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        return {"slowest": slowest, "times": Shape(keys=(("broker", pa.string()),), measures=span)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        # The numbers of brokers may become known late or halfway through, so brokers are identified by endpoint.
        batch = SelectedRows.of(batch).append_column("broker_id", pa.nulls(batch.num_rows, pa.int32()))
        # A leader that waits for replicas is compared with others that do.
        waits = pc.fill_null(in_any(batch, "waits_for", ["replicas"]), False)
        api = column(batch, "api")
        labels = pc.if_else(waits, pc.binary_join_element_wise(api, _REPLICAS, ""), api)
        batch = batch.append_column("api", labels)
        self.asked["slow"].update(batch)
        known = pc.and_(pc.is_valid(column(batch, "latency_us")), pc.is_valid(column(batch, "api")))
        batch = only(batch, pc.and_(known, pc.invert(may_have_waited(batch))))
        broker, time = brokers(batch), column(batch, "time_ns")
        self.parts["times"].add({"broker": broker, "first": time, "last": time})
        self.parts["slowest"].add(
            {
                "api": with_sender(batch),
                "broker": broker,
                "faster_us": -work_us(batch),
                **{name: column(batch, name) for name in ORDER},
            }
        )

    def findings(self) -> list[Finding]:
        by_broker: dict[str, list[dict[str, Any]]] = {}
        self.asked["slow"].clusters = self.clusters
        for row in self.asked["slow"].result().to_pylist():
            if row["slow"] and (row["p50_us"] - row["peers_p50_us"]) * 1000 >= self.thresholds.beyond:
                by_broker.setdefault(row["broker"], []).append(row)
        times = {row["broker"]: row for row in self.parts["times"].table().to_pylist()}
        return [self._finding(broker, rows, times.get(broker, {})) for broker, rows in by_broker.items()]

    def _finding(self, broker: str, rows: list[dict[str, Any]], times: dict[str, Any]) -> Finding:
        worst = rows[0]
        apis = [row["api"] for row in rows]
        others = f" (and {some(apis[1:])})" if apis[1:] else ""
        difference = (worst["p50_us"] - worst["peers_p50_us"]) * 1000
        return self.finding(
            "warning" if difference >= self.thresholds.grave else "note",
            f"{broker}: median {worst['api']}{others} latency is {elapsed(worst['p50_us'] * 1000)}, "
            f"{times_as_much(worst['ratio'])} its peers' ({elapsed(worst['peers_p50_us'] * 1000)})",
            meaning=(
                "The same requests take longer at this broker than at the others: it has more work, or a slower disk, "
                "network or machine."
                + (" With acks=all, it may wait for a slow follower." if any(map(_waits, apis)) else "")
            ),
            advice=(
                "Check how leaders and traffic are spread (skewed-partitions), and this broker's disks, request queue "
                "and garbage collection; `kafkasniff timing --by broker` shows whether the network path is slow."
            ),
            subject={"broker": broker},
            count=sum(row["count"] for row in rows),
            first=times.get("first"),
            last=times.get("last"),
            evidence=self._evidence(broker, apis),
            values={
                "apis": apis,
                **{name: worst[name] for name in ("p50_us", "p99_us", "peers_p50_us", "ratio")},
            },
        )

    def _evidence(self, broker: str, apis: list[str]) -> tuple[Evidence, ...]:
        """Its slowest exchanges of the API with the largest ratio."""
        rows = [
            row
            for row in self.parts["slowest"].table().to_pylist()
            if row["broker"] == broker and row["api"] == apis[0]
        ]
        rows.sort(key=lambda row: (row["faster_us"], row["time_ns"] or 0, row["connection_id"], row["exchange_id"]))
        return tuple(
            Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], duration(-row["faster_us"] * 1000))
            for row in rows[:MAX_EVIDENCE]
        )


def _waits(api: str) -> bool:
    """Whether the broker waits for replicas."""
    return api.endswith(_REPLICAS)


MAX_PARTITIONS: Final = 1 << 18
"""Maximum number of partitions whose traffic is counted; those with the least are dropped first."""
METADATA: Final = ("Metadata", "DescribeTopicPartitions")
"""These show which partitions a topic has, including those without traffic."""


class SkewThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SkewedPartitions`."""

    factor: Annotated[float, Meta(gt=1, description="A partition with this many times its fair share is skewed.")] = 3.0
    records: Annotated[int, Meta(ge=1, description="Topics with fewer records in the capture are not judged.")] = 1000


class SkewedPartitions(Detector[SkewThresholds]):
    """Partitions that get far more produced records than an equal share over all partitions of their topic.

    Only partitions that the capture names count.

    Caveats: a short capture shows the partition that a sticky partitioner is currently filling. Without a Metadata
    response, partitions without traffic are unknown.
    """

    name: ClassVar[str] = "skewed-partitions"
    summary: ClassVar[str] = "Topics with most of their traffic in few partitions."
    parameters_type = SkewThresholds
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": TableReading((*ORDER, "api", *CLUSTER_COLUMNS, "partitions"), ("Produce", "Fetch", *METADATA))
        }

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = (("records", pa.int64(), "sum"), ("bytes", pa.int64(), "sum"))
        times: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        return {
            "partitions": Shape(keys=PARTITION, measures=(*sums, *times), weight="records", bound=MAX_PARTITIONS),
            "evidence": evidence_shape(PARTITION),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", ("Produce", "Fetch", *METADATA)))
        rows = named(exploded(batch, [*ORDER, "api", *CLUSTER_COLUMNS]))
        rows = only(rows, pc.and_(pc.is_valid(column(rows, "topic")), pc.greater_equal(column(rows, "partition"), 0)))
        if not rows.num_rows:
            return
        produced = in_any(rows, "api", ["Produce"]).to_numpy(zero_copy_only=False)
        time = pc.if_else(pa.array(produced), column(rows, "time_ns"), pa.scalar(None, pa.int64()))
        keys = _keys(rows)
        self.parts["partitions"].add(
            {
                **keys,
                "records": np.where(produced, integers(column(rows, "record_count")), 0),
                "bytes": np.where(produced, integers(column(rows, "bytes")), 0),
                "first": time,
                "last": time,
            }
        )
        produced_rows = only(rows, pa.array(produced))
        self.parts["evidence"].add(evidence_columns(produced_rows, _keys(produced_rows)))

    def findings(self) -> Iterator[Finding]:
        topics: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        for row in self.resolved("partitions").to_pylist():
            topics.setdefault((row["cluster"], row["topic"]), []).append(row)
        evidence = self.evidence("evidence")
        for (cluster, topic), rows in topics.items():
            records = sum(row["records"] for row in rows)
            hottest = max(rows, key=lambda row: (row["records"], -row["partition"]))
            if records < self.thresholds.records or not _is_skewed(hottest, rows, records, self.thresholds.factor):
                continue
            share, fair = hottest["records"] / records, 1 / len(rows)
            idle = sum(not row["records"] for row in rows)
            silent = f"; {plural(idle, 'partition')} got none" if idle else ""
            yield self.finding(
                "warning",
                f"partition {hottest['partition']} of {word(topic)}{in_cluster(self.clusters, cluster)} got "
                f"{percent(share)} of {plural(records, 'record')} ({amount(hottest['bytes'])}), "
                f"{times_as_much(share / fair)} its fair share among {plural(len(rows), 'partition')}{silent}",
                meaning=(
                    "One broker and one consumer of a group do most of the work; more partitions or consumers do "
                    "not help. The usual causes are few keys, or one key that is much more frequent than others."
                ),
                advice=(
                    "Look at the keys (`analyze topic`, `decode -vv --topic`): spread a hot key by adding a "
                    "suffix, send no key where order does not matter, and check for a custom partitioner."
                ),
                subject=subject(hottest, "topic", "partition"),
                count=hottest["records"],
                first=hottest["first"],
                last=hottest["last"],
                evidence=evidence.get((cluster, topic, hottest["partition"]), ()),
                values={
                    "share": share,
                    "factor": share / fair,
                    "partitions": len(rows),
                    "idle": idle,
                    "records": records,
                    "bytes": sum(row["bytes"] for row in rows),
                },
            )


def _keys(rows: pa.RecordBatch) -> dict[str, Any]:
    return {**clusters(rows), **{name: column(rows, name) for name in ("topic", "partition")}}


def _is_skewed(hottest: dict[str, Any], rows: list[dict[str, Any]], records: int, factor: float) -> bool:
    """By the factor; for topics with fewer partitions than that, if nearly all records go to one."""
    if len(rows) == 1:
        return False
    wanted = min(factor / len(rows), _NEARLY_ALL)
    return bool(hottest["records"] / records >= wanted)


_NEARLY_ALL: Final = 0.9


_QUOTAS: Final = {
    "Produce": "producer_byte_rate",
    "Fetch": "consumer_byte_rate",
    "ShareFetch": "consumer_byte_rate",
    **dict.fromkeys(("CreateTopics", "CreatePartitions", "DeleteTopics"), "controller_mutation_rate (KIP-599)"),
}


class ThrottledThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ThrottledClients`."""

    total: Annotated[
        Duration,
        Meta(ge=0, description="This much throttle time of a client at a broker is a warning; less is a note."),
    ] = 1_000_000_000


class ThrottledClients(Detector[ThrottledThresholds]):
    """Responses with a throttle time: the client is over its quota and must be silent for that long (KIP-219).

    Responses do not say which quota, but their APIs do.
    """

    name: ClassVar[str] = "throttled-clients"
    summary: ClassVar[str] = "Clients that brokers throttle because of quotas."
    parameters_type = ThrottledThresholds

    _throttled = Tally(
        "throttled", (*CLIENT, *BROKER, ("api", pa.string())), sums=("throttle_ms",), highs=("worst_ms",)
    )

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "throttle_time_ms", *CLIENT_COLUMNS, "broker_ip", "broker_port")
        return {"exchanges": TableReading((*ORDER, *own))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.greater(column(batch, "throttle_time_ms"), 0))
        throttle = integers(column(batch, "throttle_time_ms"))
        keys = {**clients(batch, broker=True), "api": encoded(batch, "api")}
        notes = pa.array([f"throttled for {elapsed(int(one) * 1_000_000)}" for one in throttle], pa.string())
        self._throttled.add(self, batch, keys, notes, throttle_ms=throttle, worst_ms=throttle)

    def findings(self) -> Iterator[Finding]:
        found: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._throttled.rows(self):
            found.setdefault((row["client_id"], row["client_ip"], row["broker"]), []).append((row, evidence))
        for rows in found.values():
            # The API with the most throttle time comes first.
            rows.sort(key=lambda one: (-one[0]["throttle_ms"], one[0]["api"] or ""))
            yield self._finding([row for row, _ in rows], in_all(rows))

    def _finding(self, rows: list[dict[str, Any]], found: dict[str, Any]) -> Finding:
        """`rows`: of one client at one broker, one for each API."""
        worst, total = rows[0], sum(row["throttle_ms"] for row in rows)
        apis = [row["api"] for row in rows if row["api"] is not None]
        return self.finding(
            "warning" if total * 1_000_000 >= self.thresholds.total else "note",
            f"{client(worst)} throttled by {worst['broker']} for {elapsed(total * 1_000_000)}, in "
            f"{plural(found['count'], 'response')} to "
            f"{some(apis) if apis else 'requests that were not captured'}",
            meaning=(
                f"The client exceeded a quota: {_quota(apis)}. After a throttled response the broker reads nothing "
                "from the connection for that time (KIP-219), so late responses and closed windows within it are "
                "caused by the quota."
            ),
            advice=(
                "Check the quotas of this user or client id (kafka-configs.sh --describe --entity-type users, "
                "clients), and whether the client's rate is as intended."
            ),
            subject=subject(worst, "client_id", "client_ip", "broker"),
            **found,
            values={"throttle_ms": total, "worst_ms": max(row["worst_ms"] for row in rows), "apis": apis},
        )


def _quota(apis: Sequence[str]) -> str:
    """The quotas that throttle these APIs (Kafka's `QuotaType`)."""
    own = {_QUOTAS.get(api) for api in apis}
    only = own.pop() if len(own) == 1 else None
    # The time that requests take counts for all APIs.
    return f"{only} or request_percentage" if only is not None else "request_percentage, most likely"
