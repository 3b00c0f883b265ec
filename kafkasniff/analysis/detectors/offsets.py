"""Consumers whose position is not in the log, and offset commits that are too frequent or too late."""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import (
    ORDER,
    broker_endpoint,
    column,
    encoded,
    exploded,
    floor_divided,
    in_any,
    is_follower,
    matches,
    named,
    only,
    with_client,
)
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import (
    BROKER,
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    PARTITION,
    Tally,
    clients,
    clusters,
    in_all,
    partition_of,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.text.printable import word

OFFSET_OUT_OF_RANGE: Final = 1
EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
"""In the response of OffsetFetch."""
_GROUP_ID: Final = ("group_id", pa.string())
_WHO: Final = (*CLIENT_COLUMNS, "group_id")
MAX_COMMITS: Final = 1 << 17
"""Maximum number of commits that are kept: the last one of each connection."""
MAX_ANSWERS: Final = 1 << 16
"""Maximum number of offsets in ListOffsets responses that are kept, the earliest."""
SOON_NS: Final = 5_000_000_000
"""A consumer that learns that there is no offset asks for one within milliseconds, on a busy machine within seconds."""
_MEMBER: Final = ("JoinGroup", "LeaveGroup", "ConsumerGroupHeartbeat")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
"""A topic's id, where its name is unknown."""
_LEAVES: Final = r'"member_epoch":-[12]\b'
MAX_LOGS: Final = 1 << 17
"""Maximum number of partitions whose ends are known."""


class _Partition(msgspec.Struct):
    partition_index: int | None = None
    timestamp: int | None = None


class _Topic(msgspec.Struct):
    name: Any = None
    partitions: list[_Partition] = []


class _Asked(msgspec.Struct):
    """A ListOffsets request."""

    topics: list[_Topic] = []


_ASKED: Final = msgspec.json.Decoder(_Asked)


class _Refusal(msgspec.Struct, frozen=True):
    """An offset that was refused or lost, and how the client continued."""

    row: dict[str, Any]
    evidence: tuple[Evidence, ...]
    reset: dict[str, Any] | None
    """The answer that says where to."""
    start: int | None
    end: int | None
    group: str | None = None
    """The group that had committed the offset, if the broker no longer has it."""

    @property
    def to(self) -> int | None:
        return None if self.reset is None else self.reset["offset"]

    @property
    def skipped(self) -> int:
        at, to = self.row["offset"], self.to
        return 0 if at is None or to is None else max(to - at, 0)

    @property
    def again(self) -> int:
        at, to = self.row["offset"], self.to
        return 0 if at is None or to is None or self.end is None else max(min(at, self.end) - to, 0)

    @property
    def then(self) -> str:
        if self.to is None:
            return "it did not continue in the capture"
        if self.skipped:
            return f"it continued at {self.to:,} and skipped {plural(self.skipped, 'record')}"
        more = f" and reads {plural(self.again, 'record')} again" if self.again else ""
        return f"it continued at {self.to:,}{more}"

    @property
    def shown(self) -> tuple[Evidence, ...]:
        one = self.reset
        if one is None:
            return self.evidence
        note = f"continues at {self.to:,}"
        return (*self.evidence[:1], Evidence(one["connection_id"], one["exchange_id"], one["time_ns"], note))


class OffsetOutOfRangeThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `OffsetsOutOfRange`."""

    at_least: Annotated[
        int, Meta(ge=1, description="Skipping this many records, or reading them again, is an error; fewer are a note.")
    ] = 1


class OffsetsOutOfRange(Detector[OffsetOutOfRangeThresholds]):
    """Offsets that the log no longer has, or that a group had committed and lost, and where the consumer continued.

    It continues where its next ListOffsets response for the partition says (`auto.offset.reset`). If that is a higher
    offset, the records between were deleted before it read them, or are skipped. If it is a lower one, it reads records
    again. The finding is an error, too, if the consumer did not continue in the capture, or if a member of a group
    without an offset neither asks where to start nor reads (`auto.offset.reset=none`).

    Caveats: consumers that read nothing are only reported if all brokers are in the capture, and no data of theirs is
    missing. A program may set its position itself. How far it had read before the capture is unknown.
    """

    name: ClassVar[str] = "offsets-out-of-range"
    summary: ClassVar[str] = "Consumers whose offset the log does not have: records skipped or read again."
    parameters_type = OffsetOutOfRangeThresholds
    bodies: ClassVar[Bodies] = {("request", "ListOffsets"): None, ("request", "ConsumerGroupHeartbeat"): None}
    parts_clusters = True

    _refused = Tally("refused", (*CLIENT, *PARTITION, ("offset", pa.int64())))
    _absent = Tally("absent", (*CLIENT, *PARTITION, _GROUP_ID))
    """Answers that a group has no committed offset."""

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "group_id", "partitions", "request_body")
        return {
            "exchanges": TableReading(own, ("Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", *_MEMBER)),
            "connections": TableReading(
                ("end_time_ns", "client_ip", "broker_ip", "broker_port", "bytes_lost"), optional=True
            ),
        }

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        answers = (*CLIENT, *PARTITION, *((name, number) for name in (*ORDER, "timestamp", "offset")))
        return {
            **super().shapes(),
            "answers": Shape(keys=answers, order=ORDER, keep="earliest", bound=MAX_ANSWERS),
            "ends": Shape(keys=PARTITION, measures=(("end", number, "max"),), bound=MAX_LOGS),
            "read": Shape(keys=CLIENT, measures=(("last", number, "max"),)),
            "members": Shape(keys=(*CLIENT, _GROUP_ID), measures=(("left", number, "max"), ("joined", number, "min"))),
            "brokers": Shape(keys=BROKER),
            "gaps": Shape(keys=(("client_ip", pa.string()),)),
            "whole": Shape(keys=(("one", pa.int8()),), measures=(("end", number, "max"),)),
            "commits": Shape(
                keys=(_GROUP_ID, *PARTITION, ("connection_id", number)),
                measures=tuple((name, number, "last") for name in ("time_ns", "exchange_id", "offset")),
                order=ORDER,
                bound=MAX_COMMITS,
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            self.parts["whole"].add({"one": [0], "end": [pc.max(column(batch, "end_time_ns")).as_py()]})
            self.parts["brokers"].add({"broker": broker_endpoint(batch)})
            gaps = only(batch, pc.greater(column(batch, "bytes_lost"), 0))
            self.parts["gaps"].add({"client_ip": column(gaps, "client_ip")})
            return
        self._is_member(only(batch, in_any(batch, "api", _MEMBER)))
        self._committed(only(batch, in_any(batch, "api", ["OffsetCommit", "OffsetFetch"])))
        batch = only(batch, in_any(batch, "api", ["Fetch", "ListOffsets"]))
        batch = only(batch, pc.invert(is_follower(column(batch, "client_id"))))
        self.parts["read"].add({**clients(batch), "last": column(batch, "time_ns")})
        batch = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        rows = named(exploded(batch, [*ORDER, "api", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "row"]))
        fetch, code = in_any(rows, "api", ["Fetch"]), column(rows, "error_code")
        self._refuse(only(rows, pc.and_(fetch, pc.equal(code, OFFSET_OUT_OF_RANGE))))
        fine = pc.equal(code, 0)
        fetched = only(rows, pc.and_(fetch, pc.and_(fine, pc.greater_equal(column(rows, "high_watermark"), 0))))
        place = {name: column(fetched, name) for name in ("topic", "partition")}
        self.parts["ends"].add({**clusters(fetched), **place, "end": column(fetched, "high_watermark")})
        known = pc.and_(fine, pc.greater_equal(column(rows, "offset"), 0))
        self._answered(only(rows, pc.and_(in_any(rows, "api", ["ListOffsets"]), known)), column(batch, "request_body"))

    def _is_member(self, batch: pa.RecordBatch) -> None:
        body = matches(batch, "request_body", _LEAVES)
        leaves = pc.or_(in_any(batch, "api", ["LeaveGroup"]), body)
        left = pc.if_else(leaves, column(batch, "time_ns"), pa.scalar(None, pa.int64()))
        times = {"left": left, "joined": column(batch, "time_ns")}
        self.parts["members"].add({**clients(batch), "group_id": encoded(batch, "group_id"), **times})

    def _committed(self, batch: pa.RecordBatch) -> None:
        batch = only(batch, pc.and_(pc.is_valid(column(batch, "group_id")), pc.is_valid(column(batch, "time_ns"))))
        rows = named(exploded(batch, [*ORDER, "api", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "group_id"]))
        rows = only(rows, pc.and_(pc.equal(column(rows, "error_code"), 0), pc.is_valid(column(rows, "offset"))))
        commits = only(rows, in_any(rows, "api", ["OffsetCommit"]))
        names = ("group_id", "topic", "partition", *ORDER, "offset")
        self.parts["commits"].add({**clusters(commits), **{name: column(commits, name) for name in names}})
        absent = pc.and_(in_any(rows, "api", ["OffsetFetch"]), pc.equal(column(rows, "offset"), NO_OFFSET))
        rows = only(rows, absent)
        keys = {name: column(rows, name) for name in ("topic", "partition", "group_id")}
        self._absent.add(self, rows, {**clients(rows), **clusters(rows), **keys}, "no committed offset")

    def _refuse(self, rows: pa.RecordBatch) -> None:
        names = ("topic", "partition", "offset")
        keys = {**clients(rows), **clusters(rows), **{name: column(rows, name) for name in names}}
        notes = [f"fetch at {offset:,}" if offset is not None else "" for offset in keys["offset"].to_pylist()]
        self._refused.add(self, rows, keys, pa.array(notes, pa.string()))

    def _answered(self, rows: pa.RecordBatch, bodies: pa.Array) -> None:
        asked: dict[int, dict[tuple[Any, int | None], int | None]] = {}
        timestamps = []
        places = (column(rows, name).to_pylist() for name in ("row", "topic", "partition"))
        for row, topic, partition in zip(*places, strict=True):
            if row not in asked:
                asked[row] = _timestamps(bodies[row].as_py())
            timestamps.append(asked[row].get((topic, partition)))
        names = (*CLIENT_COLUMNS, "topic", "partition", *ORDER, "offset")
        columns = {name: column(rows, name) for name in names}
        self.parts["answers"].add({**clusters(rows), **columns, "timestamp": pa.array(timestamps, pa.int64())})

    def findings(self) -> Iterator[Finding]:
        ends = {partition_of(row): row["end"] for row in self.resolved("ends").to_pylist()}
        starts: dict[tuple[Any, ...], int] = {}
        answers: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        of_any_topic: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.resolved("answers").sort_by([(name, "ascending") for name in ORDER]).to_pylist():
            who = row["client_id"], row["client_ip"]
            if row["time_ns"] is not None:
                answers.setdefault((*who, *partition_of(row)), []).append(row)
                of_any_topic.setdefault((*who, row["cluster"], row["partition"]), []).append(row)
            if row["timestamp"] == EARLIEST:
                starts[partition_of(row)] = max(starts.get(partition_of(row), 0), row["offset"])
            if row["timestamp"] == LATEST:
                ends[partition_of(row)] = max(ends.get(partition_of(row), 0), row["offset"])
        found: dict[tuple[Any, ...], list[_Refusal]] = {}
        for row, evidence in [*self._refused.rows(self), *self._lost()]:
            who, place = (row["client_id"], row["client_ip"]), partition_of(row)
            asked = answers.get((*who, *place), ())
            if not asked and _ID.fullmatch(row["topic"] or ""):
                # ListOffsets names the topic, but what its name is was not captured.
                asked = of_any_topic.get((*who, row["cluster"], row["partition"]), ())
            # The first one after it.
            later = None if row["first"] is None else bisect_left(asked, row["first"], key=_time)
            reset = None if later is None or later == len(asked) else asked[later]
            start = reset["offset"] if reset and reset["timestamp"] == EARLIEST else starts.get(place)
            refusal = _Refusal(row, evidence, reset, start, ends.get(place), row.get("group_id"))
            found.setdefault((*who, row["cluster"], row["topic"], refusal.group), []).append(refusal)
        yield from self._unread()
        for refusals in found.values():
            refusals.sort(key=lambda one: (one.reset is not None, -one.skipped, -one.again, one.row["partition"]))
            yield self._finding(refusals)

    def _unread(self) -> Iterator[Finding]:
        """Members that learned that there is no offset, and did nothing about it."""
        if not self._sees_all_brokers():
            return
        end = pc.max(self.parts["whole"].table().column("end")).as_py() or 0
        read = {
            (row["client_id"], row["client_ip"]): row["last"] or 0 for row in self.parts["read"].table().to_pylist()
        }
        members = {tuple(row[name] for name in _WHO): row for row in self.parts["members"].table().to_pylist()}
        left = {who: row["left"] or 0 for who, row in members.items()}
        lost = {tuple(row[name] for name in (*_WHO, "topic", "partition")) for row, _ in self._lost()}
        gaps = self._gaps()
        found: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._absent.rows(self):
            who, since = tuple(row[name] for name in _WHO), row["first"]
            if row["client_ip"] in gaps:
                continue
            if since is None or who not in left or (*who, row["topic"], row["partition"]) in lost:
                continue
            idle = read.get((row["client_id"], row["client_ip"]), 0) < since
            if idle and (left[who] >= since or end - since >= SOON_NS):
                found.setdefault((*who, row["cluster"], row["topic"]), []).append((row, evidence))
        for rows in found.values():
            # A member that was there before, gets a partition, and leaves at once was just stopped.
            who = tuple(rows[0][0][name] for name in _WHO)
            joined = members[who]["joined"] or 0
            stopped = all(
                row["count"] == 1 and joined + SOON_NS <= row["first"] <= left[who] <= row["first"] + SOON_NS
                for row, _ in rows
            )
            yield self._without_offset("note" if stopped else "error", rows)

    def _gaps(self) -> set[str]:
        """Addresses of clients of which data is missing: what they asked or read may be in a gap of the capture."""
        return set(self.parts["gaps"].table().column("client_ip").to_pylist())

    def _sees_all_brokers(self) -> bool:
        """Whether all brokers that others list have connections here: a client may read at those that do not."""
        seen = set(self.parts["brokers"].table().column("broker").to_pylist())
        hidden = {label for label in self.clusters.labels if label not in seen}
        # Addresses of names are unknown, but not how many there are.
        return bool(seen) and all(map(_is_name, hidden)) and len(hidden) <= len(seen)

    def _without_offset(self, severity: Severity, rows: list[tuple[dict[str, Any], tuple[Evidence, ...]]]) -> Finding:
        row, evidence = min(rows, key=lambda one: one[0]["partition"] or 0)
        others = f" and {plural(len(rows) - 1, 'other partition')}" if rows[1:] else ""
        place = f"{word(row['topic'])}-{row['partition']}{others}{in_cluster(self.clusters, row['cluster'])}"
        times = f", {row['count']:,} times" if row["count"] > 1 else ""
        return self.finding(
            severity,
            f"{client(row)} found no committed offset of group {word(row['group_id'])} for {place} and reads nothing"
            f"{times}",
            meaning=(
                "Without a committed offset, a consumer starts where auto.offset.reset says. This one neither asked "
                "where the log begins or ends (ListOffsets) nor fetched, as consumers with auto.offset.reset=none do: "
                "their program gets an exception (NoOffsetForPartitionException) and usually ends."
            ),
            advice=(
                "Set auto.offset.reset to earliest or latest, or give the group an offset first (kafka-consumer-groups "
                "--reset-offsets). If it had offsets before the capture, they were deleted or have expired "
                "(offsets.retention.minutes), or the group's name or the cluster is another one."
            ),
            subject=subject(row, "client_id", "client_ip", "topic") | {"group_id": row["group_id"]},
            **in_all(rows) | {"count": row["count"], "evidence": evidence},
            values={"partitions": len(rows)},
        )

    def _lost(self) -> Iterator[tuple[dict[str, Any], tuple[Evidence, ...]]]:
        """Groups without the offset that they had committed before."""
        commits: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.resolved("commits").to_pylist():
            commits.setdefault((row["group_id"], *partition_of(row)), []).append(row)
        for row, evidence in self._absent.rows(self):
            before = [
                commit
                for commit in commits.get((row["group_id"], *partition_of(row)), ())
                if row["last"] is not None and commit["time_ns"] < row["last"]
            ]
            if before:
                last = max(before, key=lambda one: (one["time_ns"], one["connection_id"]))
                shown = Evidence(
                    last["connection_id"], last["exchange_id"], last["time_ns"], f"commits {last['offset']:,}"
                )
                # A new group has no offsets, either: only the last answer counts.
                yield {**row, "offset": last["offset"], "first": row["last"], "count": 1}, (shown, *evidence[-1:])

    def _finding(self, refusals: list[_Refusal]) -> Finding:
        worst = refusals[0]
        row, at = worst.row, worst.row["offset"]
        skipped, again = (sum(getattr(refusal, name) for refusal in refusals) for name in ("skipped", "again"))
        severity: Severity = "error"
        if all(refusal.reset is not None for refusal in refusals) and skipped + again < self.thresholds.at_least:
            severity = "note"
        elif row["client_ip"] in self._gaps() and not skipped + again:
            severity = "warning"
        log = [f"begins at {worst.start:,}"] if worst.start is not None else []
        log += [f"ends at {worst.end:,}"] if worst.end is not None else []
        has = f" (the log {' and '.join(log)})" if log else ""
        offset = "an offset" if at is None else f"offset {at:,}"
        more = [f"{skipped:,} skipped in all"] if skipped > worst.skipped else []
        more += [f"{again:,} read again in all"] if again > worst.again else []
        likewise = f"; likewise {', '.join([plural(len(refusals) - 1, 'other offset'), *more])}" if refusals[1:] else ""
        shown = [evidence for refusal in refusals for evidence in refusal.shown]
        times = [
            refusal.row[name] for refusal in refusals for name in ("first", "last") if refusal.row[name] is not None
        ]
        place = f"{word(row['topic'])}-{row['partition']}{in_cluster(self.clusters, row['cluster'])}"
        if worst.group is not None:
            title = f"{client(row)} found no committed offset of group {word(worst.group)} for {place}, which had " + (
                f"committed {at:,}"
            )
        else:
            title = f"{client(row)} fetched {place} at {offset}, which is out of range"
        return self.finding(
            severity,
            f"{title}{has}: {worst.then}{likewise}",
            meaning=(
                "The records at this offset were deleted before the consumer read them (retention, DeleteRecords), or "
                "never existed: the topic was created again, an unclean leader election cut the log off, or the offset "
                "belongs to another cluster."
                if worst.group is None
                else "The group's offsets were deleted, or expired because the group had no members for longer than "
                "offsets.retention.minutes. The consumer starts where auto.offset.reset says, as a new group does."
            ),
            advice=(
                "If the consumer was down or slow, keep records for longer (retention.ms, retention.bytes, "
                "offsets.retention.minutes). Otherwise find out who set or deleted the offset, and choose "
                "auto.offset.reset deliberately: earliest reads again, latest skips, none stops."
            ),
            subject=subject(row, "client_id", "client_ip", "topic"),
            count=sum(refusal.row["count"] for refusal in refusals),
            first=min(times, default=None),
            last=max(times, default=None),
            evidence=tuple(sorted(shown[:MAX_EVIDENCE], key=lambda one: one.time_ns or 0)),
            values={
                "partition": row["partition"],
                "offset": at,
                "reset": worst.to,
                "start": worst.start,
                "end": worst.end,
                "skipped": skipped,
                "again": again,
                "offsets": len(refusals),
            },
        )


def _time(row: Mapping[str, Any]) -> int:
    time: int = row["time_ns"]
    return time


def _is_name(endpoint: str) -> bool:
    """Whether its host is a name, not an address."""
    try:
        ipaddress.ip_address(endpoint.rpartition(":")[0].strip("[]"))
    except ValueError:
        return True
    return False


def _timestamps(body: str | None) -> dict[tuple[Any, int | None], int | None]:
    """What a ListOffsets request asks for each topic and partition: a time, `EARLIEST` or `LATEST`."""
    if body is None:
        return {}
    try:
        asked = _ASKED.decode(body)
    except msgspec.DecodeError:
        return {}
    return {
        (topic.name, place.partition_index): place.timestamp
        for topic in asked.topics
        if isinstance(topic.name, str)
        for place in topic.partitions
    }


_CLUSTER_GROUP: Final = (*CLUSTER, ("group_id", pa.string()))


def _keys(batch: pa.RecordBatch) -> dict[str, Any]:
    return {**clients(batch), **clusters(batch), "group_id": encoded(batch, "group_id")}


class FrequentCommitThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `FrequentCommits`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which commits are counted.")] = 10_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="Report a client from this many OffsetCommit requests in a span.")
    ] = 100


class FrequentCommits(Detector[FrequentCommitThresholds]):
    """Clients that commit offsets many times a second.

    Commits within transactions (TxnOffsetCommit) do not count.
    """

    name: ClassVar[str] = "frequent-commits"
    summary: ClassVar[str] = "Clients that commit offsets many times a second."
    parameters_type = FrequentCommitThresholds
    parts_clusters = True

    _commits = Tally("commits", (*CLIENT, *_CLUSTER_GROUP, ("span", pa.int64())))

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": TableReading(
                (*ORDER, "api", "group_id", "problems", *CLIENT_COLUMNS, *CLUSTER_COLUMNS), ("OffsetCommit",)
            )
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = with_client(only(batch, in_any(batch, "api", ["OffsetCommit"])))
        span = floor_divided(column(batch, "time_ns"), self.thresholds.every)
        self._commits.add(self, batch, {**_keys(batch), "span": span})

    def findings(self) -> Iterator[Finding]:
        by_client: dict[tuple[Any, ...], list[tuple[dict[str, Any], Any]]] = {}
        for row, evidence in self._commits.rows(self):
            if row["count"] >= self.thresholds.at_least:
                key = (row["client_id"], row["client_ip"], row["cluster"], row["group_id"])
                by_client.setdefault(key, []).append((row, evidence))
        for rows in by_client.values():
            worst, evidence = max(rows, key=lambda one: (one[0]["count"], -(one[0]["span"] or 0)))
            every = elapsed(self.thresholds.every)
            where = in_cluster(self.clusters, worst["cluster"])
            yield self.finding(
                "warning",
                f"{client(worst)} committed offsets of group {word(worst['group_id'])}{where} "
                f"{plural(worst['count'], 'time')} within {every}",
                meaning=(
                    "Each commit is written to __consumer_offsets and replicated. Committing after every record "
                    "slows the consumer down and loads the group's coordinator."
                ),
                advice=(
                    "Commit once per poll or every few seconds, asynchronously, and synchronously before shutdown."
                ),
                subject=subject(worst, "client_id", "client_ip", "group_id"),
                **in_all(rows) | {"evidence": evidence},
                values={"commits": worst["count"], "spans": len(rows)},
            )


REBALANCE_IN_PROGRESS: Final = 27
_REFUSED: Final = (22, 25, REBALANCE_IN_PROGRESS, 82, 110, 113)
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID (KIP-345), FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH
(KIP-848)."""
_COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit")
_PASSING: Final = (
    "The group was rebalancing. The member can commit after it has rejoined.",
    "Nothing if it is rare; otherwise find out why the group rebalances (rebalance-storms).",
)
_OUTSIDE: Final = (
    "The commit names no member: it comes from an administrator (kafka-consumer-groups.sh --reset-offsets), or from a "
    "program that chooses its partitions itself (assign). While the group has members, only these may commit.",
    "Stop all members of the group before you set its offsets. Give programs that use assign a group.id of their own.",
)
_LATE: Final = (
    "The group had moved on without this member. The new owner of its partitions reads and processes everything since "
    "its last commit again.",
    "Do less work between polls, or raise max.poll.interval.ms; commit when partitions are revoked; make processing "
    "idempotent.",
)
"""Meaning and advice."""


class RefusedCommitThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `RefusedCommits`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a client from this many commits refused in this way.")] = 1


class RefusedCommits(Detector[RefusedCommitThresholds]):
    """Commits refused because the group had moved on: the member, generation or epoch is outdated.

    The records may be processed twice. A commit that names no member is a program's or an administrator's that sets the
    offsets of a group while its members run.
    """

    name: ClassVar[str] = "refused-commits"
    summary: ClassVar[str] = "Commits sent during a rebalance, or by former members."
    parameters_type = RefusedCommitThresholds
    parts_clusters = True

    _refused = Tally(
        "refused",
        (*CLIENT, *_CLUSTER_GROUP, ("error_code", pa.int64()), ("outside", pa.bool_())),
        sums=("partitions",),
    )

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": TableReading(
                (
                    *ORDER,
                    "api",
                    "group_id",
                    "member_id",
                    *CLIENT_COLUMNS,
                    *CLUSTER_COLUMNS,
                    "error_count",
                    "partitions",
                ),
                _COMMITS,
            )
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", _COMMITS), pc.greater(column(batch, "error_count"), 0)))
        rows = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        parts = exploded(rows, ["row"])
        parts = only(parts, pc.is_in(column(parts, "error_code"), value_set=pa.array(_REFUSED, pa.int32())))
        if not parts.num_rows:
            return
        # The coordinator judges the member, so all partitions of a request have the same code.
        places, firsts, counts = np.unique(column(parts, "row").to_numpy(), return_index=True, return_counts=True)
        batch = batch.take(pa.array(places))
        keys = {
            **_keys(batch),
            "error_code": column(parts, "error_code").take(pa.array(firsts)),
            "outside": pc.fill_null(pc.equal(column(batch, "member_id"), ""), False),
        }
        self._refused.add(self, batch, keys, partitions=counts)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._refused.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            name, passing = error_name(row["error_code"]), row["error_code"] == REBALANCE_IN_PROGRESS
            meaning, advice = _PASSING if passing else _OUTSIDE if row["outside"] else _LATE
            yield self.row_finding(
                row,
                evidence,
                "note" if passing else "warning",
                f"{plural(row['count'], 'commit')} of {client(row)} to group {word(row['group_id'])}"
                f"{in_cluster(self.clusters, row['cluster'])} refused with {name}",
                meaning=meaning,
                advice=advice,
                subject=("client_id", "client_ip", "group_id", "error_code"),
                values={"commits": row["count"], "partitions": row["partitions"]},
            )
