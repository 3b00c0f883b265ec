"""Columns of the tables' record batches as questions need them: unnested, labelled, extracted from JSON bodies.

`SelectedRows` copies no columns that nobody reads. Everything works on whole columns, and searches equal texts once. A
body is searched with a regular expression only if its JSON comes from fields of fixed shape; it is parsed if names of
topics or the like are needed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.model import Endpoint

BROKER: Final = "_broker"
"""Column with `broker_endpoint`, if it was made before, for several readers."""
TIME: Final = pa.timestamp("us", tz="UTC")
"""Type of times in answers."""
MEANINGS: Final = {
    "time": "start of the time span",
    "first": "time of the first exchange counted",
    "last": "time of the last exchange counted",
    "api": "name of the API, or key if it is unknown",
    "api_version": "version of the API",
    "correlation_id": "as in the request",
    "client_rack": "from its Fetch requests (version 11 and later, KIP-392); null if it names none",
    "client_id": "client id",
    "client_ip": "address of the client",
    "client_port": "port of the client",
    "software_name": "software of the client, from its ApiVersions request",
    "software_version": "version of the software",
    "broker_id": "id of the broker; null if unknown",
    "broker": "`address:port` of the broker",
    "group_id": "name of the group",
    "topic": "name of the topic, or id if the name is unknown",
    "partition": "number of the partition",
    "connection_id": "key of the connection, as in the table `exchanges`",
    "exchange_id": "key of the exchange, as in the table `exchanges`",
    "exchanges": "number of exchanges",
    "requests": "number of requests",
    "records": "number of records",
    "batches": "number of batches",
    "bytes": "size of the record batches on the wire",
    "request_bytes": "size of the requests",
    "response_bytes": "size of the responses",
    "p50_us": "median",
    "p90_us": "90th percentile",
    "p99_us": "99th percentile",
}
"""What columns mean in answers that do not say otherwise (`Accumulator.columns`)."""
ORDER: Final = ("time_ns", "connection_id", "exchange_id")
"""What "first" and "last" mean among exchanges: capture time, and for equal times the key of the table."""


Integers = npt.NDArray[np.int64]


class DistinctTexts:
    """The distinct texts of a column."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts
        self._made: dict[Any, pa.Array] = {}

    def each(self, what: Any, make: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """`make` of the texts, which happens once; `what` identifies it."""
        if what not in self._made:
            self._made[what] = make(self.texts)
        return self._made[what]


class SelectedRows:
    """Rows of a record batch, or some of them. A column is made when it is first read, once for all its readers.

    It has those methods of `pa.RecordBatch` that analyses need: dozens of them select different rows of the same batch
    and then look at one or two columns, so copying all columns of each selection would take most of their time.
    """

    def __init__(
        self,
        num_rows: int,
        own: Mapping[str, Any],
        sources: Iterable[tuple[SelectedRows, Integers | None, Iterable[str]]] = (),
    ) -> None:
        """`own`: columns by name. `sources`: others, places in them (None: the same rows), and their columns."""
        self.num_rows = num_rows
        self._made: dict[str, pa.Array] = dict(own)
        self._sources: dict[str, tuple[SelectedRows, Integers | None]] = {
            name: (source, places) for source, places, names in sources for name in names
        }
        self.column_names: tuple[str, ...] = tuple(dict.fromkeys((*self._sources, *own)))
        self._composed: dict[tuple[int, int], tuple[Integers, Integers, Integers]] = {}
        self._codes: dict[str, tuple[Integers, DistinctTexts]] = {}
        self._renamed: dict[str, str] = {}
        self._unnested: tuple[Integers, Integers, SelectedRows] | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch | SelectedRows) -> SelectedRows:
        """The rows of a batch."""
        if isinstance(batch, SelectedRows):
            return batch
        return cls(batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True)))

    def __len__(self) -> int:
        return self.num_rows

    def column(self, name: str) -> pa.Array:
        """A column, with dictionaries decoded and large strings converted. Raises KeyError if it does not exist."""
        values, places = self._located(name)
        if places is not None:
            values = values.take(pa.array(places))
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_large_string(values.type):
            values = values.cast(pa.string())
        self._made[name] = values
        return values

    def _located(self, name: str) -> tuple[pa.Array, Integers | None]:
        """The nearest array that has a column, and the places of these rows in it."""
        made = self._made.get(name)
        if made is not None:
            return made, None
        source, places = self._sources[name]
        values, above = source._located(self._renamed.get(name, name))
        return values, self._through(above, places)

    def _through(self, above: Integers | None, places: Integers | None) -> Integers | None:
        if above is None or places is None:
            return places if above is None else above
        # The arrays are kept with the result, so their ids stay theirs.
        key = (id(above), id(places))
        if key not in self._composed:
            self._composed[key] = (above, places, above[places])
        return self._composed[key][2]

    def codes(self, name: str) -> tuple[Integers, DistinctTexts]:
        """A column of texts as places in its distinct texts: -1 for null."""
        if name not in self._codes:
            if name in self._sources:
                source, places = self._sources[name]
                codes, distinct = source.codes(self._renamed.get(name, name))
                self._codes[name] = (codes if places is None else codes[places], distinct)
            else:
                encoded = self.column(name).dictionary_encode()
                self._codes[name] = (integers(encoded.indices, null=-1), DistinctTexts(encoded.dictionary))
        return self._codes[name]

    def each(self, name: str, what: Any, make: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """`make` of a column of texts, once for each distinct text; `what` identifies it. Null stays null."""
        codes, distinct = self.codes(name)
        return distinct.each(what, make).take(pa.array(codes, mask=codes < 0))

    def encoded(self, name: str) -> pa.DictionaryArray:
        """A column of texts as dictionary."""
        codes, distinct = self.codes(name)
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=codes < 0), distinct.texts)

    def unnested(self) -> tuple[Integers, SelectedRows]:
        """The partitions of these rows: the row of each, and their fields."""
        lists, places = self._located("partitions")
        holder = self
        while "partitions" not in holder._made:
            holder = holder._sources["partitions"][0]
        if holder._unnested is None:
            starts = lists.offsets.to_numpy().astype(np.int64)
            counts = np.where(pc.is_null(lists).to_numpy(zero_copy_only=False), 0, np.diff(starts))
            structs = lists.values
            # `flatten` propagates the struct's own nulls to its fields.
            fields = dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))
            fields[_NAMED] = pc.coalesce(fields["topic"], fields["topic_id"])
            holder._unnested = (starts[:-1], counts, SelectedRows(len(structs), fields))
        starts, counts, fields_ = holder._unnested
        if places is not None:
            starts, counts = starts[places], counts[places]
        parents = np.repeat(np.arange(self.num_rows), counts)
        within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = np.repeat(starts, counts) + within
        return parents, SelectedRows(len(at), {}, [(fields_, at, fields_.column_names)])

    def at(self, places: Integers) -> SelectedRows:
        """The rows at these places."""
        return SelectedRows(len(places), {}, [(self, places, self.column_names)])

    def take(self, places: pa.Array) -> SelectedRows:
        """The rows at these places."""
        return self.at(integers(places))

    def slice(self, start: int, count: int) -> SelectedRows:
        """`count` rows from `start` on."""
        return self.at(np.arange(start, min(start + count, self.num_rows)))

    def select(self, names: Iterable[str]) -> SelectedRows:
        """These columns. Raises KeyError if one does not exist."""
        names = tuple(names)
        missing = next((name for name in names if name not in self.column_names), None)
        if missing is not None:
            raise KeyError(missing)
        return SelectedRows(self.num_rows, {}, [(self, None, names)])

    def append_column(self, name: str, values: pa.Array) -> SelectedRows:
        """With another column, or one replaced."""
        others = [one for one in self.column_names if one != name]
        return SelectedRows(self.num_rows, {name: values}, [(self, None, others)])

    def replaced(self, name: str, by: str) -> SelectedRows:
        """With another column in place of one."""
        rows = SelectedRows(self.num_rows, {}, [(self, None, self.column_names)])
        rows._renamed[name] = by
        return rows

    def to_pylist(self) -> list[dict[str, Any]]:
        """A dictionary for each row."""
        columns = [self.column(name).to_pylist() for name in self.column_names]
        return [dict(zip(self.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column by name, with dictionaries decoded and large strings converted. Raises KeyError if it does not exist."""
    return SelectedRows.of(batch).column(name)


def with_client(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Exchanges whose client id is known, or missing in the request. If it was cut off, all clients look like one."""
    missing = pc.is_null(column(batch, "client_id"))
    if not missing.true_count:
        return batch
    cut = pc.match_substring(pc.binary_join(column(batch, "problems"), " "), "header-truncated")
    return only(batch, pc.invert(pc.and_(missing, pc.fill_null(cut, False))))


def in_any(batch: pa.RecordBatch, name: str, values: Iterable[str]) -> pa.Array:
    """Whether each row of a column of texts has one of some values; false for null."""
    wanted = tuple(values)
    codes, distinct = SelectedRows.of(batch).codes(name)
    # One more, since the code of null is -1.
    found = distinct.each(wanted, lambda texts: np.array([*(one in wanted for one in texts.to_pylist()), False]))
    return pa.array(found[codes])


def only(batch: pa.RecordBatch, mask: pa.Array) -> SelectedRows:
    """The rows where `mask` is true (not false and not null)."""
    rows = SelectedRows.of(batch)
    if mask.true_count == rows.num_rows:
        return rows
    return rows.at(np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)))


def order_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of `ORDER`."""
    return {name: column(batch, name) for name in ORDER}


def exploded(batch: pa.RecordBatch, kept: Sequence[str]) -> SelectedRows:
    """One row for each partition of an exchange: the partition's fields, and the columns `kept` of its exchange.

    A field of the partition hides a kept column of the same name. `BROKER` is kept if it was made.
    """
    rows = SelectedRows.of(batch)
    parents, fields = rows.unnested()
    if BROKER in rows.column_names:
        kept = [*kept, BROKER]
    kept = [one for one in kept if one not in fields.column_names]
    return SelectedRows(len(parents), {}, [(rows, parents, kept), (fields, None, fields.column_names)])


_NAMED: Final = "_named"
"""Column of partitions with the topic, or its id if only that is known."""


def partition_errors(batch: pa.RecordBatch, kept: Sequence[str] = ()) -> tuple[SelectedRows, Integers]:
    """Partitions with an error code, as `exploded`, each with the `row` of its exchange.

    And for each exchange, how many of its codes belong to something else.
    """
    rows = SelectedRows.of(batch).append_column("row", pa.array(np.arange(batch.num_rows)))
    parts = exploded(rows, ["row", *kept])
    parts = only(parts, pc.not_equal(pc.fill_null(column(parts, "error_code"), 0), 0))
    known = np.bincount(column(parts, "row").to_numpy(), minlength=batch.num_rows)
    return parts, integers(column(batch, "error_count")) - known


def failed_partitions(batch: pa.RecordBatch) -> list[list[dict[str, Any]]]:
    """For each exchange, its partitions with an error code: `topic`, `topic_id`, `partition` and `error_code`."""
    names = ("topic", "topic_id", "partition", "error_code")
    parts, _ = partition_errors(batch)
    columns = (column(parts, name).to_pylist() for name in names)
    found: list[list[dict[str, Any]]] = [[] for _ in range(batch.num_rows)]
    for row, *values in zip(column(parts, "row").to_pylist(), *columns, strict=True):
        found[row].append(dict(zip(names, values, strict=True)))
    return found


def first_of_each(lists: pa.Array) -> pa.Array:
    """The first element of each list; null if it has none."""
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    rows, places = np.unique(parents, return_index=True)
    indices = np.full(len(lists), -1, np.int64)
    indices[rows] = places
    return pc.list_flatten(lists).take(pa.array(indices, mask=indices < 0))


def named(batch: pa.RecordBatch) -> SelectedRows:
    """Rows of partitions or records; topics known only by id are identified by it."""
    rows = SelectedRows.of(batch)
    if _NAMED in rows.column_names:
        return rows.replaced("topic", _NAMED)
    return rows.append_column("topic", pc.coalesce(column(rows, "topic"), column(rows, "topic_id")))


def with_topics(batch: pa.RecordBatch, kept: Sequence[str]) -> SelectedRows:
    """One row per topic of each row, in the column `topic`; a row without topics yields one with a null topic."""
    lists = column(batch, "topics")
    parents = pc.list_parent_indices(lists)
    missing = np.setdiff1d(np.arange(batch.num_rows), parents.to_numpy(zero_copy_only=False))
    places = np.concatenate([parents.to_numpy(zero_copy_only=False), missing])
    topics = pa.concat_arrays([pc.list_flatten(lists).cast(pa.string()), pa.nulls(len(missing), pa.string())])
    if BROKER in batch.column_names:
        kept = [*kept, BROKER]
    names = [one for one in kept if one not in ("topic", "topics")]
    return SelectedRows(len(places), {"topic": topics}, [(SelectedRows.of(batch), places, names)])


def broker_endpoint(batch: pa.RecordBatch) -> pa.Array:
    """`address:port` of the broker, IPv6 in brackets; the column `BROKER` of rows that have it already."""
    return column(batch, BROKER) if BROKER in batch.column_names else endpoint_of(batch, "broker")


def endpoint_of(batch: pa.RecordBatch, side: Literal["client", "broker"]) -> pa.Array:
    """The same of the columns `SIDE_ip` and `SIDE_port`."""
    codes, addresses = SelectedRows.of(batch).codes(f"{side}_ip")
    # One number for each pair; the column of ports has 32 bits.
    ports = integers(column(batch, f"{side}_port"), null=_NO_PORT) + (1 << 31)
    pairs, places = np.unique(codes << 34 | ports, return_inverse=True)
    known = addresses.texts.to_pylist()
    different = zip((pairs >> 34).tolist(), ((pairs & ((1 << 34) - 1)) - (1 << 31)).tolist(), strict=True)
    names = [None if at < 0 or port == _NO_PORT else str(Endpoint(known[at], port)) for at, port in different]
    return pa.array(names, pa.string()).take(pa.array(places))


_NO_PORT: Final = 1 << 32


def for_readers(batch: pa.RecordBatch) -> SelectedRows:
    """Rows that several readers share: what one makes of a column, the others have, and all have `BROKER`."""
    rows = SelectedRows.of(batch)
    if BROKER in rows.column_names or not {"broker_ip", "broker_port"} <= {*rows.column_names}:
        return rows
    return rows.append_column(BROKER, broker_endpoint(rows))


def brokers(batch: pa.RecordBatch) -> pa.DictionaryArray:
    """`broker_endpoint` as dictionary."""
    return encoded(batch, BROKER) if BROKER in batch.column_names else broker_endpoint(batch).dictionary_encode()


def integers(values: pa.Array | pa.ChunkedArray, null: int = 0) -> Integers:
    """The column as NumPy integers, with nulls as `null`."""
    return pc.fill_null(values.cast(pa.int64()), null).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def floor_divided(values: pa.Array | pa.ChunkedArray, by: int) -> pa.Array:
    """Integers divided and rounded down, also below zero; null stays null."""
    return pa.array(integers(values) // by, pa.int64(), mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def datetimes(nanoseconds: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Nanoseconds since 1970 as the timestamps of answers: microseconds, rounded down."""
    return floor_divided(nanoseconds, 1000).cast(pa.timestamp("us")).cast(TIME)


def keys_of(table: pa.Table | pa.RecordBatch | SelectedRows, names: Sequence[str]) -> tuple[pa.Table, Integers]:
    """The distinct keys of a table in order, and for each of its rows the number of its key."""
    rows = pa.table({**{name: table.column(name) for name in names}, "__row": np.arange(table.num_rows)})
    groups = rows.group_by(list(names), use_threads=False).aggregate([("__row", "list")])
    groups = groups.take(pc.sort_indices(groups, sort_keys=[(name, "ascending") for name in names]))
    lists = groups.column("__row_list").combine_chunks()
    number = np.empty(table.num_rows, np.int64)
    number[pc.list_flatten(lists).to_numpy(zero_copy_only=False)] = pc.list_parent_indices(lists).to_numpy(
        zero_copy_only=False
    )
    return groups.select(list(names)), number


def numbered(*columns: Integers) -> tuple[Integers, Integers]:
    """The first row of each different combination of some numbers, and for each row the number of its combination."""
    number = np.zeros(len(columns[0]), np.int64)
    firsts = number[:1]
    for values in columns:
        _, own = np.unique(values, return_inverse=True)
        _, firsts, number = np.unique(number * (len(values) + 1) + own, return_index=True, return_inverse=True)
    return firsts, number


def repeated(lists: Sequence[Sequence[Any]], number: Integers) -> tuple[Integers, Integers]:
    """For rows that have the lists with these numbers: the row of each element, and its place in all lists together."""
    sizes = np.array([len(one) for one in lists], np.int64)
    counts = sizes[number]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(np.arange(len(number)), counts), np.repeat((np.cumsum(sizes) - sizes)[number], counts) + within


def looked_up(batch: pa.RecordBatch, name: str, find: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Applies `find` to the non-null texts of a column, once for each distinct text."""
    return SelectedRows.of(batch).each(
        name, find, lambda texts: pa.array([find(text) for text in texts.to_pylist()], kind)
    )


def encoded(batch: pa.RecordBatch, name: str) -> pa.DictionaryArray:
    """A column of texts as dictionary: as key of a partial answer it costs a fraction."""
    return SelectedRows.of(batch).encoded(name)


def missing(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Whether each text of a column is null."""
    return pa.array(SelectedRows.of(batch).codes(name)[0] < 0)


def matches(batch: pa.RecordBatch, name: str, pattern: str) -> pa.Array:
    """Whether each text of a column has a match of a regular expression; false for null."""
    found = SelectedRows.of(batch).each(name, ("has", pattern), lambda texts: pc.match_substring_regex(texts, pattern))
    return pc.fill_null(found, False)


def extracted(batch: pa.RecordBatch, name: str, pattern: str) -> pa.Array:
    """What the only group of a regular expression matches in each text; null if there is no match."""
    return SelectedRows.of(batch).each(
        name, ("part", pattern), lambda texts: pc.struct_field(pc.extract_regex(texts, pattern), [0])
    )


def ratio(above: pa.Array | pa.ChunkedArray, below: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """One number divided by another as float64; null if one of them is null or the divisor is 0."""
    below = pc.if_else(pc.equal(below, 0), pa.scalar(None, pa.float64()), below.cast(pa.float64()))
    return pc.divide(above.cast(pa.float64()), below)


def table_of(
    columns: Mapping[str, Any],
    fields: Iterable[tuple[str, pa.DataType]],
    order: Sequence[tuple[str, str]] = (),
    top: int = 0,
) -> pa.Table:
    """An answer: its columns in the order and types of `fields`, the first `top` rows by `order` (0: all)."""
    schema = pa.schema(list(fields))
    arrays = []
    for field in schema:
        values = columns[field.name]
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            values = pa.array(values, field.type)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    table = pa.Table.from_arrays(arrays, schema=schema)
    if order:
        table = table.take(pc.sort_indices(table, sort_keys=list(order)))
    return table.slice(0, top) if top else table


def header_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Bytes of the keys and values of each record's headers."""
    headers = column(batch, "headers")
    parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    structs = pc.list_flatten(headers)
    places = {structs.type.field(place).name: place for place in range(structs.type.num_fields)}
    sizes = sum(integers(pc.binary_length(structs.flatten()[places[name]])) for name in ("key", "value"))
    return pa.array(np.bincount(parents, weights=sizes, minlength=batch.num_rows).astype(np.int64))


def record_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Bytes of key, value and headers of each record, counting null as 0."""
    key, value = (integers(pc.binary_length(column(batch, name))) for name in ("key", "value"))
    return pa.array(key + value + integers(header_bytes(batch)))


def is_follower(client_ids: pa.Array) -> pa.Array:
    """Whether each client is a replicating broker, by the client id that it uses (ReplicaFetcherManager)."""
    pattern = r"^(broker-\d+-fetcher-\d+|raft-client-\d+)$"
    return pc.fill_null(pc.match_substring_regex(client_ids, pattern), False)


def matching(names: pa.ChunkedArray, patterns: Sequence[str]) -> pa.Array:
    """Whether each name is one of some names, or matches one as a pattern of `fnmatch`; false for null."""
    wanted = [
        name
        for name in pc.unique(names).drop_null().to_pylist()
        if any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]
    return pc.is_in(names, value_set=pa.array(wanted, pa.string()))
