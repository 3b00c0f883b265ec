"""Facts of exchanges: of Produce and Fetch by their keys, and of everything else that concerns the partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, exploded, in_any, is_follower, named, only
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow.record_rows import FETCHES, Partition, among, has_keys, in_partitions
from kafkasniff.analysis.follow.wanted import LogPlace
from kafkasniff.analysis.members import MEMBER_APIS, MEMBER_SHAPE, groups_by_client, member_rows
from kafkasniff.analysis.partials import Partials, Shape

__all__ = [
    "COMMITS",
    "PARTITIONED",
    "ExchangeFacts",
    "PartitionOutcome",
    "Positions",
    "Served",
    "exchanges_of",
    "facts_of",
    "partition_rows",
    "produced_at",
]

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
        found = ExchangeFacts(**dict(zip(_WIRE, values, strict=True)))
        found.is_follower = follower or found.sender in _BROKERS
        yield found


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
