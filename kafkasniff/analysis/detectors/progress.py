"""Consumers that make no progress, or too little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import (
    ORDER,
    column,
    encoded,
    exploded,
    floor_divided,
    in_any,
    is_follower,
    named,
    only,
)
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    PARTITION,
    Row,
    clusters,
    partition_of,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, some, span, subject
from kafkasniff.analysis.group_history import MEMBER_APIS, MEMBER_SHAPE, groups_by_client, member_rows
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.tables.rows.transport import TABLE as TRANSPORT
from kafkasniff.text.printable import word

_COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit")
MAX_SESSIONS: Final = 1 << 17
"""Maximum number of partitions of connections whose first records are remembered, the earliest."""
MAX_SPANS: Final = 1 << 18
"""Maximum number of positions and ends of partitions; partitions with the fewest are dropped first."""
MAX_GROUPS: Final = 1 << 16
"""Maximum number of groups whose members' last requests are remembered."""
_RISING: Final = 2 / 3
"""Fraction of the steps in which a lag that grows rises."""
_NEAR: Final = 0.9
"""At the end, it is at least this fraction of its maximum: it is not being worked off."""

_TWICE: Final = 2
"""As many starts say something if nothing else came of them."""
_STOPPED: Final = 3
"""A position that has not moved for this many times its longest pause has stopped: the lag grows until the end."""


class RepeatedStartThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `RepeatedStarts`."""

    at_least: Annotated[
        int,
        Meta(ge=2, description="Report a group from this many consecutive starts at the same offset of a partition."),
    ] = 3
    returns: Annotated[
        int, Meta(ge=2, description="Or from this many fetches of its records at the same offset on one connection.")
    ] = 5


class RepeatedStarts(Detector[RepeatedStartThresholds]):
    """Groups whose consumers begin at the same offset again and again, although they receive its records.

    Each new connection that receives records begins where the group's last commit was. If that does not move, either no
    record is processed to its end (a record on which the program fails), or nothing is committed. Two starts are a
    warning if the client ended each connection and the group has committed nothing since. A program that fails
    without a restart returns to the same offset on its connection: an error if it does not get beyond it, otherwise a
    warning.

    Caveats: programs that read a topic from its beginning on purpose, with the same group, look the same. Clients with
    the same id in several groups are not judged.
    """

    name: ClassVar[str] = "repeated-starts"
    summary: ClassVar[str] = "Consumers that start again and again at the same record."
    parameters_type = RepeatedStartThresholds
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "group_id", "partitions")
        return {
            "exchanges": TableReading(own, ("Fetch", "TxnOffsetCommit", *MEMBER_APIS)),
            TRANSPORT: TableReading(("connection_id", "ended_by", "ended_ns"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        keys = (*CLIENT, *PARTITION, ("connection_id", pa.int64()))
        first: Any = tuple((name, pa.int64(), "first") for name in ("time_ns", "exchange_id", "offset"))
        return {
            "starts": Shape(keys=keys, measures=first, order=ORDER, keep="earliest", bound=MAX_SESSIONS),
            "fetched": Shape(
                keys=(*keys, ("offset", pa.int64())),
                measures=(
                    ("count", pa.int64(), "sum"),
                    ("first", pa.int64(), "min"),
                    ("last", pa.int64(), "max"),
                    ("exchange_id", pa.int64(), "max"),
                ),
                weight="count",
                bound=MAX_SESSIONS,
            ),
            "committed": Shape(
                keys=(("group_id", pa.string()), *PARTITION),
                measures=(("time_ns", pa.int64(), "max"),),
                bound=MAX_SESSIONS,
            ),
            "ended": Shape(
                keys=(("connection_id", pa.int64()),), measures=(("ended_ns", pa.int64(), "max"),), bound=MAX_SESSIONS
            ),
            "members": MEMBER_SHAPE,
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TRANSPORT:
            batch = only(batch, in_any(batch, "ended_by", ("client",)))
            self.parts["ended"].add({name: column(batch, name) for name in ("connection_id", "ended_ns")})
            return
        self.parts["members"].add(member_rows(batch))
        commits = only(batch, pc.and_(in_any(batch, "api", _COMMITS), pc.is_valid(column(batch, "group_id"))))
        rows = named(exploded(commits, ["group_id", "time_ns", *CLUSTER_COLUMNS]))
        rows = only(rows, pc.equal(column(rows, "error_code"), 0))
        what = ("group_id", "topic", "partition", "time_ns")
        self.parts["committed"].add({**clusters(rows), **{name: column(rows, name) for name in what}})
        batch = only(batch, pc.and_(in_any(batch, "api", ["Fetch"]), pc.is_valid(column(batch, "time_ns"))))
        batch = only(batch, pc.invert(is_follower(column(batch, "client_id"))))
        rows = named(exploded(batch, [*ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS]))
        asked = pc.and_(pc.equal(column(rows, "error_code"), 0), pc.greater_equal(column(rows, "offset"), 0))
        rows = only(rows, pc.and_(asked, pc.greater(column(rows, "record_count"), 0)))
        names = (*CLIENT_COLUMNS, "topic", "partition", *ORDER, "offset")
        values = {**clusters(rows), **{name: column(rows, name) for name in names}}
        self.parts["starts"].add(values)
        time = values.pop("time_ns")
        self.parts["fetched"].add({**values, "count": np.ones(rows.num_rows, np.int64), "first": time, "last": time})

    def findings(self) -> Iterator[Finding]:
        groups = groups_by_client(self.parts["members"])
        yield from self._returning(groups)
        starts: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.resolved("starts").to_pylist():
            group = groups.get((row["client_id"], row["client_ip"]))
            if group is not None:
                starts.setdefault((row["cluster"], group, row["topic"], row["partition"]), []).append(row)
        found: dict[tuple[Any, ...], list[list[Row]]] = {}
        committed = {
            (row["group_id"], *partition_of(row)): row["time_ns"] for row in self.resolved("committed").to_pylist()
        }
        ended = {row["connection_id"]: row["ended_ns"] for row in self.parts["ended"].table().to_pylist()}
        for (*place, _, _), rows in starts.items():
            rows.sort(key=lambda row: (row["time_ns"], row["connection_id"]))
            runs = _runs(rows)
            longest = max(runs, key=len)
            if len(longest) < self.thresholds.at_least:
                longest = runs[-1]
                commits = committed.get((place[1], *partition_of(longest[0]))) or 0
                if len(longest) < _TWICE or commits > longest[0]["time_ns"] or not _one_by_one(longest, ended):
                    continue
            found.setdefault(tuple(place), []).append(longest)
        for (cluster, group), runs in found.items():
            yield self._finding(cluster, group, sorted(runs, key=lambda run: (-len(run), run[0]["time_ns"])))

    def _finding(self, cluster: str | None, group: str, runs: list[list[Row]]) -> Finding:
        worst = runs[0]
        at = worst[0]
        places = f"offset {at['offset']:,} of {_name(at)}"
        places += f" (and {plural(len(runs) - 1, 'other partition')})" if runs[1:] else ""
        first, last = worst[0]["time_ns"], worst[-1]["time_ns"]
        who = list(dict.fromkeys(client(row) for row in worst))
        return self.finding(
            "error" if len(worst) >= self.thresholds.at_least else "warning",
            f"group {word(group)}{in_cluster(self.clusters, cluster)} started {len(worst):,} times at {places}"
            f"{span(first, last)}, and got its records each time",
            meaning=(
                "No commit moves the group beyond this offset. Usually the program fails at a record at or soon after "
                "it (a poison record) and is started again; otherwise it ends before it commits. Records there are "
                "processed again each time, those that follow not at all."
            ),
            advice=(
                "Look at the program's log for the error, and at the record at this offset. Let the program skip "
                "records that it cannot process, or write them to a dead letter topic, and commit."
            ),
            subject={"group_id": group, **({} if cluster is None else {"cluster": cluster})},
            count=len(worst),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], f"starts at {row['offset']:,}")
                for row in worst[:MAX_EVIDENCE]
            ),
            values={
                **{name: at[name] for name in ("topic", "partition", "offset")},
                "clients": who[:MAX_EVIDENCE],
            },
        )

    def _returning(self, groups: Mapping[tuple[Any, Any], str | None]) -> Iterator[Finding]:
        """Consumers that return to an offset on the same connection."""
        last: dict[tuple[Any, ...], Row] = {}
        often: dict[tuple[Any, ...], list[Row]] = {}
        fetched = self.resolved("fetched")
        if not pc.any(pc.greater_equal(fetched.column("count"), self.thresholds.returns)).as_py():
            return
        for row in fetched.to_pylist():
            key = (row["client_id"], row["client_ip"], row["connection_id"], *partition_of(row))
            if key not in last or (row["last"], row["offset"]) > (last[key]["last"], last[key]["offset"]):
                last[key] = row
            if row["count"] >= self.thresholds.returns:
                often.setdefault(key, []).append(row)
        found: dict[tuple[Any, ...], list[Row]] = {}
        for key, rows in often.items():
            worst = max(rows, key=lambda row: (row["count"], -row["offset"]))
            end = last[key]
            beyond = end["offset"] > worst["offset"] and end["last"] > worst["last"]
            found.setdefault((*key[:2], worst["cluster"]), []).append({**worst, "beyond": beyond})
        for (client_id, client_ip, cluster), rows in found.items():
            rows.sort(key=lambda row: (row["beyond"], -row["count"], _name(row), row["connection_id"]))
            yield self._return(groups.get((client_id, client_ip)), cluster, rows)

    def _return(self, group: str | None, cluster: str | None, rows: Sequence[Row]) -> Finding:
        worst = rows[0]
        who = client(worst) if group is None else f"{client(worst)} of group {word(group)}"
        more = f" (and {plural(len(rows) - 1, 'other partition')})" if rows[1:] else ""
        then = "then continued" if worst["beyond"] else "did not get beyond it"
        return self.finding(
            "warning" if worst["beyond"] else "error",
            f"{who}{in_cluster(self.clusters, cluster)} fetched the records at offset {worst['offset']:,} of "
            f"{_name(worst)}{more} {worst['count']:,} times on one connection{span(worst['first'], worst['last'])}, "
            f"and {then}",
            meaning=(
                "The consumer received these records and returned to them each time. Usually the program fails at a "
                "record at or soon after this offset (a poison record), and its error handler seeks back to try again; "
                "the records that follow wait."
            ),
            advice=(
                "Look at the program's log for the error, and at the record at this offset. Limit the attempts of the "
                "error handler, and write records that fail to a dead letter topic."
            ),
            subject={
                **({"group_id": group} if group is not None else subject(worst, *CLIENT_COLUMNS)),
                **({} if cluster is None else {"cluster": cluster}),
            },
            count=worst["count"],
            first=worst["first"],
            last=worst["last"],
            evidence=tuple(
                Evidence(row["connection_id"], row["exchange_id"], row["last"], f"the last fetch at {row['offset']:,}")
                for row in rows[:MAX_EVIDENCE]
            ),
            values={name: worst[name] for name in ("topic", "partition", "offset", "beyond")},
        )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        if "group_id" not in finding.subject:
            return
        group = {"group_id": finding.subject["group_id"], "cluster": finding.subject.get("cluster")}
        yield "rebalance-storms", group
        yield "lost-members", group


def _runs(rows: Sequence[Row]) -> list[list[Row]]:
    """Consecutive starts at one offset."""
    runs: list[list[Row]] = []
    for row in rows:
        if runs and runs[-1][0]["offset"] == row["offset"]:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _one_by_one(run: Sequence[Row], ended: Mapping[int, int]) -> bool:
    """Whether clients ended each of these connections, and before the next one began to read."""
    ends = [ended.get(row["connection_id"]) for row in run]
    return None not in ends and all(end < row["time_ns"] for end, row in zip(ends, run[1:], strict=False) if end)


class GrowingLagThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `GrowingLag`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span of a sample.")] = 5_000_000_000
    samples: Annotated[int, Meta(ge=3, description="Minimum number of samples; shorter growth is not judged.")] = 4
    at_least: Annotated[int, Meta(ge=1, description="Report a lag that has grown by this many records …")] = 500
    share: Annotated[
        float, Meta(ge=0, le=1, description="… and by at least this fraction of the records produced meanwhile.")
    ] = 0.2
    gone: Annotated[
        Duration, Meta(ge=0, description="Report a group that lagged and has had no members for this long.")
    ] = 10_000_000_000


class GrowingLag(Detector[GrowingLagThresholds]):
    """Consumers whose distance to the end of the log grows for as long as they are seen.

    Committed offsets are compared with the log's end; for groups that do not commit, those of Fetch requests. A group
    that stops committing counts as long as its members send heartbeats, and after that if it lagged and nobody
    continues: its program failed, at a record or otherwise. In the classic protocol, a last member that did not leave
    the group suffices.

    Caveats: clients fetch ahead of their program, so only commits show what it has processed. A group that commits
    rarely is sampled at its commits only.
    """

    name: ClassVar[str] = "growing-lag"
    summary: ClassVar[str] = "Consumers that are slower than the producers: their lag grows."
    parameters_type = GrowingLagThresholds
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "group_id", "partitions")
        apis = ("Produce", "Fetch", *_COMMITS, *MEMBER_APIS)
        return {"exchanges": TableReading(own, tuple(dict.fromkeys(apis)))}

    def shapes(self) -> Mapping[str, Shape]:
        spans = (("span", pa.int64()),)
        highest: Any = (("offset", pa.int64(), "max"),)
        # The exchange that a sample is shown by.
        shown: Any = (*((name, pa.int64(), "first") for name in ORDER), *highest)
        group = tuple(name for name, _ in PARTITION)
        return {
            "ends": Shape(
                keys=(*PARTITION, *spans),
                measures=(*highest, ("lowest", pa.int64(), "min"), ("first", pa.int64(), "min")),
                group=group,
                bound=MAX_SPANS,
            ),
            "commits": Shape(
                keys=(("group_id", pa.string()), *PARTITION, *spans),
                measures=shown,
                order=ORDER,
                group=group,
                bound=MAX_SPANS,
            ),
            "fetches": Shape(
                keys=(*CLIENT, *PARTITION, *spans), measures=shown, order=ORDER, group=group, bound=MAX_SPANS
            ),
            "members": MEMBER_SHAPE,
            "alive": Shape(
                keys=(("group_id", pa.string()), *CLUSTER),
                measures=tuple((name, pa.int64(), "max") for name in ("span", "member_ns", "left_ns")),
                bound=MAX_GROUPS,
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.parts["members"].add(member_rows(batch))
        batch = only(batch, pc.is_valid(column(batch, "time_ns")))
        alive = only(batch, pc.and_(in_any(batch, "api", MEMBER_APIS), pc.is_valid(column(batch, "group_id"))))
        time = column(alive, "time_ns")
        # Others commit, too. Whether a heartbeat of the newer protocols leaves the group is in its body.
        joined = pc.if_else(in_any(alive, "api", ["OffsetCommit"]), None, time)
        may_leave = pc.or_(in_any(alive, "api", ["LeaveGroup"]), pc.ends_with(column(alive, "api"), "GroupHeartbeat"))
        self.parts["alive"].add(
            {
                **clusters(alive),
                "group_id": encoded(alive, "group_id"),
                "span": floor_divided(time, self.thresholds.every),
                "member_ns": joined,
                "left_ns": pc.if_else(may_leave, time, None),
            }
        )
        rows = named(exploded(batch, ["api", *ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "group_id"]))
        rows = only(rows, pc.and_(pc.equal(column(rows, "error_code"), 0), pc.is_valid(column(rows, "partition"))))
        fetched = only(rows, in_any(rows, "api", ["Fetch"]))
        self._add("ends", fetched, column(fetched, "high_watermark"))
        produced = only(rows, in_any(rows, "api", ["Produce"]))
        start = pc.if_else(pc.greater_equal(column(produced, "offset"), 0), column(produced, "offset"), None)
        self._add("ends", produced, pc.add(start, column(produced, "record_count")))
        committed = only(rows, pc.and_(in_any(rows, "api", _COMMITS), pc.is_valid(column(rows, "group_id"))))
        self._add("commits", committed, column(committed, "offset"))
        asked = only(fetched, pc.invert(is_follower(column(fetched, "client_id"))))
        self._add("fetches", asked, column(asked, "offset"))

    def _add(self, part: str, rows: pa.RecordBatch, offset: pa.Array) -> None:
        known = pc.fill_null(pc.greater_equal(offset, 0), False)
        rows, offset = only(rows, known), offset.filter(known)
        shape = self.parts[part].shape
        when = floor_divided(column(rows, "time_ns"), self.thresholds.every)
        own = {"span": when, "offset": offset, "lowest": offset, "first": column(rows, "time_ns")}
        own = {name: values for name, values in own.items() if name in shape.schema.names}
        names = [name for name in shape.schema.names if name != "cluster" and name not in own]
        self.parts[part].add({**clusters(rows), **{name: column(rows, name) for name in names}, **own})

    def findings(self) -> Iterator[Finding]:
        ends: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        before: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
        for row in self.resolved("ends").to_pylist():
            ends.setdefault(partition_of(row), []).append((row["span"], row["offset"]))
            before.setdefault(partition_of(row), []).append((row["span"], row["lowest"], row["first"]))
        groups = groups_by_client(self.parts["members"])
        commits: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.resolved("commits").to_pylist():
            commits.setdefault((row["group_id"], None, *partition_of(row)), []).append(row)
        series = dict(commits)
        read: dict[tuple[Any, ...], int] = {}
        for row in self.resolved("fetches").to_pylist():
            group = groups.get((row["client_id"], row["client_ip"]))
            read[group, row["cluster"]] = max(row["span"], read.get((group, row["cluster"]), row["span"]))
            who = None if group is not None else (row["client_id"], row["client_ip"])
            if (group, who, *partition_of(row)) not in commits:
                series.setdefault((group, who, *partition_of(row)), []).append(row)
        alive = {(row["group_id"], row["cluster"]): row for row in self.resolved("alive").to_pylist()}
        found: dict[tuple[Any, ...], list[tuple[bool, list[Row]]]] = {}
        for key, positions in series.items():
            seen = alive.get((key[0], key[2]))
            # A group may commit rarely, but a consumer that reads fetches.
            unmoved = None if key in commits else self.thresholds.samples - 1
            spans = None if seen is None else seen["span"]
            samples = _samples(sorted(positions, key=_when), sorted(ends.get(key[2:], ())), spans, unmoved)
            if self._grows(samples):
                found.setdefault(key[:3], []).append((key in commits, samples))
        left: dict[tuple[Any, ...], list[Row]] = {}
        for key, positions in commits.items():
            whole = key[0], key[2]
            seen = alive.get(whole)
            if key[:3] in found or seen is None or seen["member_ns"] is None or read.get(whole, 0) > seen["span"]:
                continue
            lost = (seen["left_ns"] or 0) < seen["member_ns"]
            left.setdefault(whole, []).extend(self._left(positions, before.get(key[2:], []), seen["span"], lost=lost))
        for (group, who, cluster), grown in found.items():
            grown.sort(key=lambda one: (-_growth(one[1]), _name(one[1][0])))
            yield self._finding(group, who, cluster, grown)
        for (name, cluster), rows in left.items():
            if rows:
                yield self._abandoned(name, cluster, sorted(rows, key=lambda row: (-row["lag"], _name(row))))

    def _left(
        self, positions: Sequence[Row], ends: Sequence[tuple[int, int, int]], seen: int, *, lost: bool
    ) -> Iterator[Row]:
        """The last commit, if it left records that were there long before, and more were written after that.

        `ends`: those of the log at the beginning of each span, and when each was seen. A program may leave records of
        its last span, unless its last member is `lost`: it never left the group. If the capture begins in this span,
        those that were there before its last commit count.
        """
        if not ends:
            return
        last, (begin, *_), (until, end, _) = max(positions, key=_when), min(ends), max(ends)
        old = max(
            (
                offset
                for span_of, offset, when in ends
                if span_of < seen or (span_of == begin and when <= last["time_ns"])
            ),
            default=end,
        )
        lags = last["offset"] < end if lost else last["offset"] < old < end
        if lags and (until - seen) * self.thresholds.every >= self.thresholds.gone:
            yield {**last, "lag": end - last["offset"], "seen": seen, "until": until, "lost": lost}

    def _abandoned(self, group: str, cluster: str | None, rows: Sequence[Row]) -> Finding:
        every, worst = self.thresholds.every, rows[0]
        first, last = (worst["seen"] + 1) * every, (worst["until"] + 1) * every
        names = [_name(row) for row in rows]
        return self.finding(
            "warning",
            f"group {word(group)}{in_cluster(self.clusters, cluster)} has had no members for {elapsed(last - first)}, "
            f"and nobody continues: {some(names)}, with a lag of {plural(worst['lag'], 'record')} at offset "
            f"{worst['offset']:,}",
            meaning=(
                "Its last member never left the group: it was killed, or has lost its network. Records are still "
                "written."
                if worst["lost"]
                else "The last member left before it had processed what was there, and records are still written. "
                "Usually the program failed, at the record at this offset or soon after it (a poison record), and "
                "is not started again; or it was stopped on purpose."
            ),
            advice=(
                "Look at the program's log and whether it runs; with Kafka Connect, at the status of the connector's "
                "tasks. Let it skip records that it cannot process, or write them to a dead letter topic."
            ),
            subject={"group_id": group, **({} if cluster is None else {"cluster": cluster})},
            count=len(rows),
            first=first,
            last=last,
            evidence=tuple(
                Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], f"commits {row['offset']:,}")
                for row in rows[:MAX_EVIDENCE]
            ),
            values={"lag": worst["lag"], "offset": worst["offset"], "partitions": names[:MAX_EVIDENCE]},
        )

    def _grows(self, samples: list[Row]) -> bool:
        """Whether a lag grew from the first sample to the last, nearly all the time."""
        limits = self.thresholds
        if samples and samples[-1].get("stopped"):
            samples = samples[-2:]
        lags = [sample["lag"] for sample in samples]
        if len(lags) < 2 or samples[-1]["span"] - samples[0]["span"] + 1 < limits.samples:
            return False
        grown = _growth(samples)
        produced = grown + samples[-1]["offset"] - samples[0]["offset"]
        rising = sum(after > before for before, after in pairwise(lags))
        steady = (
            (len(lags) > 2 or samples[-1].get("stopped"))
            and rising >= _RISING * (len(lags) - 1)
            and lags[-1] >= _NEAR * max(lags)
        )
        return bool(steady and grown >= max(limits.at_least, limits.share * produced))

    def _finding(
        self,
        group: str | None,
        who: tuple[Any, Any] | None,
        cluster: str | None,
        found: list[tuple[bool, list[Row]]],
    ) -> Finding:
        every, (commits, samples) = self.thresholds.every, found[0]
        named_client = {} if who is None else dict(zip(CLIENT_COLUMNS, who, strict=True))
        name = f"group {word(group)}" if group is not None else client(named_client)
        first, last = samples[0], samples[-1]
        lasted = (last["span"] - first["span"]) * every
        names = [_name(rows[0]) for _, rows in found]
        how = "commits" if commits else "fetches"
        return self.finding(
            "warning",
            f"lag of {name}{in_cluster(self.clusters, cluster)} grows: {some(names)}, from {first['lag']:,} to "
            f"{last['lag']:,} records within {elapsed(lasted)} ({_growth(samples) * 1e9 / lasted:,.0f} records/s more "
            f"than it {how})",
            meaning=(
                "The consumer is slower than the producers. Its data becomes older and older, and once it is older "
                "than the topic's retention, records are deleted before they are read."
            ),
            advice=(
                "Find out what limits the consumer: work per record, a slow database, commits that wait. Add members "
                "up to the number of partitions, or partitions; look at the busiest partition if others keep up. A "
                "consumer with isolation.level=read_committed that gets nothing may wait for the end of an open "
                "transaction (kafka-transactions.sh find-hanging)."
            ),
            subject={
                **({"group_id": group} if group is not None else named_client),
                **({} if cluster is None else {"cluster": cluster}),
            },
            count=len(samples),
            first=first["span"] * every,
            last=(last["span"] + 1) * every,
            evidence=tuple(
                Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], f"a lag of {row['lag']:,} records")
                for row in samples[-MAX_EVIDENCE:]
            ),
            values={"before": first["lag"], "lag": last["lag"], "partitions": names[:MAX_EVIDENCE]},
        )


def _samples(positions: list[Row], ends: list[tuple[int, int]], alive: int | None, unmoved: int | None) -> list[Row]:
    """Positions with their lag, in order: those that moved, since any lag grows between two commits.

    `alive`: when the group's members were last seen. If they still are at the end, and the position has stopped, there
    is a last sample of the end. A position that never moved has stopped after `unmoved` spans.
    """
    samples: list[Row] = []
    index, end = 0, 0
    for row in positions:
        while index < len(ends) and ends[index][0] <= row["span"]:
            end = max(end, ends[index][1])
            index += 1
        if index and (not samples or row["offset"] != samples[-1]["offset"]):
            samples.append({**row, "lag": max(end - row["offset"], 0)})
    pauses = [after["span"] - before["span"] for before, after in pairwise(samples)]
    patience = _STOPPED * max(pauses) if pauses else unmoved
    if samples and patience is not None:
        last = samples[-1]
        if alive is not None and min(ends[-1][0], alive) - last["span"] > patience:
            end = max(offset for when, offset in ends if when <= alive)
            lag = max(end - last["offset"], 0)
            samples.append({**last, "span": min(ends[-1][0], alive), "lag": lag, "stopped": True})
    return samples


def _growth(samples: Sequence[Row]) -> int:
    grown: int = samples[-1]["lag"] - samples[0]["lag"]
    return grown


def _when(row: Row) -> int:
    span_of: int = row["span"]
    return span_of


def _name(row: Row) -> str:
    return f"{word(row['topic'])}-{row['partition']}"
