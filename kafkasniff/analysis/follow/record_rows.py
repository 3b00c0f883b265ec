"""Rows that may concern a record: its Produce requests and deliveries in `records`, and facts of `exchanges`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, exploded, in_any, is_follower, named, only
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow.way import LogPlace
from kafkasniff.analysis.group_history import MEMBER_APIS, MEMBER_SHAPE, groups_by_client, member_rows
from kafkasniff.analysis.partials import Partials, Shape

MAX_ROWS: Final = 1 << 16
"""Maximum number of rows that match and are kept, the earliest: some 60 MB. Long keys count for several."""
FETCHES: Final = ("Fetch", "ShareFetch")
"""APIs that deliver records."""
KEY_BYTES: Final = 1024
"""Bytes of a key that count as much as a row."""
_PAYLOAD: Final = ("key", "value")
_DECODED: Final = "key_decoded"
_KEYS: Final = ("connection_id", "exchange_id", "partition")
COLUMNS: Final = (
    *("connection_id", "exchange_id", "time", "api", "topic", "topic_id", "partition", "offset", "timestamp"),
    *("timestamp_type", "producer_id", "producer_epoch", "sequence", "transactional", "control", "trace_ids"),
    *_PAYLOAD,
    _DECODED,
)

Partition = tuple[str | None, int | None]
"""Topic and number."""
Mask = Callable[[pa.RecordBatch], pa.Array]


class CarriedRecord(NamedTuple):
    """A row of `records`."""

    time: int | None
    """Microseconds since 1970."""
    connection_id: int
    exchange_id: int
    topic: str | None
    partition: int | None
    position: int
    """In a Produce request, the number of records of the partition before it; elsewhere 0."""
    offset: int
    """In a Produce request, the producer's own count."""
    api: str
    content: bytes | None
    """Digest of key and value; None if they are hidden."""
    created: int | None
    """The producer's timestamp in microseconds; None if the broker replaced it."""
    key: bytes | None
    key_decoded: str | None
    value_bytes: int | None
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    transactional: bool
    control: str | None
    trace_ids: tuple[str, ...]

    @property
    def place(self) -> Partition:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def exchange(self) -> tuple[int, int]:
        """Key of the exchange."""
        return self.connection_id, self.exchange_id

    @property
    def weight(self) -> int:
        """How many rows it counts for."""
        return 1 + (0 if self.key is None else len(self.key) // KEY_BYTES)

    @property
    def is_produced(self) -> bool:
        """Whether it is in a Produce request."""
        return self.api == "Produce"

    @property
    def number(self) -> tuple[Any, ...] | None:
        """What identifies a record of an idempotent producer in every attempt; None for others."""
        if self.producer_id is None or self.producer_id < 0 or self.sequence is None or self.sequence < 0:
            return None
        return (*self.place, self.producer_id, self.producer_epoch, self.sequence)


def record_order(row: CarriedRecord) -> tuple[Any, ...]:
    """By time, then by the place in the capture."""
    return row.time is None, row.time or 0, *row.exchange, *map(str, row.place), row.position, row.offset


class RowReader:
    """Reads matching rows of an export's records."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self.rows = 0
        """Rows that were looked at in the last reading."""
        self.dropped = 0
        """Matching rows beyond `MAX_ROWS`."""

    def read(self, mask: Mask) -> list[CarriedRecord]:
        """The rows that a mask selects, by time. Raises CaptureError, UsageError."""
        carried_records: list[CarriedRecord] = []
        weight = 0
        positions = _Positions()
        self.rows = 0
        hidden = () if self._export.has_payload else _PAYLOAD
        reading = TableReading(tuple(name for name in COLUMNS if name not in hidden), ("Produce", *FETCHES))
        for read in self._export.batches("records", reading):
            self.rows += read.num_rows
            batch = read.append_column("position", positions.of(read))
            for name in hidden:
                batch = batch.append_column(name, pa.nulls(batch.num_rows, pa.binary()))
            chosen = pc.and_(mask(batch), has_keys(batch, "offset"))
            for row in _rows(only(batch, chosen), hidden=bool(hidden)):
                carried_records.append(row)
                weight += row.weight
                if weight > 2 * MAX_ROWS:
                    carried_records, weight = self._earliest(carried_records)
        return self._earliest(carried_records)[0]

    def _earliest(self, carried_records: list[CarriedRecord]) -> tuple[list[CarriedRecord], int]:
        """The first rows within the bound, and their weight."""
        carried_records.sort(key=record_order)
        weights = list(accumulate(row.weight for row in carried_records))
        kept = bisect_right(weights, MAX_ROWS)
        self.dropped += len(carried_records) - kept
        return carried_records[:kept], weights[kept - 1] if kept else 0


class _Positions:
    """Numbers the records of each partition in a Produce request, across batches of rows."""

    def __init__(self) -> None:
        self._last: tuple[Any, ...] | None = None
        self._count = 0

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The number of each row; they follow each other in the table as in the request."""
        rows = batch.num_rows
        if not rows:
            return pa.array([], pa.int64())
        topics = pc.coalesce(column(batch, "topic"), column(batch, "topic_id"))
        keys = [column(batch, name) for name in _KEYS]
        numbers = [pc.fill_null(key, -1).to_numpy(zero_copy_only=False) for key in keys]
        numbers.append(topics.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False))
        begins = np.zeros(rows, np.bool_)
        begins[0] = True
        for number in numbers:
            begins[1:] |= number[1:] != number[:-1]
        indices: NDArray[np.int64] = np.arange(rows)
        starts = np.maximum.accumulate(np.where(begins, indices, 0))
        found = indices - starts
        first, last = (tuple(one[place].as_py() for one in (*keys, topics)) for place in (0, rows - 1))
        if first == self._last:
            found[starts == 0] += self._count
        self._last, self._count = last, int(found[-1]) + 1
        produced = in_any(batch, "api", ["Produce"]).to_numpy(zero_copy_only=False)
        return pa.array(np.where(produced, found, 0), pa.int64())


