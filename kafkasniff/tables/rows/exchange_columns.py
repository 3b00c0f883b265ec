"""Rows of `exchanges` and `records` that the native kernel reads, a column at a time.

They equal the rows that `exchange_row` makes of one exchange and `RecordRows` of its messages. `ExchangeFinder` decides
which exchanges these are. Exchanges with more to report or to add are left to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.lines import REJECTED, UNDECIDED
from kafkasniff.engine.message_table import Collected, Messages, PairColumns
from kafkasniff.engine.roles import ExchangeKinds, WantedBodies, distinct, settle_choices, version_of
from kafkasniff.kafka.messages.rendered import wordings
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.native.columns import PAIR, ExchangeColumns, ExchangeReader, Strings
from kafkasniff.native.feed import ARENA, KEYS, MAX_FRAME, NONE, REQUEST, VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.names import NameFacts
from kafkasniff.tables.rows.column_rows import BodyFacts, Bools, Ints, string_array
from kafkasniff.tables.rows.record_arrays import Batches, NativeRecords

if TYPE_CHECKING:
    from kafkasniff.engine.selection import Selection


MAX_READ: Final = 1 << 20
"""The largest message that is read here, in bytes. In larger ones, Python's cost of a message is spread
over more bytes. With 16 kB, batches of some 90 kB took a quarter more time."""
MAX_LEARNT: Final = 4096
MAX_LEARNT_BYTES: Final = 8 << 20
"""Bodies, and parts of them, from which Python has learnt, so that they need not be read again."""


class Ends:
    """Constant facts of connections: `PairColumns.ends`. Each column has a value per owner."""

    def __init__(self, owners: Sequence[MessageOwner | None]) -> None:
        self.owners = owners
        self.ids: Ints = np.array([0 if owner is None else owner.identify() for owner in owners], np.int64)
        self._both = [(None, None) if owner is None else (owner.client, owner.broker) for owner in owners]
        self.final = all(owner is None or owner.client is not None for owner in owners)
        """No client is unknown: a connection that began in the kernel has one with its first request."""

    @cached_property
    def columns(self) -> dict[str, pa.Array]:
        """The facts as columns of tables. The explorer has none: `pa.array` would import pandas if it is installed."""
        columns = {"connection_id": pa.array(self.ids)}
        for side, which in (("client", 0), ("broker", 1)):
            ends = [one[which] for one in self._both]
            columns[f"{side}_ip"] = pa.array([end and end.address for end in ends], pa.string())
            columns[f"{side}_port"] = pa.array([end and end.port for end in ends], pa.int32())
        return columns


class ExchangeFinder:
    """Finds exchanges that can be made as columns (`inspector.PairFinder`).

    `headers`: bodies are not read; `bodies`: those whose JSON is wanted; `records`: their records are. `selection`: the
    filter; the numbers of connections with selected exchanges go to `selected`. Facts of rejected exchanges are read
    nevertheless, because later requests of the connection may have waited for them. `names`: of topic ids; without
    them, exchanges with topic ids or fetch sessions are left to Python. `unnamed`: exchanges with topic ids without a
    name are found, too; their columns are to be completed. `problems`: and those with problems in their bodies.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        headers: bool = False,
        bodies: WantedBodies | None = None,
        records: bool = False,
        show_secrets: bool = False,
        selection: Selection | None = None,
        selected: set[int] | None = None,
        names: NameFacts | None = None,
        unnamed: bool = False,
        problems: bool = False,
    ) -> None:
        self._names = names
        self._unnamed = unnamed
        self._problems = problems
        self._kernel = kernel
        self._headers = headers
        self._bodies = bodies
        self._wants_records = records
        self._show_secrets = show_secrets
        self._selection = selection
        self._selected = selected
        self._options: DecodeOptions | None = None
        self._reader: ExchangeReader | None = None
        self._records: NativeRecords | None = None
        self._rejected: ExchangeReader | None = None
        """Reads exchanges that a filter rejects."""
        self._kinds = ExchangeKinds(kernel, show_secrets=show_secrets, names=names is not None, bodies=bodies)
        self._ends = Ends([])
        self._learnt: dict[tuple[int, bytes], int] = {}
        """Facts that Python has read, each with the time at which it was first seen."""
        self._learnt_bytes = 0

    def may_take(self, code: int, options: DecodeOptions) -> bool:
        """Whether exchanges of an API version, by its code, are found if nothing in them is odd."""
        return self._kinds.of(code) is not None or (self._headers and version_of(code).request.known_version)

    def find(
        self, messages: Messages, options: DecodeOptions, capture: Callable[[int], str | None]
    ) -> tuple[list[PairColumns], Bools]:
        """Exchanges as columns, and a mask of the other messages among all messages of whole exchanges."""
        rows = messages.rows
        reader = self._use(options)
        # Owners are compared by identity, which costs next to nothing; mostly they are those of the batch before.
        if not self._ends.final or self._ends.owners != messages.owners:
            self._ends = Ends(messages.owners)
        ids = self._ends.ids
        answer = np.flatnonzero((rows["pair"] != NONE) & (rows["flags"] & REQUEST == 0))
        pairs = np.zeros(len(answer), PAIR)
        pairs["response"], pairs["request"] = answer, rows["pair"][answer]
        pairs = pairs.compress(self._chosen(messages, pairs))
        # Sorted rows need not be moved later.
        asked = rows.take(pairs["request"])
        pairs = pairs.take(_order(ids, asked, asked["time"]))
        found: list[PairColumns] = []
        others = rows["pair"] != NONE
        if self._selection is not None and len(pairs):
            assert self._rejected is not None
            answers = self._selection.exchanges(Collected([], messages), pairs["response"].astype(np.intp), capture)
            is_rejected = answers == REJECTED
            for own, columns, _ in self._read(messages, pairs.compress(is_rejected), self._rejected, others):
                found.append(self._pairs(messages, own, columns, None)._replace(selected=False))
            pairs = pairs.compress(~is_rejected & (answers != UNDECIDED))
        for own, columns, records in self._read(messages, pairs, reader, others, self._records):
            found.append(self._pairs(messages, own, columns, records))
            if self._selected is not None:
                chosen = distinct(rows["connection"][own["request"]].astype(np.int64))
                self._selected.update(owner.number for one in chosen if (owner := messages.owners[one]) is not None)
        return found, others

    def _read(
        self,
        messages: Messages,
        pairs: NDArray[np.void],
        reader: ExchangeReader,
        others: Bools,
        records_reader: NativeRecords | None = None,
    ) -> Iterator[tuple[NDArray[np.void], ExchangeColumns, Batches | None]]:
        """The pairs that have columns, which are cleared in `others`; `records_reader` reads their records."""
        first = 0
        while first < len(pairs):
            columns, first = reader.read(messages.rows, messages.buffer, messages.arena, pairs, first)
            own = pairs.take(columns.rows["pair"].astype(np.int64))
            if not self._headers:
                codes = messages.rows["code"][own["request"]].astype(np.int64)
                settle_choices(columns.rows, codes, self._kinds.known)
            right = self._are_learnt(messages, own, columns)
            if len(columns.problems):
                right &= self._have_waits(messages, own, columns)
            inflated: list[bytes] = []
            if records_reader is not None:
                # They are kept until their records are read.
                inflated, plain = records_reader.inflate(columns)
                right &= plain
            if not right.all():
                columns, own = _some(columns, right), own.compress(right)
            records = None
            if records_reader is not None:
                columns = _with_sorted_batches(columns, messages, self._ends.ids, own)
                records, right = records_reader.read_batches(columns.batches, columns.shared, len(own))
                if not right.all():
                    columns, own = _some(columns, right), own.compress(right)
                del inflated
            others[own["request"]] = others[own["response"]] = False
            if len(own):
                yield own, columns, records

    def _use(self, options: DecodeOptions) -> ExchangeReader:
        if self._reader is None or options is not self._options:
            self._options = options
            own = ExchangeReader(
                self._kernel,
                self._kinds.programs,
                headers=self._headers,
                bodies=None if self._bodies is None else self._kinds.bodies,
                records=self._wants_records,
                show_secrets=self._show_secrets,
                most=MAX_READ,
                max_records=options.max_records,
                names=self._names,
                unnamed=self._unnamed,
                problems=(wordings(), self._kinds.careful) if self._problems else None,
            )
            self._reader = own
            if self._wants_records:
                self._records = NativeRecords(self._kernel, options, show_secrets=self._show_secrets)
            if self._selection is not None:
                self._rejected = ExchangeReader(
                    self._kernel,
                    self._kinds.programs,
                    headers=self._headers,
                    show_secrets=self._show_secrets,
                    most=MAX_FRAME,
                )
        return self._reader

    def _chosen(self, messages: Messages, pairs: NDArray[np.void]) -> Bools:
        """Which of the pairs are of a kind that is read here."""
        codes = messages.rows["code"][pairs["request"]].astype(np.int64)
        if self._headers:
            known = np.zeros(KEYS * VERSIONS, bool)
            for code in distinct(codes) if len(codes) else ():
                known[code] = version_of(code).request.known_version
            taken: Bools = known[codes]
            return taken
        chosen = self._kinds.are_known(codes)
        learns = np.zeros(KEYS * VERSIONS, bool)
        learns[[code for code, kind in self._kinds.known.items() if kind.learns]] = True
        learning = np.flatnonzero(chosen & learns[codes])
        chosen[learning] = list(self._learnt_before(messages, pairs["response"][learning]))
        return chosen

    def _learnt_before(self, messages: Messages, answers: NDArray[np.uint32]) -> Iterator[bool]:
        """Whether Python has read the body of a response before, so that nothing can be learnt from it.

        If not, Python reads it now. The earliest report of each fact counts (`enrich.learned_facts`).
        """
        rows = messages.rows.take(answers)
        columns = (rows[name].tolist() for name in ("code", "flags", "start", "body", "size", "time"))
        for code, flags, start, body_at, size, time_ns in zip(*columns, strict=True):
            body = (messages.arena if flags & ARENA else messages.buffer)[start + body_at : start + size]
            yield self._is_learnt(code, body, time_ns)

    def _are_learnt(self, messages: Messages, own: NDArray[np.void], columns: ExchangeColumns) -> Bools:
        """Which exchanges report nothing new about brokers. Python reads the others."""
        right = np.ones(len(own), bool)
        facts = np.flatnonzero(columns.rows["facts_size"])
        own = own.take(facts)
        asked, answered = messages.rows.take(own["request"]), messages.rows.take(own["response"])
        starts = answered["start"].astype(np.int64) + columns.rows["facts"][facts]
        ends = starts + columns.rows["facts_size"][facts]
        values = (asked["code"], answered["flags"], starts, ends, answered["time"])
        places = zip(facts.tolist(), *(column.tolist() for column in values), strict=True)
        for row, code, flags, start, end, time_ns in places:
            data = (messages.arena if flags & ARENA else messages.buffer)[start:end]
            right[row] = self._is_learnt(code, data, time_ns)
        return right

    def _have_waits(self, messages: Messages, own: NDArray[np.void], columns: ExchangeColumns) -> Bools:
        """Which exchanges show what they waited for: a fetch that is cut before its topics may be a controller's."""
        codes = messages.rows["code"][own["request"]].astype(np.int64)
        fetches = [code for code in distinct(codes) if (wait := self._kinds.known[code].wait) and wait.replica_ids]
        rows = columns.rows
        names_none = (rows["asked_topics"] == 0) & (rows["asked_partitions"] == 0) & (rows["problems"] > 0)
        right: Bools = ~(names_none & np.isin(codes, fetches))
        return right

    def _is_learnt(self, code: int, data: bytes, time_ns: int) -> bool:
        """Whether Python has read these facts before; if not, it reads them now."""
        known = self._learnt.get((code, data))
        if known is not None and known <= time_ns:
            return True
        if len(self._learnt) >= MAX_LEARNT or self._learnt_bytes + len(data) > MAX_LEARNT_BYTES:
            self._learnt.clear()
            self._learnt_bytes = 0
        self._learnt[code, data] = time_ns
        self._learnt_bytes += len(data)
        return False

    def _pairs(
        self, messages: Messages, own: NDArray[np.void], columns: ExchangeColumns, records: Batches | None
    ) -> PairColumns:
        asked, answered = messages.rows.take(own["request"]), messages.rows.take(own["response"])
        names = string_array(columns.names).to_pylist()
        client_id = columns.rows["client_id"].astype(np.int64)
        pairs = PairColumns(messages.owners, asked, answered, self._ends, names, client_id)
        if self._headers:
            return pairs
        return pairs._replace(
            facts=BodyFacts(columns, self._kinds.known, self._bodies is not None, records),
            problems=columns.rows["problems"].astype(np.int64) if len(columns.problems) else np.zeros(0, np.int64),
        )


