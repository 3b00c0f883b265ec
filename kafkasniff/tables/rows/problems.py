"""Rows of the table `problems`: those of captures and streams, of exchanges and of their messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from kafkasniff.model import Connection, Exchange, Message, Problem
from kafkasniff.tables.rows.exchanges import capture_name, microseconds
from kafkasniff.tables.rows.staged import STAGED, place_name

MOST_DICTS: Final = 2_048
"""Rows that wait as dicts, of up to 3 kB each."""


class WaitingRows:
    """Rows of one schema that wait to become a record batch, in the order in which they were added.

    Most of them wait as columns, which take a tenth of the memory of dicts.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._packed: list[pa.RecordBatch] = []
        self._packed_rows = 0

    def __len__(self) -> int:
        return self._packed_rows + len(self._rows)

    def append(self, row: dict[str, Any]) -> None:
        """Add a row, values by column."""
        self._rows.append(row)
        if len(self._rows) >= MOST_DICTS:
            self._pack()

    def extend(self, rows: pa.RecordBatch) -> None:
        """Add a record batch of the schema."""
        if self._rows:
            self._pack()
        self._packed_rows += len(rows)
        self._packed.append(rows)

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        if self._rows or not self._packed:
            self._pack()
        packed, self._packed, self._packed_rows = self._packed, [], 0
        if len(packed) == 1:
            return packed[0]
        columns = [pa.concat_arrays([part.column(place) for part in packed]) for place in range(len(self._schema))]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _pack(self) -> None:
        rows, self._rows = self._rows, []
        self._packed_rows += len(rows)
        self._packed.append(pa.RecordBatch.from_pylist(rows, schema=self._schema))


NOT_KAFKA: Final = "not-kafka"
INTERNAL_RECORD: Final = "internal-record"


class ProblemRows:
    """Rows of `problems` that wait to become a record batch."""

    def __init__(self) -> None:
        self._rows = WaitingRows(STAGED["problems"])

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, problem: Problem) -> None:
        """Add a problem of a capture or of a stream.

        Problems of exchanges come from `exchange`, and connections that are not Kafka from `connection`: the
        inspector's own reports of them hold numbers that count over a run.
        """
        if problem.exchange is not None or problem.kind == NOT_KAFKA:
            return
        self._add(problem, problem.capture, problem.connection_id, None, problem.time_ns, problem.packet)

    def exchange(self, exchange: Exchange, more: Iterable[tuple[Message, Problem]] = ()) -> None:
        """Add the problems of an exchange and of its messages; `more`: those that were found later."""
        seen = exchange.request if exchange.request is not None else exchange.response
        if seen is None:
            return
        for problem in exchange.problems:
            self._of_exchange(exchange, seen, seen, problem)
        for message in (exchange.request, exchange.response):
            if message is not None:
                for problem in message.problems:
                    self._of_exchange(exchange, seen, message, problem)
        for message, problem in more:
            self._of_exchange(exchange, seen, message, problem)

    def _of_exchange(self, exchange: Exchange, seen: Message, message: Message, problem: Problem) -> None:
        """Add a problem of `message`, at the time of its exchange; `seen` represents the exchange."""
        capture, packet = message.capture, message.last_packet
        if problem.kind == INTERNAL_RECORD:
            # A problem found once names are known comes with the exchange alone.
            capture, packet = seen.capture, None
        key = exchange.connection_id, exchange.exchange_id
        self._add(problem, capture, *key, seen.time_ns, packet, message.type)

    def connection(self, connection: Connection) -> None:
        """Add a connection that is not Kafka, a problem if its port was named or its endpoint spoke Kafka before."""
        if connection.verdict != "not_kafka":
            return
        ends = sorted((connection.client, connection.broker), key=lambda end: (end.address, end.port))
        between = " and ".join(map(str, ends))
        problem = Problem(NOT_KAFKA, f"the connection between {between} is not Kafka: {connection.verdict_detail}")
        self._add(
            problem,
            connection.verdict_capture,
            connection.connection_id,
            None,
            connection.verdict_time_ns,
            connection.verdict_packet,
            places=None if connection.forced else " ".join(place_name(end.address, end.port) for end in ends),
        )

    def _add(  # noqa: PLR0917 - the columns in their order
        self,
        problem: Problem,
        capture: str | None,
        connection_id: int | None,
        exchange_id: int | None,
        time_ns: int | None,
        packet: int | None,
        direction: str | None = None,
        *,
        places: str | None = None,
    ) -> None:
        self._rows.append(
            {
                "capture": capture_name(capture),
                "connection_id": connection_id,
                "exchange_id": exchange_id,
                "time": microseconds(time_ns),
                "time_ns": time_ns,
                "kind": problem.kind,
                "detail": capture_name(problem.detail),
                "packet": packet,
                "direction": direction or problem.direction,
                "bytes": problem.bytes,
                "offset": problem.offset,
                "_endpoints": places,
            }
        )

    def extend(self, rows: pa.RecordBatch) -> None:
        """Add rows of the staged schema."""
        self._rows.extend(rows)

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        return self._rows.take()
