"""Facts that brokers report about each other: addresses, leaders, cluster members and broker epochs.

A broker gets a new epoch each time it registers with the controller (KIP-500, KIP-631), which it does when it starts.
Epochs are in BrokerRegistration and BrokerHeartbeat, and in fetches of replicas (KIP-903). Metadata names the brokers
that are registered and not fenced, and the leader of each partition. `BrokerHistory` indexes these facts by broker and
time, since many absences may look them up. `LaggingReplicas` looks at the replicas of brokers that run.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.clusters import ListedBroker
from kafkasniff.analysis.columns import (
    ORDER,
    broker_endpoint,
    column,
    encoded,
    floor_divided,
    in_any,
    matches,
    missing,
    only,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Evidence, Finding
from kafkasniff.analysis.detectors.tally import (
    BROKER,
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import elapsed, in_cluster, plural, some
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies

MAX_BODY: Final = 1 << 20
"""Maximum number of characters of a body that is parsed."""
MAX_LEADERS: Final = 1 << 17
"""Partitions by leader; also lists of brokers, by the second."""
MAX_NODES: Final = 1 << 14
"""Endpoints of brokers; also epochs of brokers."""
NOT_LEADER_OR_FOLLOWER: Final = 6
_BODY: Final = re.compile(r'"brokers":\[')
_REPLICA: Final = r'"replica_state":\{"replica_id":(?P<node>[0-9]{1,9}),"replica_epoch":(?P<epoch>[0-9]{1,18})\}'
_LEADER: Final = ("topic", "partition", "leader", "leader_epoch", "count", "first", "last")
_APIS: Final = ("Metadata", "BrokerRegistration", "BrokerHeartbeat", "Fetch", "Produce")


BODIES: Final[Bodies] = {
    ("response", "Metadata"): None,
    ("request", "BrokerRegistration"): None,
    ("response", "BrokerRegistration"): None,
    ("request", "BrokerHeartbeat"): None,
    # Replicas send their epoch.
    ("request", "Fetch"): ("replica_state",),
}
EXCHANGES: Final = TableReading(
    ("time_ns", "api", "status", "error_code", *CLUSTER_COLUMNS, "request_body", "response_body"), _APIS
)


def fact_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    count: Any = (("count", pa.int64(), "sum"),)
    seen: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
    partition = (*CLUSTER, ("topic", pa.string()), ("partition", pa.int64()))
    leader = (("leader", pa.int64()), ("leader_epoch", pa.int64()))
    node = ("node", pa.int64())
    return {
        "nodes": Shape(keys=(node, *BROKER), measures=count, weight="count", bound=MAX_NODES),
        "leaders": Shape(keys=(*partition, *leader), measures=(*count, *seen), weight="count", bound=MAX_LEADERS),
        "listed": Shape(
            keys=(*CLUSTER, *BROKER, ("nodes", pa.string()), ("second", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_LEADERS,
        ),
        "short": Shape(
            keys=(*CLUSTER, node, ("topic", pa.string()), ("partition", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_LEADERS,
        ),
        "refusals": Shape(
            keys=(*BROKER, ("second", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_LEADERS,
        ),
        "controllers": Shape(keys=BROKER, measures=count, weight="count", bound=MAX_NODES),
        "epochs": Shape(
            keys=(*CLUSTER, node, ("epoch", pa.int64())),
            measures=(*count, *seen),
            weight="count",
            bound=MAX_NODES,
        ),
    }


def add_facts(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `exchanges` with the columns of `EXCHANGES`."""
    _metadata(detector, only(batch, in_any(batch, "api", ("Metadata",))))
    _registrations(detector, only(batch, in_any(batch, "api", ("BrokerRegistration", "BrokerHeartbeat"))))
    _replicas(detector, only(batch, in_any(batch, "api", ("Fetch",))))
    _refusals(detector, only(batch, pc.equal(column(batch, "error_code"), NOT_LEADER_OR_FOLLOWER)))


