"""The way of a record as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kafkasniff.sinks.json_pieces import bytes_default
from kafkasniff.text.times import rfc3339

if TYPE_CHECKING:
    from kafkasniff.analysis.follow import RecordWay, WaysFound
    from kafkasniff.redact.payload import Payload

__all__ = ["follow_object"]


def follow_object(followed: WaysFound, payload: Payload) -> dict[str, Any]:
    """The keys of the object that the answer has (docs/reference/json-follow.md)."""
    return {"records": [_way(way, payload) for way in followed.ways], "more": followed.more}


def _way(way: RecordWay, payload: Payload) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.structs.asdict(way)
    if way.key is not None:
        found["key"] = payload.stand_in(way.key) if payload.hides else bytes_default()(way.key)
    found["consumers"] = [msgspec.structs.asdict(one) for one in way.consumers]
    found["steps"] = [
        {**msgspec.structs.asdict(one), "time": None if one.time is None else rfc3339(one.time * 1000)}
        for one in way.steps
    ]
    return found
