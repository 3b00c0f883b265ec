"""The history of groups: events of membership, the generations of one group in order, and the cause of each.

Fetch and others do not name their group, but other requests of the same client do (`members`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import ORDER, brokers, column, in_any, looked_up, only
from kafkasniff.analysis.partials import Partials, Shape

MEMBER_APIS: Final = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
    "OffsetCommit",
)
"""Requests that only members of a group send. OffsetFetch and TxnOffsetCommit are sent by others, too."""
_CLIENT: Final[Any] = (("client_id", pa.string()), ("client_ip", pa.string()))
MEMBER_SHAPE: Final = Shape(
    keys=(*_CLIENT, ("group_id", pa.string())), measures=(("requests", pa.int64(), "sum"),), weight="requests"
)


def member_rows(batch: pa.RecordBatch) -> dict[str, Any]:
    """Rows for a partial answer of `MEMBER_SHAPE`."""
    batch = only(batch, pc.and_(in_any(batch, "api", MEMBER_APIS), pc.is_valid(column(batch, "group_id"))))
    keys = {name: column(batch, name) for name in ("client_id", "client_ip", "group_id")}
    return {**keys, "requests": pa.array([1] * batch.num_rows, pa.int64())}


def groups_by_client(part: Partials) -> dict[tuple[str | None, str | None], str | None]:
    """(client id, address) → group; None if such clients are in several."""
    found: dict[tuple[str | None, str | None], str | None] = {}
    for row in part.table().to_pylist():
        client = (row["client_id"], row["client_ip"])
        found[client] = None if client in found else row["group_id"]
    return found


HEARTBEATS: Final = {
    "ConsumerGroupHeartbeat": "consumer",
    "ShareGroupHeartbeat": "share",
    "StreamsGroupHeartbeat": "streams",
}
"""The one API of the newer protocols (KIP-848, KIP-932, KIP-1071), and the names of these protocols."""
GROUP_APIS: Final = ("JoinGroup", "SyncGroup", "LeaveGroup", "Heartbeat", *HEARTBEATS)

_TEXTS: Final = pa.list_(pa.field("element", pa.string()))


class Event(msgspec.Struct, frozen=True):
    """One exchange of a member with its coordinator, as far as it shows a change."""

    time_ns: int | None
    connection_id: int
    exchange_id: int
    done_ns: int | None
    """When the response was complete."""
    api: str
    group_id: str
    member_id: str | None
    client_id: str | None
    error_code: int | None
    """Null without a response."""
    generation: int | None
    """From JoinGroup's response or SyncGroup's request; the member epoch in a heartbeat's response."""
    asked: int | None
    """Member epoch of a heartbeat's request: 0 to join, -1 and -2 to leave."""
    everybody: list[str] | None
    """All members, as sent to the leader."""
    leaving: list[str] | None
    """Members that LeaveGroup names."""
    reason: str | None
    """The client's reason (KIP-800)."""
    instance: str | None
    """For a static member (KIP-345), the name by which it stays the same when its member id changes."""
    cluster: str | None = None
    """Endpoint of the broker (`address:port`), or its cluster."""


EVENT: Final[tuple[tuple[str, pa.DataType], ...]] = (
    ("time_ns", pa.int64()),
    ("connection_id", pa.int64()),
    ("exchange_id", pa.int64()),
    ("done_ns", pa.int64()),
    ("api", pa.string()),
    ("group_id", pa.string()),
    ("member_id", pa.string()),
    ("client_id", pa.string()),
    ("error_code", pa.int32()),
    ("generation", pa.int64()),
    ("asked", pa.int64()),
    ("everybody", _TEXTS),
    ("leaving", _TEXTS),
    ("reason", pa.string()),
    ("instance", pa.string()),
    ("cluster", pa.string()),
)
"""The columns of an event."""


class _Member(msgspec.Struct):
    member_id: Any = None
    group_instance_id: Any = None
    reason: Any = None


class _GroupBody(msgspec.Struct):
    """The fields that bodies of these APIs may have; any of them may be missing if a message was truncated."""

    generation_id: int | None = None
    member_epoch: int | None = None
    members: list[_Member] = []
    member_id: Any = None
    group_instance_id: Any = None
    instance_id: Any = None
    """Its name in the newer protocols."""
    reason: Any = None


_BODY: Final = msgspec.json.Decoder(_GroupBody)


