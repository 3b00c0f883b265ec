"""What only bodies say: how transactions end, and what members of share groups do with records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import column, only
from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow.facts import PARTITIONED, ExchangeFacts, exchanges_of
from kafkasniff.analysis.follow.record_rows import Partition, has_keys

__all__ = ["BODIES", "ENDS", "SHARES", "EndedTransaction", "Range", "ShareBodies", "ended", "share_bodies"]

BODIES: Final = ("request_body", "response_body", "error_code")
ENDS: Final = ("EndTxn",)
SHARES: Final = ("ShareFetch", "ShareAcknowledge")


class Range(msgspec.Struct, frozen=True):
    """A range of offsets that a member acquired or acknowledges."""

    first_offset: int = 0
    last_offset: int = -1
    delivery_count: int | None = None
    acknowledge_types: list[int] = []
    """The type of each, or of all."""

    def __contains__(self, offset: int) -> bool:
        return self.first_offset <= offset <= self.last_offset

    def type_of(self, offset: int) -> int | None:
        """How an offset in the range is acknowledged; None if that is not given."""
        place = 0 if len(self.acknowledge_types) == 1 else offset - self.first_offset
        return self.acknowledge_types[place] if place < len(self.acknowledge_types) else None


class _Part(msgspec.Struct):
    partition_index: int | None = None
    error_code: int = 0
    acknowledge_error_code: int = 0
    acquired_records: list[Range] = []
    acknowledgement_batches: list[Range] = []


class _Topic(msgspec.Struct):
    topic_id: str | None = None
    partitions: list[_Part] = []


class _Body(msgspec.Struct):
    """Requests and responses of all these APIs."""

    topics: list[_Topic] = []
    responses: list[_Topic] = []
    producer_id: int | None = None
    producer_epoch: int | None = None
    committed: bool | None = None


_DECODER: Final = msgspec.json.Decoder(_Body)


class EndedTransaction(NamedTuple):
    """A transaction that its producer ended."""

    facts: ExchangeFacts
    producer_id: int | None
    producer_epoch: int | None
    committed: bool


class ShareBodies(NamedTuple):
    """What a ShareFetch or ShareAcknowledge says of offsets."""

    facts: ExchangeFacts
    acknowledged: Mapping[Partition, list[Range]]
    acquired: Mapping[Partition, list[Range]] | None
    """None if that is unknown."""


def ended(export: Export) -> Iterator[EndedTransaction]:
    """Successful EndTxn exchanges with bodies. Raises CaptureError, UsageError."""
    for facts, _, request, _ in _bodies(export, ENDS):
        if request is not None and request.committed is not None:
            yield EndedTransaction(facts, request.producer_id, request.producer_epoch, request.committed)


def share_bodies(export: Export) -> Iterator[ShareBodies]:
    """Successful exchanges of share groups with bodies. Raises CaptureError, UsageError."""
    for facts, topics, request, response in _bodies(export, SHARES):
        is_fetch = facts.api == "ShareFetch"
        answers = {} if response is None else _parts(response.responses, topics)
        refused = {
            place for place, part in answers.items() if (part.acknowledge_error_code if is_fetch else part.error_code)
        }
        asked = {} if request is None else _parts(request.topics, topics)
        yield ShareBodies(
            facts,
            {place: part.acknowledgement_batches for place, part in asked.items() if place not in refused},
            None
            if response is None or not is_fetch
            else {place: one.acquired_records for place, one in answers.items()},
        )


def _bodies(
    export: Export, apis: tuple[str, ...]
) -> Iterator[tuple[ExchangeFacts, dict[str | None, str | None], _Body | None, _Body | None]]:
    """Successful exchanges, the names of topic ids in them, and both bodies."""
    for batch in export.batches("exchanges", TableReading((*PARTITIONED, *BODIES), apis)):
        fine = pc.and_(pc.equal(column(batch, "status"), "answered"), pc.equal(column(batch, "error_code"), 0))
        rows = only(batch, pc.and_(fine, has_keys(batch)))
        bodies = (map(_decoded, column(rows, name).to_pylist()) for name in ("request_body", "response_body"))
        yield from zip(exchanges_of(rows), _names(rows), *bodies, strict=True)


def _names(rows: pa.RecordBatch) -> Iterator[dict[str | None, str | None]]:
    for parts in column(rows, "partitions").to_pylist():
        yield {one["topic_id"]: one["topic"] for one in parts or () if one["topic"] is not None}


def _decoded(text: str | None) -> _Body | None:
    """A body as in the table; None if there is none, or another program has written it."""
    if text is None:
        return None
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError:
        return None


def _parts(topics: list[_Topic], names: Mapping[str | None, str | None]) -> dict[Partition, _Part]:
    return {
        (names.get(topic.topic_id, topic.topic_id), part.partition_index): part
        for topic in topics
        for part in topic.partitions
    }
