"""Turns staged rows into final ones, with facts that are known only after the whole run.

These are names of topic ids, numbers of brokers, topics of fetch sessions, and which connections that are not Kafka are
worth reporting. All but sessions depend on `enrich.LearnedFacts` alone and can be resolved in any order. Sessions need
the Fetch exchanges of a broker in the order of their requests, on whatever connection: sorted as the table is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.enrich.catalog import BEFORE, LearnedFacts
from kafkasniff.enrich.enricher import RenderedBodies
from kafkasniff.enrich.sessions import SessionContent, session_fields
from kafkasniff.model import Body, Direction, Endpoint, Problem
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.tables.rows.exchanges import microseconds
from kafkasniff.tables.rows.schemas import CONNECTIONS, EXCHANGES, PARTITION, PROBLEMS, RECORDS
from kafkasniff.tables.rows.sessions import SessionSource
from kafkasniff.tables.rows.staged import DECODED, STAGED, StagedParts, place_name

if TYPE_CHECKING:
    from kafkasniff.tables.rows.decoded_values import DecodedValues

OUTPUT_BYTES: Final = 64 << 20
"""Estimated bytes of the topics of fetch sessions in one batch of rows: a session may have a hundred in every row."""
_NAMED: Final = ("api_key", "api_version", "request_body", "response_body")
"""Columns for names in bodies."""
MAX_SHARED: Final = 1024
"""Cached lists of a session's topics, for its next request."""


