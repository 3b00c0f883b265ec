"""Members of groups that stand still: their heartbeats stop for a while."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, only, order_columns
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.gaps import add_gaps, gap_shapes, gaps_of
from kafkasniff.analysis.detectors.tally import CLIENT, CLIENT_COLUMNS, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, subject
from kafkasniff.analysis.group_events import HEARTBEATS
from kafkasniff.analysis.members import MEMBER_APIS
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.engine.wanted_bodies import Bodies
from kafkasniff.text.printable import word
from kafkasniff.text.times import clock_time

__all__ = ["StillMembers"]

MAX_BEATS: Final = 1 << 17
"""Maximum number of requests of members that are examined, the earliest."""
ENOUGH: Final = 3
"""So many intervals show how often a member sends heartbeats."""
_MEMBER: Final = (*CLIENT, ("group_id", pa.string()), ("connection_id", pa.int64()))
"""A member has a connection to its coordinator."""
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
    """A time in which a member sent nothing. Times are ns since the epoch."""

    member: Mapping[str, Any]
    first: int
    until: int
    usual: int
    """Its usual interval."""
    exchange_id: int
    """The next request."""


class StillMembers(Detector[StillMembersThresholds]):
    """Members whose heartbeats stop and continue on the same connection, although the broker had answered them.

    Clients send heartbeats in a thread of their own, at constant intervals. If they stop, the whole process stands
    still: garbage collection, no CPU, swapping, a suspended machine. After `session.timeout.ms`, the coordinator
    removes the member (`lost-members`).

    Caveats: some clients only send heartbeats between records or polls (kafkajs, Java before 0.10.1), so one record may
    have taken that long. Members that join or leave, and gaps in the capture, do not count.
    """

    name: ClassVar[str] = "still-members"
    summary: ClassVar[str] = "Members of groups whose process stood still: no heartbeats for a while."
    parameters_type = StillMembersThresholds
    bodies: ClassVar[Bodies] = {(direction, api): None for api in HEARTBEATS for direction in ("request", "response")}

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "group_id", "latency_us", "request_body", "response_body")
        return {
            "exchanges": TableReading((*ORDER, *own), MEMBER_APIS),
            "problems": TableReading(("connection_id", "time_ns", "kind"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        times = tuple((name, pa.int64()) for name in ("time_ns", "exchange_id", "end_ns", "asked_ms"))
        keys = (*_MEMBER, *times, ("beats", pa.bool_()), ("moves", pa.bool_()))
        return {"beats": Shape(keys=keys, order=ORDER, keep="earliest", bound=MAX_BEATS), **gap_shapes()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "problems":
            add_gaps(self, batch)
            return
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

    def findings(self) -> Iterator[Finding]:
        gaps = gaps_of(self)
        names = dict.fromkeys((*(name for name, _ in _MEMBER), *ORDER))
        rows = self.parts["beats"].table().sort_by([(name, "ascending") for name in names]).to_pylist()
        by_client: dict[tuple[Any, ...], list[_Still]] = {}
        for key, of_member in itertools.groupby(rows, key=lambda row: tuple(row[name] for name, _ in _MEMBER)):
            for one in self._of_member(list(of_member), gaps.get(key[-1], [])):
                by_client.setdefault(key[:3], []).append(one)
        yield from map(self._finding, by_client.values())

    def _of_member(self, rows: list[dict[str, Any]], gaps: list[int]) -> Iterator[_Still]:
        """Silences of a member on one connection; `rows`: by time."""
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
            if not any(end <= gap <= until + usual for gap in gaps):
                yield _Still(before, end, until, usual, after["exchange_id"])

    def _finding(self, silences: list[_Still]) -> Finding:
        silences = sorted(silences, key=lambda one: one.first)
        worst = max(silences, key=lambda one: one.until - one.first)
        lasted = worst.until - worst.first
        times = f", {plural(len(silences), 'time')} in all" if silences[1:] else ""
        severity: Severity = "warning" if lasted >= self.thresholds.long else "note"
        return self.finding(
            severity,
            f"{client(worst.member)}, member of group {word(worst.member['group_id'])}, stood still from "
            f"{clock_time(worst.first)[:-3]} to {clock_time(worst.until)[:-3]}: no heartbeat for {elapsed(lasted)}, "
            f"otherwise each {elapsed(worst.usual)}{times}",
            meaning=(
                "The broker had answered all of its heartbeats, and the connection stayed open: the client's process "
                "did nothing. The records of its partitions waited that long; after session.timeout.ms, the "
                "coordinator gives them to other members."
            ),
            advice=(
                "Compare the time with the client's garbage collection log, its limits of CPU and memory (throttled "
                "containers, swapping), and suspended machines. Clients without a thread for heartbeats: process fewer "
                "records between polls."
            ),
            subject=subject(worst.member, "client_id", "client_ip", "group_id"),
            count=len(silences),
            first=silences[0].first,
            last=silences[-1].until,
            evidence=tuple(
                Evidence(
                    one.member["connection_id"],
                    one.exchange_id,
                    one.until,
                    f"the first heartbeat after {elapsed(one.until - one.first)}",
                )
                for one in silences[:MAX_EVIDENCE]
            ),
            values={"longest_ms": lasted / _NS_PER_MS, "usual_ms": worst.usual / _NS_PER_MS},
        )
