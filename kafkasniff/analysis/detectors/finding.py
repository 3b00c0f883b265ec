"""A finding of a detector, and the exchanges that show it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

__all__ = ["MAX_EVIDENCE", "SEVERITIES", "Evidence", "Finding", "Severity", "worst_first"]

MAX_EVIDENCE: Final = 10
"""Maximum number of exchanges or connections that a finding names; the earliest ones."""

Severity = Literal["error", "warning", "note"]
"""error: something failed, or data is lost or repeated; warning: it will be, or costs a lot; note: worth knowing."""
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")
"""Worst first."""


class Evidence(msgspec.Struct, frozen=True):
    """One exchange (or connection) that shows a finding. (connection_id, exchange_id) is the key of the tables."""

    connection_id: int
    exchange_id: int | None
    """None if the whole connection is meant."""
    time_ns: int | None
    note: str = ""
    """What to look for there; safe to print."""
    connection: int | None = None
    """Connection number as in `decode`; None for rows of an export, which have no such numbers."""
    exchange: int | None = None
    """Exchange number, likewise."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong or could be better. Sentences are safe to print, values of `subject` are not."""

    detector: str
    severity: Severity
    title: str
    """What was seen, with numbers: one line."""
    meaning: str
    """What it means: a sentence or two."""
    advice: str
    """What to try."""
    subject: dict[str, Any]
    """What it concerns: client_id, client_ip, broker, topic, group_id … as on the wire."""
    count: int
    """Number of exchanges (or connections) that showed it."""
    first: int | None
    """Time of the first one, nanoseconds since 1970; None if the captures have no times."""
    last: int | None
    evidence: tuple[Evidence, ...] = ()
    """At most MAX_EVIDENCE of them, the earliest ones."""
    values: dict[str, Any] = {}
    """The figures that were compared with thresholds, by name."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort key: by severity, then the most frequent first; ties in a deterministic order."""
    return sorted(
        findings,
        key=lambda one: (
            SEVERITIES.index(one.severity),
            -one.count,
            one.detector,
            [(name, value is None, str(value)) for name, value in one.subject.items()],
            one.title,
        ),
    )
