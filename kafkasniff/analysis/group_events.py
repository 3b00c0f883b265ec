"""Events of group membership, read from exchanges of the group APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import ORDER, broker_endpoint, column, looked_up

__all__ = ["EVENT", "GROUP_APIS", "HEARTBEATS", "Event", "event_of", "refused_heartbeats"]

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
            reason = next((one.reason for one in request.members if one.reason), None)
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
        "cluster": broker_endpoint(batch),
    }


def _names(members: list[_Member]) -> list[str]:
    """Member ids; the instance id for a static member that is only named by it."""
    names = [one.member_id or one.group_instance_id for one in members]
    return [name for name in names if isinstance(name, str)]
