"""Data of topics: batches, sizes of records, fetches, and who produces and consumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import TIME, datetimes, matching, ratio, table_of
from kafkasniff.analysis.group_history import MEMBER_APIS
from kafkasniff.analysis.sql.question import SqlQuestion, ranked, texts
from kafkasniff.errors import UsageError

_DIRECTIONS: Final = {"produce": ("Produce",), "fetch": ("Fetch", "ShareFetch")}
_COUNTED: Final = ("exchanges", "batches", "records", "bytes")
_BATCH_NAMES: Final = ("topic", "client_id", "compression")


class BatchingParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Batching`."""

    direction: Annotated[
        Literal["produce", "fetch"], Meta(description="Batches that producers send, or that consumers receive.")
    ] = "produce"


class Batching(SqlQuestion[BatchingParameters]):
    """Batches, records and bytes by topic, client and codec; the largest first.

    `--direction fetch` shows what consumers receive. Control batches are included. For uncompressed batches,
    `payload_ratio` is slightly below 1 because of the record format.
    """

    name: ClassVar[str] = "batching"
    summary: ClassVar[str] = "Records and bytes per batch, codecs and compression ratios, by topic and client."
    essential: ClassVar[tuple[str, ...]] = (
        "topic",
        "client_id",
        "batches",
        "records_per_batch",
        "bytes_per_batch",
        "compression",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "compression": "codec; `mixed` if one exchange has batches with different codecs for a partition",
        "exchanges": "topic-partitions in exchanges with batches",
        "records_per_batch": "mean number of records",
        "bytes_per_batch": "mean size",
        "payload_bytes": (
            "keys, values and headers of the records before compression; null unless all of them are in `records`"
        ),
        "payload_ratio": "payload divided by bytes on the wire: the compression ratio",
    }
    parameters_type = BatchingParameters

    def reads(self) -> Mapping[str, TableReading]:
        apis = _DIRECTIONS[self.parameters.direction]
        return {
            "exchanges": TableReading(("connection_id", "api", "client_id", "partitions"), apis),
            "records": TableReading(
                ("connection_id", "api", "topic", "topic_id", "compression", "key", "value", "headers"), apis, True
            ),
        }

    def pieces(self) -> dict[str, str]:
        return {"apis": ", ".join(f"'{api}'" for api in _DIRECTIONS[self.parameters.direction])}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        numbers = (*_COUNTED, "seen", "payload_bytes")
        return [*((name, pa.string()) for name in _BATCH_NAMES), *((name, pa.int64()) for name in numbers)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        # Unless all records were captured, their bytes cannot be compared with those of the batches.
        whole = pc.equal(columns["seen"], columns["records"])
        columns["payload_bytes"] = pc.if_else(whole, columns["payload_bytes"], pa.scalar(None, pa.int64()))
        columns["records_per_batch"] = ratio(columns["records"], columns["batches"])
        columns["bytes_per_batch"] = ratio(columns["bytes"], columns["batches"])
        columns["payload_ratio"] = ratio(columns["payload_bytes"], columns["bytes"])
        fields = [
            *((name, pa.string()) for name in _BATCH_NAMES),
            *((name, pa.int64()) for name in _COUNTED),
            ("records_per_batch", pa.float64()),
            ("bytes_per_batch", pa.float64()),
            ("payload_bytes", pa.int64()),
            ("payload_ratio", pa.float64()),
        ]
        return table_of(columns, fields, [("bytes", "descending"), *((name, "ascending") for name in _BATCH_NAMES)])


_SIZE_KEYS: Final = ("topic", "direction")
_SIZE_NUMBERS: Final = ("records", "nulls", "p50", "p99", "most")


class RecordSizeParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `RecordSizes`."""

    direction: Annotated[
        Literal["any", "request", "response"],
        Meta(description="Produced records (request), fetched records (response), or both."),
    ] = "any"


class RecordSizes(SqlQuestion[RecordSizeParameters]):
    """Percentiles of the sizes in bytes of keys, values and headers, by topic and direction.

    Sizes are those of records before compression. Null keys and values are counted, not measured: a record without
    value deletes its key if the topic is compacted. Control records are skipped. Percentiles are exact.
    """

    name: ClassVar[str] = "record-sizes"
    summary: ClassVar[str] = "Sizes of keys, values and headers by topic."
    essential: ClassVar[tuple[str, ...]] = (
        "topic",
        "direction",
        "records",
        "value_p50",
        "value_max",
        "key_p50",
        "key_max",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "direction": "request: produced; response: fetched",
        "null_keys": "records without a key",
        "null_values": "records without a value, which delete their key in a compacted topic",
        "key_p50": "bytes; null if no record has a key",
        "key_p99": "bytes; null if no record has a key",
        "key_max": "bytes; null if no record has a key",
        "value_p50": "bytes; null if no record has a value",
        "value_p99": "bytes; null if no record has a value",
        "value_max": "bytes; null if no record has a value",
        "headers_p50": "bytes of keys and values of a record's headers",
        "headers_p99": "bytes of keys and values of a record's headers",
        "headers_max": "bytes of keys and values of a record's headers",
    }
    parameters_type = RecordSizeParameters

    def reads(self) -> Mapping[str, TableReading]:
        return {"records": TableReading(("direction", "topic", "topic_id", "key", "value", "headers", "control"))}

    def pieces(self) -> dict[str, str]:
        wanted = self.parameters.direction
        directions = ("request", "response") if wanted == "any" else (wanted,)
        return {"directions": texts(directions), "ranked": ranked("topic, direction, field")}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [
            *((name, pa.string()) for name in (*_SIZE_KEYS, "field")),
            *((name, pa.int64()) for name in _SIZE_NUMBERS),
        ]

    def finish(self, found: pa.Table) -> pa.Table:
        groups: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in found.to_pylist():
            group = groups.setdefault(tuple(row[name] for name in _SIZE_KEYS), {name: row[name] for name in _SIZE_KEYS})
            field = row["field"]
            group |= {"records": row["records"], f"null_{field}s": row["nulls"]}
            group |= {f"{field}_p50": row["p50"], f"{field}_p99": row["p99"], f"{field}_max": row["most"]}
        fields = [
            *((name, pa.string()) for name in _SIZE_KEYS),
            *((name, pa.int64()) for name in ("records", "null_keys", "null_values")),
            *((f"{field}_{one}", pa.int64()) for field in ("key", "value", "headers") for one in ("p50", "p99", "max")),
        ]
        columns = {name: [group[name] for group in groups.values()] for name, _ in fields}
        return table_of(columns, fields, [(name, "ascending") for name in _SIZE_KEYS])


_FETCHES: Final = ("Fetch", "ShareFetch")
_FETCH_KEYS: Final = {"client": ("client_id", "client_ip"), "topic": ("topic",)}
_SUMS: Final = ("fetches", "empty", "failed", "bytes", "records", "waited_us")
_WHOLE: Final = "fetched AS (SELECT *, {bytes_inside} AS bytes, {records_inside} AS records FROM fetches)"
_FETCH: Final = "client_id, client_ip, connection_id, exchange_id, error_count, latency_us"
_BY_TOPIC: Final = f"""parts AS (
  SELECT {_FETCH}, coalesce(one.topic, one.topic_id) AS topic, one.bytes AS bytes, one.record_count AS records
  FROM (SELECT {_FETCH}, explode(partitions) AS one FROM fetches) AS exploded
  UNION ALL
  -- Topics of the session without data, and fetches without a known topic.
  SELECT {_FETCH}, topic, NULL AS bytes, NULL AS records
  FROM (SELECT {_FETCH}, {{each_topic}} AS topic, partitions FROM fetches) AS exploded
  WHERE topic IS NOT NULL OR array_size(partitions) = 0
),
fetched AS (
  SELECT {_FETCH}, topic, coalesce(sum(bytes), 0) AS bytes, coalesce(sum(records), 0) AS records
  FROM parts
  GROUP BY {_FETCH}, topic
)"""


class FetchEfficiencyParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `FetchEfficiency`."""

    by: Annotated[
        tuple[Literal["client", "topic"], ...],
        Meta(description="By client alone, a fetch is empty if no topic had data; by topic, if this topic had none."),
    ] = ("client", "topic")


class FetchEfficiency(SqlQuestion[FetchEfficiencyParameters]):
    """Answered fetches, how many of them returned nothing, and the data of the others.

    Many empty fetches with a short wait are a busy loop: a consumer at the end of its partitions normally waits for
    `fetch.max.wait.ms` each time. A fetch counts for each topic of its request or session (KIP-227; in sessions of more
    than 100 topics, of request and response), with `--by client` once.
    """

    name: ClassVar[str] = "fetch-efficiency"
    summary: ClassVar[str] = "Empty fetches, bytes and records per fetch, by client and topic."
    essential: ClassVar[tuple[str, ...]] = ("client_id", "topic", "fetches", "empty", "failed", "bytes", "client_ip")
    columns: ClassVar[Mapping[str, str]] = {
        "topic": "null for fetches without a known topic, such as one that closes its session",
        "fetches": "answered fetches",
        "empty": "fetches without a record batch of this topic",
        "failed": "fetches whose response has an error code; not counted as empty",
        "empty_ratio": "empty fetches divided by all",
        "bytes_per_fetch": "mean over fetches with data",
        "records_per_fetch": "mean over fetches with data",
        "empty_wait_us": "mean latency of empty fetches",
    }
    parameters_type = FetchEfficiencyParameters

    def check(self) -> None:
        """At least one dimension."""
        if not self.parameters.by:
            raise UsageError("fetch-efficiency: --by names client, topic or both")
        self._keys = tuple(name for one, names in _FETCH_KEYS.items() if one in self.parameters.by for name in names)

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "status", "client_id", "client_ip", "connection_id", "exchange_id", "topics", "partitions")
        return {"exchanges": TableReading((*own, "error_count", "latency_us"), _FETCHES)}

    def pieces(self) -> dict[str, str]:
        fetched = _BY_TOPIC if "topic" in self._keys else _WHOLE
        return {"apis": texts(_FETCHES), "keys": ", ".join(self._keys), "fetched": fetched}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*((name, pa.string()) for name in self._keys), *((name, pa.int64()) for name in _SUMS)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        brought = pc.subtract(pc.subtract(columns["fetches"], columns["empty"]), columns["failed"])
        columns["empty_ratio"] = ratio(columns["empty"], columns["fetches"])
        columns["bytes_per_fetch"] = ratio(columns["bytes"], brought)
        columns["records_per_fetch"] = ratio(columns["records"], brought)
        columns["empty_wait_us"] = ratio(columns["waited_us"], columns["empty"])
        fields = [
            *((name, pa.string()) for name in self._keys),
            *((name, pa.int64()) for name in ("fetches", "empty", "failed", "bytes", "records")),
            *(
                (name, pa.float64())
                for name in ("empty_ratio", "bytes_per_fetch", "records_per_fetch", "empty_wait_us")
            ),
        ]
        names = [(name, "ascending") for name in self._keys]
        return table_of(columns, fields, [("fetches", "descending"), *names])


