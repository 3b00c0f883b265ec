"""How records are delivered: transactions, times from producer to consumer, lag, zones, share groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, TIME, column, datetimes, floor_divided, in_any, only, table_of
from kafkasniff.analysis.dimensions import BROKER_SQL
from kafkasniff.analysis.group_history import MEMBER_APIS
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.share_bodies import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    SHARE_APIS,
    ShareBody,
    SharePart,
    topic_names,
)
from kafkasniff.analysis.sql.question import SqlQuestion, ranked, texts
from kafkasniff.errors import UsageError

_TRANSACTION_APIS: Final = (
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn"),
)
_TRANSACTION_TEXTS: Final = ("transactional_id", "client_id", "client_ip", "group_id", "error", "committed")
_COUNTS: Final = ("produces", "records", "bytes", "topics", "partitions", "with_errors")
_OTHERS: Final = ("first_ns", "last_ns", "ended", "end_us", "nth")
_OUTCOMES: Final = {("true", True): "committed", ("false", True): "aborted", ("true", False): "committing",
                    ("false", False): "aborting"}  # fmt: skip


class TransactionParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Transactions`."""

    outcome: Annotated[
        tuple[Literal["committed", "aborted", "committing", "aborting", "open"], ...],
        Meta(description="Only transactions that ended like this."),
    ] = ()


class Transactions(SqlQuestion[TransactionParameters]):
    """Transactions in the order of their first request, with what each wrote and how it ended.

    A transaction is what a producer sends between two ends: EndTxn, or InitProducerId of its next start. Retries of
    EndTxn belong to it. Outcomes: committed, aborted (EndTxn succeeded); committing, aborting (EndTxn was not answered,
    or failed); open (the capture has no EndTxn: the broker aborts it when it times out or the producer starts again).
    """

    name: ClassVar[str] = "transactions"
    summary: ClassVar[str] = "Transactions: what each wrote, how long it took, how it ended."
    essential: ClassVar[tuple[str, ...]] = ("time", "transactional_id", "outcome", "duration_us", "records", "error")
    columns: ClassVar[Mapping[str, str]] = {
        "time": "time of its first request",
        "transactional_id": "transactional id of the producer",
        "outcome": "committed, aborted, committing, aborting, open",
        "duration_us": "from its first request to its last response",
        "end_us": "latency of the slowest EndTxn: the coordinator logs the decision before it answers",
        "produces": "number of Produce requests",
        "topics": "number of topics written to",
        "partitions": "number of partitions written to",
        "with_errors": "exchanges with an error code, including those that were retried",
        "error": "name of the last error code",
        "group_id": "group whose offsets it commits",
    }
    parameters_type = TransactionParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = (
            *("transactional_id", "client_id", "client_ip", "api", "api_version", *ORDER, "duration_us", "latency_us"),
            *("status", "error", "error_code", "error_count", "group_id", "record_count", "partitions", "request_body"),
        )
        return {"exchanges": TableReading(own, _TRANSACTION_APIS)}

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_TRANSACTION_APIS)}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [
            *((name, pa.string()) for name in _TRANSACTION_TEXTS),
            *((name, pa.int64()) for name in (*_COUNTS, *_OTHERS)),
        ]

    def finish(self, found: pa.Table) -> pa.Table:
        found = found.sort_by([(name, "ascending") for name in ("first_ns", "transactional_id", "nth")])
        ended = [bool(one) for one in found.column("ended").to_pylist()]
        outcomes = [
            _OUTCOMES.get((committed, over), "open")
            for committed, over in zip(found.column("committed").to_pylist(), ended, strict=True)
        ]
        columns = {name: found.column(name) for name in (*_TRANSACTION_TEXTS, *_COUNTS, "end_us")}
        columns["time"] = datetimes(found.column("first_ns"))
        columns["outcome"] = pa.array(outcomes, pa.string())
        columns["duration_us"] = floor_divided(pc.subtract(found.column("last_ns"), found.column("first_ns")), 1000)
        columns["records"] = pc.fill_null(found.column("records"), 0)
        fields = [
            ("time", TIME),
            ("transactional_id", pa.string()),
            ("outcome", pa.string()),
            ("duration_us", pa.int64()),
            ("end_us", pa.int64()),
            *((name, pa.int64()) for name in _COUNTS),
            *((name, pa.string()) for name in ("error", "group_id", "client_id", "client_ip")),
        ]
        table = table_of(columns, fields)
        wanted = self.parameters.outcome
        return table.filter(pc.is_in(table.column("outcome"), pa.array(wanted, pa.string()))) if wanted else table


