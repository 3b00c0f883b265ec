"""Answers as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kafkasniff.analysis.detectors import Finding
from kafkasniff.text.times import rfc3339

__all__ = ["answer_object", "brief"]

_TIMES: Final = {"first": "first", "last": "last", "time_ns": "time"}
"""Fields in nanoseconds since 1970, and their names in JSON."""
_AS_IS: Final = ("subject", "values")
"""What detectors name freely."""
_BRIEF: Final = ("severity", "detector", "title", "subject", "count", "first", "last")


def answer_object(answer: Any) -> Any:
    """An answer, or a part of it, as JSON objects: times as RFC 3339."""
    return _timed(msgspec.to_builtins(answer))


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
