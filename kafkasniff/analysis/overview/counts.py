"""Exchanges by API, broker and client, and what all sections of an overview share.

Staged rows stay as they are, and names are filled in for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, only, order_columns, ratio, table_of
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.partials import How, Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.waits import LONG_POLL_COLUMNS, is_long_poll
from kafkasniff.tables.rows.resolve import LearnedNames

TEXT: Final = pa.string()


def is_staged(batch: pa.RecordBatch) -> bool:
    """Whether rows come from a capture that is still being read, and not from an export."""
    return "_pending" in batch.column_names


def api_labels(batch: pa.RecordBatch) -> pa.Array:
    """Names of APIs, numbers of those that are newer than the definitions; null for orphan responses."""
    return pc.coalesce(column(batch, "api"), column(batch, "api_key").cast(TEXT))


def errors_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The number of error codes of each exchange (`errors`), and whether it has any (`with_errors`)."""
    errors = pc.fill_null(column(batch, "error_count"), 0).cast(pa.int64())
    return {"errors": errors, "with_errors": pc.greater(errors, 0).cast(pa.int64())}


def where(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Integers where `mask` is true, else 0."""
    return pc.if_else(pc.fill_null(mask, False), values.cast(pa.int64()), pa.scalar(0, pa.int64()))


def folded(table: pa.Table, keys: Sequence[str], how: Mapping[str, How]) -> pa.Table:
    """Combines rows with equal keys; columns keep their names. `keys`: at least one."""
    found = table.group_by(list(keys), use_threads=False).aggregate(
        [(name, function) for name, function in how.items()]
    )
    columns = {key: found.column(key) for key in keys}
    columns |= {
        name: found.column(f"{name}_{function}").cast(table.schema.field(name).type) for name, function in how.items()
    }
    return pa.table(columns)


def topic_names(table: pa.Table, names: LearnedNames | None) -> pa.Table:
    """A table with `topic` and `topic_id` as one with `topic`: the name if it is known by now, otherwise the id."""
    table = table.combine_chunks()
    # A table without rows has no chunk.
    topics, ids = (pa.concat_arrays([pa.array([], TEXT), *table.column(name).chunks]) for name in ("topic", "topic_id"))
    if names is not None:
        topics = names.named(topics, ids)
    table = table.drop_columns(["topic_id"])
    return table.set_column(table.schema.get_field_index("topic"), "topic", pc.coalesce(topics, ids))


COUNTS: Final = (
    "exchanges",
    "requests",
    "responses",
    "errors",
    "with_errors",
    "unanswered",
    "lost",
    "request_bytes",
    "response_bytes",
)
"""What is counted of exchanges."""
NOT_ANSWERED: Final = ("unanswered", "open")
"""Status of exchanges whose response should be in the capture but is not. `lost` exchanges are not among them: their
responses may be in bytes missing from the capture.
"""


def exchange_counts(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """`COUNTS` of each row of `exchanges`, and its time as `first` and `last`."""
    request, response = column(batch, "request_size"), column(batch, "response_size")
    return {
        "exchanges": pa.array([1] * batch.num_rows, pa.int64()),
        "requests": pc.is_valid(request).cast(pa.int64()),
        "responses": pc.is_valid(response).cast(pa.int64()),
        **errors_of(batch),
        "unanswered": in_any(batch, "status", NOT_ANSWERED).cast(pa.int64()),
        "lost": in_any(batch, "status", ["lost"]).cast(pa.int64()),
        "request_bytes": pc.fill_null(request, 0),
        "response_bytes": pc.fill_null(response, 0),
        "first": column(batch, "time_ns"),
        "last": column(batch, "time_ns"),
    }


COUNTED: Final = ("time_ns", "status", "request_size", "response_size", "error_count")
"""The columns that `exchange_counts` needs."""
MEASURES: Final[Any] = (
    *((name, pa.int64(), "sum") for name in COUNTS),
    ("first", pa.int64(), "min"),
    ("last", pa.int64(), "max"),
)
HOW: Final[Any] = {name: how for name, _, how in MEASURES}


class Apis(Accumulator[Parameters]):
    """Exchanges by API; a row of `result()` has the versions that were used, except null ones."""

    name: ClassVar[str] = "overview-apis"

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("api", "api_key", "api_version", *COUNTED))}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("api", TEXT), ("api_version", pa.int32()))
        return {"apis": Shape(keys=keys, measures=MEASURES, weight="exchanges")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        keys = {"api": api_labels(batch), "api_version": column(batch, "api_version")}
        self.parts["apis"].add({**keys, **exchange_counts(batch)})

    def result(self) -> pa.Table:
        table = self.parts["apis"].table()
        found = folded(table, ["api"], HOW)
        versions: dict[str | None, list[int]] = {}
        for row in table.select(["api", "api_version"]).to_pylist():
            if row["api_version"] is not None:
                versions.setdefault(row["api"], []).append(row["api_version"])
        lists = [sorted(versions.get(api, [])) for api in found.column("api").to_pylist()]
        found = found.append_column("versions", pa.array(lists, pa.list_(pa.int32())))
        return found.sort_by([("exchanges", "descending"), ("api", "ascending")])


_APIS: Final = Dimensions(("api",))
_QUANTILES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99}


class ApiLatencies(Accumulator[Parameters]):
    """Percentiles at most 0.4% off; `api` is null for responses without their requests."""

    name: ClassVar[str] = "latencies"

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*_APIS.reads, "latency_us", *LONG_POLL_COLUMNS))}

    def shapes(self) -> Mapping[str, Shape]:
        return {"latencies": distribution_shape(_APIS.keys)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(pc.is_valid(column(batch, "latency_us")), pc.invert(is_long_poll(batch))))
        self.parts["latencies"].add(distribution_rows(_APIS.arrays(batch), column(batch, "latency_us")))

    def result(self) -> pa.Table:
        keys, found = distributions(self.parts["latencies"], _APIS.names, _QUANTILES)
        columns = {
            **_APIS.answer(keys),
            **{name: found[name] for name in _QUANTILES},
            "count": found["count"],
            "mean_us": ratio(found["total"], found["count"]),
            "max_us": found["high"],
        }
        whole = [(name, pa.int64()) for name in ("count", *_QUANTILES, "max_us")]
        return table_of(columns, [*_APIS.fields, ("mean_us", pa.float64()), *whole])


MAX_CLIENTS: Final = 1 << 18
_PLACE: Final = (("broker_ip", TEXT), ("broker_port", pa.int32()))
_PLACE_NAMES: Final = ("broker_ip", "broker_port")


class Brokers(Accumulator[Parameters]):
    """Endpoints that spoke Kafka as brokers, each with its number as of its last exchange.

    `connections` is null without the table `connections`.
    """

    name: ClassVar[str] = "overview-brokers"

    def reads(self) -> Mapping[str, TableReading]:
        place = (*_PLACE_NAMES, "broker_id")
        return {
            "exchanges": TableReading((*ORDER, *place, *COUNTED)),
            "connections": TableReading(("time_ns", "connection_id", *place, "verdict"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        when: Any = tuple((name, pa.int64(), "last") for name in ORDER)
        number: Any = ("broker_id", pa.int32(), "last")
        return {
            "exchanges": Shape(keys=_PLACE, measures=(*MEASURES, *when, number), order=ORDER, weight="exchanges"),
            "connections": Shape(
                keys=_PLACE,
                measures=(("connections", pa.int64(), "sum"), *when[:2], number),
                order=ORDER[:2],
                weight="connections",
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "connections":
            batch = only(batch, in_any(batch, "verdict", ["kafka"]))
        keys = {name: column(batch, name) for name in (*_PLACE_NAMES, "broker_id", "time_ns", "connection_id")}
        if table == "connections":
            self.parts[table].add({**keys, "connections": pa.array([1] * batch.num_rows, pa.int64())})
        else:
            self.parts[table].add({**keys, **order_columns(batch), **exchange_counts(batch)})

    def result(self) -> pa.Table:
        exchanges, connections = (_numbered(part.table(), self.names) for part in self.parts.values())
        found = exchanges.join(
            connections.select([*_PLACE_NAMES, "connections", "broker_id"]),
            list(_PLACE_NAMES),
            join_type="full outer",
            right_suffix="_seen",
        )
        number = pc.coalesce(found.column("broker_id"), found.column("broker_id_seen"))
        found = found.set_column(found.schema.get_field_index("broker_id"), "broker_id", number)
        for name in (name for name, how in HOW.items() if how == "sum"):
            place = found.schema.get_field_index(name)
            found = found.set_column(place, name, pc.fill_null(found.column(name), 0))
        order = [("broker_id", "ascending"), ("broker_ip", "ascending"), ("broker_port", "ascending")]
        return found.drop_columns(["broker_id_seen"]).sort_by(order)


def _numbered(table: pa.Table, names: LearnedNames | None) -> pa.Table:
    if names is None or not table.num_rows:
        return table
    batch = table.combine_chunks().to_batches()[0]
    known = names.broker_ids(column(batch, "broker_ip"), column(batch, "broker_port"), column(batch, "time_ns"))
    number = pc.coalesce(known, column(batch, "broker_id"))
    return table.set_column(table.schema.get_field_index("broker_id"), "broker_id", number)


class Clients(Accumulator[Parameters]):
    """Clients by id, address and software, with sent and received data.

    If the software of a connection becomes known late, it is looked up then; until then such a connection is its own
    row.
    """

    name: ClassVar[str] = "overview-clients"

    _KEYS: ClassVar = ("client_id", "client_ip", "software_name", "software_version")

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading((*self._KEYS, "connection_id", *COUNTED))}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (*((name, TEXT) for name in self._KEYS), ("connection_id", pa.int64()))
        return {"clients": Shape(keys=keys, measures=MEASURES, weight="exchanges", bound=MAX_CLIENTS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        keys = {name: column(batch, name) for name in self._KEYS}
        nobody = pa.nulls(batch.num_rows, pa.int64())
        keys["connection_id"] = nobody
        if is_staged(batch):
            late = pc.is_null(keys["software_name"])
            keys["connection_id"] = pc.if_else(late, column(batch, "connection_id"), nobody)
        self.parts["clients"].add({**keys, **exchange_counts(batch)})

    def result(self) -> pa.Table:
        table = self.parts["clients"].table()
        if self.names is not None and table.num_rows:
            batch = table.combine_chunks().to_batches()[0]
            name, version = self.names.software(*(column(batch, one) for one in ("connection_id", *self._KEYS[2:])))
            table = table.set_column(table.schema.get_field_index("software_name"), "software_name", name)
            table = table.set_column(table.schema.get_field_index("software_version"), "software_version", version)
        found = folded(table, self._KEYS, HOW)
        size = pc.add(found.column("request_bytes"), found.column("response_bytes"))
        order = [("bytes", "descending"), *((name, "ascending") for name in self._KEYS)]
        return found.append_column("bytes", size).sort_by(order)
