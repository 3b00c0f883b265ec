"""Which messages of connections in step a filter selects, decided from columns before anything is decoded or rendered.

Headers, sizes and latencies are columns of the feed (`native.feed.MESSAGE`). If they leave the answer open, the kernel
reads the values of `BODY_FIELDS` from bodies (`ReadFacts`, `kernel/exchanges.zig`). Exchanges that the columns do not
settle are left to Python: a `filters.Selector` is asked with their decoded messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.lines import DEFERRED, REJECTED, SELECTED, UNDECIDED
from kafkasniff.engine.message_table import Collected, Messages
from kafkasniff.engine.record_values import RecordValues, is_record_field
from kafkasniff.engine.roles import ExchangeKind, ExchangeKinds, distinct, settle_choices, version_of
from kafkasniff.engine.session_follower import BatchTopics
from kafkasniff.engine.stream_messages import HELD
from kafkasniff.enrich import Enricher
from kafkasniff.enrich.plan import reads_nothing
from kafkasniff.enrich.sessions import FINAL_EPOCH, INITIAL_EPOCH
from kafkasniff.filters import Predicate, Selector, fields_of
from kafkasniff.filters.columns import NONE as OPEN
from kafkasniff.filters.columns import TRUE, FieldColumn, column_test
from kafkasniff.filters.fields import LATE, capture_text
from kafkasniff.kafka.messages.rendered import wordings
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import PACKET_NUMBER, PACKET_SHIFT, Endpoint
from kafkasniff.native.columns import (
    HAS_GROUPS,
    HAS_RECORDS,
    HAS_THROTTLE,
    HAS_TRANSACTIONS,
    PAIR,
    UNNAMED,
    ExchangeColumns,
    ExchangeReader,
    Strings,
)
from kafkasniff.native.feed import KEYS, MAX_FRAME, NONE, REQUEST, VERSIONS
from kafkasniff.native.library import Kernel
from kafkasniff.native.names import NameFacts

# -- columns of the fields that a filter asks about --------------------------------------------------------------------


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_THERE: Final = object()
HEADER_FIELDS: Final = frozenset(
    {
        *("api", "api_key", "api_version", "correlation_id", "client_id", "client", "broker", "host", "client_ip"),
        *("broker_ip", "client_port", "broker_port", "capture", "connection", "exchange", "time", "request", "size"),
        *("request_size", "first_packet", "last_packet", "response", "status", "response_size", "latency_ms"),
        *("duration_ms", "retransmits"),
    }
)
"""Fields that are known without bodies."""
BODY_FIELDS: Final = frozenset(
    {
        *("error", "error_code", "error_count", "topic", "partition", "record_count", "throttle_time_ms", "acks"),
        *("group_id", "transactional_id", "member_id"),
    }
)
"""Fields whose values are in bodies and which the kernel reads."""
_Side = Literal["client", "broker"]
_ENDS: Final[dict[str, tuple[tuple[_Side, str], ...]]] = {
    "client": (("client", "address"), ("client", "")),
    "broker": (("broker", "address"), ("broker", "")),
    "host": (("client", "address"), ("client", ""), ("broker", "address"), ("broker", "")),
    "client_ip": (("client", "address"),),
    "broker_ip": (("broker", "address"),),
    "client_port": (("client", "port"),),
    "broker_port": (("broker", "port"),),
}
"""The fields about an end of a connection: which end, and which part of it; empty: address and port."""


class AskedBatch(NamedTuple):
    """Common properties of the messages of a batch."""

    messages: Messages
    capture: Callable[[int], str | None]
    """The name of a capture by its index."""
    start_ns: int | None
    topics: BatchTopics | None = None
    """Topics that earlier messages add; None: they are unknown."""


class AskedColumns:
    """Exchanges of messages as columns (`filters.columns.FilteredExchanges`).

    `asked`, `answered`: indices of requests, and of their responses if they are known.
    """

    def __init__(self, batch: AskedBatch, asked: NDArray[np.intp], answered: NDArray[np.intp] | None) -> None:
        self.batch = batch
        self.asked = asked
        self.answered = answered
        self.start_ns = batch.start_ns
        self.facts: ReadFacts | None = None

    def __len__(self) -> int:
        return len(self.asked)

    def take(self, index: NDArray[np.intp]) -> AskedColumns:
        """Some of them."""
        return AskedColumns(self.batch, self.asked[index], None if self.answered is None else self.answered[index])

    def columns(self, field: str, *, ended: bool) -> tuple[Iterable[FieldColumn], Bools | None] | None:
        """See `filters.columns.FilteredExchanges`."""
        if field in _ENDS:
            return [self._end(*one) for one in _ENDS[field]], None
        if is_record_field(field):
            if self.facts is None or self.facts.headers:
                return [], by_code(self.codes, has_no_records)
            return self.facts.records_of(field, ended=ended)
        if field == "client_id" or field in BODY_FIELDS:
            found = None if self.facts is None else self.facts.columns(self.codes, field, ended=ended)
            return self._with_topics(*found, ended=ended) if field == "topic" and found is not None else found
        match field:
            case "api" | "api_key":
                return [FieldColumn(self._of("code") // VERSIONS)], None
            case "api_version":
                return [FieldColumn(self._of("code") % VERSIONS)], None
            case "correlation_id":
                return [FieldColumn(self._of("correlation"))], None
            case "capture":
                return [self._captures()], None
            case "connection":
                column = self._by_connection(lambda owner: owner.number)
                # A connection that began with this batch gets its number later.
                return [column], None if 0 not in column.values else self._numbered()
            case "exchange":
                numbers = self._of("number")
                # Filters on requests come before numbers.
                return ([FieldColumn(numbers)], None) if numbers.all() else None
            case "time":
                return [FieldColumn(self._of("time"))], None
            case "request":
                return [self._same(_THERE)], None
            case "request_size":
                return [FieldColumn(self._of("size"))], None
            case "size":
                return [FieldColumn(self._of("size")), *self._answer("size", ended)], None
            case "first_packet" | "last_packet":
                return [FieldColumn(self._of(field) & PACKET_NUMBER), *self._answer(field, ended)], None
            case "response":
                return [self._same(_THERE)] if ended else [], None
            case "status":
                return [self._same("answered")] if ended else [], None
            case "response_size":
                return self._answer("size", ended), None
            case "latency_ms":
                return self._answer("latency", ended), None
            case "duration_ms":
                return self._answer("duration", ended), None
            case "retransmits":
                return self._answer("retransmits", ended), None
        return None

    @property
    def codes(self) -> Ints:
        """The versions of APIs."""
        return self._of("code")

    def _with_topics(
        self, columns: list[FieldColumn], known: Bools | None, *, ended: bool
    ) -> tuple[list[FieldColumn], Bools | None]:
        """The same with the topics that earlier messages add: names of topic ids, and topics of fetch sessions."""
        assert self.facts is not None
        assert known is not None
        topics, here = self.batch.topics, self.batch.messages.here
        values: list[str] = []
        rows: list[int] = []
        for row, is_request, topic_id in self.facts.unnamed(ended=ended):
            message = int(self.asked[row] if is_request or self.answered is None else self.answered[row])
            if topics is None or message >= here or not topics.is_known(topic_id, message):
                known[row] = False
            elif (name := topics.name(topic_id, message)) is not None:
                values.append(name)
                rows.append(row)
        for row in self.facts.in_sessions(self.codes).tolist():
            found = None if topics is None else topics.of_session(int(self.asked[row]))
            if found is None:
                known[row] = False
            else:
                values += found
                rows += [row] * len(found)
        if values:
            columns.append(FieldColumn(values, np.arange(len(values)), np.array(rows, np.int64)))
        return columns, known

    def _of(self, name: str) -> Ints:
        """A column of the requests."""
        return self.batch.messages.rows[name][self.asked].astype(np.int64)

    def _answer(self, name: str, ended: bool) -> list[FieldColumn]:
        """A column of the responses, once they have arrived."""
        if not ended or self.answered is None:
            return []
        values = self.batch.messages.rows[name][self.answered].astype(np.int64)
        return [FieldColumn(values & PACKET_NUMBER if name in ("first_packet", "last_packet") else values)]

    def _same(self, value: object) -> FieldColumn:
        return FieldColumn([value], np.zeros(len(self), np.int64))

    def _by_connection(self, value: Callable[[Any], Any]) -> FieldColumn:
        """A value of each connection; None: it has none."""
        connection = self._of("connection")
        known = distinct(connection)
        values = [None if (owner := self.batch.messages.owners[one]) is None else value(owner) for one in known]
        index = np.full(len(self.batch.messages.owners), -1, np.int64)
        index[known] = [-1 if value is None else index for index, value in enumerate(values)]
        return FieldColumn(values, index[connection])

    def _numbered(self) -> Bools:
        owners = self.batch.messages.owners
        return np.array([owner is not None and owner.number > 0 for owner in owners])[self._of("connection")]

    def _end(self, side: _Side, what: str) -> FieldColumn:
        def text(owner: Any) -> Any:
            end: Endpoint | None = getattr(owner, side)
            return None if end is None else getattr(end, what) if what else str(end)

        return self._by_connection(text)

    def _captures(self) -> FieldColumn:
        number = self._of("packet") >> PACKET_SHIFT
        known = distinct(number)
        names = [self.batch.capture(one) for one in known]
        index = np.full(max(known, default=0) + 1, -1, np.int64)
        index[known] = [-1 if name is None else index for index, name in enumerate(names)]
        return FieldColumn(["" if name is None else capture_text(name) for name in names], index[number])


class ReadFacts(NamedTuple):
    """Values that the kernel read of the exchanges from `first` up to `last`."""

    read: ExchangeColumns
    kinds: dict[int, ExchangeKind]
    first: int
    last: int
    headers: bool
    records: RecordValues | None = None

    def records_of(self, field: str, *, ended: bool) -> tuple[Iterable[FieldColumn], Bools] | None:
        """The values of a field of records."""
        if self.records is None or not self.records.are_decoded:
            return None
        own = self.read.rows["pair"].astype(np.int64) - self.first
        known = np.zeros(self.last - self.first, bool)

        def each(records: RecordValues) -> Iterator[FieldColumn]:
            are_known = np.ones(len(own), bool)
            for column in records.of(field, self.read, are_known, ended=ended):
                assert column.rows is not None
                yield column._replace(rows=own[column.rows])
            known[own] = are_known

        return each(self.records), known

    def columns(self, codes: Ints, field: str, *, ended: bool) -> tuple[list[FieldColumn], Bools | None] | None:
        """The values of a field; `codes`: of the exchanges."""
        if self.headers and field != "client_id":
            return None
        rows = self.read.rows
        own = rows["pair"].astype(np.int64) - self.first
        known = np.zeros(self.last - self.first, bool)
        known[own] = True
        made = list(self._columns(field, own, codes, ended))
        if field in ("group_id", "transactional_id"):
            known[own[rows["has"] & (HAS_GROUPS if field == "group_id" else HAS_TRANSACTIONS) > 0]] = False
        return made, known

    def in_sessions(self, codes: Ints) -> Ints:
        """Exchanges whose requests continue a fetch session: its topics are not in the request."""
        own = self.read.rows["pair"].astype(np.int64) - self.first
        values = self._values("session_epoch", own, codes)
        found = [places[~np.isin(epochs, (INITIAL_EPOCH, FINAL_EPOCH))] for epochs, places in values]
        return np.concatenate([np.empty(0, np.int64), *found])

    def unnamed(self, *, ended: bool) -> Iterator[tuple[int, bool, str]]:
        """Topic ids without a name when the batch began: their exchange, whether the request has them, and the id."""
        rows = self.read.rows
        entries = _entries(rows["topics"], rows["asked_topics"], ended)
        topics = self.read.topics[entries.places]
        index = np.flatnonzero(topics >= UNNAMED)
        if not len(index):
            return
        own = rows["pair"].astype(np.int64) - self.first
        places, texts = entries.rows[index], _texts(self.read.names)
        starts = np.cumsum(rows["topics"].astype(np.int64)) - rows["topics"]
        in_request = entries.places[index] - starts[places] < rows["asked_topics"][places]
        ids = (topics[index] & (UNNAMED - 1)).tolist()
        for row, is_request, number in zip(own[places].tolist(), in_request.tolist(), ids, strict=True):
            yield row, is_request, texts[number]

    def _columns(self, field: str, own: Ints, codes: Ints, ended: bool) -> Iterator[FieldColumn]:
        read, rows = self.read, self.read.rows
        match field:
            case "client_id":
                yield self._name("client_id", own)
            case "group_id":
                yield self._name("group", own)
            case "transactional_id":
                yield self._name("transaction", own)
            case "member_id":
                yield self._name("asked_member", own)
                if ended:
                    yield self._name("given_member", own)
            case "topic":
                entries = _entries(rows["topics"], rows["asked_topics"], ended)
                topics = read.topics[entries.places]
                named = topics < UNNAMED
                yield FieldColumn(_texts(read.names), topics[named].astype(np.int64), own[entries.rows[named]])
            case "partition":
                entries = _entries(rows["partitions"], rows["asked_partitions"], ended)
                yield _numbers(read.partitions["partition"][entries.places], own[entries.rows])
            case "acks":
                for values, places in self._values("acks", own, codes):
                    yield _numbers(values, places)
        if not ended:
            return
        match field:
            case "error" | "error_code":
                entries = _entries(rows["codes"], rows["codes"], True)
                yield _numbers(read.codes[entries.places], own[entries.rows])
                without = own[rows["codes"] == 0]
                yield _numbers(np.zeros(len(without)), without)
            case "error_count":
                yield _numbers(rows["codes"], own)
            case "throttle_time_ms":
                has = (rows["has"] & HAS_THROTTLE) > 0
                yield _numbers(rows["throttle"][has], own[has])
            case "record_count":
                has = (rows["has"] & HAS_RECORDS) > 0
                yield _numbers(rows["records"][has], own[has])

    def _name(self, name: str, own: Ints) -> FieldColumn:
        index = self.read.rows[name]
        return FieldColumn(_texts(self.read.names), np.where(index == NONE, -1, index.astype(np.int64)), own)

    def _values(self, name: str, own: Ints, codes: Ints) -> Iterator[tuple[Ints, Ints]]:
        """A number of requests, whose place among the values depends on the version, and the exchanges that have it."""
        of = codes[own]
        for code in distinct(of) if len(of) else ():
            values = self.kinds[code].values
            if name in values:
                chosen = np.flatnonzero(of == code)
                yield self.read.rows["values"][chosen, values.index(name)], own[chosen]


class _Entries(NamedTuple):
    """Entries of rows, each with its place among all entries and its row."""

    places: Ints
    rows: Ints


def _entries(counts: NDArray[Any], asked: NDArray[Any], ended: bool) -> _Entries:
    """The entries of rows, by their number per row; only the first ones if the request alone is known."""
    counts = counts.astype(np.int64)
    wanted = counts if ended else asked.astype(np.int64)
    rows = np.repeat(np.arange(len(counts)), wanted)
    starts = np.cumsum(counts) - counts
    within = np.arange(len(rows)) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    return _Entries(starts[rows] + within, rows)


def _numbers(values: NDArray[Any], rows: Ints) -> FieldColumn:
    return FieldColumn(values.astype(np.int64), None, rows)


def _texts(strings: Strings) -> Sequence[str]:
    """Names are UTF-8: others are left to Python."""
    data, offsets = strings.data.tobytes(), strings.offsets.tolist()
    return [data[begin:end].decode() for begin, end in pairwise(offsets)]


# -- selection ---------------------------------------------------------------------------------------------------------


LEAST_TOPIC: Final = 18
"""Fewest bytes of a message that name a topic: its id, and a name of one character."""

NAMED_FIELDS: Final = frozenset({"topic"})
"""Fields with values that earlier messages add to a request: names of topic ids, topics of a fetch session."""

Answers = NDArray[np.uint8]


class RoomForNames(NameFacts, Protocol):
    """Names of topic ids (`sinks.native_lines.AddedNames`)."""

    @property
    def enricher(self) -> Enricher:
        """Knows the names."""

    @property
    def room(self) -> int:
        """Number of topics that can be learned before others are evicted."""


def asks_columns(predicate: Predicate, *, records: bool = False) -> bool:
    """Whether columns can answer any part of a predicate; `records`: also fields of records."""
    fields = fields_of(predicate)
    return not fields.isdisjoint(HEADER_FIELDS | BODY_FIELDS) or (records and any(map(is_record_field, fields)))


def has_no_records(code: int) -> bool:
    """Whether no message of a version of an API has records."""
    version = version_of(code)
    return not (version.request.has_records or version.response.has_records)


def _answers_no_records(code: int) -> bool:
    return not version_of(code).response.has_records


def by_code(codes: Ints, value: Callable[[int], bool]) -> Bools:
    """A property of versions of APIs, for each of these codes."""
    known = distinct(codes) if len(codes) else []
    table = np.zeros(KEYS * VERSIONS, bool)
    table[known] = [value(code) for code in known]
    found: Bools = table[codes]
    return found


class FactReader:
    """Reads the values of fields that are in headers and in bodies.

    `names`: of topic ids, as far as earlier batches named them; exchanges with other ids have no facts, unless topics
    are not asked for (`unnamed`), and without names none with ids has. `records`: returns how messages are decoded, if
    fields of records are asked for.
    """

    def __init__(
        self,
        kernel: Kernel,
        names: RoomForNames | None,
        *,
        show_secrets: bool,
        unnamed: bool = False,
        records: Callable[[], DecodeOptions] | None = None,
    ) -> None:
        self._kernel = kernel
        self._most_records = 0 if records is None else records().max_records
        self._records = None if records is None else RecordValues(kernel, records)
        self._unnamed = unnamed
        self._names = names
        self._show_secrets = show_secrets
        self.kinds = ExchangeKinds(kernel, show_secrets=show_secrets, names=names is not None)
        self._readers: dict[bool, ExchangeReader] = {}
        """For headers alone, and for bodies."""

    def has_bodies(self, columns: AskedColumns) -> NDArray[np.bool_]:
        """Which of these exchanges are of a kind whose bodies can be read."""
        messages = columns.batch.messages
        # No name may be evicted by others that these messages teach.
        size = len(messages.buffer) + len(messages.arena)
        if self._names is not None and self._names.room * LEAST_TOPIC <= size:
            return np.zeros(len(columns), bool)
        return self.kinds.are_known(messages.rows["code"][columns.asked].astype(np.int64))

    def parts(self, columns: AskedColumns, *, headers: bool) -> Iterator[AskedColumns]:
        """The same exchanges with `facts`, in consecutive parts; `headers`: only those of headers are needed."""
        reader = self._reader(headers)
        pairs = np.zeros(len(columns), PAIR)
        pairs["request"], pairs["response"] = columns.asked, NONE if columns.answered is None else columns.answered
        messages = columns.batch.messages
        first = 0
        while first < len(pairs):
            facts, last = reader.read(messages.rows, messages.buffer, messages.arena, pairs, first)
            codes = messages.rows["code"][pairs["request"][facts.rows["pair"]]].astype(np.int64)
            if not headers:
                settle_choices(facts.rows, codes, self.kinds.known)
            part = columns.take(np.arange(first, last))
            part.facts = ReadFacts(facts, self.kinds.known, first, last, headers, self._records)
            yield part
            first = last

    def _reader(self, headers: bool) -> ExchangeReader:
        exchange_reader = self._readers.get(headers)
        if exchange_reader is None:
            exchange_reader = self._readers[headers] = ExchangeReader(
                self._kernel,
                self.kinds.programs,
                headers=headers,
                records=self._records is not None and not headers,
                show_secrets=self._show_secrets,
                most=MAX_FRAME,
                max_records=self._most_records,
                names=None if headers else self._names,
                unnamed=self._unnamed,
                problems=None if headers else (wordings(), self.kinds.careful),
            )
        return exchange_reader


class Selection:
    """Asks a predicate about messages of the feed; `selector` answers for those that are left to Python.

    `names`, `records`: see `FactReader`.
    `writes`: selected messages have lines; else they are left to Python, and the kernel reads the others.
    """

    def __init__(
        self,
        predicate: Predicate,
        selector: Selector,
        kernel: Kernel,
        names: RoomForNames | None = None,
        *,
        show_secrets: bool,
        writes: bool,
        records: Callable[[], DecodeOptions] | None = None,
    ) -> None:
        self._test = column_test(predicate)
        self._selector = selector
        self._writes = writes
        fields = fields_of(predicate)
        of_records = set() if records is None else set(filter(is_record_field, fields))
        self._asks_client_id = "client_id" in fields
        self._asks_bodies = bool(of_records) or not fields.isdisjoint(BODY_FIELDS)
        self._ignores_names = fields <= (HEADER_FIELDS | BODY_FIELDS | of_records) - NAMED_FIELDS
        self._asks_records_late = bool(of_records) and all(
            name in of_records for name in fields if name.partition(".")[0] in LATE
        )
        """A response adds only records to what the predicate asks for."""
        self._names = names
        self._facts = FactReader(
            kernel,
            names,
            show_secrets=show_secrets,
            unnamed=True,
            records=records if of_records else None,
        )
        self._movable: dict[int, bool] = {}

    def pin(self, exchange: int, answer: bool) -> None:
        """Record the answer for an exchange whose messages will be left to Python."""
        self._selector.pin(exchange, answer)

    def unpin(self, exchange: int) -> None:
        """Forget an exchange whose messages were taken."""
        self._selector.unpin(exchange)

    def can_move(self, code: int) -> bool:
        """Whether requests may have their lines later: nothing is added to them or learnt from them."""
        found = self._movable.get(code)
        if found is None:
            found = self._movable[code] = reads_nothing(*divmod(code, VERSIONS), "request")
        return found

    def requests(self, messages: Messages, capture: Callable[[int], str | None]) -> Answers:
        """The answers for requests whose responses come later: `SELECTED`, `REJECTED`, `HELD` or `UNDECIDED`.

        There is an entry for each message; those of other messages have no answer.
        """
        rows = messages.rows
        found = np.full(len(rows), UNDECIDED, np.uint8)
        index = np.flatnonzero((rows["pair"] == NONE) & ((rows["flags"] & REQUEST) > 0))
        if not len(index):
            return found
        found[index] = self._answers(AskedColumns(self._batch(messages, capture), index, None))
        if self._selector.holds and self._writes:
            # If the response leaves it open, too, the request is decoded by then, without what was added to it.
            codes = rows["code"][index].astype(np.int64)
            waits = {code: self._ignores_names or self.can_move(code) for code in distinct(codes)}
            found[index[(found[index] == UNDECIDED) & np.array([waits[code] for code in codes.tolist()])]] = HELD
        return found

    def exchanges(
        self,
        collected: Collected,
        answers: NDArray[np.intp],
        capture: Callable[[int], str | None],
    ) -> Answers:
        """The answers for the exchanges of these responses, whose requests are among the messages; or `DEFERRED`."""
        messages = collected.messages
        assert messages is not None
        batch = self._batch(messages, capture)

        def read(index: NDArray[np.intp]) -> Bools:
            columns = AskedColumns(batch, messages.rows["pair"][index].astype(np.intp), index)
            found = np.zeros(len(index), bool)
            known = np.flatnonzero(self._facts.has_bodies(columns))
            for part in self._facts.parts(columns.take(known), headers=False) if len(known) else ():
                assert part.facts is not None
                found[known[part.facts.read.rows["pair"].astype(np.int64)]] = True
            return found

        if self._names is not None and collected.sessions is not None:
            batch = batch._replace(topics=BatchTopics(self._names.enricher, collected, read))
        asked = messages.rows["pair"][answers].astype(np.intp)
        return self._answers(AskedColumns(batch, asked, answers))

    def _batch(self, messages: Messages, capture: Callable[[int], str | None]) -> AskedBatch:
        return AskedBatch(messages, capture, self._selector.start_ns)

    def _answers(self, everything: AskedColumns) -> Answers:
        if self._asks_client_id:
            found = self._read(everything, headers=True)
        else:
            found = self._ask(everything)
        if self._asks_bodies:
            open_ = np.flatnonzero(found == UNDECIDED)
            open_ = open_[self._facts.has_bodies(everything.take(open_))]
            if len(open_):
                found[open_] = self._read(everything.take(open_), headers=False)
        if not self._writes:
            found[found != REJECTED] = UNDECIDED
        return found

    def _ask(self, columns: AskedColumns) -> Answers:
        """The answers that these columns give."""
        found = np.full(len(columns), UNDECIDED, np.uint8)
        if columns.answered is None:
            asked = self._test(columns, False)
            found[asked.high < OPEN] = REJECTED
            if self._asks_records_late:
                ended = self._test(columns, True)
                found[by_code(columns.codes, _answers_no_records) & (ended.high < TRUE)] = REJECTED
        else:
            ended = self._test(columns, True)
            if (ended.high < TRUE).all():
                found[:] = REJECTED
                return found
            asked = self._test(columns, False)
            # Answers to which the response added nothing stay.
            found[(ended.low == TRUE) & (asked.high < TRUE)] = SELECTED if self._selector.holds else DEFERRED
            found[ended.high < TRUE] = REJECTED
        found[asked.low == TRUE] = SELECTED
        return found

    def _read(self, columns: AskedColumns, *, headers: bool) -> Answers:
        """The same with the values that the kernel reads from headers, or from bodies."""
        parts = self._facts.parts(columns, headers=headers)
        return np.concatenate([np.empty(0, np.uint8), *map(self._ask, parts)])