def _metadata(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    batch = only(batch, pc.invert(missing(batch, "response_body")))
    if not batch.num_rows:
        return
    nodes: dict[str, list[Any]] = {name: [] for name in ("node", "broker", "count")}
    listed: dict[str, list[Any]] = {
        name: [] for name in ("cluster", "broker", "nodes", "second", "count", "first", "last")
    }
    leaders: dict[str, list[Any]] = {name: [] for name in ("cluster", *_LEADER)}
    short: dict[str, list[Any]] = {
        name: [] for name in ("cluster", "node", "topic", "partition", "count", "first", "last")
    }
    time = column(batch, "time_ns")
    second = floor_divided(time, 1_000_000_000)
    rows = pa.table({**clusters(batch), "time": time, "second": second, "body": encoded(batch, "response_body")})
    # Many requests get the same answer, so each text is parsed only once.
    known: dict[str, _Metadata] = {}
    times = [("time", "min"), ("time", "max"), ([], "count_all")]
    for row in rows.group_by(["cluster", "body", "second"]).aggregate(times).to_pylist():
        body = known.get(row["body"])
        if body is None:
            body = known[row["body"]] = _read(row["body"])
        seen = row["count_all"], row["time_min"], row["time_max"]
        numbers = {number for broker in body.brokers if (number := broker.node) is not None}
        if numbers:
            _append(listed, row["cluster"], row["cluster"], ",".join(map(str, sorted(numbers))), row["second"], *seen)
        for broker in body.brokers:
            if broker.node is not None and broker.endpoint is not None:
                _append(nodes, broker.node, broker.endpoint, row["count_all"])
        for topic in body.topics:
            for partition in topic.partitions:
                name = topic.name or topic.topic_id
                leads = partition.leader_id, partition.leader_epoch
                _append(leaders, row["cluster"], name, partition.partition_index, *leads, *seen)
                if numbers and partition.isr_nodes:
                    for node in {*partition.replica_nodes} - {*partition.isr_nodes} - numbers:
                        _append(short, row["cluster"], node, name, partition.partition_index, *seen)
    detector.parts["nodes"].add(nodes)
    detector.parts["listed"].add(listed)
    detector.parts["leaders"].add(leaders)
    detector.parts["short"].add(short)


def _registrations(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    epochs: dict[str, list[Any]] = {name: [] for name in ("cluster", "node", "epoch", "count", "first", "last")}
    nodes: dict[str, list[Any]] = {name: [] for name in ("node", "broker", "count")}
    # Only the active controller accepts registrations and heartbeats of brokers (KIP-631).
    accepted = only(batch, pc.and_(in_any(batch, "status", ("answered",)), pc.equal(column(batch, "error_code"), 0)))
    ones = np.ones(accepted.num_rows, np.int64)
    detector.parts["controllers"].add({"broker": broker_endpoint(accepted), "count": ones})
    brokers = broker_endpoint(batch).to_pylist()
    rows = batch.select(["time_ns", "api", "request_body", "response_body"]).to_pylist()
    for row, broker in zip(rows, brokers, strict=True):
        asked = _parse(_REQUEST, row["request_body"])
        if asked is None:
            continue
        epoch = asked.broker_epoch
        if row["api"] == "BrokerRegistration":
            answer = _parse(_REGISTERED, row["response_body"])
            epoch = -1 if answer is None or answer.error_code else answer.broker_epoch
            for listener in asked.listeners:
                if asked.broker_id >= 0 and listener.endpoint is not None:
                    _append(nodes, asked.broker_id, listener.endpoint, 1)
        if asked.broker_id >= 0 and epoch >= 0:
            _append(epochs, broker, asked.broker_id, epoch, 1, row["time_ns"], row["time_ns"])
    detector.parts["nodes"].add(nodes)
    detector.parts["epochs"].add(epochs)


def _replicas(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Epochs in fetches of replicas. Fetches of consumers, the vast majority, have none."""
    batch = only(batch, matches(batch, "request_body", _REPLICA))
    if not batch.num_rows:
        return
    found = pc.extract_regex(column(batch, "request_body"), _REPLICA)
    time = column(batch, "time_ns")
    detector.parts["epochs"].add(
        {
            **clusters(batch),
            "node": pc.struct_field(found, "node").cast(pa.int64()),
            "epoch": pc.struct_field(found, "epoch").cast(pa.int64()),
            "count": np.ones(batch.num_rows, np.int64),
            "first": time,
            "last": time,
        }
    )


def _refusals(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Produce and Fetch requests that a broker refused because another one leads the partition."""
    time = column(batch, "time_ns")
    second = floor_divided(time, 1_000_000_000)
    counts = {"count": np.ones(batch.num_rows, np.int64), "first": time, "last": time}
    detector.parts["refusals"].add({"broker": broker_endpoint(batch), "second": second, **counts})


_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Partition(msgspec.Struct):
    partition_index: _Int32 = -1
    leader_id: _Int32 = -1
    leader_epoch: _Int32 = -1
    """Tells a leader that leads again from one that stayed; -1 before Kafka 2.1."""
    replica_nodes: list[_Int32] = []
    isr_nodes: list[_Int32] = []


class _Topic(msgspec.Struct):
    name: str | None = None
    topic_id: str | None = None
    partitions: list[_Partition] = []


class _Metadata(msgspec.Struct):
    brokers: list[ListedBroker] = []
    topics: list[_Topic] = []


class _BrokerRequest(msgspec.Struct):
    """The body of a BrokerRegistration or BrokerHeartbeat request."""

    broker_id: _Int32 = -1
    broker_epoch: _Int64 = -1
    listeners: list[ListedBroker] = []


class _Registered(msgspec.Struct):
    error_code: _Int32 = 0
    broker_epoch: _Int64 = -1


_DECODER: Final = msgspec.json.Decoder(_Metadata)
_REQUEST: Final = msgspec.json.Decoder(_BrokerRequest)
_REGISTERED: Final = msgspec.json.Decoder(_Registered)


def _read(body: str) -> _Metadata:
    """Brokers and leaders of a response; none if the body is too long or has another form."""
    if _BODY.search(body) is None:
        return _Metadata()
    return _parse(_DECODER, body) or _Metadata()


def _parse(decoder: Any, body: str | None) -> Any:
    """The needed fields of a body; None if it is too long or has another form."""
    if body is None or len(body) > MAX_BODY:
        return None
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError:
        return None


def _append(columns: dict[str, list[Any]], *values: Any) -> None:
    for name, value in zip(columns, values, strict=True):
        columns[name].append(value)


MAX_LOOKUPS: Final = 1 << 21
"""Maximum number of partitions searched for a new leader in one run: those that a broker led, once per absence."""

SHUTDOWN_NS: Final = 10_000_000_000
"""How long before a broker closes its connections a controlled shutdown may have moved its leaders."""

_Node = tuple[str | None, int]
"""A cluster as in `Clusters.group`, and a broker number."""


class BrokerHistory:
    """A detector's partial answers at one moment. Times are ns since the epoch."""

    def __init__(self, detector: Detector[Any]) -> None:
        self._nodes = _nodes(detector)
        self.epochs = _epochs(detector)
        """Rows of the partial answer `epochs` by cluster and node, with ascending epochs."""
        self._starts = {node: sorted(rows[1:], key=itemgetter("first", "epoch")) for node, rows in self.epochs.items()}
        self._listed = _listed(detector)
        self._refusals: dict[str, list[dict[str, Any]]] = {}
        for row in detector.parts["refusals"].table().to_pylist():
            if row["first"] is not None:
                self._refusals.setdefault(row["broker"], []).append(row)
        self.controllers = {row["broker"] for row in detector.parts["controllers"].table().to_pylist()}
        """Endpoints of active controllers."""
        self._led, self._leaders = _leaders(detector)
        self._lookups = MAX_LOOKUPS

    def node_at(self, broker: str) -> int | None:
        """The number of the broker at an endpoint, `address:port`; None if it is unknown or ambiguous."""
        own = self._nodes.get(broker, set())
        return next(iter(own)) if len(own) == 1 else None

    def new_epoch(self, node: _Node, since_ns: int, until_ns: int | None) -> dict[str, Any] | None:
        """The first row of an epoch that began within a time, except the lowest epoch; `until_ns` None: open-ended."""
        rows = self._starts.get(node, [])
        index = bisect_left(rows, since_ns, key=itemgetter("first"))
        if index == len(rows) or (until_ns is not None and rows[index]["first"] > until_ns):
            return None
        return rows[index]

    def listed_again(self, node: _Node, since_ns: int) -> int | None:
        """When a broker's Metadata listed another one again after omitting it, from a given time on.

        None if none ever did both. Brokers that learn late who is gone, or never (without a controller), do not count.
        """
        times = (one.listed_again(node[1], since_ns) for one in self._listed.get(node[0], ()))
        return min((time for time in times if time is not None), default=None)

    def last_listed(self, node: _Node) -> int | None:
        """When Metadata of any broker last listed one."""
        times = (one.last_listed(node[1]) for one in self._listed.get(node[0], ()))
        return max((time for time in times if time is not None), default=None)

    def moved_before(self, node: _Node, at_ns: int) -> int:
        """Partitions that metadata gave to another leader just before a time: a controlled shutdown.

        0 if the searches would exceed `MAX_LOOKUPS`.
        """
        led = self._led.get(node, [])
        count = bisect_left(led, at_ns, key=itemgetter(0))
        if count > self._lookups:
            return 0
        self._lookups -= count
        found = 0
        for place in {place for _, place in led[:count]}:
            leaders = self._leaders[place]
            named_ns, leader = leaders[bisect_left(leaders, (at_ns, -1)) - 1]
            found += leader != node[1] and named_ns > at_ns - SHUTDOWN_NS
        return found

    def refused_before(self, broker: str, at_ns: int) -> int:
        """Requests that a broker refused just before a time since it no longer led the partition.

        Responses name the new leader then (KIP-951), so clients need no metadata in which it does.
        """
        rows = self._refusals.get(broker, ())
        return sum(row["count"] for row in rows if at_ns - SHUTDOWN_NS < row["first"] < at_ns)

    def new_leaders(self, node: _Node, since_ns: int, until_ns: int | None) -> dict[int, int] | None:
        """The new leaders of partitions that a broker led before a given time, with partition counts.

        The first leader that metadata names within the time counts; `until_ns` None: open-ended. None if the searches
        of all absences together would exceed `MAX_LOOKUPS`.
        """
        led = self._led.get(node, [])
        count = bisect_left(led, since_ns, key=itemgetter(0))
        if count > self._lookups:
            return None
        self._lookups -= count
        found: dict[int, int] = {}
        for place in {place for _, place in led[:count]}:
            leaders = self._leaders[place]
            after = bisect_left(leaders, (since_ns, -1))
            if after == len(leaders):
                continue
            first, leader = leaders[after]
            if leader != node[1] and (until_ns is None or first <= until_ns):
                found[leader] = found.get(leader, 0) + 1
        return found


def _nodes(detector: Detector[Any]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for row in detector.parts["nodes"].table().to_pylist():
        found.setdefault(row["broker"], set()).add(row["node"])
    return found


def _epochs(detector: Detector[Any]) -> dict[_Node, list[dict[str, Any]]]:
    found: dict[_Node, list[dict[str, Any]]] = {}
    for row in detector.resolved("epochs").to_pylist():
        if row["first"] is not None:
            found.setdefault((row["cluster"], row["node"]), []).append(row)
    for rows in found.values():
        rows.sort(key=itemgetter("epoch"))
    return found


_Place = tuple[str | None, str | None, int]
"""Cluster, topic and partition."""


def _leaders(
    detector: Detector[Any],
) -> tuple[dict[_Node, list[tuple[int, _Place]]], dict[_Place, list[tuple[int, int]]]]:
    """Partitions by leader and leaders by partition, both ordered by when metadata first named the leader.

    A leader that leads again is there again.
    """
    leaders: dict[_Place, list[tuple[int, int]]] = {}
    for row in detector.resolved("leaders").to_pylist():
        if row["leader"] >= 0 and row["first"] is not None:
            place = (row["cluster"], row["topic"], row["partition"])
            leaders.setdefault(place, []).append((row["first"], row["leader"]))
    led: dict[_Node, list[tuple[int, _Place]]] = {}
    for place, changes in leaders.items():
        changes.sort()
        # Epochs also begin for other reasons, such as a smaller ISR.
        changes[:] = [next(same) for _, same in itertools.groupby(changes, key=itemgetter(1))]
        for first, leader in changes:
            led.setdefault((place[0], leader), []).append((first, place))
    for places in led.values():
        places.sort(key=itemgetter(0))
    return led, leaders


def _listed(detector: Detector[Any]) -> dict[str | None, list[_Lists]]:
    """What each broker listed, by cluster."""
    seen: dict[tuple[str | None, str | None], set[tuple[int, str]]] = {}
    for row in detector.resolved("listed").to_pylist():
        if row["first"] is not None:
            times = seen.setdefault((row["cluster"], row["broker"]), set())
            times.update({(row["first"], row["nodes"]), (row["last"], row["nodes"])})
    found: dict[str | None, list[_Lists]] = {}
    for (cluster, _), lists in seen.items():
        found.setdefault(cluster, []).append(_Lists(sorted(lists)))
    return found


class _Lists:
    """The brokers that Metadata of one broker listed, and when."""

    def __init__(self, seen: list[tuple[int, str]]) -> None:
        """`seen`: times and lists, as in the partial answer `listed`, ordered by time."""
        self._times = np.array([time for time, _ in seen], np.int64)
        by_list: dict[str, list[int]] = {}
        for index, (_, nodes) in enumerate(seen):
            by_list.setdefault(nodes, []).append(index)
        self._places: dict[int, list[list[int]]] = {}
        """By broker, the positions of the lists that contain it, grouped by equal lists."""
        for nodes, places in by_list.items():
            for node in map(int, nodes.split(",")):
                self._places.setdefault(node, []).append(places)
        self._latest: tuple[int, Any, Any] | None = None

    def listed_again(self, node: int, since_ns: int) -> int | None:
        there, before = self._of(node)
        start = int(np.searchsorted(self._times, since_ns))
        # This many of the lists before `start` lack the broker. The first list with it that is preceded by more such
        # lists follows one without it.
        without = start - int(np.searchsorted(there, start))
        index = int(np.searchsorted(before, without, side="right"))
        return int(self._times[there[index]]) if index < len(there) else None

    def last_listed(self, node: int) -> int | None:
        """Time of the last list with a broker."""
        there = self._of(node)[0]
        return int(self._times[there[-1]]) if len(there) else None

    def _of(self, node: int) -> tuple[Any, Any]:
        """The positions of lists with a broker, and how many lists without it precede each."""
        # All absences of one broker are looked up consecutively.
        if self._latest is None or self._latest[0] != node:
            there = np.sort(np.array([place for places in self._places.get(node, []) for place in places], np.int64))
            self._latest = (node, there, there - np.arange(len(there)))
        return self._latest[1:]


MAX_REPLICAS: Final = 1 << 17
"""Maximum number of replicas that are kept, those that most responses name."""
MAX_NAMES: Final = 20
"""Maximum number of partitions in the values of a finding."""
_REASSIGNING: Final = "AlterPartitionReassignments"
_PARTITION: Final = ("topic", "partition", "node")


class LaggingReplicasThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `LaggingReplicas`."""

    lasting: Annotated[
        Duration,
        Meta(ge=1, description="Report replicas that were out of sync for this long (replica.lag.time.max.ms)."),
    ] = 30_000_000_000


class LaggingReplicas(Detector[LaggingReplicasThresholds]):
    """Replicas that stay out of sync (ISR) until the end of the capture, although their broker runs.

    Metadata responses list the broker, and show partitions whose replica on it is not in sync. Brokers that are not
    listed are reported as `broker-gone`.

    Caveats: seen only if clients ask for metadata again. A new replica of a large partition takes long, too.
    """

    name: ClassVar[str] = "lagging-replicas"
    summary: ClassVar[str] = "Replicas that do not catch up, although their broker runs."
    parameters_type = LaggingReplicasThresholds
    bodies: ClassVar[Bodies] = {("response", "Metadata"): None}
    parts_clusters = True

    _movers = Tally("movers", (*CLIENT, *CLUSTER))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "response_body")
        return {"exchanges": TableReading((*ORDER, *own), ("Metadata", _REASSIGNING))}

    def shapes(self) -> Mapping[str, Shape]:
        keys: Any = (*CLUSTER, ("topic", pa.string()), ("partition", pa.int64()), ("node", pa.int64()))
        seen: Any = (("count", pa.int64(), "sum"), ("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        shape = Shape(keys=(*keys, ("synced", pa.bool_())), measures=seen, weight="count", bound=MAX_REPLICAS)
        return {**super().shapes(), "replicas": shape}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        moving = only(batch, in_any(batch, "api", [_REASSIGNING]))
        self._movers.add(self, moving, {**clients(moving), **clusters(moving)})
        batch = only(batch, pc.and_(in_any(batch, "api", ["Metadata"]), pc.is_valid(column(batch, "response_body"))))
        rows = pa.table({**clusters(batch), "body": column(batch, "response_body"), "time": column(batch, "time_ns")})
        found: dict[str, list[Any]] = {
            name: [] for name in ("cluster", *_PARTITION, "synced", "count", "first", "last")
        }
        # Many requests get the same answer, so each text is parsed only once.
        times = [([], "count_all"), ("time", "min"), ("time", "max")]
        for row in rows.group_by(["cluster", "body"]).aggregate(times).to_pylist():
            if row["time_min"] is None:
                continue
            for replica in _synced(row["body"]):
                values = (row["cluster"], *replica, row["count_all"], row["time_min"], row["time_max"])
                for name, value in zip(found, values, strict=True):
                    found[name].append(value)
        self.parts["replicas"].add(found)

    def findings(self) -> Iterator[Finding]:
        synced: dict[tuple[Any, ...], int] = {}
        rows = sorted(self.resolved("replicas").to_pylist(), key=lambda row: not row["synced"])
        lagging: dict[tuple[str | None, int], list[dict[str, Any]]] = {}
        for row in rows:
            place = tuple(row[name] for name in ("cluster", *_PARTITION))
            if row["synced"]:
                synced[place] = row["last"]
                continue
            since = max(row["first"], synced.get(place, row["first"]))
            if row["last"] - since >= self.thresholds.lasting:
                lagging.setdefault((row["cluster"], row["node"]), []).append({**row, "first": since})
        movers: dict[str | None, list[str]] = {}
        evidence: dict[str | None, tuple[Evidence, ...]] = {}
        for row, seen in self._movers.rows(self):
            movers.setdefault(row["cluster"], []).append(row["client_id"] or row["client_ip"] or "?")
            evidence.setdefault(row["cluster"], seen)
        for (cluster, node), replicas in lagging.items():
            yield self._finding(cluster, node, replicas, movers.get(cluster, []), evidence.get(cluster, ()))

    def _finding(
        self,
        cluster: str | None,
        node: int,
        replicas: Sequence[dict[str, Any]],
        movers: Sequence[str],
        evidence: tuple[Evidence, ...],
    ) -> Finding:
        first, last = min(row["first"] for row in replicas), max(row["last"] for row in replicas)
        names = sorted(f"{row['topic']}-{row['partition']}" for row in replicas)
        asked = f"; {some(movers)} asked for a reassignment" if movers else ""
        return self.finding(
            "warning",
            f"broker {node}{in_cluster(self.clusters, cluster)} runs, but its replica of "
            f"{plural(len(names), 'partition')} ({some(names)}) is out of sync for at least {elapsed(last - first)}"
            + asked,
            meaning=(
                "The leaders do not count these replicas as in sync (ISR): they do not catch up. A throttle limits "
                "their fetches, the broker's disk or network is slower than the writes, or its fetcher has failed. A "
                "reassignment ends only when they are in sync, and if fewer than min.insync.replicas remain, producers "
                "with acks=all are refused."
            ),
            advice=(
                "Look at under-replicated partitions (`kafka-topics.sh --describe --under-replicated-partitions`), "
                "reassignments (`kafka-reassign-partitions.sh --list`) and throttles (leader. and "
                "follower.replication.throttled.rate of the brokers), and at the log of this broker's fetchers."
            ),
            subject={"broker": str(node), **({} if cluster is None else {"cluster": cluster})},
            count=len(names),
            first=first,
            last=last,
            evidence=evidence,
            values={"partitions": names[:MAX_NAMES], "lasted_ms": (last - first) / 1_000_000, "movers": list(movers)},
        )


def _synced(body: str) -> Iterator[tuple[str, int, int, bool]]:
    """Topic, partition and broker of each replica, and whether it is in sync; only of brokers that are listed."""
    read = _read(body)
    running = {node for broker in read.brokers if (node := broker.node) is not None}
    for topic in read.topics:
        name = topic.name or topic.topic_id
        if name is None:
            continue
        for partition in topic.partitions:
            synced = {*partition.isr_nodes}
            # Without a leader, nobody knows who is in sync.
            for node in running.intersection(partition.replica_nodes) if synced else ():
                yield name, partition.partition_index, node, node in synced
