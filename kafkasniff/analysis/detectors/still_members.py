"""Members of groups, and consumers without one, that stand still: their requests stop for a while."""

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
from kafkasniff.analysis.columns import ORDER, column, in_any, integers, only, order_columns
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.gaps import add_gaps, gap_shapes, gaps_of
from kafkasniff.analysis.detectors.tally import CLIENT, CLIENT_COLUMNS, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, subject
from kafkasniff.analysis.group_history import HEARTBEATS, MEMBER_APIS, MEMBER_SHAPE, member_rows
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
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
        stays = pc.match_substring_regex(column(batch, "request_body"), _EPOCH)
        newer = pc.and_(in_any(batch, "api", tuple(HEARTBEATS)), pc.invert(pc.fill_null(stays, False)))
        asked = pc.extract_regex(column(batch, "response_body"), _INTERVAL)
        self.parts["beats"].add(
            {
                **clients(batch),
                "group_id": column(batch, "group_id"),
                **order_columns(batch),
                "end_ns": pc.add(column(batch, "time_ns"), end),
                "asked_ms": pc.struct_field(asked, "ms").cast(pa.int64()),
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
                one["time_ns"] + self.thresholds.beyond < until and until - AT_ONCE < (one["end_ns"] or 0) <= until
                for one in fetches
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
            missing = (gap for one in (before, after) for gap in gaps.get(one["connection_id"], []))
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