def _body(text: str | None) -> _GroupBody:
    if text is None:
        return _GroupBody()
    try:
        return _BODY.decode(text)
    except msgspec.DecodeError:
        return _GroupBody()


def event_of(row: Mapping[str, Any]) -> Event | None:
    """The event of a row of `exchanges`, with `broker` (its endpoint); None if it shows no change."""
    api, code = row["api"], row["error_code"]
    request, response = _body(row["request_body"]), _body(row["response_body"])
    generation = asked = None
    everybody = leaving = None
    reason = request.reason
    match api:
        case "JoinGroup":
            generation = response.generation_id
            everybody = _names(response.members) if code == 0 else None
        case "SyncGroup":
            generation = request.generation_id
        case "LeaveGroup":
            leaving = _names(request.members) or ([row["member_id"]] if row["member_id"] else None)
            reason = next((member.reason for member in request.members if member.reason), None)
        case "Heartbeat":
            generation = request.generation_id
        case _:
            asked, generation = request.member_epoch, response.member_epoch
            if not code and generation == asked and asked is not None and asked > 0:
                return None
    lasted = row["duration_us"]
    return Event(
        time_ns=row["time_ns"],
        connection_id=row["connection_id"],
        exchange_id=row["exchange_id"],
        done_ns=None if row["time_ns"] is None else row["time_ns"] + 1000 * (lasted or 0),
        api=api,
        group_id=row["group_id"],
        member_id=row["member_id"],
        client_id=row["client_id"],
        error_code=code,
        generation=generation,
        asked=asked,
        everybody=everybody or None,
        leaving=leaving,
        reason=reason if isinstance(reason, str) and reason else None,
        instance=_instance(request),
        cluster=row["broker"],
    )


def _instance(body: _GroupBody) -> str | None:
    found = body.group_instance_id or body.instance_id
    return found if isinstance(found, str) else None