def _order(ids: Ints, asked: NDArray[np.void], time: Ints) -> Ints:
    """The order of exchanges in their table, by their requests.

    `ids`: of connections; `time`: the sort key of exchanges within an API.
    """
    codes = distinct(asked["code"].astype(np.int64)) if len(asked) else []
    rank = np.zeros(KEYS * VERSIONS, np.int64)
    names = sorted({version_of(code).api or "" for code in codes})
    rank[codes] = [names.index(version_of(code).api or "") for code in codes]
    return np.lexsort((asked["ordinal"], ids[asked["connection"]], time, rank[asked["code"]]))


def _with_sorted_batches(
    columns: ExchangeColumns, messages: Messages, ids: Ints, own: NDArray[np.void]
) -> ExchangeColumns:
    """The same with batches in the order of the table `records`, which costs less than sorting their records."""
    row = columns.shared["row"].astype(np.int64)
    own = own.take(row)
    asked, answered = messages.rows.take(own["request"]), messages.rows["time"][own["response"]]
    order = _order(ids, asked, np.where(columns.shared["is_request"], asked["time"], answered))
    return columns._replace(batches=columns.batches.take(order), shared=columns.shared.take(order))


def _some(columns: ExchangeColumns, right: Bools) -> ExchangeColumns:
    """The rows for which `right` is true."""
    rows = columns.rows
    chosen = right[columns.shared["row"]]
    place = np.cumsum(right) - 1
    shared = columns.shared.compress(chosen)
    shared["row"] = place[shared["row"]]
    reported = right[columns.problems["row"]]
    problems = columns.problems.compress(reported)
    problems["row"] = place[problems["row"]]

    def texts(strings: Strings, which: Bools = right) -> Strings:
        # By its buffer: the explorer comes here, too, and `pa.array` would import pandas.
        bits = pa.py_buffer(np.packbits(which, bitorder="little"))
        mask = pa.Array.from_buffers(pa.bool_(), len(which), [None, bits])
        kept = string_array(strings).filter(mask) if len(strings.offsets) > 1 else string_array(strings)
        # A filtered array owns its memory and begins with it.
        _, offsets, data = kept.buffers()
        return Strings(
            np.frombuffer(offsets, np.int32)[: len(kept) + 1] if offsets is not None else np.zeros(1, np.int32),
            np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8),
        )

    return columns._replace(
        rows=rows.compress(right),
        requests=texts(columns.requests),
        responses=texts(columns.responses),
        topics=columns.topics[np.repeat(right, rows["topics"])],
        partitions=columns.partitions.compress(np.repeat(right, rows["partitions"])),
        batches=columns.batches.compress(chosen),
        shared=shared,
        codes=columns.codes[np.repeat(right, rows["codes"])],
        problems=problems,
        details=texts(columns.details, reported),
    )
