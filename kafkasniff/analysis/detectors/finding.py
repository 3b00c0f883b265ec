"""A finding of a detector, and the exchanges that show it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

MAX_EVIDENCE: Final = 10
"""Maximum number of exchanges or connections that a finding names; the earliest ones."""

Severity = Literal["error", "warning", "note"]
"""error: something failed, or data is lost or repeated; warning: it will be, or costs a lot; note: worth knowing."""
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")
"""Worst first."""
_LASTING: Final = frozenset(
    {
        "acks-zero",
        "all-topics",
        "frequent-commits",
        "skewed-partitions",
        "small-batches",
        "uncompressed-batches",
        "undecoded-traffic",
        "plaintext-credentials",
        "plaintext-scram",
        "old-tls",
        "weak-cipher",
        "expiring-certificate",
        "without-authentication",
    }
)
"""Detectors of what is as it always was, such as settings, habits and how it was captured: what has happened comes
before it."""


class Evidence(msgspec.Struct, frozen=True):
    """One exchange (or connection) that shows a finding. (connection_id, exchange_id) is the key of the tables."""

    connection_id: int
    """Key of the connection in the tables."""
    exchange_id: int | None
    """Key of the exchange in the tables; null if the whole connection is meant."""
    time_ns: int | None
    """Time of the request, or of the connection's first packet."""
    note: str = ""
    """What to look for there; may be empty."""
    connection: int | None = None
    """Number as in `decode`; null for rows of an export."""
    exchange: int | None = None
    """Number as in `decode`; null for rows of an export."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong or could be better. Sentences are safe to print, values of `subject` are not."""

    detector: str
    """Name of the detector."""
    severity: Severity
    """error, warning, note."""
    title: str
    """What was seen, with numbers: one line."""
    meaning: str
    """What it means."""
    advice: str
    """What to try."""
    subject: dict[str, Any]
    """Who or what it is about: `client_id`, `client_ip`, `broker` (`address:port`), `topic`, `group_id` and so on, as
    on the wire; `cluster` if the capture has several.
    """
    count: int
    """Number of exchanges (or connections) that showed it."""
    first: int | None
    """Time of the first of them; null if the captures have no times."""
    last: int | None
    """Time of the last of them; of an outage, its end if that is known."""
    evidence: tuple[Evidence, ...] = ()
    """The earliest of them, at most ten (`MAX_EVIDENCE`)."""
    values: dict[str, Any] = {}
    """The figures that were compared with thresholds, by name."""
    follows: str | None = None
    """Title of the finding whose effect this one may be; it is listed before, unless it is less severe."""
    rank: int = 0
    """Number of findings between it and a cause that nothing explains, which has 0."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, causes before their effects, what has happened before what lasts, then the most frequent first."""
    return sorted(
        findings,
        key=lambda one: (
            SEVERITIES.index(one.severity),
            one.rank,
            one.detector in _LASTING,
            -one.count,
            one.detector,
            [(name, value is None, str(value)) for name, value in one.subject.items()],
            one.title,
        ),
    )
