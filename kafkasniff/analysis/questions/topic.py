"""Producers and consumers of each topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import TIME, datetimes, matching, table_of
from kafkasniff.analysis.group_history import MEMBER_APIS
from kafkasniff.analysis.sql.question import SqlQuestion, texts

_APIS: Final = ("Produce", "Fetch", "ShareFetch")
_CLIENT: Final = ("client_id", "client_ip", "software_name", "software_version")
_NUMBERS: Final = ("exchanges", "records", "bytes", "partitions")


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
        return {"exchanges": TableReading(own, tuple(dict.fromkeys([*_APIS, *MEMBER_APIS])))}

    def pieces(self) -> dict[str, str]:
        return {"apis": texts(_APIS), "client": ", ".join(_CLIENT)}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [
            *((name, pa.string()) for name in ("topic", "role", *_CLIENT, "group_id")),
            *((name, pa.int64()) for name in (*_NUMBERS, "first_ns", "last_ns")),
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
            *((name, pa.int64()) for name in _NUMBERS),
            ("first", TIME),
            ("last", TIME),
        ]
        return table_of(columns, fields, [(name, "ascending") for name in ("topic", "role", *_CLIENT)])
