"""Share groups: records that they acquired, and how members acknowledged them (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, in_any, only, table_of
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

_KEYS: Final[Any] = (("group_id", pa.string()), ("topic", pa.string()))
_TYPES: Final = {"accepted": ACCEPT, "released": RELEASE, "rejected": REJECT, "renewed": RENEW}
_SUMS: Final = ("acquired", "redelivered", *_TYPES)


class Share(Accumulator[Parameters]):
    """Records that each share group acquired and acknowledged, by topic: one that comes twice counts twice.

    The broker archives a rejected record, and one that was released or not acknowledged in time after
    `group.share.delivery.attempt.limit` deliveries (5): compare `most_deliveries`. Only answered exchanges count, and
    no partitions with an error. Everything is in bodies: exports with `--no-json` have no answer.
    """

    name: ClassVar[str] = "share"
    summary: ClassVar[str] = "Share groups: records acquired, accepted, released, rejected."
    essential: ClassVar[tuple[str, ...]] = ("group_id", "topic", *_SUMS, "most_deliveries")
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
        sums: Any = tuple((name, pa.int64(), "sum") for name in _SUMS)
        return {"records": Shape(_KEYS, (*sums, ("most_deliveries", pa.int64(), "max")), weight="acquired")}

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
        columns = {name: [counts.get(name, 0) for _, _, counts in found] for name in (*_SUMS, "most_deliveries")}
        groups, topics_ = ([one[place] for one in found] for place in range(2))
        self.parts["records"].add({"group_id": groups, "topic": topics_, **columns})

    def result(self) -> pa.Table:
        table = self.parts["records"].table()
        columns = {name: table.column(name) for name in table.column_names}
        fields = [*_KEYS, *((name, pa.int64()) for name in (*_SUMS, "most_deliveries"))]
        return table_of(columns, fields, [(name, "ascending") for name, _ in _KEYS])


def _error(api: str | None, part: SharePart) -> int:
    """The error code of what a request acknowledges."""
    return part.acknowledge_error_code if api == "ShareFetch" else part.error_code


def _acquired(part: SharePart) -> dict[str, int]:
    ranges = [(one.size, one.delivery_count or 1) for one in part.acquired_records]
    return {
        "acquired": sum(size for size, _ in ranges),
        "redelivered": sum(size for size, deliveries in ranges if deliveries > 1),
        "most_deliveries": max((deliveries for _, deliveries in ranges), default=0),
    }


def _acknowledged(part: SharePart) -> dict[str, int]:
    return {name: sum(one.count_of(kind) for one in part.acknowledgement_batches) for name, kind in _TYPES.items()}