def has_keys(batch: pa.RecordBatch, *more: str) -> pa.Array:
    """Which rows have the keys of their exchange, and `more`: only another program writes others."""
    found = pc.is_valid(column(batch, "connection_id"))
    for name in ("exchange_id", *more):
        found = pc.and_(found, pc.is_valid(column(batch, name)))
    return found


def in_partitions(batch: pa.RecordBatch, places: Collection[Partition]) -> pa.Array:
    """Which rows with `topic` (and `topic_id`) and `partition` are of some partitions."""
    topics = column(batch, "topic")
    if "topic_id" in batch.column_names:
        topics = pc.coalesce(topics, column(batch, "topic_id"))
    found = pa.array(np.zeros(batch.num_rows, np.bool_))
    for topic in {topic for topic, _ in places if topic is not None}:
        numbers = pa.array({number for name, number in places if name == topic}, pa.int32())
        ours = pc.and_(pc.equal(topics, topic), pc.is_in(column(batch, "partition"), value_set=numbers))
        found = pc.or_(found, pc.fill_null(ours, False))
    return found


def among(batch: pa.RecordBatch, exchanges: Collection[tuple[int, int]]) -> pa.Array:
    """Which rows are of some exchanges, or of others that have a connection and a number of these in common."""
    connections, ordinals = (pa.array(set(one), pa.int64()) for one in zip(*exchanges, strict=True))
    return pc.and_(
        pc.is_in(column(batch, "connection_id"), value_set=connections),
        pc.is_in(column(batch, "exchange_id"), value_set=ordinals),
    )


