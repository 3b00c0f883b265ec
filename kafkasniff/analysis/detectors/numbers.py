"""Connection and exchange numbers as `decode` shows them, for the evidence of findings.

Rows lack them, since numbers count over a run and depend on its inputs. So they are collected while captures are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np

from kafkasniff.analysis.detectors.finding import Evidence, Finding
from kafkasniff.engine.paired import PairColumns
from kafkasniff.model import Connection, Exchange

__all__ = ["Numbers"]

MAX_NUMBERED: Final = 1 << 24
"""Maximum number of exchanges whose numbers are kept, at four bytes each; findings name the earliest ones."""
MAX_NUMBER: Final = (1 << 32) - 1
MAX_CONNECTIONS: Final = 1 << 18
"""The same for connections."""


class Numbers:
    """Numbers by the key of the tables."""

    def __init__(self) -> None:
        self._connections: dict[int, int] = {}
        self._exchanges: dict[int, array[int]] = {}
        self._kept = 0

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
        if event.exchange > MAX_NUMBER:
            return
        found = self._room(event.connection_id, event.connection, event.exchange_id + 1)
        if found is not None:
            found[event.exchange_id] = event.exchange

    def _room(self, connection_id: int, connection: int, count: int) -> array[int] | None:
        """The numbers of a connection's first exchanges, `count` at least; None if they are not kept."""
        found = self._exchanges.get(connection_id)
        if found is None:
            if len(self._exchanges) >= MAX_CONNECTIONS:
                return None
            found = self._exchanges[connection_id] = array("I")
            self._connections[connection_id] = connection
        missing = count - len(found)
        if missing > 0:
            if self._kept + missing > MAX_NUMBERED:
                return None
            found.extend([0] * missing)
            self._kept += missing
        return found

    def _columns(self, found: PairColumns) -> None:
        asked = found.asked
        connection = asked["connection"]
        order = np.argsort(connection, kind="stable")
        starts = np.flatnonzero(np.append(True, np.diff(connection[order].astype(np.int64)) != 0))
        for own in np.split(order, starts[1:]) if len(order) else ():
            owner = found.owners[connection[own[0]]]
            assert owner is not None
            ordinals, numbers = asked["ordinal"][own], asked["number"][own]
            kept = self._room(owner.identify(), owner.number, int(ordinals.max()) + 1)
            if kept is not None and numbers.max() <= MAX_NUMBER:
                np.frombuffer(kept, np.uint32)[ordinals] = numbers

    def numbered(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings with numbers in their evidence, where known."""
        return [
            msgspec.structs.replace(one, evidence=tuple(self._numbered(each) for each in one.evidence))
            for one in findings
        ]

    def _numbered(self, evidence: Evidence) -> Evidence:
        return msgspec.structs.replace(
            evidence,
            connection=self.connection(evidence.connection_id),
            exchange=self.exchange(evidence.connection_id, evidence.exchange_id),
        )
