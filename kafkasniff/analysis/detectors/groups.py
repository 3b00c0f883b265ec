"""Members of groups that stand still, share groups (KIP-932) and Streams groups (KIP-1071)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.between_brokers import is_broker
from kafkasniff.analysis.columns import (
    ORDER,
    column,
    encoded,
    extracted,
    in_any,
    integers,
    matches,
    only,
    order_columns,
)
from kafkasniff.analysis.detectors.connections import add_gaps, gap_shapes, gaps_of
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
    in_all,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, quoted, subject
from kafkasniff.analysis.group_history import HEARTBEATS, MEMBER_APIS, MEMBER_SHAPE, member_rows
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.share_bodies import REJECT, RELEASE, SHARE_APIS, ShareBody, SharePart, topic_names
from kafkasniff.engine.roles import Bodies
from kafkasniff.text.printable import word
from kafkasniff.text.times import clock_time

MAX_BEATS: Final = 1 << 17
"""Maximum number of requests of members that are examined, the earliest."""
ENOUGH: Final = 3
"""So many intervals show how often a member sends heartbeats, or how soon a consumer fetches again."""
MAX_FETCHES: Final = 1 << 17
"""Maximum number of fetches that are examined, the earliest."""
AT_ONCE: Final = 500_000_000
"""A consumer that has nothing to process fetches again within this time, ns."""
_MEMBER: Final = (*CLIENT, ("group_id", pa.string()), ("connection_id", pa.int64()))
"""A member has a connection to its coordinator."""
_FETCHES: Final = ("Fetch", "ShareFetch")
_FETCHER: Final = re.compile("etcher")
"""Among the names of brokers: followers fetch at once, too, members of the quorum with pauses."""
_COMES_OR_GOES: Final = ("JoinGroup", "LeaveGroup")
_EPOCH: Final = r'"member_epoch":[1-9]'
"""Members of the newer protocols join and leave with other epochs …"""
_INTERVAL: Final = r'"heartbeat_interval_ms":(?P<ms>[0-9]{1,9})'
"""… and learn from the broker how often to send heartbeats; they send more when something changes."""
_NS_PER_MS: Final = 1_000_000


class StillMembersThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `StillMembers`."""

    beyond: Annotated[
        Duration, Meta(ge=1, description="Report a member that is silent for this long beyond its usual interval …")
    ] = 2_000_000_000
    times: Annotated[float, Meta(ge=1, description="… and for this many of its usual intervals.")] = 3.0
    long: Annotated[Duration, Meta(ge=1, description="A silence of at least this is a warning, less a note.")] = (
        5_000_000_000
    )


class _Still(msgspec.Struct, frozen=True):
    """A time in which a member, or a consumer without a group, sent nothing. Times are ns since the epoch."""

    row: Mapping[str, Any]
    """The next request, and who sent it."""
    first: int
    until: int
    usual: int
    """Its usual interval."""


