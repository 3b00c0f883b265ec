"""Answers as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kafkasniff.sinks.jsonl import bytes_default
from kafkasniff.tables.rows.exchanges import capture_name
from kafkasniff.text.times import rfc3339

if TYPE_CHECKING:
    from kafkasniff.analysis.detectors import Finding
    from kafkasniff.analysis.follow import RecordWay, WaysFound
    from kafkasniff.redact.payload import Payload

_TIMES: Final = {"first": "first", "last": "last", "time_ns": "time"}
"""Fields in nanoseconds since 1970, and their names in JSON."""
_AS_IS: Final = ("subject", "values")
"""What detectors name freely."""
_BRIEF: Final = ("severity", "detector", "title", "subject", "count", "first", "last")


def answer_object(answer: Any) -> Any:
    """An answer, or a part of it, as JSON objects: times as RFC 3339."""
    return _timed(msgspec.to_builtins(answer))


def head(sources: Iterable[str], *, broken: bool) -> dict[str, Any]:
    """How the JSON of an answer begins. `broken`: one of the sources is truncated or damaged."""
    return {"sources": list(map(capture_name, sources)), "broken": broken}


def brief(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings with what other commands than `check` say of them."""
    return [{name: one[name] for name in _BRIEF} for one in answer_object(list(findings))]


def _timed(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _TIMES.get(name, name): rfc3339(one) if name in _TIMES else one if name in _AS_IS else _timed(one)
            for name, one in value.items()
        }
    return [_timed(one) for one in value] if isinstance(value, list | tuple) else value


def follow_object(followed: WaysFound, payload: Payload) -> dict[str, Any]:
    """The keys of the object that the answer has (docs/reference/json-follow.md)."""
    return {"records": [_way(way, payload) for way in followed.ways], "more": followed.more}


def _way(way: RecordWay, payload: Payload) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.structs.asdict(way)
    if way.key is not None:
        found["key"] = payload.stand_in(way.key) if payload.hides else bytes_default()(way.key)
        found["key_decoded"] = None if payload.hides else way.key_decoded
    found["consumers"] = [msgspec.structs.asdict(consumer) for consumer in way.consumers]
    found["steps"] = [
        {**msgspec.structs.asdict(step), "time": None if step.time is None else rfc3339(step.time * 1000)}
        for step in way.steps
    ]
    return found
