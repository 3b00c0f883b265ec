"""Step 1: events to staged rows, and the names that the run learns. Its state is that of the last run, or a new one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
import pyarrow as pa

from kafkasniff.engine.inspector import Inspector, number_from, reshard
from kafkasniff.engine.message_table import Output, PairColumns, PairFinder
from kafkasniff.engine.roles import EVERY_BODY, WantedBodies
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.kafka.messages.message_plan import may_have_floats
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import NO_TIME, Connection, Exchange, Message, Problem, SaslToken, Summary
from kafkasniff.native.library import kernel
from kafkasniff.native.streams import Links
from kafkasniff.packets import PacketBatch
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY, checked_memory
from kafkasniff.sinks.jsonl import body_json, json_default
from kafkasniff.sinks.native_lines import AddedNames
from kafkasniff.tables.checkpoint import WAY_OUT, Carried, ShardState, dump, load
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.staged import StagedFiles, together
from kafkasniff.tables.rows import ExchangeRows
from kafkasniff.tables.rows.column_rows import exchange_rows, problem_rows, record_rows
from kafkasniff.tables.rows.connections import ConnectionRows, Logins
from kafkasniff.tables.rows.exchange_columns import ExchangeFinder
from kafkasniff.tables.rows.problems import ProblemRows
from kafkasniff.tables.rows.records import RecordRows
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.staged import STAGED
from kafkasniff.tables.rows.transport import TransportRows

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate, Selector
    from kafkasniff.tls.keylog import KeyLog

MAX_ROWS: Final = 65_536
MAX_BYTES: Final = 8 << 20
"""Rows, and estimated bytes of rows, that are held for each table before they are written."""
ROWS_PART: Final = 16
"""The largest part of the memory budget for these bytes; each row counts `ROW_BYTES` of it."""
ROW_BYTES: Final = 1024
FEW_ROWS: Final = 2048
"""Fewer rows than this that were made as columns wait for others: each staged batch is sorted and merged."""
_DEFAULT: Final = DecodeOptions()


class Staged(Protocol):
    """A consumer of staged rows: files (`StagedFiles`), or a counter (`CountedRows`)."""

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows of a table."""

    def close(self) -> None:
        """Finish after the last rows."""


