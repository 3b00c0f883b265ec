"""Groups that rebalance over and over, members that disappear without leaving, and members of the same name."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading, united
from kafkasniff.analysis.columns import ORDER, column, in_any, only
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Row,
    Tally,
    clients,
    clusters,
    in_all,
)
from kafkasniff.analysis.detectors.wording import in_cluster, plural, some, span, subject
from kafkasniff.analysis.group_history import GROUP_APIS, HEARTBEATS
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.rebalances import Rebalances
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.text.printable import word

_BODIES: Final[Bodies] = {
    (direction, api): None for api in GROUP_APIS if api != "Heartbeat" for direction in ("request", "response")
}
POLL_TIMEOUT: Final = "poll timeout"
"""Part of the reason that Kafka's consumer gives when it leaves because its program did not poll (KIP-800,
`AbstractCoordinator.maybeLeaveGroup`).
"""

FENCED_INSTANCE_ID: Final = 82
"""`SharedInstances` reports what it follows from."""

_LEAVE: Final = -1
"""Member epoch of a heartbeat that leaves for good; static members that may return send -2."""

GroupKey = tuple[str | None, str]
"""Its cluster, if there are several, and its id."""


class GroupDetector(Detector[Any]):
    """Common base: the generations of groups, and the exchanges that show them."""

    bodies = _BODIES
    parts_clusters = True
    # Heartbeats are reported only if they were refused.
    error_bodies = True

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        return {"rebalances": Rebalances()}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.asked["rebalances"].update(batch)

    def _question(self) -> Rebalances:
        question = self.asked["rebalances"]
        assert isinstance(question, Rebalances)
        question.clusters = self.clusters
        return question

    def _rebalances(self) -> dict[GroupKey, list[Row]]:
        """Rebalances by group, in order; those without a time last."""
        found: dict[GroupKey, list[Row]] = {}
        for row in self._question().generations():
            if row["time_ns"] is not None:
                # Answers are in microseconds.
                row["time_ns"] = row["time_ns"] // 1000 * 1000
            found.setdefault((row["cluster"], row["group_id"]), []).append(row)
        return found

    def _events(self) -> dict[GroupKey, list[Row]]:
        """Exchanges of each group, in order."""
        found: dict[GroupKey, list[Row]] = {}
        for row in sorted(self._question().events(), key=_when):
            found.setdefault((row["cluster"], row["group_id"]), []).append(row)
        return found

    def _named(self, group: GroupKey) -> str:
        return f"group {word(group[1])}{in_cluster(self.clusters, group[0])}"


def _when(event: Row) -> tuple[bool, int, int, int]:
    return (event["time_ns"] is None, event["time_ns"] or 0, event["connection_id"], event["exchange_id"])


def group_subject(group: GroupKey) -> dict[str, Any]:
    """The subject of a finding about a group."""
    return subject({"cluster": group[0], "group_id": group[1]}, "group_id")


def client_names(events: Sequence[Row]) -> dict[str, str]:
    """Client ids by member id."""
    found: dict[str, str] = {}
    for event in events:
        if event["member_id"] and event["client_id"]:
            found.setdefault(event["member_id"], event["client_id"])
    return found


def _evidence(events: Sequence[Row]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(event["connection_id"], event["exchange_id"], event["time_ns"], _note(event))
        for event in events[:MAX_EVIDENCE]
    )


def _note(event: Row) -> str:
    who = word(event["client_id"] or event["member_id"] or "a member")
    if event["error_code"]:
        return f"{event['api']} of {who}: {error_name(event['error_code']) or event['error_code']}"
    if event["reason"]:
        return f"{event['api']} of {who}: {word(event['reason'], 120)}"
    return f"{event['api']} of {who}"


def _away(events: Sequence[Row], at_least_ns: int) -> list[Row]:
    """Leaves of members that join again later: in the newer protocols with their id, else on their connection.

    A program that ends also ends its connection.
    """
    left: dict[str | int, Row] = {}
    rows = []
    for event in events:
        if event["time_ns"] is None:
            continue
        newer = event["asked"] is not None
        who = event["member_id"] if newer else event["connection_id"]
        joins = event["asked"] == 0 if newer else event["api"] == "JoinGroup"
        if (event["asked"] == _LEAVE) if newer else (event["api"] == "LeaveGroup"):
            left[who] = event
        elif joins or newer:
            before = left.pop(who, None)
            if joins and before is not None and event["time_ns"] - before["time_ns"] >= at_least_ns:
                rows.append(before)
    return rows


def _late(events: Sequence[Row], away_ns: int) -> list[Row]:
    """Leaves of members that did not poll in time."""
    away = {id(row) for row in _away(events, away_ns)}
    return [
        event for event in events if id(event) in away or (_leaves(event) and POLL_TIMEOUT in (event["reason"] or ""))
    ]


def _leaves(event: Row) -> bool:
    return event["api"] == "LeaveGroup" or (event["asked"] is not None and event["asked"] < 0)


class RebalanceStormThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `RebalanceStorms`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which rebalances are counted.")] = 60_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="This many rebalances of a group in a span because members left or were lost.")
    ] = 3
    rejoins: Annotated[
        int, Meta(ge=1, description="Or this many, including those in which members only joined again.")
    ] = 10


class RebalanceStorms(GroupDetector):
    """Groups that start generation after generation: which members left, were lost or joined, and why.

    Generations in which members only joined do not count: that is how groups start and grow.

    It is a note if each member left once and on purpose, as in a rolling deployment.

    Caveats: short programs that run one after the other look the same as members that restart again and again.
    """

    name: ClassVar[str] = "rebalance-storms"
    summary: ClassVar[str] = "Groups that rebalance over and over: who left, and why."
    parameters_type = RebalanceStormThresholds

    def findings(self) -> Iterator[Finding]:
        found: list[tuple[GroupKey, list[Row], list[Row]]] = []
        for group, rows in self._rebalances().items():
            counted = [
                row
                for row in rows
                if row["time_ns"] is not None
                and row["generation"] is not None
                and (row["left"] or row["lost"] or not row["joined"])
            ]
            leaving = [row for row in counted if row["left"] or row["lost"]]
            for some_rows, enough in ((counted, self.thresholds.rejoins), (leaving, self.thresholds.at_least)):
                first, after = _densest([row["time_ns"] for row in some_rows], self.thresholds.every)
                if after - first >= enough:
                    found.append((group, some_rows[first:after], rows))
                    break
        events = self._events() if found else {}
        for group, some_rows, rows in found:
            yield self._finding(group, some_rows, events.get(group, []), rows)

    def _finding(self, group: GroupKey, rows: list[Row], events: list[Row], everything: list[Row]) -> Finding:
        """`rows`: those that count; `everything`: all rebalances of the group."""
        names = client_names(events)
        planned = _is_planned(rows, events, everything)
        share = any(event["api"] == _SHARES for event in events)
        first, last = rows[0]["time_ns"], rows[-1]["time_ns"]
        reasons = []
        for key, verb in (("left", "left"), ("lost", "disappeared without leaving"), ("joined", "joined")):
            who = Counter(names.get(one, one) for row in rows for one in row[key])
            if who:
                reasons.append(
                    f"{some([name for name, _ in who.most_common()])} {verb} ({plural(who.total(), 'time')})"
                )
        rejoined = sum(not (row["left"] or row["lost"]) for row in rows)
        if rejoined:
            reasons.append(f"{rejoined:,} of them because members joined again")
        causes = list(dict.fromkeys(row["cause"] for row in rows if row["cause"]))
        why = "; ".join(reasons)
        # Times of rebalances are microseconds, rounded down.
        over = last + 1000 * ((rows[-1]["duration_us"] or 0) + 1)
        inside = [event for event in events if event["time_ns"] is not None and first <= event["time_ns"] < over]
        shown = [event for event in inside if _leaves(event) or event["error_code"] or event["reason"]] or inside
        return self.finding(
            "note" if planned else "warning",
            f"{self._named(group)} rebalanced {plural(len(rows), 'time')}{span(first, last)}: {why}",
            meaning=(
                (
                    "What a member had not acknowledged when it left is delivered again, to another member."
                    if share
                    else "In each rebalance members stop or give up partitions, partitions are reassigned, and records "
                    "with uncommitted offsets are read again."
                )
                + (" Each member left once and on purpose: a deployment, or a group that shrinks." if planned else "")
            ),
            advice=(
                "Find out why members leave: a poll interval or session timeout too short for the work, crashes, or "
                "rolling restarts."
                + (
                    ""
                    if share
                    else " Static membership (group.instance.id), cooperative assignment or the newer protocol "
                    "(KIP-848) make rebalances cheap."
                )
            ),
            subject=group_subject(group),
            count=len(rows),
            first=first,
            last=last,
            evidence=_evidence(shown),
            values={"rebalances": len(rows), "causes": causes[:MAX_EVIDENCE]},
        )


def _is_planned(rows: Sequence[Row], events: Sequence[Row], everything: Sequence[Row]) -> bool:
    """Whether members left on purpose, and none of them left again before the last one had joined.

    Members with equal client ids may be replaced in turn.
    """
    if any(row["lost"] or not row["left"] for row in rows) or _late(events, 0):
        return False
    names = client_names(events)
    complete = max((row["time_ns"] for row in everything if row["joined"] and row["time_ns"] is not None), default=0)
    left = Counter(names.get(one, one) for row in rows if row["time_ns"] < complete for one in row["left"])
    most = _most_at_once(events, names)
    return all(count <= most[name] for name, count in left.items())


def _most_at_once(events: Sequence[Row], names: Mapping[str, str]) -> Counter[str]:
    """How many members with each client id were in the group at the same time, at most."""
    present: dict[str, set[str]] = {}
    most: Counter[str] = Counter()
    for event in events:
        member = event["member_id"]
        if not member:
            continue
        name = names.get(member, member)
        members = present.setdefault(name, set())
        if _leaves(event):
            members.discard(member)
        else:
            members.add(member)
            most[name] = max(most[name], len(members))
    return most


def _densest(times: Sequence[int], every: int) -> tuple[int, int]:
    """Start and end index of the span with the most of these ascending times; the first such span."""
    best, low = (0, 0), 0
    for high, time in enumerate(times, 1):
        while time - times[low] > every:
            low += 1
        if high - low > best[1] - best[0]:
            best = (low, high)
    return best


class LostMemberThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `LostMembers`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a group from this many losses.")] = 1
    away: Annotated[
        Duration,
        Meta(ge=0, description="Without a reason, a member that leaves and joins again after this time did not poll."),
    ] = 100_000_000


_REMOVED: Final = (
    "The coordinator removed these members (no heartbeat within session.timeout.ms), or they left by themselves (no "
    "poll within max.poll.interval.ms). Their partitions waited that long, and other members read everything "
    "uncommitted again."
)
_CRASHED: Final = (
    "Members ended without leaving (killed or crashed), and new ones with the same client id joined. Until the session "
    "of an old one is over (45 s by default), nobody gets what was assigned to it."
)


class LostMembers(GroupDetector):
    """Members that a group lost without a LeaveGroup, or that left because their program did not poll in time.

    The coordinator drops a member that has not sent a heartbeat for `session.timeout.ms`. This is known if a later
    response to the member says so, or if the leader's list of members lacks it.

    Members of the newer protocols, and those of older clients, give no reason when they leave. If such a member joins
    again later with the same member id, or on the same connection, its program did not poll in the meantime. A member
    is lost, too, if it sends nothing more and has not left when a new member with its client id joins.

    Caveats: a LeaveGroup that is missing from the capture looks like a loss, and so does removal by an administrator. A
    program that unsubscribes for a while looks like one that does not poll.
    """

    name: ClassVar[str] = "lost-members"
    by_absence = True
    summary: ClassVar[str] = "Members of groups that timed out: session or poll interval."
    parameters_type = LostMemberThresholds

    def shapes(self) -> Mapping[str, Shape]:
        last: Any = (("last", pa.int64(), "max"),)
        return {**super().shapes(), "beats": Shape(keys=(*CLUSTER, *_MEMBER), measures=last, bound=1 << 17)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        super().update(batch, table)
        batch = only(batch, pc.and_(in_any(batch, "api", tuple(HEARTBEATS)), pc.is_valid(column(batch, "member_id"))))
        self.parts["beats"].add({**_member(batch), "last": column(batch, "time_ns")})

    def findings(self) -> Iterator[Finding]:
        rebalances = self._rebalances()
        beats: dict[GroupKey, dict[str, int]] = {}
        for row in self.resolved("beats").to_pylist():
            if row["last"] is not None:
                beats.setdefault((row["cluster"], row["group_id"]), {})[row["member_id"]] = row["last"]
        for group, events in self._events().items():
            late = _late(events, self.thresholds.away)
            # `SharedInstances` reports those that another program has replaced.
            fenced = {event["member_id"] for event in events if event["error_code"] == FENCED_INSTANCE_ID}
            lost = [(row, one) for row in rebalances.get(group, ()) for one in row["lost"] if one not in fenced]
            known = {one for _, one in lost}
            replaced = [one for one in _replaced(events, beats.get(group, {})) if one[1] not in known]
            if len(lost) + len(replaced) + len(late) >= self.thresholds.at_least:
                yield self._finding(group, lost, replaced, late, events)

    def _finding(
        self,
        group: GroupKey,
        lost: list[tuple[Row, str]],
        replaced: list[tuple[Row, str]],
        late: list[Row],
        events: list[Row],
    ) -> Finding:
        names, lost = client_names(events), [*lost, *replaced]
        crashed = len(replaced) == len(lost) + len(late)
        picked = {id(event) for event in (*late, *(event for event, _ in replaced))}
        members = {member for _, member in lost}
        generations = {row["generation"] for row, _ in lost}
        shown = [
            event
            for event in events
            if id(event) in picked
            or (event["member_id"] in members and event["error_code"])
            or (event["everybody"] and event["generation"] in generations)
        ]
        times = [row["time_ns"] for row, _ in lost if row["time_ns"] is not None]
        times += [event["time_ns"] for event in late if event["time_ns"] is not None]
        reasons = []
        if lost:
            who = some(list(dict.fromkeys(names.get(member, member) for _, member in lost)))
            reasons.append(f"lost {plural(len(lost), 'member')} that had not left ({who})")
        if late:
            who = some(list(dict.fromkeys(event["client_id"] or event["member_id"] for event in late)))
            reasons.append(f"was left {plural(len(late), 'time')} by members that did not poll in time ({who})")
        return self.finding(
            "warning",
            f"{self._named(group)} {' and '.join(reasons)}",
            meaning=_CRASHED if crashed else _REMOVED + (f" {_CRASHED}" if replaced else ""),
            advice=(
                "Find out why they end: exit codes, logs, memory limits of containers, failed health checks. A program "
                "that is stopped (SIGTERM) has to close its consumer."
                if crashed
                else "If processing takes long, poll fewer records (max.poll.records) or raise max.poll.interval.ms. "
                "Otherwise check whether the members crashed, were paused (garbage collection, CPU limits), or lost "
                "their network."
            ),
            subject=group_subject(group),
            count=len(lost) + len(late),
            first=min(times, default=None),
            last=max(times, default=None),
            evidence=_evidence(shown),
            values={"lost": len(lost), "poll_timeouts": len(late)},
        )


def _replaced(events: Sequence[Row], beats: Mapping[str, int]) -> Iterator[tuple[Row, str]]:
    """Members of the newer protocols that were silent and had not left when a new one of the same client joined.

    `events`: of a group, in order; `beats`: when each member sent its last heartbeat. Each with the event of the join.
    """
    left = {event["member_id"] for event in events if event["asked"] is not None and event["asked"] < 0}
    there: dict[str, list[tuple[int, str]]] = {}
    for event in events:
        member, who, time = event["member_id"], event["client_id"], event["time_ns"]
        joins = event["api"] in HEARTBEATS and event["asked"] == 0 and event["error_code"] == 0
        # A static member that returns is the same member.
        if not joins or None in (member, who, time) or event["instance"] is not None:
            continue
        others = there.setdefault(who, [])
        while others and others[0][0] < time:
            _last, old = heapq.heappop(others)
            if old not in left and old != member:
                yield event, old
        heapq.heappush(others, (beats.get(member, time), member))


UNRELEASED_INSTANCE_ID: Final = 111
_INSTANCE_CODES: Final = (FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID)
_MEMBER: Final = (("group_id", pa.string()), ("member_id", pa.string()))
_OF_MEMBERS: Final = (*GROUP_APIS, "OffsetCommit", "TxnOffsetCommit")


class SharedInstanceThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `SharedInstances`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a group from this many refusals.")] = 1


class SharedInstances(GroupDetector):
    """Programs that use the same `group.instance.id` in a group at the same time (KIP-345).

    In the classic protocol, the newer member fences the older one (FENCED_INSTANCE_ID). In the newer one, it is refused
    (UNRELEASED_INSTANCE_ID) until the older one has left: this is a note if the older one was not seen since.

    Caveats: a replaced instance that stops a moment later than its successor starts looks the same.
    """

    name: ClassVar[str] = "shared-instances"
    summary: ClassVar[str] = "Programs that share a group.instance.id and shut each other out of their group."
    parameters_type = SharedInstanceThresholds

    _refused = Tally("refused", (*CLIENT, *CLUSTER, *_MEMBER, ("error_code", pa.int64())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "group_id", "member_id", "error_code", "status", *CLIENT_COLUMNS, *CLUSTER_COLUMNS)
        return united(super().reads(), {"exchanges": TableReading((*ORDER, *own), _OF_MEMBERS)})

    def shapes(self) -> Mapping[str, Shape]:
        alive: Any = (("last", pa.int64(), "max"),)
        return {**super().shapes(), "alive": Shape(keys=(*CLUSTER, *_MEMBER), measures=alive, bound=1 << 17)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        super().update(batch, table)
        named = pc.and_(pc.is_valid(column(batch, "group_id")), pc.is_valid(column(batch, "member_id")))
        batch = only(batch, pc.and_(in_any(batch, "api", _OF_MEMBERS), named))
        code = column(batch, "error_code")
        fine = only(batch, pc.equal(code, 0))
        self.parts["alive"].add({**_member(fine), "last": column(fine, "time_ns")})
        refused = only(batch, pc.is_in(code, value_set=pa.array(_INSTANCE_CODES, code.type)))
        codes = column(refused, "error_code").cast(pa.int64())
        keys = {**clients(refused), **_member(refused), "error_code": codes}
        self._refused.add(self, refused, keys, column(refused, "api"))

    def findings(self) -> Iterator[Finding]:
        refusals = list(self._refused.rows(self))
        if not refusals:
            return
        alive = {(row["cluster"], row["group_id"], row["member_id"]): row["last"] for row in self._rows("alive")}
        events = self._events()
        found: dict[tuple[GroupKey, str | None], list[tuple[Row, tuple[Evidence, ...]]]] = {}
        for row, evidence in refusals:
            group = (row["cluster"], row["group_id"])
            instances = _instances(events.get(group, ()))
            found.setdefault((group, instances.get(row["member_id"])), []).append((row, evidence))
        for (group, instance), rows in found.items():
            if sum(row["count"] for row, _ in rows) < self.thresholds.at_least:
                continue
            known = _instances(events.get(group, ()))
            members = [one for one, name in known.items() if name == instance and instance is not None]
            since = min((row["first"] for row, _ in rows if row["first"] is not None), default=0)
            refused = {row["member_id"] for row, _ in rows}
            fenced = any(row["error_code"] == FENCED_INSTANCE_ID for row, _ in rows)
            # A member that is fenced still runs; one that holds the name of a refused one may be dead.
            both = fenced or any(
                (alive.get((*group, member)) or 0) > since for member in members if member not in refused
            )
            names = client_names(events.get(group, ()))
            yield self._finding(group, instance, members, rows, names, both=both, fenced=fenced)

    def _rows(self, part: str) -> list[Row]:
        rows: list[Row] = self.resolved(part).to_pylist()
        return rows

    def _finding(
        self,
        group: GroupKey,
        instance: str | None,
        members: list[str],
        rows: list[tuple[Row, tuple[Evidence, ...]]],
        names: dict[str, str],
        *,
        both: bool,
        fenced: bool,
    ) -> Finding:
        found = in_all(rows)
        known = [row for row, _ in rows]
        codes = list(dict.fromkeys(error_name(row["error_code"]) for row in known))
        who = some(
            list(dict.fromkeys(names.get(member, member) for member in members or [row["member_id"] for row in known]))
        )
        what = "" if instance is None else f" {word(instance)}"
        turns = f" ({len(members):,} members in turn)" if len(members) > 1 else ""
        title = (
            f"{who} share group.instance.id{what} in {self._named(group)}{turns}"
            if both
            else f"group.instance.id{what} of {who} in {self._named(group)} is not released by its last member"
        )
        return self.finding(
            "error" if both else "note",
            f"{title}: {plural(found['count'], 'request')} refused with {' and '.join(str(code) for code in codes)}",
            meaning=(
                "Two programs that run at the same time have the same name. The coordinator knows only one of them: "
                "the other one is shut out, and stops with a fatal error. "
                + (
                    "If it is started again, it shuts out the first, and each reads records again that the other has "
                    "not committed."
                    if fenced
                    else "It gets no partitions as long as the first one runs."
                )
                if both
                else "The last member of this name ended without leaving; the group waits until its session times out."
            ),
            advice=(
                "Give each program its own group.instance.id, for example the name of its host or pod. If one "
                "instance replaced another, stop the old one before the new one starts."
                if both
                else "Let the program close its consumer when it ends, or shorten the session timeout."
            ),
            subject={**group_subject(group), "instance": instance},
            **found,
            values={"members": len(members), "refused": found["count"]},
        )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        for code in _INSTANCE_CODES:
            group = {"group_id": finding.subject["group_id"], "cluster": finding.subject.get("cluster")}
            yield "refused-commits", {**group, "error_code": code}


def _member(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {**clusters(batch), **{name: column(batch, name) for name, _ in _MEMBER}}


def _instances(events: Sequence[Row]) -> dict[str, str]:
    """Instance ids by member id, in the order of their members."""
    return {event["member_id"]: event["instance"] for event in events if event["member_id"] and event["instance"]}


_SHARES: Final = "ShareGroupHeartbeat"
_ASSIGNING: Final = ("SyncGroup", "ConsumerGroupHeartbeat", _SHARES)
_ASSIGNED: Final = r'"(?:assigned_partitions|topic_partitions)":\[(?P<some>\{?)'
_CONNECTED: Final = (*CLIENT, *CLUSTER, ("group_id", pa.string()), ("session", pa.int64()))
"""A member has a connection to its coordinator."""


class IdleMemberThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `IdleMembers`."""

    lasting: Annotated[
        Duration, Meta(ge=0, description="Report members that stayed without partitions for this long.")
    ] = 5_000_000_000


