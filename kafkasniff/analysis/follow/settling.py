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
from kafkasniff.analysis.share_bodies import SHARE_APIS, OffsetRange, ShareBody, SharePart, topic_names

__all__ = ["BODIES", "ENDS", "EndedTransaction", "ShareBodies", "ended", "share_bodies"]

BODIES: Final = ("request_body", "response_body", "error_code")
ENDS: Final = ("EndTxn",)


class _EndTxn(msgspec.Struct):
    """A request."""

    producer_id: int | None = None
    producer_epoch: int | None = None
    committed: bool | None = None


_END_TXN: Final = msgspec.json.Decoder(_EndTxn)


class EndedTransaction(NamedTuple):
    """A transaction that its producer ended."""

    facts: ExchangeFacts
    producer_id: int | None
    producer_epoch: int | None
    committed: bool


class ShareBodies(NamedTuple):
    """What a ShareFetch or ShareAcknowledge says of offsets."""

    facts: ExchangeFacts
    acknowledged: Mapping[Partition, list[OffsetRange]]
    acquired: Mapping[Partition, list[OffsetRange]] | None
    """None if that is unknown."""


def ended(export: Export) -> Iterator[EndedTransaction]:
    """Successful EndTxn exchanges with bodies. Raises CaptureError, UsageError."""
    for rows in _successful(export, ENDS):
        for facts, body in zip(exchanges_of(rows), column(rows, "request_body").to_pylist(), strict=True):
            request = _end_txn(body)
            if request.committed is not None:
                yield EndedTransaction(facts, request.producer_id, request.producer_epoch, request.committed)


def share_bodies(export: Export) -> Iterator[ShareBodies]:
    """Successful exchanges of share groups with bodies. Raises CaptureError, UsageError."""
    names = ("partitions", "request_body", "response_body")
    for rows in _successful(export, SHARE_APIS):
        columns = (column(rows, name).to_pylist() for name in names)
        for facts, partitions, request, response in zip(exchanges_of(rows), *columns, strict=True):
            topics = topic_names(partitions)
            is_fetch = facts.api == "ShareFetch"
            answers = _by_place(ShareBody.decode(response), topics)
            refused = {
                place
                for place, part in answers.items()
                if (part.acknowledge_error_code if is_fetch else part.error_code)
            }
            asked = _by_place(ShareBody.decode(request), topics)
            yield ShareBodies(
                facts,
                {place: part.acknowledgement_batches for place, part in asked.items() if place not in refused},
                None
                if response is None or not is_fetch
                else {place: one.acquired_records for place, one in answers.items()},
            )


def _successful(export: Export, apis: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    for batch in export.batches("exchanges", TableReading((*PARTITIONED, *BODIES), apis)):
        fine = pc.and_(pc.equal(column(batch, "status"), "answered"), pc.equal(column(batch, "error_code"), 0))
        yield only(batch, pc.and_(fine, has_keys(batch)))


def _end_txn(text: str | None) -> _EndTxn:
    """A request as in the table; an empty one if there is none, or another program has written it."""
    try:
        return _EndTxn() if text is None else _END_TXN.decode(text)
    except msgspec.DecodeError:
        return _EndTxn()


def _by_place(body: ShareBody, names: Mapping[str | None, str | None]) -> dict[Partition, SharePart]:
    return {(topic, part.partition_index): part for topic, part in body.parts(names)}
