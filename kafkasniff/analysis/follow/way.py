"""What is asked for (a key, a place, or a trace), and the way of a record, as data."""

from __future__ import annotations

import fnmatch
from typing import Final, Literal, Self

import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import column
from kafkasniff.errors import UsageError

MAX_PARTITION: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
_HEX: Final = "hex:"


class LogPlace(msgspec.Struct, frozen=True):
    """A place in a log."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`topic-0@17`; the topic may have hyphens. Raises UsageError."""
        partition, _, offset = text.rpartition("@")
        topic, _, number = partition.rpartition("-")
        digits = all(one.isascii() and one.isdecimal() and len(one) < 20 for one in (number, offset))
        if not topic or not digits or int(number) > MAX_PARTITION or int(offset) > MAX_OFFSET:
            raise UsageError(f"--offset: {text!r} is not TOPIC-PARTITION@OFFSET, such as orders-0@17")
        return cls(topic, int(number), int(offset))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class Wanted(msgspec.Struct, frozen=True):
    """Which records are followed: those with `key`, at `place`, or of `trace`; exactly one is set."""

    key: bytes | None = None
    place: LogPlace | None = None
    trace: str | None = None
    topics: tuple[str, ...] = ()
    """Only these topics; *, ? and [] match."""

    @classmethod
    def parse(cls, key: str | None, offset: str | None, trace: str | None, topics: tuple[str, ...] = ()) -> Self:
        """From the values of options. Raises UsageError."""
        if sum(one is not None for one in (key, offset, trace)) != 1:
            raise UsageError("give one of --key, --offset and --trace")
        if offset is not None and topics:
            raise UsageError("--offset names its topic: --topic does not apply")
        return cls(
            None if key is None else _key(key),
            None if offset is None else LogPlace.parse(offset),
            None if trace is None else trace.lower(),
            topics,
        )

    @property
    def text(self) -> str:
        """`key order-77`, for the heading and messages; not escaped."""
        if self.place is not None:
            return f"offset {self.place}"
        if self.trace is not None:
            return f"trace {self.trace}"
        assert self.key is not None
        return f"key {self.key.decode('utf-8', 'surrogateescape')}"

    def selects(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows of `records` have the key or the trace. Raises AssertionError for a place."""
        assert self.place is None
        if self.key is not None:
            found = pc.fill_null(pc.equal(column(batch, "key"), pa.scalar(self.key, column(batch, "key").type)), False)
            decoded = column(batch, "key_decoded")
            text = self.key.decode("utf-8", "replace")
            found = pc.or_(
                found, pc.is_in(decoded, value_set=pa.array([text, orjson.dumps(text).decode()], decoded.type))
            )
        else:
            lists = column(batch, "trace_ids")
            hits = pc.list_parent_indices(lists).filter(
                pc.equal(pc.utf8_lower(pc.list_flatten(lists)), pa.scalar(self.trace, pa.string()))
            )
            found = pc.is_in(pa.array(range(batch.num_rows), hits.type), value_set=pc.unique(hits))
        found = pc.fill_null(found, False)
        if self.topics:
            found = pc.and_(found, self._of_topics(column(batch, "topic")))
        # Markers have keys, too, but no producer wrote them.
        return pc.and_(found, pc.is_null(column(batch, "control")))

    def _of_topics(self, topics: pa.Array) -> pa.Array:
        names = [one for one in pc.unique(topics).to_pylist() if one is not None]
        chosen = [
            name
            for name in names
            if any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in self.topics)
        ]
        return pc.is_in(topics, value_set=pa.array(chosen, pa.string()))


def _key(text: str) -> bytes:
    """`order-77`, or `hex:00ff`. Raises UsageError."""
    if not text.startswith(_HEX):
        return text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(text.removeprefix(_HEX))
    except ValueError:
        raise UsageError(f"--key: {text!r} is not hex: followed by pairs of hex digits") from None


StepKind = Literal[
    "produced",
    "acknowledged",
    "refused",
    "replicated",
    "delivered",
    "redelivered",
    "accepted",
    "released",
    "rejected",
    "renewed",
    "committed",
    "transaction-committed",
    "transaction-aborted",
]
ConsumerState = Literal["committed", "delivered", "settled", "not-delivered", "began-after", "passed-over"]
Unknown = Literal["producer", "acknowledgement", "response", "offset", "delivery", "outcome", "bodies", "content"]


class WayStep(msgspec.Struct, kw_only=True):
    """Something that happened to the record on the wire."""

    kind: StepKind
    """produced, acknowledged, refused; replicated (a follower's first fetch); delivered, redelivered; committed (beyond
    it); of share groups accepted, released, rejected, renewed; transaction-committed, transaction-aborted (the request
    of the producer).
    """
    time: int | None
    """When: of a request its last packet, of a response its first (for deliveries, its last); null without times."""
    delay_us: int | None = None
    """Time since the step that it follows."""
    after: int | None = None
    """That step: its place in `steps`, from 0; null if it is not in the capture."""
    client_id: str | None = None
    """The client: producer, consumer or follower."""
    client_ip: str | None = None
    """Its address."""
    client_port: int | None = None
    """Its port."""
    broker_id: int | None = None
    """The broker, if its id is known."""
    broker_ip: str | None = None
    """Its address."""
    broker_port: int | None = None
    """Its port."""
    group_id: str | None = None
    """The group; null for a client whose group is unknown."""
    api: str | None = None
    """The API."""
    api_version: int | None = None
    """Its version."""
    acks: int | None = None
    """Requested with `produced`: 0 none, 1 the leader, -1 all in-sync replicas."""
    attempt: int | None = None
    """Number of this `produced`, from 1; more than one are retries."""
    status: str | None = None
    """What became of the request `produced`, as in the table `exchanges`."""
    matched: str | None = None
    """How it is known that `produced` carried this record: offset (as acknowledged), sequence, or content (key, value
    and time).
    """
    offset: int | None = None
    """Offset that was assigned or committed."""
    error: str | None = None
    """The error of `refused`."""
    deliveries: int | None = None
    """Number of deliveries to a share group by then, as the broker counts."""
    connection_id: int = 0
    """Key of the connection, as in the tables."""
    exchange_id: int = 0
    """Key of the exchange."""
    connection: int | None = None
    """Number of the connection as in `decode`; null for exports and stdin."""
    exchange: int | None = None
    """Number of the exchange, likewise."""


class Consumer(msgspec.Struct, kw_only=True):
    """A group, or a client whose group is unknown, that reads the partition."""

    group_id: str | None
    """The group; null for a client whose group is unknown."""
    client_id: str | None
    """That client; null for a group."""
    client_ip: str | None
    """Its address; null for a group."""
    state: ConsumerState
    """committed: beyond the record; settled: accepted or rejected (share groups); delivered, but no commit beyond it is
    in the capture; not-delivered: its last fetch does not reach it; began-after: all its fetches are beyond it;
    passed-over: it fetched before and beyond it, but no response has it (compacted, deleted, or not captured).
    """
    deliveries: int
    """Number of times that the record was delivered to it."""
    position: int | None
    """The highest offset that it requested; null for share groups."""


class RecordWay(msgspec.Struct, kw_only=True):
    """The way of one record."""

    topic: str | None
    """Name of the topic, or id if the name is unknown."""
    partition: int | None
    """Number of the partition."""
    offset: int | None
    """Offset in the log; null if neither an acknowledgement nor a delivery shows it."""
    key: bytes | None
    """Its key, as in the JSON lines; an object with `length`, and `hash`, if it is hidden."""
    key_decoded: str | None
    """The key as JSON, decoded by its schema; null without one."""
    value_bytes: int | None
    """Size of its value; null if there is none, or if it is hidden."""
    producer_id: int | None
    """As in its batch; -1 for a producer that is not idempotent."""
    producer_epoch: int | None
    """As in its batch."""
    sequence: int | None
    """The producer's number of the record; -1 or null if it has none."""
    trace_ids: list[str]
    """Trace ids in its headers."""
    transactional: bool
    """Whether it is part of a transaction."""
    outcome: Literal["committed", "aborted"] | None
    """How its transaction ended, by the marker in the log or the producer's request; null if that is not in the
    capture.
    """
    marker_offset: int | None
    """Offset of that marker, if it was fetched. Until it is written, read_committed consumers do not get the record."""
    control: str | None
    """Type of a control record, if it is one."""
    steps: list[WayStep]
    """What happened, by time."""
    consumers: list[Consumer]
    """Who reads the partition, and whether it got the record."""
    unknown: list[Unknown]
    """What the capture does not show: producer (no Produce request); acknowledgement (acks 0: there is none); response
    (its acknowledgement); offset; delivery (nobody fetched it by the end); outcome (of its transaction); bodies (the
    export has none, so acknowledgements of share groups are missing); content (payload is hidden, so producers that are
    not idempotent are recognized only by their offset).
    """