_FLIGHT_APIS: Final = ("Produce", "Fetch", "ShareFetch", "OffsetCommit", "TxnOffsetCommit")
_KEYS: Final = {"topic": ("topic",), "group": ("group_id", "client_id"), "rack": ("client_rack",)}
_LEGS: Final = ("acknowledged", "fetched", "committed")
_NUMBERS: Final = ("p50", "p99", "most")
"""Nanoseconds in what the query finds."""
_NAMES: Final = ("p50", "p99", "max")


class FlightParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Flight`."""

    by: Annotated[
        tuple[Literal["topic", "group", "rack"], ...],
        Meta(description="Dimensions of the answer; rack is the consumer's (client.rack)."),
    ] = ("topic", "group")


class Flight(SqlQuestion[FlightParameters]):
    """Percentiles of the time that records take: to acknowledgement, to the first fetch by each group, to its commit.

    A record counts if the capture has its Produce request and an acknowledgement with its offset, and once for each
    group that fetches it. A consumer without a known group counts by its client id; a row without either has records
    that nobody fetched. Transactional records wait for the end of their transaction. Percentiles are exact.
    """

    name: ClassVar[str] = "flight"
    summary: ClassVar[str] = "Time of records from producer to acknowledgement, to each group, to its commit."
    essential: ClassVar[tuple[str, ...]] = (
        *("topic", "group_id", "records", "acknowledged_p50_us", "fetched", "fetched_p50_us", "fetched_p99_us"),
        "committed_p50_us",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "group_id": "the group that fetched; null if it is unknown, or nobody did",
        "client_id": "client id of a consumer without a known group",
        "records": "produced records with a known offset",
        "acknowledged_p50_us": "from the Produce request to its response",
        "acknowledged_p99_us": "from the Produce request to its response",
        "acknowledged_max_us": "from the Produce request to its response",
        "fetched": "records that were fetched",
        "fetched_p50_us": "from the Produce request to the first fetch of the group",
        "fetched_p99_us": "from the Produce request to the first fetch of the group",
        "fetched_max_us": "from the Produce request to the first fetch of the group",
        "committed": "records with a commit of the group beyond them",
        "committed_p50_us": "from the first fetch of the group to its first commit beyond the record",
        "committed_p99_us": "from the first fetch of the group to its first commit beyond the record",
        "committed_max_us": "from the first fetch of the group to its first commit beyond the record",
    }
    parameters_type = FlightParameters

    def check(self) -> None:
        """At least one dimension."""
        if not self.parameters.by:
            raise UsageError("flight: --by names at least one dimension")
        self._keys = tuple(name for one in dict.fromkeys(self.parameters.by) for name in _KEYS[one])

    def reads(self) -> Mapping[str, TableReading]:
        own = (
            *("connection_id", "exchange_id", "api", "client_id", "client_ip", "group_id", "time_ns", "latency_us"),
            *("status", "sender", "partitions", *(("request_body",) if "client_rack" in self._keys else ())),
        )
        carried = (*own[:3], "time", "direction", "topic", "topic_id", "partition", "offset", "control")
        return {
            "exchanges": TableReading(own, tuple(dict.fromkeys((*_FLIGHT_APIS, *MEMBER_APIS)))),
            "records": TableReading(carried),
        }

    def pieces(self) -> dict[str, str]:
        keys = ", ".join(self._keys)
        # Bodies are not read for nothing.
        no_rack = {} if "client_rack" in self._keys else {"rack": "CAST(NULL AS STRING)"}
        return {"apis": texts(_FLIGHT_APIS), "keys": keys, "ranked": ranked(f"{keys}, leg"), **no_rack}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        numbers = ("records", "measured", *_NUMBERS)
        return [*((name, pa.string()) for name in (*self._keys, "leg")), *((name, pa.int64()) for name in numbers)]

    def finish(self, found: pa.Table) -> pa.Table:
        groups: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in found.to_pylist():
            keys = {name: row[name] for name in self._keys}
            group = groups.setdefault(tuple(keys.values()), {**keys, "records": row["records"]})
            leg = row["leg"]
            for name, given in zip(_NUMBERS, _NAMES, strict=True):
                group[f"{leg}_{given}_us"] = None if row[name] is None else row[name] // 1000
            group[leg] = row["measured"] or 0
        fields: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in self._keys]
        fields.append(("records", pa.int64()))
        for leg in _LEGS:
            counted = () if leg == "acknowledged" else (leg,)
            names = (*counted, *(f"{leg}_{one}_us" for one in _NAMES))
            fields += [(name, pa.int64()) for name in names]
        columns = {name: [group[name] for group in groups.values()] for name, _ in fields}
        return table_of(columns, fields, [(name, "ascending") for name in self._keys])


_COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit", "OffsetFetch")
_LAG_APIS: Final = ("Produce", "Fetch", *_COMMITS)
_LAG_TEXTS: Final = ("group_id", "topic", "client_id", "client_ip")
_OFFSETS: Final = ("committed_offset", "fetched_offset", "high_watermark", "log_end_offset")
_LAGS: Final = {"commit_lag": "committed_offset", "fetch_lag": "fetched_offset"}
"""Columns, and from where to the end of the log they count."""
_TIMES: Final = {"committed_at": "committed_ns", "fetched_at": "fetched_ns", "watermark_at": "watermark_ns"}


class LagParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Lag`."""

    at_least: Annotated[
        int, Meta(ge=0, description="Show only rows with a known lag of at least this many records.")
    ] = 0


class Lag(SqlQuestion[LagParameters]):
    """For each group, topic and partition: the last committed and fetched offsets, and the end of the log.

    A Fetch names no group: it counts for the group that the same client names in other requests, otherwise it has a row
    without a group. Brokers that replicate are skipped. Share groups have no offsets on the wire. Events before the
    capture, or on other paths, are unknown.
    """

    name: ClassVar[str] = "lag"
    summary: ClassVar[str] = "Consumer lag per group, topic and partition, from commits, fetches and watermarks."
    essential: ClassVar[tuple[str, ...]] = ("group_id", "topic", "partition", "commit_lag", "fetch_lag", "client_id")
    columns: ClassVar[Mapping[str, str]] = {
        "client_id": "the client that fetched last",
        "committed_offset": (
            "the last one in a successful OffsetCommit or TxnOffsetCommit, or in an OffsetFetch response"
        ),
        "fetched_offset": "the last one that a Fetch requested: everything before it was received",
        "high_watermark": "the last one in a Fetch response to any client",
        "log_end_offset": "one past the last record acknowledged by a Produce response; unknown with acks 0",
        "commit_lag": "from `committed_offset` to the end: the higher of `high_watermark` and `log_end_offset`",
        "fetch_lag": "from `fetched_offset` to the end; 0 if it is past the last known end",
        "max_fetch_lag": "largest distance from a Fetch to the watermark in its response",
        "committed_at": "time at which `committed_offset` was seen",
        "fetched_at": "time at which `fetched_offset` was seen",
        "watermark_at": "time at which `high_watermark` was seen",
    }
    parameters_type = LagParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *ORDER, "client_id", "client_ip", "group_id", "partitions")
        return {"exchanges": TableReading(own, tuple(dict.fromkeys([*_LAG_APIS, *MEMBER_APIS])))}

    def pieces(self) -> dict[str, str]:
        owner = (
            "group_id, CASE WHEN group_id IS NULL THEN client_id END, CASE WHEN group_id IS NULL THEN client_ip END, "
            "topic, part"
        )
        return {"apis": texts(_LAG_APIS), "commits": texts(_COMMITS), "owner": owner}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        numbers = ("part", *_OFFSETS, "max_fetch_lag", *_TIMES.values())
        return [*((name, pa.string()) for name in _LAG_TEXTS), *((name, pa.int64()) for name in numbers)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        columns["partition"] = found.column("part")
        end = pc.max_element_wise(columns["high_watermark"], columns["log_end_offset"])
        for lag, offset in _LAGS.items():
            columns[lag] = pc.max_element_wise(pc.subtract(end, columns[offset]), 0, skip_nulls=False)
        columns |= {name: datetimes(columns[source]) for name, source in _TIMES.items()}
        fields = [
            ("group_id", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("client_id", pa.string()),
            ("client_ip", pa.string()),
            *((name, pa.int64()) for name in (*_OFFSETS, *_LAGS, "max_fetch_lag")),
            *((name, TIME) for name in _TIMES),
        ]
        names = ("group_id", "topic", "partition", "client_id", "client_ip")
        table = table_of(columns, fields, [(name, "ascending") for name in names])
        if not self.parameters.at_least:
            return table
        furthest = pc.max_element_wise(*(table.column(name) for name in _LAGS))
        return table.filter(pc.greater_equal(furthest, self.parameters.at_least))


_FETCHES: Final = ("Fetch", "ShareFetch")
_RACK_APIS: Final = ("Metadata", "DescribeCluster")
_CLIENT: Final[Any] = (
    ("client_id", pa.string()),
    ("client_ip", pa.string()),
    ("follower", pa.bool_()),
    ("client_rack", pa.string()),
    ("broker_id", pa.int32()),
    ("broker", pa.string()),
)
_SUMS: Final = ("fetches", "bytes", "records", "response_bytes")


class Racks(SqlQuestion[Parameters]):
    """Fetches and their bytes by the consumer's rack and that of the broker, those that cross zones first.

    Racks are in bodies: in exports with `--no-json` all are null. `--hosts` fills in racks by address that no message
    contains.
    """

    name: ClassVar[str] = "racks"
    summary: ClassVar[str] = "Fetches across zones: the consumer's rack compared with the broker's."
    essential: ClassVar[tuple[str, ...]] = (
        "client_id",
        "broker",
        "client_rack",
        "broker_rack",
        "cross_zone",
        "fetches",
        "bytes",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "follower": "whether it is a broker that replicates, by its client id",
        "broker_rack": "from the last Metadata or DescribeCluster response",
        "cross_zone": "whether they differ; null if one of them is unknown",
        "fetches": "number of fetches",
    }

    def reads(self) -> Mapping[str, TableReading]:
        own = ("client_id", "client_ip", "broker_id", "broker_ip", "broker_port", "request_body", "response_body")
        return {
            "exchanges": TableReading(("api", *ORDER, *own, "partitions", "response_size"), (*_FETCHES, *_RACK_APIS))
        }

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_FETCHES), "rack_apis": texts(_RACK_APIS), "broker": BROKER_SQL}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*_CLIENT, ("broker_rack", pa.string()), *((name, pa.int64()) for name in _SUMS)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        broker_racks, client_racks = (found.column(name).to_pylist() for name in ("broker_rack", "client_rack"))
        if self.hosts is not None:
            find = self.hosts.rack
            ends = found.column("broker").to_pylist()
            broker_racks = [
                broker_rack or find(*_split(end)) for broker_rack, end in zip(broker_racks, ends, strict=True)
            ]
            ips = found.column("client_ip").to_pylist()
            client_racks = [
                client_rack or find(address) for client_rack, address in zip(client_racks, ips, strict=True)
            ]
            columns["client_rack"] = client_racks
        pairs = zip(client_racks, broker_racks, strict=True)
        columns["cross_zone"] = [None if one is None or other is None else one != other for one, other in pairs]
        columns["broker_rack"] = broker_racks
        fields = [
            *_CLIENT,
            ("broker_rack", pa.string()),
            ("cross_zone", pa.bool_()),
            *((name, pa.int64()) for name in _SUMS),
        ]
        order = [("cross_zone", "descending"), ("response_bytes", "descending")]
        return table_of(columns, fields, [*order, *((name, "ascending") for name, _ in _CLIENT)])


def _split(endpoint: str | None) -> tuple[str | None, int | None]:
    """Address and port of an endpoint as text."""
    if endpoint is None:
        return None, None
    address, _, port = endpoint.rpartition(":")
    return address.strip("[]"), int(port)


_SHARE_KEYS: Final[Any] = (("group_id", pa.string()), ("topic", pa.string()))
_TYPES: Final = {"accepted": ACCEPT, "released": RELEASE, "rejected": REJECT, "renewed": RENEW}
_SHARE_SUMS: Final = ("acquired", "redelivered", *_TYPES)


class Share(Accumulator[Parameters]):
    """Records that each share group acquired and acknowledged, by topic: one that comes twice counts twice.

    The broker archives a rejected record, and one that was released or not acknowledged in time after
    `group.share.delivery.attempt.limit` deliveries (5): compare `most_deliveries`. Only answered exchanges count, and
    no partitions with an error. Everything is in bodies: exports with `--no-json` have no answer.
    """

    name: ClassVar[str] = "share"
    summary: ClassVar[str] = "Share groups: records acquired, accepted, released, rejected."
    essential: ClassVar[tuple[str, ...]] = ("group_id", "topic", *_SHARE_SUMS, "most_deliveries")
    columns: ClassVar[Mapping[str, str]] = {
        "group_id": "the share group",
        "acquired": "records that members acquired",
        "redelivered": "how many of these had been delivered before",
        "most_deliveries": "the highest delivery count of a record",
        "accepted": "records that were processed",
        "released": "records that were given back, to be delivered again",
        "rejected": "records that were given up, which archives them",
        "renewed": "records whose lock was extended (KIP-1222)",
    }

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "group_id", "status", "partitions", "request_body", "response_body")
        return {"exchanges": TableReading(own, SHARE_APIS)}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SHARE_SUMS)
        return {"records": Shape(_SHARE_KEYS, (*sums, ("most_deliveries", pa.int64(), "max")), weight="acquired")}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        mask = pc.and_(in_any(batch, "api", SHARE_APIS), in_any(batch, "status", ["answered"]))
        batch = only(batch, mask)
        names = ("api", "group_id", "partitions", "request_body", "response_body")
        found: list[tuple[str | None, str | None, dict[str, int]]] = []
        for api, group, partitions, *bodies in zip(*(column(batch, name).to_pylist() for name in names), strict=True):
            topics = topic_names(partitions)
            request, response = (ShareBody.decode(body).parts(topics) for body in bodies)
            errors = {(topic, part.partition_index): _error(api, part) for topic, part in response}
            found += [(group, topic, _acquired(part)) for topic, part in response if not part.error_code]
            found += [
                (group, topic, _acknowledged(part))
                for topic, part in request
                if not errors.get((topic, part.partition_index))
            ]
        columns = {name: [counts.get(name, 0) for _, _, counts in found] for name in (*_SHARE_SUMS, "most_deliveries")}
        groups, topics_ = ([one[index] for one in found] for index in range(2))
        self.parts["records"].add({"group_id": groups, "topic": topics_, **columns})

    def result(self) -> pa.Table:
        table = self.parts["records"].table()
        columns = {name: table.column(name) for name in table.column_names}
        fields = [*_SHARE_KEYS, *((name, pa.int64()) for name in (*_SHARE_SUMS, "most_deliveries"))]
        return table_of(columns, fields, [(name, "ascending") for name, _ in _SHARE_KEYS])


def _error(api: str | None, part: SharePart) -> int:
    """The error code of what a request acknowledges."""
    return part.acknowledge_error_code if api == "ShareFetch" else part.error_code


def _acquired(part: SharePart) -> dict[str, int]:
    ranges = [(offset_range.size, offset_range.delivery_count or 1) for offset_range in part.acquired_records]
    return {
        "acquired": sum(size for size, _ in ranges),
        "redelivered": sum(size for size, deliveries in ranges if deliveries > 1),
        "most_deliveries": max((deliveries for _, deliveries in ranges), default=0),
    }


def _acknowledged(part: SharePart) -> dict[str, int]:
    return {
        name: sum(offset_range.count_of(kind) for offset_range in part.acknowledgement_batches)
        for name, kind in _TYPES.items()
    }
