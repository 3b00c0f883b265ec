"""Topics: who produces, who consumes, and how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import TIME, datetimes, matching, table_of
from kafkasniff.analysis.sql.question import SqlQuestion, texts

_APIS: Final = ("Produce", "Fetch", "ShareFetch", "OffsetCommit", "TxnOffsetCommit")
MAX_NAMED: Final = 5
"""Clients and groups that are named for each topic; all are counted."""
_ROLES: Final = {"producer": "producers", "consumer": "consumers", "follower": "followers", "group": "groups"}
"""Parts in the query, and the columns that count them."""
_NAMES: Final = {"producer": "produced_by", "consumer": "consumed_by", "group": "group_ids"}
_SIZES: Final = {"producer": "produced", "consumer": "consumed"}
_SHARED: Final = ("partitions", "first_ns", "last_ns")
_NUMBERS: Final = ("place", "clients", "records", "bytes", *_SHARED)


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
        return {"exchanges": TableReading(own, _APIS)}

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_APIS), "most": str(MAX_NAMED)}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [
            *((name, pa.string()) for name in ("topic", "part_of", "who")),
            *((name, pa.int64()) for name in _NUMBERS),
        ]

    def finish(self, found: pa.Table) -> pa.Table:
        topics: dict[str, dict[str, Any]] = {}
        if self.parameters.topic:
            found = found.filter(matching(found.column("topic"), self.parameters.topic))
        for row in sorted(found.to_pylist(), key=lambda row: (row["topic"], row["place"])):
            name, role = row["topic"], row["part_of"]
            topic = topics.setdefault(name, {"topic": name, **{one: row[one] for one in _SHARED}})
            topic[_ROLES[role]] = row["clients"]
            if role in _NAMES and row["who"] is not None:
                topic.setdefault(_NAMES[role], {})[row["who"]] = None
            if role in _SIZES:
                topic[f"{_SIZES[role]}_records"], topic[f"{_SIZES[role]}_bytes"] = row["records"], row["bytes"]
        counts = [*_ROLES.values(), *(f"{one}_{of}" for one in _SIZES.values() for of in ("records", "bytes"))]
        rows = list(topics.values())
        columns: dict[str, Any] = {
            **{name: [row[name] for row in rows] for name in ("topic", "partitions")},
            **{name: [row.get(name, 0) for row in rows] for name in counts},
            **{name: [list(row.get(name, ())) for row in rows] for name in _NAMES.values()},
            "first": datetimes(pa.array([row["first_ns"] for row in rows], pa.int64())),
            "last": datetimes(pa.array([row["last_ns"] for row in rows], pa.int64())),
        }
        fields = [
            ("topic", pa.string()),
            *((name, pa.int64()) for name in ("partitions", *counts)),
            *((name, pa.list_(pa.string())) for name in _NAMES.values()),
            ("first", TIME),
            ("last", TIME),
        ]
        return table_of(columns, fields, [("topic", "ascending")])