def _rows(batch: pa.RecordBatch, *, hidden: bool) -> Iterator[CarriedRecord]:
    names = batch.column_names
    values = zip(*(column(batch, name).to_pylist() for name in names if name not in ("time", "timestamp")), strict=True)
    times, stamps = (column(batch, name).cast(pa.int64()).to_pylist() for name in ("time", "timestamp"))
    kept = [name for name in names if name not in ("time", "timestamp")]
    for time, stamp, row in zip(times, stamps, (dict(zip(kept, value, strict=True)) for value in values), strict=True):
        key, value = row["key"], row["value"]
        yield CarriedRecord(
            time=time,
            connection_id=row["connection_id"],
            exchange_id=row["exchange_id"],
            topic=row["topic"] if row["topic"] is not None else row["topic_id"],
            partition=row["partition"],
            position=row["position"],
            offset=row["offset"],
            api=row["api"],
            content=None if hidden else _digest(key, value),
            created=stamp if row["timestamp_type"] == "CreateTime" else None,
            key=key,
            key_decoded=row[_DECODED],
            value_bytes=None if value is None else len(value),
            producer_id=row["producer_id"],
            producer_epoch=row["producer_epoch"],
            sequence=row["sequence"],
            transactional=bool(row["transactional"]),
            control=row["control"],
            trace_ids=tuple(row["trace_ids"] or ()),
        )


def _digest(*values: bytes | None) -> bytes:
    found = blake2b(digest_size=16)
    for value in values:
        found.update(b"-" if value is None else b"%d:" % len(value) + value)
    return found.digest()


COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit")
MAX_CONSUMERS: Final = 1 << 16
"""Maximum number of clients and partitions whose positions are remembered."""
_WIRE: Final = (
    *("connection_id", "exchange_id", "time_ns", "client_ip", "client_port", "broker_ip", "broker_port", "broker_id"),
    *("api", "api_version", "client_id", "status", "latency_us", "acks", "group_id", "transactional_id", "sender"),
)
PARTITIONED: Final = (*_WIRE, "partitions")
"""Columns of `exchanges` that are read."""
_BROKERS: Final = ("replica", "quorum")
"""Senders that are brokers or controllers."""
_PART: Final = ("offset", "error_code", "error", "record_count")

Client = tuple[str | None, str | None]
"""Client id and address."""


class PartitionOutcome(msgspec.Struct, frozen=True):
    """What an exchange says about a partition."""

    offset: int | None
    error_code: int | None
    error: str | None
    record_count: int | None


class ExchangeFacts(msgspec.Struct):
    """An exchange."""

    connection_id: int
    exchange_id: int
    time_ns: int | None
    client_ip: str | None
    client_port: int | None
    broker_ip: str | None
    broker_port: int | None
    broker_id: int | None
    api: str | None
    api_version: int | None
    client_id: str | None
    status: str
    latency_us: int | None
    acks: int | None
    group_id: str | None
    transactional_id: str | None
    sender: str | None
    is_follower: bool = False
    """Whether a broker sent it, to replicate."""
    partitions: dict[Partition, PartitionOutcome] = msgspec.field(default_factory=dict)

    @property
    def time(self) -> int | None:
        """Time of the request in microseconds."""
        return None if self.time_ns is None else self.time_ns // 1000

    @property
    def answered(self) -> int | None:
        """Time of the response in microseconds."""
        return None if self.time is None or self.latency_us is None else self.time + self.latency_us


