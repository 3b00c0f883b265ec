"""Requests sent to a broker that does not lead the partition, clients with stale metadata, and leaders by epoch.

The controller gives each new leader of a partition a higher epoch (KIP-101). Brokers name it in Metadata responses
since version 7 (KIP-320), and beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951). In older versions, the
second of the response takes its place. Brokers learn of a leader at different times, so these terms are apart for each
broker that answers. An active controller announces itself to the others with BeginQuorumEpoch (KIP-595).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import (
    ORDER,
    broker_endpoint,
    column,
    encoded,
    exploded,
    floor_divided,
    in_any,
    matches,
    named,
    only,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, some, span
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.schema.codes import error_name

APIS: Final = ("Metadata", "Produce", "Fetch", "BeginQuorumEpoch")
_QUORUM: Final = "__cluster_metadata"
MAX_BODY: Final = 1 << 20
"""Maximum number of characters of a body that is parsed."""
MAX_TERMS: Final = 1 << 17
"""Maximum number of terms of leaders that are kept, the earliest."""
_MAX_NODE: Final = (1 << 31) - 1
_TERM: Final = ("topic", "partition", "epoch", "leader", "view")
_SECOND: Final = 1_000_000_000


class _Leader(msgspec.Struct):
    leader_id: Any = None
    leader_epoch: Any = None


class _Partition(_Leader):
    partition_index: Any = None
    index: Any = None
    current_leader: _Leader | None = None


class _Topic(msgspec.Struct):
    name: Any = None
    topic: Any = None
    topic_name: Any = None
    topic_id: Any = None
    learned: Any = msgspec.field(name="_topic_name", default=None)
    """The name of the id, if it is known."""
    partitions: list[_Partition] = []
    partition_responses: list[_Partition] = []


class _Body(msgspec.Struct):
    topics: list[_Topic] = []
    responses: list[_Topic] = []


_READ: Final = msgspec.json.Decoder(_Body)


class Moves(msgspec.Struct, frozen=True):
    """How often the leader of a partition changed."""

    cluster: str | None
    topic: str
    partition: int
    leaders: tuple[int, ...]
    """In order."""
    first: int
    """When the first change was seen, ns."""
    last: int
    """When the last one was."""

    @property
    def count(self) -> int:
        return len(self.leaders) - 1


def terms_shapes() -> dict[str, Shape]:
    """For `Detector.shapes`."""
    number = pa.int64()
    place: Any = (*CLUSTER, ("topic", pa.string()), ("partition", number), ("view", pa.string()))
    keys = (*place, ("epoch", number), ("leader", number))
    first: Any = (("first", number, "min"),)
    return {"terms": Shape(keys=keys, measures=first, order=("first",), keep="earliest", bound=MAX_TERMS)}


def add_terms(detector: Accumulator[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `exchanges`, which have the bodies of Metadata responses and of those with errors."""
    announced = in_any(batch, "api", ["BeginQuorumEpoch"])
    body = pc.if_else(announced, column(batch, "request_body"), column(batch, "response_body"))
    batch = batch.append_column("_body", body)
    batch = only(batch, pc.and_(in_any(batch, "api", APIS), matches(batch, "_body", '"leader_id":')))
    time = column(batch, "time_ns")
    dated = matches(batch, "_body", '"leader_epoch":')
    unknown = pa.scalar("", pa.string())
    rows = pa.table(
        {
            **clusters(batch),
            "body": encoded(batch, "_body"),
            "view": pc.if_else(dated, unknown, broker_endpoint(batch)),
            "second": pc.if_else(dated, pa.scalar(0, pa.int64()), floor_divided(time, _SECOND)),
            "time": time,
        }
    )
    found: dict[str, list[Any]] = {name: [] for name in ("cluster", *_TERM, "first")}
    known: dict[str, list[tuple[str, int, int | None, int]]] = {}
    # Many requests get the same answer, so each text is parsed only once.
    for row in rows.group_by(["cluster", "body", "view", "second"]).aggregate([("time", "min")]).to_pylist():
        body = row["body"]
        if len(body) > MAX_BODY or row["time_min"] is None:
            continue
        if body not in known:
            known[body] = _terms(body)
        for topic, partition, epoch, leader in known[body]:
            term = (topic, partition, row["second"] if epoch is None else epoch, leader, row["view"])
            for name, value in zip(found, (row["cluster"], *term, row["time_min"]), strict=True):
                found[name].append(value)
    detector.parts["terms"].add(found)


