"""What is asked for: a key, a place, or a trace."""

from __future__ import annotations

import fnmatch
from typing import Final, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import column
from kafkasniff.errors import UsageError

__all__ = ["LogPlace", "Wanted"]

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
            found = pc.equal(column(batch, "key"), pa.scalar(self.key, column(batch, "key").type))
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
