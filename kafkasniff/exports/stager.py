"""Step 1: what an inspector yields to staged rows, and what the run tells of names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
import pyarrow as pa

from kafkasniff.enrich import Enricher
from kafkasniff.exports.options import ExportOptions
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.embedded import may_have_floats
from kafkasniff.memory_limits import DEFAULT_MEMORY
from kafkasniff.model import Connection, Exchange, Message, Problem
from kafkasniff.paired import PairColumns
from kafkasniff.rows import ExchangeRows
from kafkasniff.rows.connections import ConnectionRows
from kafkasniff.rows.exchange_columns import ExchangeFinder, exchange_finder, exchange_rows, record_rows
from kafkasniff.rows.problems import ProblemRows
from kafkasniff.rows.records import RecordRows
from kafkasniff.sinks.jsonl import body_json, json_default

if TYPE_CHECKING:
    from kafkasniff.filters import Selector

__all__ = ["MAX_BYTES", "MAX_ROWS", "ROWS_PART", "Staged", "Stager"]

MAX_ROWS: Final = 65_536
MAX_BYTES: Final = 32 << 20
"""Rows, and estimated bytes of rows, that are held back for each table before they are written."""
ROWS_PART: Final = 16
"""The part of the memory budget that these bytes are at most; `ROW_BYTES` of it count for each row."""
ROW_BYTES: Final = 1024
_DEFAULT: Final = DecodeOptions()


class Staged(Protocol):
    """What takes staged rows: files (`StagedFiles`), or who counts them (`counted.CountedRows`)."""

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows of a table."""

    def close(self) -> None:
        """There are no more."""