class StillMembers(Detector[StillMembersThresholds]):
    """Members whose heartbeats stop and continue on the same connection, although the broker had answered them.

    Clients send heartbeats in a thread of their own, at constant intervals. If they stop, the whole process stands
    still: garbage collection, no CPU, swapping, a suspended machine. After `session.timeout.ms`, the coordinator
    removes the member (`lost-members`). Consumers without a group send none, but fetch again at once while there are
    no records.

    Caveats: some clients only send heartbeats between records or polls (kafkajs, Java before 0.10.1), so one record may
    have taken that long; if they waited for a fetch, it is not reported. Members that join or leave, and gaps in the
    capture, do not count. A consumer without a group that pauses all of its partitions looks the same.
    """

    name: ClassVar[str] = "still-members"
    by_absence = True
    summary: ClassVar[str] = "Consumers whose process stood still: no heartbeats or fetches for a while."
    parameters_type = StillMembersThresholds
    bodies: ClassVar[Bodies] = {(direction, api): None for api in HEARTBEATS for direction in ("request", "response")}

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "group_id", "latency_us", "request_body", "response_body")
        fetched = ("partitions", "error_count")
        return {
            "exchanges": TableReading((*ORDER, *own, *fetched), (*MEMBER_APIS, *_FETCHES)),
            "problems": TableReading(("connection_id", "time_ns", "kind"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        times = tuple((name, pa.int64()) for name in ("time_ns", "exchange_id", "end_ns", "asked_ms"))
        keys = (*_MEMBER, *times, ("beats", pa.bool_()), ("moves", pa.bool_()))
        fetches = (*CLIENT, ("connection_id", pa.int64()), *times[:-1], ("empty", pa.bool_()))
        return {
            "beats": Shape(keys=keys, order=ORDER, keep="earliest", bound=MAX_BEATS),
            "fetches": Shape(keys=fetches, order=ORDER, keep="earliest", bound=MAX_FETCHES),
            "groups": MEMBER_SHAPE,
            **gap_shapes(),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "problems":
            add_gaps(self, batch)
            return
        self.parts["groups"].add(member_rows(batch))
        self._add_fetches(only(batch, in_any(batch, "api", _FETCHES)))
        mask = pc.and_(in_any(batch, "api", MEMBER_APIS), pc.is_valid(column(batch, "time_ns")))
        batch = only(batch, pc.and_(mask, pc.is_valid(column(batch, "group_id"))))
        api, end = column(batch, "api"), pc.multiply(column(batch, "latency_us"), 1000)
        stays = matches(batch, "request_body", _EPOCH)
        newer = pc.and_(in_any(batch, "api", tuple(HEARTBEATS)), pc.invert(stays))
        self.parts["beats"].add(
            {
                **clients(batch),
                "group_id": encoded(batch, "group_id"),
                **order_columns(batch),
                "end_ns": pc.add(column(batch, "time_ns"), end),
                "asked_ms": extracted(batch, "response_body", _INTERVAL).cast(pa.int64()),
                "beats": pc.ends_with(api, "Heartbeat"),
                "moves": pc.or_(in_any(batch, "api", _COMES_OR_GOES), newer),
            }
        )

    def _add_fetches(self, batch: pa.RecordBatch) -> None:
        lists = column(batch, "partitions")
        parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        sizes = integers(pc.struct_field(pc.list_flatten(lists), "bytes"))
        size = np.bincount(parents, weights=sizes, minlength=batch.num_rows)[: batch.num_rows]
        read = pc.fill_null(pc.equal(column(batch, "error_count"), 0), False)
        self.parts["fetches"].add(
            {
                **clients(batch),
                **order_columns(batch),
                "end_ns": pc.add(column(batch, "time_ns"), pc.multiply(column(batch, "latency_us"), 1000)),
                "empty": pc.and_(pa.array(size == 0), read),
            }
        )

    def findings(self) -> Iterator[Finding]:
        gaps = gaps_of(self)
        fetches = self._fetches()
        names = dict.fromkeys((*(name for name, _ in _MEMBER), *ORDER))
        rows = self.parts["beats"].table().sort_by([(name, "ascending") for name in names]).to_pylist()
        by_client: dict[tuple[Any, ...], list[_Still]] = {}
        for key, of_member in itertools.groupby(rows, key=lambda row: tuple(row[name] for name, _ in _MEMBER)):
            for one in self._of_member(list(of_member), gaps.get(key[-1], []), fetches.get(key[:2], [])):
                by_client.setdefault(key[:3], []).append(one)
        members = {(row["client_id"], row["client_ip"]) for row in self.parts["groups"].table().to_pylist()}
        for who, of_consumer in fetches.items():
            follows = is_broker(who[0], ())
            if who not in members and (not follows or _FETCHER.search(who[0])):
                by_client[(*who, None)] = list(self._of_consumer(of_consumer, gaps, follows=follows))
        yield from (self._finding(silences) for silences in by_client.values() if silences)

    def _fetches(self) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        """Fetches by client, in order of time."""
        rows = self.parts["fetches"].table().sort_by([(name, "ascending") for name in (*CLIENT_COLUMNS, *ORDER)])
        by_client = itertools.groupby(rows.to_pylist(), key=lambda row: (row["client_id"], row["client_ip"]))
        return {who: list(fetches) for who, fetches in by_client}

    def _of_member(
        self, rows: list[dict[str, Any]], gaps: list[int], fetches: list[dict[str, Any]]
    ) -> Iterator[_Still]:
        """Silences of a member on one connection; `rows` and the client's `fetches`: by time."""
        beats = [row["time_ns"] for row in rows if row["beats"]]
        intervals = sorted(after - before for before, after in itertools.pairwise(beats))
        if len(intervals) < ENOUGH:
            return
        asked = max((row["asked_ms"] or 0) for row in rows) * _NS_PER_MS
        usual = max(intervals[len(intervals) // 2], asked)
        least = max(usual * self.thresholds.times, usual + self.thresholds.beyond)
        for before, after in itertools.pairwise(rows):
            end, until = before["end_ns"], after["time_ns"]
            # Without an answer, the client waits for the broker.
            if end is None or until - end < least or before["moves"] or after["moves"] or not after["beats"]:
                continue
            # Some clients (kafkajs) send heartbeats only when a fetch is over.
            waited = any(
                fetch["time_ns"] + self.thresholds.beyond < until and until - AT_ONCE < (fetch["end_ns"] or 0) <= until
                for fetch in fetches
            )
            if not waited and not any(end <= gap <= until + usual for gap in gaps):
                yield _Still(after, end, until, usual)

    def _of_consumer(
        self, rows: list[dict[str, Any]], gaps: Mapping[int, list[int]], *, follows: bool
    ) -> Iterator[_Still]:
        """Silences of a client without a group on all of its connections; `rows`: its fetches, by time.

        Only after several empty ones, unless it is a follower: a program that has got records processes them.
        """
        waits: list[int] = []
        end = got = 0
        for before, after in itertools.pairwise(rows):
            if before["end_ns"] is None:  # without an answer, the client waits for the broker
                return
            end = max(end, before["end_ns"])
            idle = follows or before["empty"]
            got = got if idle else max(got, before["end_ns"])
            if after["time_ns"] <= got or not idle:
                waits = []
                continue
            wait = after["time_ns"] - end
            if wait < AT_ONCE:
                waits.append(max(wait, 0))
                continue
            usual = sorted(waits)[len(waits) // 2] if len(waits) >= ENOUGH else AT_ONCE
            missing = (gap for row in (before, after) for gap in gaps.get(row["connection_id"], []))
            stays = before["connection_id"] == after["connection_id"] and not any(end <= gap for gap in missing)
            if stays and wait >= usual + self.thresholds.beyond and usual < AT_ONCE:
                yield _Still({**after, "group_id": None}, end, after["time_ns"], usual)
            waits = []

    def _finding(self, silences: list[_Still]) -> Finding:
        silences = sorted(silences, key=lambda one: one.first)
        worst = max(silences, key=lambda one: one.until - one.first)
        lasted = worst.until - worst.first
        times = f", {plural(len(silences), 'time')} in all" if silences[1:] else ""
        severity: Severity = "warning" if lasted >= self.thresholds.long else "note"
        group = worst.row["group_id"]
        follows = is_broker(worst.row["client_id"], ())
        member = "" if group is None else f", member of group {word(group)},"
        sent = "fetch" if group is None else "heartbeat"
        often = "at once after a response" if group is None else f"each {elapsed(worst.usual)}"
        over = "" if group is None else "; after session.timeout.ms, the coordinator gives them to other members"
        waited = (
            "It is a follower: leaders wait for it with acks=all, for up to replica.lag.time.max.ms; then it is no "
            "longer in sync"
            if follows
            else f"The records of its partitions waited that long{over}"
        )
        return self.finding(
            severity,
            f"{client(worst.row)}{member} stood still from {clock_time(worst.first)[:-3]} to "
            f"{clock_time(worst.until)[:-3]}: no {sent} for {elapsed(lasted)}, otherwise {often}{times}",
            meaning=(
                "The broker had answered all of its requests, and the connection stayed open: the "
                f"{'follower' if follows else 'client'}'s process did nothing. {waited}."
            ),
            advice=(
                "Compare the time with this broker's garbage collection log, with stalls of its disks, and with limits "
                "of CPU and memory of its machine (swapping, snapshots, migrations)."
                if follows
                else "Compare the time with the client's garbage collection log, its limits of CPU and memory "
                "(throttled containers, swapping), and suspended machines. Clients without a thread for heartbeats: "
                "process fewer records between polls."
            ),
            subject={
                **({} if follows else subject(worst.row, "client_id", "client_ip", "group_id")),
                **({"trouble": "follower", "follower": worst.row["client_id"]} if follows else {}),
            },
            count=len(silences),
            first=silences[0].first,
            last=silences[-1].until,
            evidence=tuple(
                Evidence(
                    one.row["connection_id"],
                    one.row["exchange_id"],
                    one.until,
                    f"the first {sent} after {elapsed(one.until - one.first)}",
                )
                for one in silences[:MAX_EVIDENCE]
            ),
            values={"longest_ms": lasted / _NS_PER_MS, "usual_ms": worst.usual / _NS_PER_MS},
        )


_SUMS: Final = ("again", "last_time", "released", "rejected")


class RepeatedDeliveryThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `RepeatedDeliveries`."""

    limit: Annotated[
        int,
        Meta(ge=2, description="A record delivered this often is an error: unless accepted, the broker archives it."),
    ] = 5
    at_least: Annotated[
        int,
        Meta(ge=1, description="This many repeated deliveries or rejected records are a warning; fewer are a note."),
    ] = 10


class RepeatedDeliveries(Detector[RepeatedDeliveryThresholds]):
    """Records that a share group delivers again, because members release them or do not acknowledge them in time.

    After a limit of deliveries, or when a member rejects a record, the broker archives it: nobody processes it.

    Caveats: the broker's limit (`group.share.delivery.attempt.limit`) is not on the wire. A record may be accepted at
    its last delivery.
    """

    name: ClassVar[str] = "repeated-deliveries"
    summary: ClassVar[str] = "Share groups that deliver records again, or give them up."
    parameters_type = RepeatedDeliveryThresholds
    bodies: ClassVar[Bodies] = {(direction, api): None for api in SHARE_APIS for direction in ("request", "response")}
    parts_clusters = True

    _records = Tally(
        "records", (*CLUSTER, ("group_id", pa.string()), ("topic", pa.string())), sums=_SUMS, highs=("deliveries",)
    )

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "group_id", *CLUSTER_COLUMNS, "partitions", "request_body", "response_body")
        return {"exchanges": TableReading((*ORDER, *own), SHARE_APIS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", SHARE_APIS), pc.is_valid(column(batch, "group_id"))))
        found: list[tuple[int, str | None, dict[str, int]]] = []
        names = ("request_body", "response_body", "partitions")
        rows = zip(*(column(batch, name).to_pylist() for name in names), strict=True)
        for row, (request, response, partitions) in enumerate(rows):
            names_of_ids = topic_names(partitions)
            by_topic: dict[str | None, dict[str, int]] = {}
            for body in (request, response):
                for topic, part in ShareBody.decode(body).parts(names_of_ids):
                    self._count(part, by_topic.setdefault(topic, dict.fromkeys((*_SUMS, "deliveries"), 0)))
            found += [(row, topic, counts) for topic, counts in by_topic.items() if any(counts.values())]
        # Without bodies and lists, which would be copied for each topic.
        batch = batch.select([*ORDER, "api", "group_id", *CLUSTER_COLUMNS])
        batch = batch.take(pa.array([row for row, _, _ in found], pa.int64()))
        keys = {
            **clusters(batch),
            "group_id": encoded(batch, "group_id"),
            "topic": pa.array([topic for _, topic, _ in found], pa.string()),
        }
        measures = {
            name: pa.array([counts[name] for _, _, counts in found], pa.int64()) for name in (*_SUMS, "deliveries")
        }
        self._records.add(self, batch, keys, pa.array([_note(counts) for _, _, counts in found]), **measures)

    def _count(self, part: SharePart, counts: dict[str, int]) -> None:
        for offset_range in part.acquired_records:
            if offset_range.delivery_count is not None and offset_range.delivery_count > 1:
                counts["again"] += offset_range.size
                counts["deliveries"] = max(counts["deliveries"], offset_range.delivery_count)
                counts["last_time"] += offset_range.size if offset_range.delivery_count >= self.thresholds.limit else 0
        for offset_range in part.acknowledgement_batches:
            counts["released"] += offset_range.count_of(RELEASE)
            counts["rejected"] += offset_range.count_of(REJECT)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._records.rows(self):
            if row["again"] or row["rejected"]:
                yield self._finding(row, evidence)

    def _finding(self, row: dict[str, Any], evidence: tuple[Evidence, ...]) -> Finding:
        limits = self.thresholds
        severity: Severity = "note"
        if row["last_time"]:
            severity = "error"
        elif max(row["again"], row["rejected"]) >= limits.at_least:
            severity = "warning"
        seen = []
        if row["again"]:
            deliveries = plural(row["again"], "repeated delivery", "repeated deliveries")
            seen.append(f"{deliveries}, of one record up to {row['deliveries']:,} times")
        seen += [f"{row[name]:,} {name}" for name in ("released", "rejected") if row[name]]
        if row["again"] > row["released"]:
            seen.append(f"{row['again'] - row['released']:,} not acknowledged in time")
        given_up = []
        if row["last_time"]:
            given_up.append(f"{plural(row['last_time'], 'delivery', 'deliveries')} at the limit of {limits.limit}")
        return self.row_finding(
            row,
            evidence,
            severity,
            f"share group {word(row['group_id'])}{in_cluster(self.clusters, row['cluster'])} and topic "
            f"{word(row['topic'])}: {', '.join([*seen, *given_up])}",
            meaning=(
                "Members release records that they cannot process, or keep them for longer than the acquisition lock "
                "lasts (group.share.record.lock.duration.ms). The broker archives rejected records, and others after "
                "group.share.delivery.attempt.limit deliveries: the group never processes them."
            ),
            advice=(
                "Find out why the program cannot process these records: a poison record, a service that is down, or "
                "work that takes longer than the lock. Release only after temporary failures, and store rejected "
                "records elsewhere."
            ),
            subject=("group_id", "topic"),
            values={name: row[name] for name in (*_SUMS, "deliveries")},
        )


def _note(counts: dict[str, int]) -> str:
    again = f"delivered {plural(counts['again'], 'record')} again" if counts["again"] else ""
    return ", ".join([*([again] if again else []), *(f"{counts[one]:,} {one}" for one in _SUMS[2:] if counts[one])])


_API: Final = "StreamsGroupHeartbeat"
_GROUP: Final = (*CLUSTER, ("group_id", pa.string()))
_LEAVES: Final = r'"member_epoch":-'
MAX_STATUSES: Final = 1 << 12
"""Maximum number of different statuses and lists of them that are kept."""


class _Trouble(msgspec.Struct, frozen=True):
    """What a status means."""

    title: str
    meaning: str
    advice: str
    passes: bool = False
    """It is usual for a short time: while a group starts, or a new version is rolled out."""


_TROUBLES: Final[Mapping[int, _Trouble]] = {
    0: _Trouble(
        "runs members with an older topology (STALE_TOPOLOGY)",
        "Members with an older topology than the group's get no new tasks.",
        "Restart the instances that still run the older version of the program.",
        passes=True,
    ),
    1: _Trouble(
        "lacks source topics (MISSING_SOURCE_TOPICS)",
        "The topology reads topics that do not exist, so no member gets tasks. Clients stop with an exception.",
        "Create the topics, or correct their names in the program; then start the instances again.",
    ),
    2: _Trouble(
        "reads topics whose numbers of partitions do not fit (INCORRECTLY_PARTITIONED_TOPICS)",
        "Topics that the topology joins need the same number of partitions, and internal topics the number that the "
        "topology derives. No member gets tasks, and clients stop with an exception.",
        "Give the topics the same number of partitions, or repartition one of them in the topology. Reset the "
        "application (kafka-streams-application-reset) if its internal topics have the wrong number.",
    ),
    3: _Trouble(
        "lacks its internal topics (MISSING_INTERNAL_TOPICS)",
        "Repartition or changelog topics do not exist, and the brokers have not created them. No member gets tasks.",
        "Find out why they cannot be created: the detail, rights to create topics, replication.factor of the "
        "application, or the coordinator's log.",
        passes=True,
    ),
    4: _Trouble(
        "is shut down by one of its members (SHUTDOWN_APPLICATION)",
        "The exception handler of an instance asked all instances to stop.",
        "Look for the exception in the log of the first instance that stopped, and solve its cause before a restart.",
    ),
}
"""ASSIGNMENT_DELAYED (5) is the usual wait for further members, MISSING_CLIENT_TAGS (6) concerns standby tasks only."""


class _Status(msgspec.Struct):
    status_code: int
    status_detail: Any = None


class _Body(msgspec.Struct):
    status: list[_Status] | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


class BlockedStreamsGroupThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `BlockedStreamsGroups`."""

    lasting: Annotated[
        Duration, Meta(ge=0, description="STALE_TOPOLOGY and MISSING_INTERNAL_TOPICS are a note up to this duration.")
    ] = 15_000_000_000


class BlockedStreamsGroups(Detector[BlockedStreamsGroupThresholds]):
    """Streams groups (KIP-1071) that cannot process: reported as statuses in heartbeats, without an error code.

    A group that lacks topics, or whose topics do not fit together, gets no tasks. It is a warning if a later heartbeat
    has the status no longer, otherwise an error.

    Caveats: a group that starts, or a new version that is rolled out, has some of these statuses for a short time.
    """

    name: ClassVar[str] = "blocked-streams-groups"
    summary: ClassVar[str] = (
        "Streams groups that cannot process: missing topics, partitions that do not fit, shutdowns."
    )
    parameters_type = BlockedStreamsGroupThresholds
    bodies: ClassVar[Bodies] = {("response", _API): None}
    parts_clusters = True

    _statuses = Tally("statuses", (*_GROUP, ("code", pa.int64()), ("detail", pa.string())), bound=MAX_STATUSES)

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*ORDER, "api", "group_id", *CLUSTER_COLUMNS, "response_body"), (_API,))}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (*_GROUP, ("codes", pa.string()))
        last: Any = ("last", pa.int64(), "max")
        return {**super().shapes(), "lists": Shape(keys=keys, measures=(last,), bound=MAX_STATUSES)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", [_API]), pc.is_valid(column(batch, "group_id"))))
        # Members that leave get an empty list.
        batch = only(batch, pc.invert(pc.match_substring_regex(column(batch, "response_body"), _LEAVES)))
        decoded = [_statuses(body) for body in column(batch, "response_body").to_pylist()]
        lists = [statuses for statuses in decoded if statuses is not None]
        batch = only(batch, pa.array([statuses is not None for statuses in decoded], pa.bool_()))
        self.parts["lists"].add(
            {
                **clusters(batch),
                "group_id": encoded(batch, "group_id"),
                "codes": pa.array([_codes(statuses) for statuses in lists], pa.string()),
                "last": column(batch, "time_ns"),
            }
        )
        found = [
            (row, status)
            for row, statuses in enumerate(lists)
            for status in statuses
            if status.status_code in _TROUBLES
        ]
        batch = batch.select([*ORDER, "group_id", *CLUSTER_COLUMNS]).take(
            pa.array([row for row, _ in found], pa.int64())
        )
        keys = {
            **clusters(batch),
            "group_id": encoded(batch, "group_id"),
            "code": pa.array([status.status_code for _, status in found], pa.int64()),
            "detail": pa.array([_detail(status) for _, status in found], pa.string()),
        }
        self._statuses.add(self, batch, keys)

    def findings(self) -> Iterator[Finding]:
        lists = self.resolved("lists").to_pylist()
        cases: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._statuses.rows(self):
            cases.setdefault((row["cluster"], row["group_id"], row["code"]), []).append((row, evidence))
        for (*group, code), rows in cases.items():
            without = (
                one["last"] or 0
                for one in lists
                if [one["cluster"], one["group_id"]] == group and str(code) not in one["codes"].split()
            )
            yield self._finding(rows, solved_at=max(without, default=0))

    def _finding(self, rows: list[tuple[dict[str, Any], tuple[Evidence, ...]]], solved_at: int) -> Finding:
        """`rows`: of one status of a group, by details; `solved_at`: when a list was last without it."""
        row, evidence = max(rows, key=lambda one: (one[0]["last"] or 0, one[0]["detail"]))
        trouble = _TROUBLES[row["code"]]
        whole = in_all(rows) | {"evidence": evidence}
        first, last = whole["first"], whole["last"]
        solved = solved_at > (last or 0)
        lasted = (last or 0) - (first or 0)
        severity: Severity = "warning" if solved else "error"
        if trouble.passes and lasted < self.thresholds.lasting:
            severity = "note"
        until = ", but not at the end" if solved else ""
        return self.finding(
            severity,
            f"Streams group {word(row['group_id'])}{in_cluster(self.clusters, row['cluster'])} {trouble.title}{until}"
            + (f": {quoted(row['detail'])}" if row["detail"] else ""),
            meaning=trouble.meaning,
            advice=trouble.advice,
            subject={"group_id": row["group_id"], "status": row["code"]},
            **whole,
            values={"solved": solved, "lasted_ms": lasted / 1_000_000},
        )


def _statuses(body: str) -> list[_Status] | None:
    """None if the body is cut off."""
    try:
        return _BODY.decode(body).status or []
    except msgspec.DecodeError:
        return None


def _codes(statuses: list[_Status]) -> str:
    return " ".join(str(code) for code in sorted({status.status_code for status in statuses}))


def _detail(status: _Status) -> str:
    return status.status_detail if isinstance(status.status_detail, str) else ""