class LearnedNames:
    """Lookup of the names that the run learnt."""

    def __init__(self, learned_facts: LearnedFacts, given: Mapping[str, str] | None = None) -> None:
        """`given`: names by topic id from elsewhere; names from the traffic take precedence."""
        self.learned_facts = learned_facts
        self.topics = {**(given or {}), **{topic_id: name for topic_id, (_, name) in learned_facts.topics.items()}}
        self.topics_learned = len(self.topics)
        self._kafka = {place_name(*place): time_ns for place, time_ns in learned_facts.kafka.items()}

    def topic(self, topic_id: object) -> str | None:
        """The name of a topic id; None if it is unknown."""
        return self.topics.get(topic_id) if isinstance(topic_id, str) else None

    def named(self, topics: pa.Array, topic_ids: pa.Array) -> pa.Array:
        """`topics` with nulls replaced by the names of the ids, if known. Both are plain strings."""
        missing = pc.and_(pc.is_null(topics), pc.is_valid(topic_ids))
        if not pc.any(missing).as_py():
            return topics
        ids = topic_ids.dictionary_encode()
        names = pa.array([self.topic(one) for one in ids.dictionary.to_pylist()], pa.string())
        return pc.coalesce(topics, names.take(ids.indices))

    def broker_ids(self, addresses: pa.Array, ports: pa.Array, times: pa.Array) -> pa.Array:
        """Numbers of the brokers at these endpoints: the latest report by that time, or else the first one."""
        encoded = addresses.dictionary_encode()
        code = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
        key = (code << 32) | pc.fill_null(ports, 0).to_numpy()
        moments = pc.fill_null(times, BEFORE).to_numpy()
        found = np.zeros(len(key), np.int32)
        unknown = np.ones(len(key), np.bool_)
        names = encoded.dictionary.to_pylist()
        places, of_row = np.unique(key, return_inverse=True)
        for number, place in enumerate(places.tolist()):
            if place < 0:
                continue
            reports = self.learned_facts.broker_at(names[place >> 32], place & 0xFFFFFFFF)
            if reports:
                rows = of_row == number
                at = np.searchsorted([time_ns for time_ns, _ in reports], moments[rows], side="right") - 1
                found[rows] = np.array([node for _, node in reports], np.int32)[np.maximum(at, 0)]
                unknown[rows] = False
        return pa.array(found, mask=unknown)

    def software(self, connection_ids: pa.Array, names: pa.Array, versions: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Client software of exchanges, if their own connection names it after they were over."""
        unknown = pc.is_null(names)
        if not self.learned_facts.software or not pc.any(unknown).as_py():
            return names, versions
        late_names = self.learned_facts.software
        place = pc.index_in(connection_ids, pa.array(list(late_names), pa.int64()))
        late = [pa.array([pair[which] for pair in late_names.values()], pa.string()).take(place) for which in (0, 1)]
        return pc.if_else(unknown, late[0], names), pc.if_else(unknown, late[1], versions)

    def spoke_kafka(self, endpoints: str, time_ns: int | None) -> bool:
        """Whether one of these endpoints (`place_name`, separated by spaces) was known to speak Kafka by then."""
        now = BEFORE if time_ns is None else time_ns
        return any(self._kafka.get(one, now + 1) <= now for one in endpoints.split(" "))


class _ChangedValues:
    """Changed values in some rows of a batch."""

    def __init__(self) -> None:
        self.topics: dict[int, int] = {}
        """Row → index in `lists`."""
        self.lists: list[list[str]] = []
        self.bodies: tuple[dict[int, str], dict[int, str]] = ({}, {})
        self.problems: dict[int, list[str]] = {}


class Resolver:
    """Makes final rows from staged ones.

    `sessions`: for the table `exchanges`, whose Fetch rows must be in order; `dumps` renders a body as JSON; `payload`:
    how payload is shown in bodies that waited for names; `values`: decodes keys and values of records.
    """

    def __init__(
        self,
        names: LearnedNames,
        sessions: SessionSource,
        dumps: Callable[[Body], str],
        payload: Payload = SHOWN,
        values: DecodedValues | None = None,
    ) -> None:
        self._values = values
        self._names = names
        self._sessions = sessions
        self._dumps = dumps
        self._payload = payload
        self._bodies = RenderedBodies(names.topics)
        self._shared: dict[int, tuple[tuple[str, ...], list[str], frozenset[str]]] = {}
        """Topics by identity of `SessionContent.topics`, which is kept as well: the names in order, and as a set."""
        self.found: list[dict[str, Any]] = []
        """Staged rows of `problems` that were found on the way; the reader takes them."""

    def rows(self, table: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The final rows of staged ones of a table, in their order; possibly fewer, possibly in several batches."""
        if table == "exchanges":
            yield from self._exchanges(batch)
        elif table == "records":
            yield self._records(batch)
        elif table == "connections":
            yield self._connections(batch)
        elif table == "transport":
            yield batch
        else:
            yield self._problems(batch)

    def _exchanges(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = {name: batch.column(name) for name in EXCHANGES.names}
        columns["broker_id"] = self._names.broker_ids(columns["broker_ip"], columns["broker_port"], columns["time_ns"])
        columns["software_name"], columns["software_version"] = self._names.software(
            columns["connection_id"], columns["software_name"], columns["software_version"]
        )
        columns["partitions"] = self._partitions(columns["partitions"])
        rows = np.flatnonzero(batch.column("_pending").is_valid().to_numpy(zero_copy_only=False))
        if not len(rows):
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=EXCHANGES)
            return
        changes = self._pending(batch, rows)
        for name, changed in zip(("request_body", "response_body"), changes.bodies, strict=True):
            columns[name] = _replaced(columns[name], changed, pa.string())
        columns["problems"] = _replaced(columns["problems"], changes.problems, columns["problems"].type)
        index = np.arange(len(batch), dtype=np.int64)
        index[list(changes.topics)] = [len(batch) + number for number in changes.topics.values()]
        topics = columns["topics"]
        every = pa.concat_arrays([topics, pa.array(changes.lists, topics.type)])
        for start, stop in _slices(index - len(batch), changes.lists):
            columns["topics"] = every.take(pa.array(index[start:stop]))
            arrays = [
                column if name == "topics" else column.slice(start, stop - start) for name, column in columns.items()
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=EXCHANGES)

    def _partitions(self, partitions: pa.Array) -> pa.Array:
        values = pc.list_flatten(partitions)
        topics = pc.struct_field(values, "topic")
        named = self._names.named(topics, pc.struct_field(values, "topic_id"))
        if named is topics:
            return partitions
        borders = np.concatenate(([0], np.cumsum(pc.list_value_length(partitions).to_numpy()))).astype(np.int32)
        children = [named if field.name == "topic" else pc.struct_field(values, field.name) for field in PARTITION]
        struct = pa.StructArray.from_arrays(children, fields=list(PARTITION))
        return pa.ListArray.from_arrays(pa.array(borders), struct, type=partitions.type)

    def _pending(self, batch: pa.RecordBatch, rows: NDArray[np.int64]) -> _ChangedValues:
        """Process the rows that wait for something, in order."""
        changes = _ChangedValues()
        known: dict[int, int] = {}
        wanted = ("connection_id", "exchange_id", "time_ns", "broker_ip", "broker_port", "topics", "_pending", *_NAMED)
        some = {name: batch.column(name).take(pa.array(rows)).to_pylist() for name in wanted}
        for row, *key, time_ns, address, port, topics, data, api, version, request, response in zip(
            rows.tolist(), *some.values(), strict=True
        ):
            pending = msgspec.msgpack.decode(data, type=StagedParts)
            names = self._with_names(topics, pending.unnamed) if pending.unnamed else topics
            held = None
            if pending.session is not None and address is not None:
                held = self._sessions.held((key[0], key[1]), Endpoint(address, port), time_ns, pending.session)
            if held is not None:
                names = self._of_session(held, names)
            if names is not topics:
                # Lists are shared among a session's rows; `changes.lists` keeps them, so ids stay valid.
                if id(names) not in known:
                    known[id(names)] = len(changes.lists)
                    changes.lists.append(names)
                changes.topics[row] = known[id(names)]
            if pending.bodies and api is not None:
                self._late_body(batch, row, changes, (api, version, "request"), request)
                self._late_body(batch, row, changes, (api, version, "response"), response)
            if held is not None and pending.session is not None and request is not None:
                asked = changes.bodies[0].get(row, request)
                changes.bodies[0][row] = _with_session(asked, pending.session.epoch, held)
        return changes

    def _with_names(self, topics: list[str], unnamed: dict[str, int]) -> list[str]:
        """Names in order, with the names of resolved ids inserted at their places."""
        named = [(place, self._names.topic(topic_id)) for topic_id, place in unnamed.items()]
        if all(name is None for _, name in named):
            return topics
        together: dict[str, None] = {}
        for index, topic in enumerate([*topics, None]):
            together.update((name, None) for at, name in named if at == index and name is not None)
            if topic is not None:
                together[topic] = None
        return list(together)

    def _of_session(self, held: SessionContent, names: list[str]) -> list[str]:
        """Topics of the session, then the other topics that the exchange names."""
        shared = self._shared.get(id(held.topics))
        if shared is None:
            if len(self._shared) >= MAX_SHARED:
                self._shared.clear()
            found = map(self._names.topic, held.topics) if held.by_id else held.topics
            topics = list(dict.fromkeys(name for name in found if name is not None))
            shared = self._shared[id(held.topics)] = (held.topics, topics, frozenset(topics))
        more = [name for name in names if name not in shared[2]]
        return shared[1] + more if more else shared[1]

    def _late_body(
        self,
        batch: pa.RecordBatch,
        row: int,
        changes: _ChangedValues,
        kind: tuple[int, int | None, Direction],
        text: str | None,
    ) -> None:
        """Add names to a body of such a kind."""
        if text is None:
            return
        named = None if self._payload.hides else self._bodies.name_text(*kind, text)
        if named is None:
            body = orjson.loads(text)
            problems = self._bodies.name_body(*kind, body)
            if self._payload.hides:
                body = self._payload.body(*kind, body)
            named = self._dumps(body)
            if problems:
                kinds = changes.problems.get(row) or batch.column("problems")[row].as_py()
                changes.problems[row] = sorted({*kinds, *(problem.kind for problem in problems)})
                self._found(batch, row, kind[2], problems)
        changes.bodies[kind[2] == "response"][row] = named

    def _found(self, batch: pa.RecordBatch, row: int, direction: Direction, problems: list[Problem]) -> None:
        wanted = ("capture", "connection_id", "exchange_id", "time_ns")
        shared = {name: batch.column(name)[row].as_py() for name in wanted}
        for problem in problems:
            self.found.append(
                {
                    **dict.fromkeys(STAGED["problems"].names),
                    **shared,
                    "time": microseconds(shared["time_ns"]),
                    "kind": problem.kind,
                    "detail": problem.detail,
                    "direction": direction,
                }
            )

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: _plain(batch.column(name)) for name in batch.schema.names}
        columns["topic"] = self._names.named(columns["topic"], columns["topic_id"])
        columns["time"] = _microseconds(columns["_time_ns"])
        if self._values is None:
            columns |= dict.fromkeys(DECODED, pa.nulls(len(batch), pa.string()))
        else:
            columns |= self._values.columns(columns)
        return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)

    def _connections(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in CONNECTIONS.names}
        columns["broker_id"] = self._names.broker_ids(columns["broker_ip"], columns["broker_port"], columns["time_ns"])
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=CONNECTIONS)

    def worth_reporting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Staged rows of `problems` without those that turn out not to be problems of the whole run."""
        endpoints = batch.column("_endpoints")
        if endpoints.null_count < len(batch):
            pairs = zip(endpoints.to_pylist(), batch.column("time_ns").to_pylist(), strict=True)
            keep = [ends is None or self._names.spoke_kafka(ends, time_ns) for ends, time_ns in pairs]
            batch = batch.filter(pa.array(keep))
        return batch

    def _problems(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = self.worth_reporting(batch)
        return pa.RecordBatch.from_arrays([batch.column(name) for name in PROBLEMS.names], schema=PROBLEMS)


def _with_session(body: str, epoch: int, held: SessionContent) -> str:
    """The body of a request with `_session` after the epoch."""
    # A quote within a string is escaped: only the field itself matches.
    field = f'"session_epoch":{epoch}'
    if f'{field},"_session"' in body:
        return body
    fields = orjson.dumps({"_session": session_fields(held.partitions, held.unnamed)}).decode()[1:-1]
    return body.replace(field, f"{field},{fields}", 1)


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _microseconds(nanoseconds: pa.Array) -> pa.Array:
    mask = nanoseconds.is_null().to_numpy(zero_copy_only=False)
    values = pc.fill_null(nanoseconds, 0).to_numpy() // 1000  # floored, also below zero
    return pa.array(values, mask=mask).cast(pa.timestamp("us", tz="UTC"))


def _replaced(array: pa.Array, changed: Mapping[int, Any], kind: pa.DataType) -> pa.Array:
    """An array with other values in some rows."""
    if not changed:
        return array
    index = np.arange(len(array), dtype=np.int64)
    index[list(changed)] = np.arange(len(array), len(array) + len(changed))
    return pa.concat_arrays([array, pa.array(list(changed.values()), kind)]).take(pa.array(index))


def _slices(lists_of: NDArray[np.int64], lists: list[list[str]]) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose lists of topics together stay within OUTPUT_BYTES; negative numbers: rows without a list."""
    sizes = np.array([0, *(8 + sum(len(name) + 4 for name in names) for names in lists)], np.int64)
    total = np.cumsum(sizes[np.maximum(lists_of + 1, 0)])
    start = 0
    while start < len(total):
        before = int(total[start - 1]) if start else 0
        stop = max(int(np.searchsorted(total, before + OUTPUT_BYTES, side="right")), start + 1)
        yield start, stop
        start = stop