class Stager:
    """Takes events in order, writes rows to `files`.

    The enricher's catalog has to note tellings (`Catalog.tellings`) and the enricher what it missed (`notes_missed`).
    `selector`: only what it passes, and the connections of exchanges that it passes; `wants_body`: of which messages
    the body is wanted as JSON, where bodies are wanted at all. `memory`: the process's budget in
    bytes; rows wait within a part of it. `limits`: bounds of each message.
    """

    def __init__(
        self,
        options: ExportOptions,
        enricher: Enricher,
        files: Staged,
        selector: Selector | None = None,
        *,
        selected: set[int] | None = None,
        wants_body: Callable[[Message], bool] | None = None,
        memory: int = DEFAULT_MEMORY,
        limits: DecodeOptions = _DEFAULT,
    ) -> None:
        assert enricher.catalog.tellings is not None
        self._tellings = enricher.catalog.tellings
        self._most_bytes = min(MAX_BYTES, memory // ROWS_PART)
        self._most_rows = min(MAX_ROWS, memory // ROWS_PART // ROW_BYTES)
        self._enricher = enricher
        self._files = files
        self._selector = selector
        self.selected: set[int] = set() if selected is None else selected
        """Where there is a selection: numbers of the connections with exchanges that passed it, until they end."""
        self._wanted = frozenset(options.tables)
        self._payload = options.payload
        self._wants_body = wants_body
        self._unnamed = False
        """Of the exchange whose row is being made: names of its topics are not known yet."""
        self._exchanges = ExchangeRows(self._body_json if options.bodies else None, headers=options.headers)
        self.finder = None if selector is not None or wants_body is not None else finder_for(options)
        """Finds exchanges that are taken as columns (`take_columns`), where there is one."""
        self.in_columns = 0
        """How many were."""
        self._records = RecordRows(
            show_secrets=options.show_secrets,
            payload=options.payload,
            full=self._write_full_records,
            memory=memory,
            limits=limits,
        )
        self._connections = ConnectionRows()
        self._problems = ProblemRows()

    def begins(self, time_ns: int) -> None:
        """The time of the run's first packet, which relative filters count from."""
        if self._selector is not None:
            self._selector.start_ns = time_ns

    def take(self, events: Sequence[Any]) -> None:
        """Take what an inspector yielded. Raises OSError where rows cannot be written."""
        connections = [event for event in events if type(event) is Connection]
        if self._selector is not None:
            events = self._selector.feed([event for event in events if type(event) is not Connection])
        exchanges = [event for event in events if type(event) is Exchange]
        found: dict[int, list[tuple[Message, Problem]]] = {}
        if "records" in self._wanted:
            found = self._records.feed(exchanges)
        missed = self._enricher.missed
        for exchange in exchanges:
            more = found.get(exchange.exchange, ())
            unnamed = exchange.exchange in missed
            if unnamed:
                missed.discard(exchange.exchange)
            if "exchanges" in self._wanted:
                self._unnamed = unnamed
                self._exchanges.append(exchange, unnamed_bodies=unnamed, more=[problem for _, problem in more])
                if self._exchanges.size >= self._most_bytes or len(self._exchanges) >= self._most_rows:
                    self._files.write("exchanges", self._exchanges.take())
            if "problems" in self._wanted:
                self._problems.exchange(exchange, more)
        if "problems" in self._wanted:
            for event in events:
                if type(event) is Problem:
                    self._problems.append(event)
        if self._selector is not None:
            self.selected.update(exchange.connection for exchange in exchanges)
        for connection in connections:
            self._connection(connection)
        self._write(self._most_rows, self._most_bytes)

    def take_columns(self, found: PairColumns, captures: Sequence[str]) -> None:
        """Take exchanges that an inspector yielded as columns. Raises OSError where rows cannot be written."""
        self.in_columns += len(found.asked)
        if "exchanges" in self._wanted:
            self._files.write("exchanges", exchange_rows(found, captures))
        records = record_rows(found, captures)
        if records is not None:
            self._files.write("records", records)

    def _connection(self, connection: Connection) -> None:
        self._tellings.connection(connection)
        if self._selector is not None:
            if connection.connection not in self.selected:
                return
            self.selected.discard(connection.connection)
        if "connections" in self._wanted:
            self._connections.append(connection)
        if "problems" in self._wanted:
            self._problems.connection(connection)

    def _body_json(self, message: Message) -> str | None:
        if self._wants_body is not None and not self._wants_body(message):
            return None
        if self._payload.hides:
            # Only names tell which records are the brokers' own, so those that wait for one are hidden when it is
            # known or will never be (`rows.resolve`).
            message = self._payload.hide(message, records=not self._unnamed)
        return _body_json(message)

    def flush(self) -> None:
        """Write all rows that wait."""
        self._write(1, 1)

    def _write_full_records(self) -> None:
        self._write_records(self._most_rows, self._most_bytes)

    def _write_records(self, rows: int, size: int) -> None:
        if self._records.rows and (self._records.rows >= 4 * rows or self._records.size >= size):
            for batch in self._records.take():
                self._files.write("records", batch)

    def _write(self, rows: int, size: int) -> None:
        if len(self._exchanges) and (len(self._exchanges) >= rows or self._exchanges.size >= size):
            self._files.write("exchanges", self._exchanges.take())
        self._write_records(rows, size)
        if len(self._connections) >= rows:
            self._files.write("connections", self._connections.take())
        if len(self._problems) >= rows:
            self._files.write("problems", self._problems.take())


def finder_for(options: ExportOptions) -> ExchangeFinder | None:
    """Finds the exchanges that become columns in an export with these options; None: all are emitted one by one."""
    wants = options.tables
    if options.reads_headers:
        return exchange_finder(headers=True)
    # Payload is hidden in Python, and bodies with records are large.
    if options.headers or options.payload.hides or options.decode_records == "full" or options.filters:
        return None
    return exchange_finder(
        bodies=options.bodies and "exchanges" in wants, records="records" in wants, show_secrets=options.show_secrets
    )


_default: Final[Callable[[Any], Any]] = json_default()


def _body_json(message: Message) -> str:
    """The body as in the JSON lines. Hot: only bodies that can have NaN are walked over."""
    body = message.body
    if body is not None and message.api_key is not None and may_have_floats(message.api_key):
        return body_json(body)
    return orjson.dumps(body, default=_default).decode()