def partition_rows(
    export: Export, apis: Collection[str], places: Collection[Partition]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """For each batch of exchanges of some APIs: all of them, and a row for each of their partitions in `places`.

    Raises CaptureError, UsageError.
    """
    for batch in export.batches("exchanges", TableReading(PARTITIONED, tuple(apis))):
        rows = named(exploded(batch, _WIRE))
        yield batch, only(rows, pc.and_(in_partitions(rows, places), has_keys(rows)))


def produced_at(export: Export, place: LogPlace) -> set[tuple[int, int]]:
    """Produce exchanges whose records were assigned an offset and others around it. Raises CaptureError, UsageError."""
    found: set[tuple[int, int]] = set()
    for _, rows in partition_rows(export, ("Produce",), [(place.topic, place.partition)]):
        offset, count = column(rows, "offset"), column(rows, "record_count")
        covers = pc.and_(pc.less_equal(offset, place.offset), pc.greater(pc.add(offset, count), place.offset))
        ours = only(rows, pc.and_(covers, pc.equal(column(rows, "error_code"), 0)))
        found.update(
            zip(column(ours, "connection_id").to_pylist(), column(ours, "exchange_id").to_pylist(), strict=True)
        )
    return found


class Served:
    """Exchanges by key, and the groups of clients."""

    def __init__(self, export: Export, exchanges: Collection[tuple[int, int]], places: Collection[Partition]) -> None:
        """`exchanges`: those that carried the records. Raises CaptureError, UsageError."""
        members = Partials(MEMBER_SHAPE)
        self._found: dict[tuple[int, int], ExchangeFacts] = {}
        for batch, rows in partition_rows(export, ("Produce", *FETCHES, *MEMBER_APIS), places):
            members.add(member_rows(batch))
            ours = only(rows, among(rows, exchanges)) if exchanges else rows.slice(0, 0)
            for facts, partition, place in facts_of(ours):
                if (facts.connection_id, facts.exchange_id) in exchanges:
                    kept = self._found.setdefault((facts.connection_id, facts.exchange_id), facts)
                    kept.partitions[place] = partition
        self._groups: Mapping[Client, str | None] = groups_by_client(members)

    def get(self, exchange: tuple[int, int]) -> ExchangeFacts | None:
        """An exchange; None if the table does not have it."""
        return self._found.get(exchange)

    def group(self, facts: ExchangeFacts) -> str | None:
        """The group of the client that sent a request; None if it is unknown, or one of several."""
        return facts.group_id or self.group_of((facts.client_id, facts.client_ip))

    def group_of(self, client: Client) -> str | None:
        """The group of a client, likewise."""
        return self._groups.get(client)


def exchanges_of(rows: pa.RecordBatch) -> Iterator[ExchangeFacts]:
    """The exchange of each row."""
    followers = is_follower(column(rows, "client_id")).to_pylist()
    for values, follower in zip(_values(rows, _WIRE), followers, strict=True):
        exchange_facts = ExchangeFacts(**dict(zip(_WIRE, values, strict=True)))
        exchange_facts.is_follower = follower or exchange_facts.sender in _BROKERS
        yield exchange_facts


def facts_of(rows: pa.RecordBatch) -> Iterator[tuple[ExchangeFacts, PartitionOutcome, Partition]]:
    """The exchange and the partition of each row of `partition_rows`."""
    for facts, part, place in zip(
        exchanges_of(rows), _values(rows, _PART), _values(rows, ("topic", "partition")), strict=True
    ):
        yield facts, PartitionOutcome(*part), place


def _values(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[Any]:
    return zip(*(column(rows, name).to_pylist() for name in names), strict=True)


class Positions:
    """The offsets that each client fetches of each partition."""

    def __init__(self) -> None:
        keys: Any = (*((name, pa.string()) for name in ("client_id", "client_ip", "topic")), ("partition", pa.int32()))
        measures: Any = (
            ("lowest", pa.int64(), "min"),
            ("highest", pa.int64(), "max"),
            ("requests", pa.int64(), "sum"),
        )
        self._part = Partials(Shape(keys=keys, measures=measures, weight="requests", bound=MAX_CONSUMERS))

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows of `partition_rows`."""
        asked = pc.and_(in_any(rows, "api", ["Fetch"]), pc.invert(is_follower(column(rows, "client_id"))))
        asked = pc.and_(asked, pc.invert(in_any(rows, "sender", _BROKERS)))
        ours = only(rows, pc.and_(asked, pc.greater_equal(column(rows, "offset"), 0)))
        keys = {name: column(ours, name) for name in ("client_id", "client_ip", "topic", "partition")}
        offsets = column(ours, "offset")
        self._part.add({**keys, "lowest": offsets, "highest": offsets, "requests": [1] * ours.num_rows})

    def of(self, place: Partition) -> Iterator[tuple[Client, int, int]]:
        """(client, lowest, highest offset) of a partition, by client."""
        for row in self._part.table().to_pylist():
            if (row["topic"], row["partition"]) == place:
                yield (row["client_id"], row["client_ip"]), row["lowest"], row["highest"]