_DATA_APIS: Final = ("Produce", "Fetch", "ShareFetch")
_CLIENT: Final = ("client_id", "client_ip", "software_name", "software_version")
_USER_NUMBERS: Final = ("exchanges", "records", "bytes", "partitions")


class TopicParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Topic`."""

    topic: Annotated[tuple[str, ...], Meta(description="Only these topics; *, ? and [] match.")] = ()


class Topic(SqlQuestion[TopicParameters]):
    """Clients by topic and role: producers, consumers with their group, brokers that replicate it.

    The group is the one that the same client (id and address) names in other requests; null if there is none, or more
    than one. A consumer that received nothing is listed, too.
    """

    name: ClassVar[str] = "topic"
    summary: ClassVar[str] = "Producers and consumers of each topic."
    essential: ClassVar[tuple[str, ...]] = ("topic", "role", "client_id", "records", "bytes", "group_id", "client_ip")
    columns: ClassVar[Mapping[str, str]] = {
        "role": "producer, consumer, follower (a broker that replicates, by its client id)",
        "group_id": "of a consumer, as for `lag`; null if there is none or more than one",
        "exchanges": "Produce and Fetch exchanges; includes consumers that received nothing",
        "partitions": "number of partitions named",
    }
    parameters_type = TopicParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "time_ns", "connection_id", "exchange_id", *_CLIENT, "group_id", "topics", "partitions")
        return {"exchanges": TableReading(own, tuple(dict.fromkeys([*_DATA_APIS, *MEMBER_APIS])))}

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_DATA_APIS), "client": ", ".join(_CLIENT)}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [
            *((name, pa.string()) for name in ("topic", "role", *_CLIENT, "group_id")),
            *((name, pa.int64()) for name in (*_USER_NUMBERS, "first_ns", "last_ns")),
        ]

    def finish(self, found: pa.Table) -> pa.Table:
        if self.parameters.topic:
            found = found.filter(matching(found.column("topic"), self.parameters.topic))
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        columns["first"], columns["last"] = datetimes(found.column("first_ns")), datetimes(found.column("last_ns"))
        fields = [
            ("topic", pa.string()),
            ("role", pa.string()),
            ("client_id", pa.string()),
            ("client_ip", pa.string()),
            ("group_id", pa.string()),
            ("software_name", pa.string()),
            ("software_version", pa.string()),
            *((name, pa.int64()) for name in _USER_NUMBERS),
            ("first", TIME),
            ("last", TIME),
        ]
        return table_of(columns, fields, [(name, "ascending") for name in ("topic", "role", *_CLIENT)])


_USE_APIS: Final = ("Produce", "Fetch", "ShareFetch", "OffsetCommit", "TxnOffsetCommit")
MAX_NAMED: Final = 5
"""Clients and groups that are named for each topic; all are counted."""
_ROLES: Final = {"producer": "producers", "consumer": "consumers", "follower": "followers", "group": "groups"}
"""Parts in the query, and the columns that count them."""
_NAMED: Final = {"producer": "produced_by", "consumer": "consumed_by", "group": "group_ids"}
_SIZES: Final = {"producer": "produced", "consumer": "consumed"}
_SHARED: Final = ("partitions", "first_ns", "last_ns")
_USE_NUMBERS: Final = ("place", "clients", "records", "bytes", *_SHARED)


class TopicUseParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `TopicUse`."""

    topic: Annotated[tuple[str, ...], Meta(description="Only these topics; *, ? and [] match.")] = ()


class TopicUse(SqlQuestion[TopicUseParameters]):
    """Topics with their producers, consumers and groups, by name; `topic` has a row for each client.

    A client is a client id at an address. The five that transferred most are named. Groups are those that commit
    offsets of the topic. Consumers that received nothing, and brokers that replicate (followers), are counted, too.
    """

    name: ClassVar[str] = "topics"
    summary: ClassVar[str] = "Topics: how many produce and consume, who, and how much."
    essential: ClassVar[tuple[str, ...]] = (
        *("topic", "produced_records", "consumed_records", "producers", "consumers", "produced_by", "group_ids"),
    )
    columns: ClassVar[Mapping[str, str]] = {
        "partitions": "number of partitions named",
        "producers": "number of clients that produce",
        "consumers": "number of clients that fetch",
        "followers": "number of brokers that replicate",
        "groups": "number of groups that commit offsets",
        "produced_records": "records that were produced",
        "produced_bytes": "size of their batches on the wire",
        "consumed_records": "records that consumers fetched",
        "consumed_bytes": "size of their batches on the wire",
        "produced_by": "client ids of the largest producers",
        "consumed_by": "client ids of the largest consumers",
        "group_ids": "groups that commit offsets",
    }
    parameters_type = TopicUseParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "time_ns", "client_id", "client_ip", "group_id", "topics", "partitions")
        return {"exchanges": TableReading(own, _USE_APIS)}

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_USE_APIS), "most": str(MAX_NAMED)}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [
            *((name, pa.string()) for name in ("topic", "part_of", "who")),
            *((name, pa.int64()) for name in _USE_NUMBERS),
        ]

    def finish(self, found: pa.Table) -> pa.Table:
        topics: dict[str, dict[str, Any]] = {}
        if self.parameters.topic:
            found = found.filter(matching(found.column("topic"), self.parameters.topic))
        for row in sorted(found.to_pylist(), key=lambda row: (row["topic"], row["place"])):
            name, role = row["topic"], row["part_of"]
            topic = topics.setdefault(name, {"topic": name, **{one: row[one] for one in _SHARED}})
            topic[_ROLES[role]] = row["clients"]
            if role in _NAMED and row["who"] is not None:
                topic.setdefault(_NAMED[role], {})[row["who"]] = None
            if role in _SIZES:
                topic[f"{_SIZES[role]}_records"], topic[f"{_SIZES[role]}_bytes"] = row["records"], row["bytes"]
        counts = [*_ROLES.values(), *(f"{one}_{of}" for one in _SIZES.values() for of in ("records", "bytes"))]
        rows = list(topics.values())
        columns: dict[str, Any] = {
            **{name: [row[name] for row in rows] for name in ("topic", "partitions")},
            **{name: [row.get(name, 0) for row in rows] for name in counts},
            **{name: [list(row.get(name, ())) for row in rows] for name in _NAMED.values()},
            "first": datetimes(pa.array([row["first_ns"] for row in rows], pa.int64())),
            "last": datetimes(pa.array([row["last_ns"] for row in rows], pa.int64())),
        }
        fields = [
            ("topic", pa.string()),
            *((name, pa.int64()) for name in ("partitions", *counts)),
            *((name, pa.list_(pa.string())) for name in _NAMED.values()),
            ("first", TIME),
            ("last", TIME),
        ]
        return table_of(columns, fields, [("topic", "ascending")])