class Stager:
    """Takes events in order and writes rows to `files`.

    The enricher's catalog needs `Catalog.learned_facts`, and the enricher the names that it missed (`notes_missed`).
    `selector`: selects exchanges, and the connections of selected exchanges. `bodies`: those that are wanted as JSON,
    if `options` want bodies. `memory`: the process's budget in bytes; rows wait within a part of it. `limits`: bounds
    of each message. `logins`: the authentication of open connections, by default of none yet. `columns`: those of
    `exchanges` that are wanted, others are null.
    """

    def __init__(
        self,
        options: ExportOptions,
        enricher: Enricher,
        files: Staged,
        selector: Selector | None = None,
        *,
        selected: set[int] | None = None,
        bodies: WantedBodies = EVERY_BODY,
        memory: int = DEFAULT_MEMORY,
        limits: DecodeOptions = _DEFAULT,
        logins: Logins | None = None,
        columns: Container[str] = STAGED["exchanges"].names,
    ) -> None:
        assert enricher.catalog.learned_facts is not None
        self._learned_facts = enricher.catalog.learned_facts
        self._most_bytes = min(MAX_BYTES, memory // ROWS_PART)
        self._most_rows = min(MAX_ROWS, memory // ROWS_PART // ROW_BYTES)
        self._enricher = enricher
        self._files = files
        self._selector = selector
        self.selected: set[int] = set() if selected is None else selected
        """With a selection: numbers of open connections that had selected exchanges."""
        self._wanted = frozenset(options.tables)
        self._payload = options.payload
        self._bodies = bodies
        self._unnamed = False
        """The exchange whose row is being made has topics whose names are not known yet."""
        self._wanted_columns = columns
        self._exchanges = ExchangeRows(
            self._body_json if options.bodies else None, headers=options.headers, columns=columns
        )
        self._options = options
        self.in_columns = 0
        """Number of exchanges made as columns."""
        self._columns: list[pa.RecordBatch] = []
        self._columns_rows = self._columns_bytes = 0
        self._records = RecordRows(
            show_secrets=options.show_secrets,
            payload=options.payload,
            full=self._write_full_records,
            memory=memory,
            limits=limits,
        )
        self._connections = ConnectionRows()
        self._logins = Logins() if logins is None else logins
        self._transport = TransportRows()
        self._problems = ProblemRows()

    @cached_property
    def finder(self) -> ExchangeFinder | None:
        """Finds exchanges that are taken as columns (`take_columns`); None: all are emitted one by one."""
        return _finder(self._options, self._bodies, self._selector, self.selected, self._enricher)

    def begins(self, time_ns: int) -> None:
        """Set the time of the run's first packet, which relative filters count from."""
        if self._selector is not None:
            self._selector.start_ns = time_ns

    def take(self, events: Sequence[Any]) -> None:
        """Take the output of an inspector. Raises OSError if rows cannot be written."""
        connections = [event for event in events if type(event) is Connection]
        logins = self._logins
        for event in events:
            if type(event) is Exchange or type(event) is SaslToken:
                logins.feed(event)
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

    def take_columns(self, pair_columns: PairColumns, captures: Sequence[str]) -> None:
        """Take exchanges that an inspector emitted as columns. Raises OSError if rows cannot be written."""
        self.in_columns += len(pair_columns.asked)
        if not pair_columns.selected:
            return
        if "exchanges" in self._wanted:
            rows = exchange_rows(pair_columns, captures, headers=self._options.headers, columns=self._wanted_columns)
            self._columns.append(rows)
            self._columns_rows += len(rows)
            self._columns_bytes += rows.nbytes
            if self._columns_rows >= FEW_ROWS or self._columns_bytes >= self._most_bytes:
                self._write_columns()
        records = record_rows(pair_columns, captures)
        if records is not None:
            self._files.write("records", records)
        problems = problem_rows(pair_columns, captures) if "problems" in self._wanted else None
        if problems is not None:
            self._problems.extend(problems)

    def take_links(self, links: Links) -> None:
        """Take the network of connections that are over; a filter does not apply. Raises OSError likewise."""
        self._transport.append(links)
        if len(self._transport) >= self._most_rows:
            self._files.write("transport", self._transport.take())

    def _connection(self, connection: Connection) -> None:
        self._learned_facts.connection(connection)
        login = self._logins.pop(connection.connection)
        if connection.served:
            login.serve()
        if self._selector is not None:
            if connection.connection not in self.selected:
                return
            self.selected.discard(connection.connection)
        if "connections" in self._wanted:
            self._connections.append(connection, login)
        if "problems" in self._wanted:
            self._problems.connection(connection)

    def _body_json(self, message: Message) -> str | None:
        if not self._bodies.wants(message):
            return None
        if self._payload.hides:
            # Names decide which records are of the brokers' own topics; those that wait for one are hidden when it is
            # known or will never be (`rows.resolve`).
            message = self._payload.hide(message, records=not self._unnamed)
        return _body_json(message)

    def _write_columns(self) -> None:
        columns, self._columns = self._columns, []
        self._columns_rows = self._columns_bytes = 0
        if columns:
            self._files.write("exchanges", together(columns))

    def flush(self) -> None:
        """Write all waiting rows."""
        self._write_columns()
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
        if len(self._transport) >= rows:
            self._files.write("transport", self._transport.take())
        if len(self._problems) >= rows:
            self._files.write("problems", self._problems.take())


def _finder(
    options: ExportOptions,
    bodies: WantedBodies,
    selector: Selector | None,
    selected: set[int],
    enricher: Enricher,
) -> ExchangeFinder | None:
    """Finds the exchanges that become columns in an export with these options; None: all are emitted one by one.

    `bodies`, `selected`, `enricher`: see `Stager`.
    """
    if options.needs_python:
        return None
    native = kernel()
    selection = None
    if selector is not None:
        # Imported when there is something to select.
        from kafkasniff.engine.selection import Selection, asks_columns  # noqa: PLC0415

        assert selector.predicate is not None
        # Without bodies, filters that look at them match nothing.
        if options.reads_headers or not asks_columns(selector.predicate):
            return None
        selection = Selection(selector.predicate, selector, native, show_secrets=options.show_secrets, writes=True)
    wants = options.tables
    return ExchangeFinder(
        native,
        headers=options.reads_headers,
        bodies=bodies if options.bodies and not options.headers and "exchanges" in wants else None,
        records="records" in wants,
        show_secrets=options.show_secrets,
        selection=selection,
        selected=None if selector is None else selected,
        # Filters may ask for names, which columns do not have.
        names=None if selector is not None or enricher.has_sessions else AddedNames(enricher),
        unnamed=True,
        problems=True,
    )


_default: Final[Callable[[Any], Any]] = json_default()


def _body_json(message: Message) -> str:
    """The body as in the JSON lines. Hot: only bodies that can have NaN are walked over."""
    body = message.body
    if body is not None and message.api_key is not None and may_have_floats(message.api_key):
        return body_json(body)
    return orjson.dumps(body, default=_default).decode()


# -- the state of a shard ----------------------------------------------------------------------------------------------


def new_state(options: ExportOptions, catalog: Catalog, *, sessions: bool) -> ShardState:
    """The initial state of a shard. `sessions`: a filter has to know the topics of fetch sessions."""
    inspector = Inspector(
        ports=options.ports,
        records=options.decode_records,
        show_secrets=options.show_secrets,
        max_frame=options.max_frame,
        connections=True,
        headers=options.reads_headers,
        network="links" if "transport" in options.tables else "nothing",
    )
    if catalog.learned_facts is None:
        catalog.learned_facts = LearnedFacts()
    enricher = Enricher(catalog, summary=inspector.summary, sessions=sessions)
    enricher.notes_missed = options.bodies and "exchanges" in options.tables
    logins = Logins() if "connections" in options.tables else None
    return ShardState(inspector, enricher, set(), logins=logins)


def load_state(dumped: bytes, options: ExportOptions) -> ShardState:
    """The state of a shard. Raises UsageError as `checkpoint.load` does, and if its options are others.

    The manifest's options were compared before (`check_continues`). But the state's options are the ones that decode,
    and a writer of a state file must not decide whether secrets are shown.
    """
    state = load(dumped, ShardState)
    # The run sets the memory budget.
    state.inspector.limit_messages(DEFAULT_MEMORY)
    if state.inspector.settings != new_state(options, Catalog(), sessions=False).inspector.settings:
        raise UsageError(f"this state has other options than its export: {WAY_OUT}")
    if (state.logins is not None) != ("connections" in options.tables):
        raise UsageError(f"this state has other tables than its export: {WAY_OUT}")
    return state


def first_states(
    carried: Carried, shards: int, options: ExportOptions, given: Mapping[str, str], *, sessions: bool = False
) -> list[bytes]:
    """The initial state of each shard, dumped. `given` are names by topic id; for `sessions` see `new_state`."""
    if len(carried.shards) == shards:
        return carried.shards
    found: list[bytes] = []
    for number in range(shards):
        catalog = Catalog(given, learned_facts=LearnedFacts())
        state = new_state(options, catalog, sessions=sessions)
        if carried.shards:
            before = [load_state(shard, options) for shard in carried.shards]
            inspectors: list[Inspector] = [shard_state.inspector for shard_state in before]
            state.inspector = reshard(inspectors, number, shards)
            state.enricher.count_into(state.inspector.summary)
            for shard_state in before:
                state.enricher.missed |= shard_state.enricher.missed
                state.enricher.catalog.absorb(shard_state.enricher.catalog)
            state.start_ns = before[0].start_ns
            logins = [shard_state.logins for shard_state in before if shard_state.logins is not None]
            if logins:
                state.logins = logins[0]
                logins[0].absorb(logins[1:], state.inspector.open_numbers)
        else:
            number_from(state.inspector, number)
        found.append(dump(state))
    return found


# -- batches of packets to staged rows ---------------------------------------------------------------------------------

TOGETHER_BYTES: Final = 16 << 20
"""Memory of messages that become rows at once, or a sixteenth of the budget: small groups cost several times as
much."""
TOGETHER: Final = 4096
"""Events of connections that end with the captures, processed at once."""


def new_stager(
    state: ShardState,
    options: ExportOptions,
    predicate: Predicate | None,
    files: Staged,
    *,
    bodies: WantedBodies = EVERY_BODY,
    columns: Container[str] = STAGED["exchanges"].names,
) -> Stager:
    """The stager that continues with a state's selection; `bodies` and `columns` as for `Stager`."""
    selector = None
    if predicate is not None:
        # Imported when there is something to select.
        from kafkasniff.filters import Selector  # noqa: PLC0415

        selector = Selector(predicate)
        selector.start_ns = state.start_ns
    return Stager(
        options,
        state.enricher,
        files,
        selector,
        selected=state.selected,
        bodies=bodies,
        memory=state.inspector.memory,
        limits=state.inspector.decode_options,
        logins=state.logins,
        columns=columns,
    )


def together_bytes(inspector: Inspector) -> int:
    """Memory of an inspector's messages that become rows at once."""
    return min(TOGETHER_BYTES, inspector.memory // ROWS_PART)


def stage(
    state: ShardState,
    stager: Stager,
    batch: PacketBatch,
    seen: Callable[[Sequence[Output | PairColumns]], object] | None = None,
) -> None:
    """Take the next packets. Raises OSError if rows cannot be written.

    `seen` is called with the inspector's output, and with the exchanges that are columns.
    """
    for events, columns in _fed(state, stager, batch, stager.finder):
        if seen is not None:
            seen(events)
            seen(columns)
        stager.take(events)
        for column in columns:
            stager.take_columns(column, batch.captures)
        del events  # before the next ones are decoded


def inspected(state: ShardState, stager: Stager, batch: PacketBatch) -> Iterator[list[Output]]:
    """The events of the next packets, for `stager` to take, in groups that fit into memory."""
    for events, _ in _fed(state, stager, batch, None):
        yield events
        del events


def _fed(
    state: ShardState, stager: Stager, batch: PacketBatch, finder: PairFinder | None
) -> Iterator[tuple[list[Output], list[PairColumns]]]:
    """The same, without the exchanges that `finder` finds."""
    _begin(state, stager, batch)
    inspector = state.inspector
    together: list[Output] = []
    size, most = 0, together_bytes(inspector)
    slices = zip(inspector.feed_slices(batch), repeat([])) if finder is None else inspector.feed_columns(batch, finder)
    for events, columns in slices:
        together += state.enricher.feed(events)
        del events
        size += inspector.slice_bytes
        if size > most or columns:
            yield together, columns
            together, size = [], 0
    if together:
        yield together, []
    stager.take_links(inspector.take_links())


def _begin(state: ShardState, stager: Stager, batch: PacketBatch) -> None:
    if state.start_ns is None and len(batch):
        times = batch.time_ns[batch.time_ns != NO_TIME]
        if len(times):
            state.start_ns = int(times[0])
            stager.begins(state.start_ns)


def stage_rest(
    state: ShardState, stager: Stager, files: Staged, events: Callable[[Sequence[Output]], object] | None = None
) -> None:
    """End the captures: take what was still open, and write all waiting rows. Raises OSError.

    `events` is called with the inspector's output.
    """

    def take(rest: list[Output]) -> None:
        if events is not None:
            events(rest)
        stager.take(rest)

    together: list[Output] = []
    size, most = 0, together_bytes(state.inspector)
    inspector = state.inspector
    for slice_ in inspector.close_slices():
        stager.take_links(inspector.take_links())
        together += state.enricher.feed(slice_)
        del slice_
        size += state.inspector.slice_bytes
        if size > most or len(together) > TOGETHER:
            take(together)
            together, size = [], 0
    take(together)
    stager.take_links(inspector.take_links())
    stager.flush()
    files.close()
    learned_facts = state.enricher.catalog.learned_facts
    assert learned_facts is not None
    learned_facts.hosts.update(state.inspector.names)


def stage_unfinished(
    state: ShardState,
    options: ExportOptions,
    predicate: Predicate | None,
    folder: ConfinedPath,
    columns: Container[str] = STAGED["exchanges"].names,
) -> None:
    """Stage rows that end only with the captures: they are unfinished, and a run that continues replaces them.

    Afterwards only the names and the summary of the state are valid. Raises OSError.
    """
    folder.remove_tree()
    files = StagedFiles(folder)
    stage_rest(state, new_stager(state, options, predicate, files, columns=columns), files)


# -- rows for a consumer that counts them ------------------------------------------------------------------------------

MANY_ROWS: Final = 1 << 15
MANY_BYTES: Final = 32 << 20
"""Rows of a table, and their bytes, that are passed on together: each batch costs its consumers a fixed time."""


class CountedRows:
    """Passes the rows of packets to `take(batch, table)`, without a folder.

    Rows are staged ones (`rows.staged`) and lack names that are learnt after they were made. All names are known when
    the run is over; the consumer adds them then to the rows that it kept.

    `bodies`: those that are wanted as JSON, if `options` want bodies. `predicate`: selects exchanges; it may use names
    that `catalog` knows already. `keys`: secrets of TLS. `events` is called with the inspector's output, and with the
    exchanges that are columns. `memory`: budget in bytes, as for `Inspector`. `columns`: those of `exchanges` that the
    consumer reads; others are null.
    """

    def __init__(
        self,
        options: ExportOptions,
        take: Callable[[pa.RecordBatch, str], object],
        *,
        catalog: Catalog | None = None,
        bodies: WantedBodies = EVERY_BODY,
        predicate: Predicate | None = None,
        keys: KeyLog | None = None,
        events: Callable[[Sequence[Output | PairColumns]], object] | None = None,
        memory: int | None = None,
        columns: Container[str] = STAGED["exchanges"].names,
    ) -> None:
        catalog = Catalog() if catalog is None else catalog
        if catalog.learned_facts is None:
            catalog.learned_facts = LearnedFacts()
        self._learned_facts = catalog.learned_facts
        self._given: Mapping[str, str] = catalog.given
        self._take = take
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._events = events
        self._state = new_state(options, catalog, sessions=predicate is not None)
        budget = checked_memory(memory)
        self._most_bytes = min(MANY_BYTES, budget // ROWS_PART)
        self._state.limit_memory(budget)
        if keys is not None:
            self._state.inspector.follow_key_log(keys)
        self._stager = new_stager(self._state, options, predicate, self, bodies=bodies, columns=columns)

    @property
    def summary(self) -> Summary:
        """The summary so far."""
        return self._state.inspector.summary

    @property
    def start_ns(self) -> int | None:
        """Time of the first packet, which relative filters count from."""
        return self._state.start_ns

    def feed(self, batch: PacketBatch) -> None:
        """Take the next packets."""
        stage(self._state, self._stager, batch, self._events)

    def end(self) -> LearnedNames:
        """Flush the rows of open exchanges after the last packet. Returns the names that the run learnt."""
        stage_rest(self._state, self._stager, self, self._events)
        return LearnedNames(self._learned_facts, self._given)

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows from the stager, and pass them on when there are many."""
        waiting = self._waiting.setdefault(table, [])
        waiting.append(batch)
        if sum(map(len, waiting)) >= MANY_ROWS or sum(one.nbytes for one in waiting) >= self._most_bytes:
            self._pass_on(table)

    def close(self) -> None:
        """Pass on the rows that wait."""
        for table in self._waiting:
            self._pass_on(table)

    def _pass_on(self, table: str) -> None:
        waiting, self._waiting[table] = self._waiting[table], []
        rows = [one for one in waiting if len(one)]
        if rows:
            self._take(together(rows), table)
