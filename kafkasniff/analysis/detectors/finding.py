"""A finding of a detector, and the exchanges that show it, with their numbers as `decode` shows them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
import numpy as np

from kafkasniff.engine.message_table import PairColumns
from kafkasniff.model import Connection, Exchange

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
        key=lambda finding: (
            SEVERITIES.index(finding.severity),
            finding.rank,
            finding.detector in _LASTING,
            -finding.count,
            finding.detector,
            [(name, value is None, str(value)) for name, value in finding.subject.items()],
            finding.title,
        ),
    )


MAX_NUMBERED: Final = 1 << 24
"""The highest number of an exchange that is kept, at four bytes each: of the earliest ones in any batches."""
MAX_CONNECTIONS: Final = 1 << 18
"""Maximum number of connections whose numbers are kept."""


class Numbers:
    """Numbers by the key of the tables."""

    def __init__(self) -> None:
        self._connections: dict[int, int] = {}
        self._exchanges: dict[int, array[int]] = {}

    def feed(self, events: Iterable[Any]) -> None:
        """Collect the numbers in an inspector's events, and in exchanges that are columns."""
        for event in events:
            if type(event) is Exchange:
                self._exchange(event)
            elif type(event) is PairColumns:
                self._columns(event)
            elif type(event) is Connection:
                self.note(event.connection_id, event.connection)

    def note(self, connection_id: int, connection: int) -> None:
        """Keep the number of a connection, but not of its exchanges."""
        if len(self._connections) < MAX_CONNECTIONS:
            self._connections[connection_id] = connection

    def __bool__(self) -> bool:
        """Whether any number is known."""
        return bool(self._connections)

    def connection(self, connection_id: int) -> int | None:
        """The number of a connection, if it is known."""
        return self._connections.get(connection_id)

    def exchange(self, connection_id: int, exchange_id: int | None) -> int | None:
        """The number of an exchange, if it is known."""
        found = self._exchanges.get(connection_id, ())
        number = found[exchange_id] if exchange_id is not None and 0 <= exchange_id < len(found) else 0
        return number or None

    def _exchange(self, event: Exchange) -> None:
        if event.exchange <= MAX_NUMBERED:
            found = self._room(event.connection_id, event.connection, event.exchange_id + 1)
            if found is not None:
                found[event.exchange_id] = event.exchange

    def _columns(self, pair_columns: PairColumns) -> None:
        asked = pair_columns.asked.compress(pair_columns.asked["number"] <= MAX_NUMBERED)
        if not len(asked):
            return
        asked = asked.take(np.lexsort((asked["ordinal"], asked["connection"])))
        connections, ordinals, numbers = asked["connection"], asked["ordinal"], asked["number"].astype(np.uint32)
        starts = np.flatnonzero(np.append(True, connections[1:] != connections[:-1]))
        stops = np.append(starts[1:], len(asked))
        runs = (connections[starts], starts, stops, ordinals[stops - 1] + 1)
        for connection, start, stop, count in zip(*(run.tolist() for run in runs), strict=True):
            owner = pair_columns.owners[connection]
            assert owner is not None
            kept = self._room(owner.identify(), owner.number, count)
            if kept is not None:
                np.frombuffer(kept, np.uint32)[ordinals[start:stop]] = numbers[start:stop]

    def _room(self, connection_id: int, connection: int, count: int) -> array[int] | None:
        """The numbers of a connection's first exchanges, `count` at least; None if there are too many connections."""
        found = self._exchanges.get(connection_id)
        if found is None:
            if len(self._exchanges) >= MAX_CONNECTIONS:
                return None
            found = self._exchanges[connection_id] = array("I")
            self._connections[connection_id] = connection
        found.extend([0] * (count - len(found)))
        return found

    def numbered(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings with numbers in their evidence, where known."""
        return [
            msgspec.structs.replace(finding, evidence=tuple(self._numbered(each) for each in finding.evidence))
            for finding in findings
        ]

    def _numbered(self, evidence: Evidence) -> Evidence:
        return msgspec.structs.replace(
            evidence,
            connection=self.connection(evidence.connection_id),
            exchange=self.exchange(evidence.connection_id, evidence.exchange_id),
        )
