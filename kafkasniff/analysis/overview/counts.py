"""Exchanges by API, broker and client; connections, their bytes, and problems; what all sections of an overview share.

Staged rows stay as they are, and names are filled in for the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, in_any, integers, only, order_columns, ratio, table_of
from kafkasniff.analysis.dimensions import Dimensions
from kafkasniff.analysis.partials import How, Partials, Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.visibility import TLS
from kafkasniff.analysis.waits import LONG_POLL_COLUMNS, is_long_poll
from kafkasniff.model import Connection
from kafkasniff.tables.rows.connections import connection_row
from kafkasniff.tables.rows.resolve import LearnedNames
from kafkasniff.tables.rows.schemas import CONNECTIONS

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


# -- connections, and problems of the capture --------------------------------------------------------------------------

MAX_WAITING: Final = 1 << 16
"""Maximum number of connections that are not Kafka and may be worth reporting, some 200 bytes each."""

_BYTES: Final = ("decoded", "skipped", "lost", "pending", "repeated", "ignored")
CONNECTION_COUNTS: Final = (
    "connections",
    "packets",
    "client_bytes",
    "broker_bytes",
    *(f"bytes_{name}" for name in _BYTES),
    "retransmits",
)
"""Counts of connections; bytes as in the table `connections`."""


class Connections(Accumulator[Parameters]):
    """Connections by type and end, with an account of their bytes."""

    name: ClassVar[str] = "overview-connections"

    def reads(self) -> Mapping[str, TableReading]:
        own = ("time_ns", "end_time_ns", "verdict", *CONNECTION_COUNTS[1:])
        return {"connections": TableReading(own, optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in CONNECTION_COUNTS)
        times: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        return {"connections": Shape(keys=(("verdict", TEXT),), measures=(*sums, *times))}

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        counts = {name: pc.fill_null(column(batch, name), 0) for name in CONNECTION_COUNTS[1:]}
        self.parts["connections"].add(
            {
                "verdict": column(batch, "verdict"),
                "connections": pa.array([1] * batch.num_rows, pa.int64()),
                **counts,
                "first": column(batch, "time_ns"),
                "last": column(batch, "end_time_ns"),
            }
        )

    def result(self) -> pa.Table:
        return self.parts["connections"].table().sort_by("verdict")


class FailedConnects(Accumulator[Parameters]):
    """TCP connections that were refused or got no answer, by endpoint and outcome."""

    name: ClassVar[str] = "overview-failed-connects"

    def reads(self) -> Mapping[str, TableReading]:
        own = ("opening", "broker_ip", "broker_port", "client_packets", "broker_packets")
        return {"transport": TableReading(own, optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("broker_ip", TEXT), ("broker_port", pa.int32()), ("outcome", TEXT))
        sums: Any = (("connects", pa.int64(), "sum"), ("packets", pa.int64(), "sum"))
        return {"connects": Shape(keys=keys, measures=sums, weight="connects")}

    def update(self, batch: pa.RecordBatch, table: str = "transport") -> None:
        batch = only(batch, in_any(batch, "opening", ["refused", "unanswered"]))
        self.parts["connects"].add(
            {
                **{name: column(batch, name) for name in ("broker_ip", "broker_port")},
                "outcome": column(batch, "opening"),
                "connects": pa.array([1] * batch.num_rows, pa.int64()),
                "packets": pc.add(column(batch, "client_packets"), column(batch, "broker_packets")),
            }
        )

    def result(self) -> pa.Table:
        order = [("connects", "descending"), ("broker_ip", "ascending"), ("broker_port", "ascending")]
        return self.parts["connects"].table().sort_by([*order, ("outcome", "ascending")])


_PLACED: Final = ("time_ns", "connection_id", "exchange_id", "packet", "offset", "detail")
"""What "first" means among problems."""
_TYPES: Final = dict.fromkeys(_PLACED[:-1], pa.int64()) | {"detail": TEXT}


class Problems(Accumulator[Parameters]):
    """Problems by kind, each with the first one.

    A connection that is not Kafka is worth reporting only if its endpoint spoke Kafka before; for captures that is
    known at their end.
    """

    name: ClassVar[str] = "overview-problems"

    def reads(self) -> Mapping[str, TableReading]:
        return {"problems": TableReading(("kind", "bytes", *_PLACED), optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = (("problems", pa.int64(), "sum"), ("bytes", pa.int64(), "sum"))
        first: Any = tuple((name, _TYPES[name], "first") for name in _PLACED)
        alone: Any = (("kind", TEXT, "first"), *sums, *first, ("_endpoints", TEXT, "first"))
        return {
            "problems": Shape(keys=(("kind", TEXT),), measures=(*sums, *first), order=_PLACED),
            "waiting": Shape(keys=(), measures=alone, order=_PLACED, keep="earliest", bound=MAX_WAITING),
        }

    def update(self, batch: pa.RecordBatch, table: str = "problems") -> None:
        if "_endpoints" in batch.column_names:
            waits = pc.is_valid(column(batch, "_endpoints"))
            waiting = only(batch, waits)
            self.parts["waiting"].add({**_rows(waiting), "_endpoints": column(waiting, "_endpoints")})
            batch = only(batch, pc.invert(waits))
        self.parts["problems"].add(_rows(batch))

    def result(self) -> pa.Table:
        part = Partials(self.shapes()["problems"])
        part.merge(self.parts["problems"])
        waiting = self.parts["waiting"].table()
        if self.names is not None and waiting.num_rows:
            pairs = zip(waiting.column("_endpoints").to_pylist(), waiting.column("time_ns").to_pylist(), strict=True)
            spoke = [self.names.spoke_kafka(ends, time_ns) for ends, time_ns in pairs]
            known = waiting.filter(pa.array(spoke, pa.bool_()))
            part.add({name: known.column(name) for name in part.shape.schema.names})
        return part.table().sort_by([("problems", "descending"), ("kind", "ascending")])


def _rows(batch: pa.RecordBatch) -> dict[str, Any]:
    return {
        "kind": column(batch, "kind"),
        "problems": pa.array([1] * batch.num_rows, pa.int64()),
        "bytes": pc.fill_null(column(batch, "bytes"), 0),
        **{name: column(batch, name).cast(_TYPES[name]) for name in _PLACED},
    }


_SUMS: Final = ("connections", "client_bytes", "broker_bytes", "resets", "tls_answers", "unanswered")
_KEPT: Final = {
    "broker_ip": "address",
    "broker_port": "port",
    **{name: name.removeprefix("tls_") for name in (*_SUMS, "answer_max_us")},
    "handshakes_count": "handshakes",
    "handshakes_p50": "handshake_p50_us",
    "handshakes_high": "handshake_max_us",
    "answers_p50": "answer_p50_us",
}
"""Columns of the answer by those that they are made of."""
_FOUND: Final = {"handshakes": "tls_handshake_us", "answers": "tls_answer_p50_us"}
"""Distributions, and the column of each: the medians of connections weigh as many as their answers."""


class Encrypted(Accumulator[Parameters]):
    """Listeners whose TLS connections are not decrypted, those with most bytes first."""

    name: ClassVar[str] = "overview-encrypted"

    def reads(self) -> Mapping[str, TableReading]:
        own = (*_PLACE_NAMES, "protocol", "client_bytes", "broker_bytes", "ended", *_FOUND.values())
        more = ("tls_answers", "tls_answer_max_us", "tls_unanswered_us")
        return {"connections": TableReading((*own, *more), optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
        longest: Any = ("answer_max_us", pa.int64(), "max")
        return {
            "listeners": Shape(keys=_PLACE, measures=(*sums, longest), weight="connections"),
            **{name: distribution_shape(_PLACE) for name in _FOUND},
        }

    def update(self, batch: pa.RecordBatch, table: str = "connections") -> None:
        batch = only(batch, in_any(batch, "protocol", [TLS]))
        keys = {name: column(batch, name) for name in _PLACE_NAMES}
        counts = {
            name: pc.fill_null(column(batch, name), 0) for name in ("client_bytes", "broker_bytes", "tls_answers")
        }
        self.parts["listeners"].add(
            {
                **keys,
                **counts,
                "connections": np.ones(batch.num_rows, np.int64),
                "resets": in_any(batch, "ended", ["rst"]).cast(pa.int64()),
                "unanswered": pc.is_valid(column(batch, "tls_unanswered_us")).cast(pa.int64()),
                "answer_max_us": column(batch, "tls_answer_max_us"),
            }
        )
        for name, source in _FOUND.items():
            known = only(batch, pc.is_valid(column(batch, source)))
            rows = distribution_rows({key: column(known, key) for key in _PLACE_NAMES}, column(known, source))
            if name == "answers":
                rows["count"] = integers(column(known, "tls_answers"))
            self.parts[name].add(rows)

    def result(self) -> pa.Table:
        found = self.parts["listeners"].table()
        for name in _FOUND:
            keys, values = distributions(self.parts[name], _PLACE_NAMES, {"p50": 0.5})
            columns = {f"{name}_{one}": values[one] for one in ("count", "p50", "high")}
            table = pa.table({key: keys.column(key) for key in _PLACE_NAMES} | columns)
            found = found.join(table, list(_PLACE_NAMES), join_type="left outer")
        size = pc.add(found.column("client_bytes"), found.column("broker_bytes"))
        order = [("bytes", "descending"), *((name, "ascending") for name in _PLACE_NAMES)]
        found = found.append_column("bytes", size).sort_by(order).select([*_KEPT])
        place = found.schema.get_field_index("handshakes_count")
        found = found.set_column(place, "handshakes_count", pc.fill_null(found.column(place), 0))
        return found.rename_columns([*_KEPT.values()])

    def take(self, connections: Iterable[Connection]) -> None:
        """Take connections of an inspector, whose rows are not needed otherwise."""
        rows = [connection_row(connection) for connection in connections]
        columns = self.reads()["connections"].columns
        self.update(pa.RecordBatch.from_pylist(rows, pa.schema([CONNECTIONS.field(name) for name in columns])))