class IdleMembers(Detector[IdleMemberThresholds]):
    """Members of a group that stay without any partition (a note): it has more members than partitions.

    Members of a share group may have the same partitions, so none of them is without (a warning).

    Caveats: standby members are often wanted. Until others have given up their partitions, a new member has none.
    """

    name: ClassVar[str] = "idle-members"
    summary: ClassVar[str] = "Members of groups that have no partitions."
    parameters_type = IdleMemberThresholds
    bodies: ClassVar[Bodies] = {
        ("response", "SyncGroup"): ("_assignment",),
        ("response", "ConsumerGroupHeartbeat"): ("assignment",),
        ("response", _SHARES): ("assignment",),
    }
    parts_clusters = True

    _given = Tally("given", (*_CONNECTED, ("some", pa.bool_()), ("share", pa.bool_())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "group_id", *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "response_body")
        return {"exchanges": TableReading((*ORDER, *own), GROUP_APIS)}

    def shapes(self) -> Mapping[str, Shape]:
        alive: Any = (("last", pa.int64(), "max"),)
        return {**super().shapes(), "alive": Shape(keys=_CONNECTED, measures=alive, bound=1 << 17)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", GROUP_APIS), pc.is_valid(column(batch, "group_id"))))
        self.parts["alive"].add({**_connected(batch), "last": column(batch, "time_ns")})
        batch = only(batch, in_any(batch, "api", _ASSIGNING))
        begins = pc.struct_field(pc.extract_regex(column(batch, "response_body"), _ASSIGNED), "some")
        known = pc.is_valid(begins)
        batch, begins = only(batch, known), begins.filter(known)
        kinds = {"some": pc.equal(begins, "{"), "share": in_any(batch, "api", [_SHARES])}
        self._given.add(self, batch, {**_connected(batch), **kinds})

    def findings(self) -> Iterator[Finding]:
        names = [name for name, _ in _CONNECTED]
        alive = {tuple(row[name] for name in names): row["last"] for row in self.resolved("alive").to_pylist()}
        given = list(self._given.rows(self))
        held = {tuple(row[name] for name in names): row["last"] for row, _ in given if row["some"]}
        idle: dict[GroupKey, list[tuple[Row, tuple[Evidence, ...]]]] = {}
        for row, evidence in given:
            member = tuple(row[name] for name in names)
            if row["some"] or None in (row["last"], row["first"]) or held.get(member, row["last"]) > row["last"]:
                continue
            since = row["last"] if member in held else row["first"]
            if (alive[member] or 0) - since >= self.thresholds.lasting:
                seen = {**row, "count": 1, "first": since, "last": alive[member]}
                idle.setdefault((row["cluster"], row["group_id"]), []).append((seen, evidence))
        for group, rows in idle.items():
            who = list(dict.fromkeys(row["client_id"] or row["client_ip"] or "?" for row, _ in rows))
            share = any(row["share"] for row, _ in rows)
            yield self.finding(
                "warning" if share else "note",
                f"{plural(len(rows), 'member')} of {'share ' if share else ''}group {word(group[1])}"
                f"{in_cluster(self.clusters, group[0])} without partitions: {some(who)}",
                meaning=(
                    "A share group gives each member partitions as soon as the share coordinator has stored their "
                    "state. It cannot store it, or the group's topics do not exist, or its user may not describe them."
                    if share
                    else "The group has more members than the topics have partitions, so these members receive "
                    "nothing. They take over if another member ends."
                ),
                advice=(
                    "Check whether __share_group_state exists and has leaders: with fewer brokers than "
                    "share.coordinator.state.topic.replication.factor it cannot be created. Then check the names of "
                    "the topics and the rights of the group's user."
                    if share
                    else "Add partitions, or run fewer members, unless they are wanted as standbys."
                ),
                subject=group_subject(group),
                **in_all(rows),
                values={"idle": len(rows)},
            )


def _connected(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    own = {"group_id": column(batch, "group_id"), "session": column(batch, "connection_id")}
    return {**clients(batch), **clusters(batch), **own}
