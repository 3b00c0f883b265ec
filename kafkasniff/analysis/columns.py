"""Columns of the tables' record batches as questions need them: unnested, labelled, extracted from JSON bodies.

Everything here works on whole columns. A body is searched with a regular expression only if its JSON comes from fields
of fixed shape; it is parsed if names of topics or the like are needed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column by name, with dictionaries decoded and large strings converted. Raises KeyError if it does not exist."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise KeyError(name)
    values = batch.column(index)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_large_string(values.type):
        values = values.cast(pa.string())
    return values


def with_client(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Exchanges whose client id is known, or missing in the request. If it was cut off, all clients look like one."""
    missing = pc.is_null(column(batch, "client_id"))
    if not missing.true_count:
        return batch
    cut = pc.match_substring(pc.binary_join(column(batch, "problems"), " "), "header-truncated")
    return only(batch, pc.invert(pc.and_(missing, pc.fill_null(cut, False))))


def in_any(batch: pa.RecordBatch, name: str, values: Iterable[str]) -> pa.Array:
    """Whether each row of a column has one of some values; false for null."""
    return pc.is_in(column(batch, name), value_set=pa.array(list(values), pa.string()))


def only(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """The rows where `mask` is true (not false and not null)."""
    kept = mask.true_count
    if kept in (0, batch.num_rows):
        return batch.slice(0, kept)
    return batch.filter(mask, null_selection_behavior="drop")


def order_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of `ORDER`."""
    return {name: column(batch, name) for name in ORDER}


def exploded(batch: pa.RecordBatch, kept: Sequence[str]) -> pa.RecordBatch:
    """One row for each partition of an exchange: the partition's fields, and the columns `kept` of its exchange.

    A field of the partition hides a kept column of the same name. `BROKER` is kept if it was made.
    """
    lists = column(batch, "partitions")
    parents = pc.list_parent_indices(lists)
    structs = pc.list_flatten(lists)
    fields = [structs.type.field(place).name for place in range(structs.type.num_fields)]
    if BROKER in batch.schema.names:
        kept = [*kept, BROKER]
    arrays = {one: column(batch, one).take(parents) for one in kept if one not in fields}
    # `flatten` propagates the struct's own nulls to its fields.
    arrays |= dict(zip(fields, structs.flatten(), strict=True))
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def partition_errors(
    batch: pa.RecordBatch, kept: Sequence[str] = ()
) -> tuple[pa.RecordBatch, np.ndarray[Any, np.dtype[np.int64]]]:
    """Partitions with an error code, as `exploded`, each with the `row` of its exchange.

    And for each exchange, how many of its codes belong to something else.
    """
    rows = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
    parts = exploded(rows, ["row", *kept])
    parts = only(parts, pc.not_equal(pc.fill_null(column(parts, "error_code"), 0), 0))
    known = np.bincount(column(parts, "row").to_numpy(), minlength=batch.num_rows)
    return parts, integers(column(batch, "error_count")) - known


def failed_partitions(batch: pa.RecordBatch) -> list[list[dict[str, Any]]]:
    """For each exchange, its partitions with an error code: `topic`, `topic_id`, `partition` and `error_code`."""
    lists = column(batch, "partitions")
    structs = pc.list_flatten(lists)
    failed = pc.not_equal(pc.fill_null(pc.struct_field(structs, "error_code"), 0), 0)
    names = ("topic", "topic_id", "partition", "error_code")
    columns = (pc.struct_field(structs, name).filter(failed).to_pylist() for name in names)
    found: list[list[dict[str, Any]]] = [[] for _ in range(batch.num_rows)]
    for row, *values in zip(pc.list_parent_indices(lists).filter(failed).to_pylist(), *columns, strict=True):
        found[row].append(dict(zip(names, values, strict=True)))
    return found


def first_of_each(lists: pa.Array) -> pa.Array:
    """The first element of each list; null if it has none."""
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    rows, places = np.unique(parents, return_index=True)
    indices = np.full(len(lists), -1, np.int64)
    indices[rows] = places
    return pc.list_flatten(lists).take(pa.array(indices, mask=indices < 0))


def named(partitions: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of partitions; topics known only by id are identified by it."""
    topics = pc.coalesce(column(partitions, "topic"), column(partitions, "topic_id"))
    return partitions.set_column(partitions.schema.get_field_index("topic"), "topic", topics)


def with_topics(batch: pa.RecordBatch, kept: Sequence[str]) -> pa.RecordBatch:
    """One row per topic of each row, in the column `topic`; a row without topics yields one with a null topic."""
    lists = column(batch, "topics")
    parents = pc.list_parent_indices(lists)
    missing = np.setdiff1d(np.arange(batch.num_rows), parents.to_numpy(zero_copy_only=False))
    rows = pa.concat_arrays([parents.cast(pa.int64()), pa.array(missing, pa.int64())])
    topics = pa.concat_arrays([pc.list_flatten(lists).cast(pa.string()), pa.nulls(len(missing), pa.string())])
    if BROKER in batch.schema.names:
        kept = [*kept, BROKER]
    names = [one for one in kept if one not in ("topic", "topics")]
    arrays = [column(batch, name).take(rows) for name in names]
    return pa.RecordBatch.from_arrays([*arrays, topics], names=[*names, "topic"])


def broker_endpoint(batch: pa.RecordBatch) -> pa.Array:
    """`address:port` of the broker, IPv6 in brackets; the column `BROKER` of rows that have it already."""
    return column(batch, BROKER) if BROKER in batch.schema.names else endpoint_of(batch, "broker")


def endpoint_of(batch: pa.RecordBatch, side: Literal["client", "broker"]) -> pa.Array:
    """The same of the columns `SIDE_ip` and `SIDE_port`."""
    address, port = column(batch, f"{side}_ip"), column(batch, f"{side}_port").cast(pa.string())
    bracketed = pc.if_else(
        pc.match_substring(address, ":"), pc.binary_join_element_wise("[", address, "]", ""), address
    )
    return pc.binary_join_element_wise(bracketed, port, ":")


def integers(values: pa.Array | pa.ChunkedArray, null: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The column as NumPy integers, with nulls as `null`."""
    return pc.fill_null(values.cast(pa.int64()), null).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def floor_divided(values: pa.Array | pa.ChunkedArray, by: int) -> pa.Array:
    """Integers divided and rounded down, also below zero; null stays null."""
    return pa.array(integers(values) // by, pa.int64(), mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def datetimes(nanoseconds: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Nanoseconds since 1970 as the timestamps of answers: microseconds, rounded down."""
    return floor_divided(nanoseconds, 1000).cast(pa.timestamp("us")).cast(TIME)


def keys_of(
    table: pa.Table | pa.RecordBatch, names: Sequence[str]
) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]]]:
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


def repeated(
    lists: Sequence[Sequence[Any]], number: np.ndarray[Any, np.dtype[np.int64]]
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """For rows that have the lists with these numbers: the row of each element, and its place in all lists together."""
    sizes = np.array([len(one) for one in lists], np.int64)
    counts = sizes[number]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(np.arange(len(number)), counts), np.repeat((np.cumsum(sizes) - sizes)[number], counts) + within


def looked_up(batch: pa.RecordBatch, name: str, find: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Applies `find` to the non-null texts of a column, once for each distinct text."""
    encoded = column(batch, name).dictionary_encode()
    found = pa.array([find(text) for text in encoded.dictionary.to_pylist()], kind)
    return found.take(encoded.indices)


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
