"""Producers and consumers of each topic."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    TIME,
    column,
    datetimes,
    exploded,
    in_any,
    is_follower,
    named,
    only,
    per_topic,
    table_of,
)
from kafkasniff.analysis.members import MEMBER_APIS, MEMBER_SHAPE, groups_by_client, member_rows
from kafkasniff.analysis.partials import Shape

__all__ = ["Topic", "TopicParameters"]

_ROLES: Final = {"Produce": "producer", "Fetch": "consumer", "ShareFetch": "consumer"}
_CLIENT: Final = ("client_id", "client_ip", "software_name", "software_version")


class TopicParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Topic`."""

    topic: Annotated[tuple[str, ...], Meta(description="Only these topics; *, ? and [] match.")] = ()


class Topic(Accumulator[TopicParameters]):
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
        own = ("api", "time_ns", *_CLIENT, "group_id", "topics", "partitions")
        return {"exchanges": TableReading(own, tuple(dict.fromkeys([*_ROLES, *MEMBER_APIS])))}

    def shapes(self) -> Mapping[str, Shape]:
        text: Any = tuple((name, pa.string()) for name in ("topic", "role", *_CLIENT))
        measures: Any = (
            *((name, pa.int64(), "sum") for name in ("exchanges", "records", "bytes")),
            ("first", pa.int64(), "min"),
            ("last", pa.int64(), "max"),
        )
        return {
            "clients": Shape(keys=text, measures=measures, weight="exchanges"),
            "partitions": Shape(keys=(*text, ("partition", pa.int32()))),
            "members": MEMBER_SHAPE,
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.parts["members"].add(member_rows(batch))
        batch = only(batch, in_any(batch, "api", _ROLES))
        role = pc.if_else(pc.equal(column(batch, "api"), "Produce"), "producer", "consumer")
        role = pc.if_else(
            pc.and_(pc.equal(role, "consumer"), is_follower(column(batch, "client_id"))), "follower", role
        )
        batch = batch.append_column("role", role)
        rows = per_topic(batch)
        rows = rows.filter(self._wanted(rows.column("topic")))
        # Without the lists, which would be copied for each topic.
        talks = batch.select(["time_ns", "role", *_CLIENT]).take(rows.column("row").combine_chunks())
        times = column(talks, "time_ns")
        self.parts["clients"].add(
            {
                "topic": rows.column("topic"),
                **{name: column(talks, name) for name in ("role", *_CLIENT)},
                "exchanges": np.ones(rows.num_rows, np.int64),
                "records": rows.column("record_count"),
                "bytes": rows.column("bytes"),
                "first": times,
                "last": times,
            }
        )
        each = named(exploded(batch, ["role", *_CLIENT]))
        each = only(each, self._wanted(column(each, "topic")))
        self.parts["partitions"].add({name: column(each, name) for name in ("topic", "role", *_CLIENT, "partition")})

    def _wanted(self, topics: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        patterns = self.parameters.topic
        names = pc.unique(topics).to_pylist()
        wanted = [
            name
            for name in names
            if not patterns or any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        ]
        return pc.is_in(topics, value_set=pa.array(wanted, pa.string()))

    def result(self) -> pa.Table:
        names = ["topic", "role", *_CLIENT]
        table = self.parts["clients"].table()
        partitions = self.parts["partitions"].table().group_by(names).aggregate([([], "count_all")])
        counted = {tuple(row[name] for name in names): row["count_all"] for row in partitions.to_pylist()}
        groups = groups_by_client(self.parts["members"])
        rows = table.to_pylist()
        columns: dict[str, Any] = {name: table.column(name) for name in (*names, "exchanges", "records", "bytes")}
        columns["group_id"] = [
            groups.get((row["client_id"], row["client_ip"])) if row["role"] == "consumer" else None for row in rows
        ]
        columns["partitions"] = [counted.get(tuple(row[name] for name in names), 0) for row in rows]
        columns["first"], columns["last"] = datetimes(table.column("first")), datetimes(table.column("last"))
        fields = [
            ("topic", pa.string()),
            ("role", pa.string()),
            ("client_id", pa.string()),
            ("client_ip", pa.string()),
            ("group_id", pa.string()),
            ("software_name", pa.string()),
            ("software_version", pa.string()),
            *((name, pa.int64()) for name in ("exchanges", "records", "bytes", "partitions")),
            ("first", TIME),
            ("last", TIME),
        ]
        return table_of(columns, fields, [(name, "ascending") for name in names])