def refused_heartbeats(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The events of rows of Heartbeat, by the columns of `EVENT`. Members repeat them: equal bodies are read once."""
    lasted = pc.multiply(pc.fill_null(column(batch, "duration_us").cast(pa.int64()), 0), 1000)
    same = (*ORDER, "api", "group_id", "member_id", "client_id", "error_code")
    return {
        **{name: pa.nulls(batch.num_rows, kind) for name, kind in EVENT},
        **{name: column(batch, name) for name in same},
        "done_ns": pc.add(column(batch, "time_ns"), lasted),
        "generation": looked_up(batch, "request_body", lambda text: _body(text).generation_id, pa.int64()),
        "instance": looked_up(batch, "request_body", lambda text: _instance(_body(text)), pa.string()),
        "cluster": brokers(batch),
    }


def _names(members: list[_Member]) -> list[str]:
    """Member ids; the instance id for a static member that is only named by it."""
    names = [member.member_id or member.group_instance_id for member in members]
    return [name for name in names if isinstance(name, str)]


UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
FENCED_INSTANCE_ID: Final = 82
FENCED_MEMBER_EPOCH: Final = 110
_REMOVED: Final = frozenset({UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH})
"""The coordinator no longer knows this member."""
# The reasons that Kafka's consumer gives when it only follows others, or obeys the protocol (ConsumerCoordinator).
_FOLLOWING: Final = ("group is already rebalancing", "need to re-join with the given member-id")

Row = dict[str, Any]


def history(protocol: str, events: Sequence[Event]) -> list[Row]:
    """Rows for the generations that began, in order; `events` of one group and protocol, in any order."""
    ordered = sorted(events, key=_when)
    return _Classic().rows(ordered) if protocol == "classic" else _Heartbeats().rows(ordered)


def _when(event: Event) -> tuple[bool, int, int, int]:
    """When it took effect: leaves at the time of the request (joins are answered because of it), others at the end."""
    leaves = event.api == "LeaveGroup" or (event.asked is not None and event.asked < 0)
    time_ns = event.time_ns if leaves else event.done_ns
    return (time_ns is None, time_ns or 0, event.connection_id, event.exchange_id)


def without_repetitions(events: pa.Table) -> pa.Table:
    """Events without those that `history` ignores: heartbeats of members that the coordinator only refuses for now.

    The first one of each member stays, since it may be the first event that shows the member's client id.
    """
    members = ["cluster", "group_id", "member_id"]
    order = pc.sort_indices(events, sort_keys=[(name, "ascending") for name in ("done_ns", *ORDER[1:])])
    events = events.take(order)
    code = events.column("error_code")
    removed = pc.is_in(code, value_set=pa.array(sorted(_REMOVED), code.type))
    kept = pc.or_(pc.not_equal(events.column("api"), "Heartbeat"), removed).to_numpy(zero_copy_only=False).copy()
    places = pa.array(np.flatnonzero(~kept))
    firsts = events.select(members).take(places).append_column("row", places)
    firsts = firsts.group_by(members, use_threads=False).aggregate([("row", "first")])
    kept[firsts.column("row_first").to_numpy()] = True
    return events.filter(pa.array(kept))


class _GroupChanges:
    """Changes since the last generation began."""

    def __init__(self) -> None:
        self.since: int | None = None
        self.joined: dict[str, None] = {}
        self.left: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.reasons: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.joined or self.left or self.lost)

    def at(self, time_ns: int | None) -> None:
        if time_ns is not None:
            self.since = time_ns if self.since is None else min(self.since, time_ns)

    def cause(self, names: dict[str, str | None], others: Sequence[str] = ()) -> str | None:
        def phrase(members: dict[str, None], verb: str) -> Iterator[str]:
            if members:
                yield f"{', '.join(names.get(member) or member for member in members)} {verb}"

        parts = [
            *phrase(self.left, "left"),
            *phrase(self.lost, "gone without leaving"),
            *phrase(self.joined, "joined"),
            *others,
            *self.reasons,
        ]
        return "; ".join(parts) or None

    def row(self, generation: int | None, members: int | None, end_ns: int | None, cause: str | None) -> Row:
        lasted = None if end_ns is None or self.since is None else max((end_ns - self.since) // 1000, 0)
        return {
            "time_ns": self.since,
            "generation": generation,
            "duration_us": lasted,
            "members": members,
            "joined": list(self.joined),
            "left": list(self.left),
            "lost": list(self.lost),
            "cause": cause,
        }


class _Generation:
    """One generation of the classic protocol while its joins and syncs arrive."""

    def __init__(self, number: int | None) -> None:
        self.number = number
        self.members: dict[str, None] = {}
        self.complete = False
        """Whether the leader's list was seen."""
        self.synced = False
        self.end_ns: int | None = None


class _Classic:
    """JoinGroup, SyncGroup, LeaveGroup, Heartbeat."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        self._instances: dict[str, str] = {}
        """Member ids of static members."""
        self._before: _Generation | None = None
        self._current: _Generation | None = None
        self._changes = _GroupChanges()
        self._began = _GroupChanges()
        """The changes that led to the current generation."""
        self._rows: list[Row] = []

    def rows(self, events: Sequence[Event]) -> list[Row]:
        for event in events:
            if event.member_id:
                self._names.setdefault(event.member_id, event.client_id)
            match event.api:
                case "JoinGroup":
                    self._join(event)
                case "SyncGroup":
                    self._sync(event)
                case "LeaveGroup":
                    self._leave(event)
                case "Heartbeat" if event.error_code in _REMOVED and event.member_id:
                    self._lose(event)
        self._close()
        if self._changes.left or self._changes.lost:
            changes = self._changes
            changes.joined.clear()
            rest = None
            if self._current is not None and self._current.complete:
                rest = len(self._current.members.keys() - changes.left.keys() - changes.lost.keys())
            self._rows.append(changes.row(None, rest, None, changes.cause(self._names)))
        return self._rows

    def _known(self) -> dict[str, None]:
        return self._current.members if self._current is not None else {}

    def _join(self, event: Event) -> None:
        if event.error_code == UNKNOWN_MEMBER_ID and event.member_id in self._known():
            self._lose(event)
        current = self._current
        same = current is not None and event.generation == current.number
        if event.generation is None:
            # Without bodies, joins belong together until somebody has synced.
            same = current is not None and not current.synced
        if not same or event.error_code != 0:
            self._changes.at(event.time_ns)
            if event.reason and not event.reason.startswith(_FOLLOWING):
                self._changes.reasons[f"{self._label(event)}: {event.reason}"] = None
        if event.error_code != 0 or not event.member_id:
            return
        if not same:
            self._close()
            self._before, self._current = current, _Generation(event.generation)
            self._began, self._changes = self._changes, _GroupChanges()
        assert self._current is not None
        if event.instance is not None:
            self._renamed(self._instances.get(event.instance), event.member_id)
            self._instances[event.instance] = event.member_id
        self._began.at(event.time_ns)
        if same and event.reason and not event.reason.startswith(_FOLLOWING):
            self._began.reasons[f"{self._label(event)}: {event.reason}"] = None
        self._current.members[event.member_id] = None
        if event.everybody:
            self._current.complete = True
            self._current.members |= dict.fromkeys(event.everybody)
        self._ends(event)

    def _renamed(self, old: str | None, new: str) -> None:
        """A static member that returns has a new member id but is the same member (KIP-345)."""
        for generation in (self._before, self._current):
            if generation is not None and old is not None and old in generation.members:
                del generation.members[old]
                generation.members[new] = None

    def _sync(self, event: Event) -> None:
        if self._current is not None and event.generation in (None, self._current.number):
            self._current.synced = True
            if event.error_code == 0:
                self._ends(event)

    def _ends(self, event: Event) -> None:
        assert self._current is not None
        if event.done_ns is not None:
            self._current.end_ns = max(event.done_ns, self._current.end_ns or event.done_ns)

    def _leave(self, event: Event) -> None:
        if event.error_code in (0, None):
            self._changes.at(event.time_ns)
            self._changes.left |= dict.fromkeys(self._instances.get(one, one) for one in event.leaving or ())
            if event.reason:
                self._changes.reasons[f"{self._label(event)}: {event.reason}"] = None

    def _lose(self, event: Event) -> None:
        if event.member_id and event.member_id not in self._changes.left:
            self._changes.at(event.time_ns)
            self._changes.lost[event.member_id] = None

    def _label(self, event: Event) -> str:
        return event.client_id or event.member_id or "a member"

    def _close(self) -> None:
        """The current generation has all its members: emit it."""
        current, before, changes = self._current, self._before, self._began
        if current is None:
            return
        others: list[str] = []
        if before is None:
            if current.number == 1:
                changes.joined = dict(current.members)
            else:
                others.append("the previous generation was not captured")
        else:
            changes.joined = {member: None for member in current.members if member not in before.members}
            if not before.complete and not current.complete:
                others += [] if changes else ["no list of members was captured"]
            elif current.complete:
                missing = (
                    member for member in before.members if member not in current.members and member not in changes.left
                )
                changes.lost |= dict.fromkeys(missing)
        if not before or not changes:
            others += [] if changes or others or changes.reasons else ["members joined again"]
        cause = changes.cause(self._names, others)
        members = len(current.members) if current.complete else None
        self._rows.append(changes.row(current.number, members, current.end_ns, cause))


class _Heartbeats:
    """ConsumerGroupHeartbeat and similar requests: members join with epoch 0, leave with -1 or -2."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}
        self._members: dict[str, None] = {}
        self._epoch: int | None = None
        self._changes = _GroupChanges()
        self._rows: list[Row] = []

    def rows(self, events: Sequence[Event]) -> list[Row]:
        for event in events:
            member = event.member_id
            if not member:
                continue
            self._names.setdefault(member, event.client_id)
            if event.error_code in _REMOVED:
                self._gone(event, self._changes.lost)
            elif event.asked is not None and event.asked < 0:
                self._gone(event, self._changes.left)
            elif event.error_code == 0:
                if event.asked == 0:
                    if member not in self._members:
                        self._changes.joined[member] = None
                    self._changes.at(event.time_ns)
                self._members[member] = None
                self._emit(event)
        if self._changes:
            changes = self._changes
            self._rows.append(changes.row(None, len(self._members), None, changes.cause(self._names)))
        return self._rows

    def _gone(self, event: Event, how: dict[str, None]) -> None:
        assert event.member_id is not None
        if event.error_code not in _REMOVED and event.error_code not in (0, None):
            return
        if event.member_id not in self._changes.left:
            how[event.member_id] = None
            self._changes.at(event.time_ns)
        self._members.pop(event.member_id, None)

    def _emit(self, event: Event) -> None:
        if event.generation is None or (self._epoch is not None and event.generation <= self._epoch):
            return
        first, self._epoch = self._epoch is None, event.generation
        changes, self._changes = self._changes, _GroupChanges()
        changes.at(event.time_ns)
        if not changes and first:
            others = ["the previous epoch was not captured"]
        else:
            others = [] if changes else ["assignment, subscription or topics changed"]
        cause = changes.cause(self._names, others)
        self._rows.append(changes.row(event.generation, len(self._members), event.done_ns, cause))