def moves(table: pa.Table) -> list[Moves]:
    """The partitions whose leader changed, from the resolved part `terms`."""
    terms: dict[tuple[Any, ...], dict[str, list[tuple[int, int, int]]]] = {}
    for row in table.to_pylist():
        views = terms.setdefault((row["cluster"], row["topic"], row["partition"]), {})
        views.setdefault(row["view"], []).append((row["epoch"], row["first"], row["leader"]))
    found = []
    for (cluster, topic, partition), views in sorted(terms.items(), key=lambda one: tuple(map(str, one[0]))):
        changes = max((_changes(views[view]) for view in sorted(views)), key=len)
        if changes[1:]:
            times = [first for first, _ in changes[1:]]
            leaders = tuple(leader for _, leader in changes)
            found.append(Moves(cluster, topic, partition, leaders, min(times), max(times)))
    return found


def _changes(terms: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """When each leader was first seen, and its number, in order."""
    changes: list[tuple[int, int]] = []
    for _, first, leader in sorted(terms):
        if not changes or changes[-1][1] != leader:
            changes.append((first, leader))
    return changes


def _terms(body: str) -> list[tuple[str, int, int | None, int]]:
    """Topic, partition, epoch (None if the version has none) and leader; none of it if the body is not valid."""
    try:
        read = _READ.decode(body)
    except msgspec.DecodeError:
        return []
    found = []
    for topic in (*read.topics, *read.responses):
        name = topic.name or topic.topic or topic.topic_name or topic.learned or topic.topic_id
        for partition in (*topic.partitions, *topic.partition_responses):
            number = partition.index if partition.partition_index is None else partition.partition_index
            leader = partition.current_leader or partition
            epoch = 0 if leader.leader_epoch is None else leader.leader_epoch
            numbers = number, epoch, leader.leader_id
            if isinstance(name, str) and all(type(number) is int and 0 <= number <= _MAX_NODE for number in numbers):
                found.append((name, number, leader.leader_epoch, leader.leader_id))
    return found


_CODES: Final = (6, 74, 75)
"""NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320)."""
_ASKING: Final = ("AlterPartitionReassignments", "ElectLeaders")
"""APIs by which programs move leaders."""
_EACH: Final = 3
"""A client may be refused this often at each move."""
MAX_SPANS: Final = 1 << 18
"""Maximum number of seconds, over all clients, in which a client was refused or asked for metadata."""


class NotLeaderThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `NotLeader`."""

    at_least: Annotated[int, Meta(ge=1, description="Consecutive refusals of a client that count as a loop …")] = 5
    lasting: Annotated[Duration, Meta(ge=0, description="… if they last for this long: a warning.")] = 5_000_000_000
    stuck: Annotated[Duration, Meta(ge=0, description="A loop of this duration is an error.")] = 60_000_000_000
    moves: Annotated[int, Meta(ge=2, description="Report a partition whose leader moved this often …")] = 4
    apart: Annotated[Duration, Meta(ge=0, description="… at intervals of at most this on average: a warning.")] = (
        60_000_000_000
    )
    pause: Annotated[
        Duration, Meta(ge=1, description="Longest pause between refusals that belong together (whole seconds).")
    ] = 10_000_000_000


class NotLeader(Detector[NotLeaderThresholds]):
    """Partitions refused because another broker leads them, or an old leader epoch; leaders that move again and again.

    One refusal followed by a Metadata request is how clients learn about a new leader (a note). A client that is
    refused for several seconds has stale metadata. If leaders move again and again, one finding names the partitions,
    the brokers, and who asks for it; clients that are refused no more often are not reported. Changes of the active
    controller are one finding, too.

    Caveats: a client whose partitions move one after the other looks the same, and so, briefly, does the election of a
    KRaft controller (`__cluster_metadata`). Without leader epochs (Metadata before version 7), several moves between
    two Metadata responses of a broker count as one.
    """

    name: ClassVar[str] = "not-leader"
    summary: ClassVar[str] = "Requests to brokers that do not lead the partition, and loops of stale metadata."
    parameters_type = NotLeaderThresholds
    bodies: ClassVar[Bodies] = {("response", "Metadata"): None, ("request", "BeginQuorumEpoch"): None}
    error_bodies = True
    parts_clusters = True

    _movers = Tally("movers", (*CLIENT, *CLUSTER), sums=_ASKING)
    _refused = Tally("refused", (*CLIENT, *CLUSTER), sums=tuple(f"code_{code}" for code in _CODES))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "error_count", "partitions")
        bodies = ("request_body", "response_body")
        return {"exchanges": TableReading((*ORDER, *own, *bodies))}

    def shapes(self) -> Mapping[str, Shape]:
        counted: Any = tuple((name, pa.int64(), "sum") for name in ("refused", "metadata"))
        return {
            **super().shapes(),
            **terms_shapes(),
            "topics": Shape(keys=(*CLIENT, *CLUSTER, ("topic", pa.string()))),
            # Seconds in which a client only asked for metadata have no weight and are dropped first.
            "seconds": Shape(
                keys=(("second", pa.int64()), *CLIENT, *CLUSTER), measures=counted, weight="refused", bound=MAX_SPANS
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        add_terms(self, batch)
        moving = only(batch, in_any(batch, "api", _ASKING))
        asks = {api: in_any(moving, "api", [api]).cast(pa.int64()) for api in _ASKING}
        self._movers.add(self, moving, {**clients(moving), **clusters(moving)}, column(moving, "api"), **asks)
        asked = only(batch, in_any(batch, "api", ["Metadata"]))
        self._seconds(asked, "metadata")
        batch = only(batch, pc.greater(column(batch, "error_count"), 0))
        rows = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        parts = named(exploded(rows, ["row", *CLIENT_COLUMNS, *CLUSTER_COLUMNS]))
        parts = only(parts, pc.is_in(column(parts, "error_code"), value_set=pa.array(_CODES, pa.int32())))
        if not parts.num_rows:
            return
        self.parts["topics"].add({**clients(parts), **clusters(parts), "topic": encoded(parts, "topic")})
        places, firsts = np.unique(column(parts, "row").to_numpy(), return_index=True)
        refused = batch.take(pa.array(places))
        codes = column(parts, "error_code").take(pa.array(firsts))
        keys = {**clients(refused), **clusters(refused)}
        names = pa.array([error_name(code) for code in _CODES], pa.string())
        notes = names.take(pc.index_in(codes, value_set=pa.array(_CODES, codes.type)))
        counts = {f"code_{code}": pc.equal(codes, code).cast(pa.int64()) for code in _CODES}
        self._refused.add(self, refused, keys, notes, **counts)
        self._seconds(refused, "refused")

    def _seconds(self, batch: pa.RecordBatch, what: str) -> None:
        zeros, ones = np.zeros(batch.num_rows, np.int64), np.ones(batch.num_rows, np.int64)
        self.parts["seconds"].add(
            {
                "second": floor_divided(column(batch, "time_ns"), _SECOND),
                **clients(batch),
                **clusters(batch),
                **{"refused": zeros, "metadata": zeros, what: ones},
            }
        )

    def findings(self) -> Iterator[Finding]:
        topics: dict[tuple[Any, ...], list[str]] = {}
        for row in self.resolved("topics").to_pylist():
            topics.setdefault(_place(row), []).append(row["topic"] or "")
        seconds: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
        for row in self.resolved("seconds").sort_by("second").to_pylist():
            if row["second"] is not None:
                seconds.setdefault(_place(row), []).append((row["second"], row["refused"], row["metadata"]))
        moving: dict[tuple[str | None, bool], list[Moves]] = {}
        """By cluster; active controllers are apart."""
        for move in moves(self.resolved("terms")):
            if move.count >= self.thresholds.moves and move.last - move.first <= move.count * self.thresholds.apart:
                moving.setdefault((move.cluster, move.topic == _QUORUM), []).append(move)
        explained: dict[tuple[str | None, bool], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        rest = []
        for row, evidence in self._refused.rows(self):
            names_of = {*topics.get(_place(row), ())}
            group = row["cluster"], _QUORUM in names_of
            mine = [one for one in moving.get(group, ()) if one.topic in names_of]
            often = _EACH * sum(one.count for one in mine)
            # Voters ask again and again while none is elected.
            if {one.topic for one in mine} == names_of and (group[1] or row["count"] <= often):
                explained.setdefault(group, []).append((row, evidence))
            else:
                rest.append((row, evidence))
        for (cluster, controllers), moved in moving.items():
            refused = explained.get((cluster, controllers), [])
            yield self._moving(cluster, moved, refused) if not controllers else self._quorum(cluster, moved[0], refused)
        for row, evidence in rest:
            place = _place(row)
            loop = max(_loops(seconds.get(place, ()), self.thresholds.pause // _SECOND), default=(0, 0, 0))
            names = sorted(topics.get(place, []))
            yield self._finding(row, evidence, names, loop)

    def _quorum(
        self, cluster: str | None, moved: Moves, refused: Sequence[tuple[dict[str, Any], tuple[Evidence, ...]]]
    ) -> Finding:
        nodes = sorted({str(leader) for leader in moved.leaders})
        shown = [one for _, evidence in refused for one in evidence]
        return self.finding(
            "warning",
            f"the active controller{in_cluster(self.clusters, cluster)} changed {moved.count:,} times"
            f"{span(moved.first, moved.last)}, between controllers {some(nodes)}",
            meaning=(
                "Until a new controller is active, no leader moves, no topic is created or changed, and heartbeats of "
                "brokers are refused; if that lasts, brokers lose their sessions."
            ),
            advice=(
                "Find out why controllers do not hear from the active one: pauses of its process (late-answers), its "
                "disk, or the network between them. Compare controller.quorum.fetch.timeout.ms and "
                "controller.quorum.election.timeout.ms with how long these last."
            ),
            subject={
                "client_id": None,
                "client_ip": None,
                "topic": moved.topic,
                **({"cluster": cluster} if cluster is not None else {}),
                "trouble": "controllers",
            },
            count=moved.count,
            first=moved.first,
            last=moved.last,
            evidence=tuple(sorted(shown, key=lambda one: one.time_ns or 0)[:MAX_EVIDENCE]),
            values={"moves": moved.count, "controllers": nodes},
        )

    def _moving(
        self,
        cluster: str | None,
        moved: list[Moves],
        refused: list[tuple[dict[str, Any], tuple[Evidence, ...]]],
    ) -> Finding:
        moved = sorted(moved, key=lambda one: (-one.count, one.topic, one.partition))
        count = sum(one.count for one in moved)
        brokers = sorted({leader for one in moved for leader in one.leaders})
        first, last = min(one.first for one in moved), max(one.last for one in moved)
        partitions = [f"{one.topic}-{one.partition}" for one in moved]
        who = f"; {plural(len(refused), 'client')} refused {sum(row['count'] for row, _ in refused):,} times"
        asking = [
            (row, evidence)
            for row, evidence in self._movers.rows(self)
            if row["cluster"] == cluster and row["count"] >= self.thresholds.moves
        ]
        title = (
            f"leaders of {some(partitions)} moved {count:,} times{span(first, last)} between brokers {some(brokers)}"
            f"{in_cluster(self.clusters, cluster)}{who if refused else ''}"
        )
        advice = (
            "Find out why: brokers that lose their session with the controller (broker-gone, late-answers, "
            "broker.session.timeout.ms), or a tool that reassigns partitions or elects leaders."
        )
        if asking:
            apis = [f"{row[api]:,} {api}" for row, _ in asking[:1] for api in _ASKING if row[api]]
            asks = f"{client(asking[0][0])} asks for it ({' and '.join(apis)} requests)"
            title = f"{title}; {asks}"
            advice = (
                "Stop the program that asks for it, or make it slower: a balancer whose goals contradict each other."
            )
        shown = [one for _, evidence in (*asking, *refused) for one in evidence]
        return self.finding(
            "warning",
            title,
            meaning=(
                "At each move, clients are refused, ask for metadata and send their requests again; transactions and "
                "consumers wait. With acks=1, records that the new leader did not have are lost."
            ),
            advice=advice,
            subject={
                "client_id": None,
                "client_ip": None,
                "topic": moved[0].topic if len({one.topic for one in moved}) == 1 else None,
                **({"cluster": cluster} if cluster is not None else {}),
                "trouble": "moves",
            },
            count=count,
            first=first,
            last=last,
            evidence=tuple(sorted(shown, key=lambda one: one.time_ns or 0)[:MAX_EVIDENCE]),
            values={"moves": count, "partitions": partitions[:MAX_TOPICS], "brokers": brokers},
        )

    def _finding(self, row: dict[str, Any], evidence: Any, topics: list[str], loop: tuple[int, int, int]) -> Finding:
        lasted, refused, asked = loop
        lasts = lasted * _SECOND
        where = in_cluster(self.clusters, row["cluster"])
        what = f"{plural(row['count'], 'request')} of {client(row)}{where} for {some(topics)}"
        title = f"{what} refused with {_named(row)}"
        # Brokers and controllers learn leaders from each other, not from Metadata requests.
        inside = is_broker(row["client_id"], ())
        severity: Severity = "note"
        if refused >= self.thresholds.at_least and lasts >= self.thresholds.lasting:
            severity = "error" if lasts >= self.thresholds.stuck else "warning"
            how = (
                f"though it asked for metadata {plural(asked, 'time')}" if asked else "and it never asked for metadata"
            )
            title = f"{title}, {refused:,} of them in a row within {elapsed(lasts)}"
            if not inside:
                title = f"{title}, {how}"
            meaning = (
                "Brokers or controllers disagree about the leader, or none is elected. Until that is resolved, the "
                "follower gets no data."
                if inside
                else (
                    "The client keeps sending to the wrong broker: it does not refresh its metadata, or brokers name "
                    "a leader that does not know it is the leader. Its requests wait all that time."
                )
            )
            advice = (
                "Find out why the election takes so long: nodes that are down, slow, or cannot reach each other."
                if inside
                else (
                    "Compare the leader in the Metadata responses in between with the broker that refuses; the "
                    "metadata of a broker may lag behind the controller's. Otherwise check the client's "
                    "metadata.max.age.ms and its version."
                )
            )
        else:
            meaning = "A leader has moved or is not elected yet, and the client learned it from the refusal. " + (
                "It then finds the new one." if inside else "It then refreshes its metadata."
            )
            advice = "Nothing if leaders moved on purpose; otherwise find out why (broker restarts, lost sessions)."
        return self.row_finding(
            row,
            evidence,
            severity,
            title,
            meaning=meaning,
            advice=advice,
            subject=("client_id", "client_ip"),
            values={"topics": topics[:MAX_TOPICS], "lasted_s": lasted, "in_a_row": refused, "metadata_requests": asked},
        )


def _named(row: Mapping[str, Any]) -> str:
    """`NOT_LEADER_OR_FOLLOWER (3) and FENCED_LEADER_EPOCH (1)`; a single one without its count."""
    counts = {error_name(code): row[f"code_{code}"] for code in _CODES if row[f"code_{code}"]}
    if len(counts) == 1:
        return str(next(iter(counts)))
    return " and ".join(f"{name} ({count:,})" for name, count in counts.items())


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["client_id"], row["client_ip"], row["cluster"])


MAX_TOPICS: Final = 20
"""Maximum number of topics in the values of a finding."""


def _loops(seconds: Sequence[tuple[int, int, int]], pause: int) -> Iterator[tuple[int, int, int]]:
    """Stretches of refusals without a longer pause: seconds, refusals, and Metadata requests in between."""
    start = last = None
    refused = asked = waiting = 0
    for second, more, metadata in seconds:
        if not more:
            waiting += metadata
            continue
        if last is None or start is None or second - last > pause:
            if start is not None and last is not None:
                yield last - start, refused, asked
            start, refused, asked, waiting = second, 0, 0, 0
        refused += more
        asked += waiting + metadata
        waiting, last = 0, second
    if start is not None and last is not None:
        yield last - start, refused, asked
