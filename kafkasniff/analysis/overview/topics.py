"""Topics with their data, record sizes and compression; groups with their clients, requests and generations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import brokers, column, exploded, in_any, is_follower, looked_up, only, record_bytes
from kafkasniff.analysis.group_history import HEARTBEATS
from kafkasniff.analysis.overview.counts import TEXT, errors_of, folded, topic_names, where
from kafkasniff.analysis.partials import Partials, Shape
from kafkasniff.analysis.percentiles import distribution_rows, distribution_shape, distributions

FLOWS: Final = ("produced", "fetched", "replicated")
"""By producers; by consumers; by brokers that follow a leader."""
_APIS: Final = ("Produce", "Fetch", "ShareFetch")
_QUANTILES: Final = {"record_bytes_p50": 0.5, "record_bytes_p99": 0.99}
_SUMS: Final = ("records", "batches", "bytes")
_TOPIC: Final = (("topic", TEXT), ("topic_id", TEXT))
_CLUSTER: Final = (("cluster", TEXT),)
"""Endpoints of brokers, until their clusters are known."""
_BROKER: Final = ("broker_ip", "broker_port")


class Topics(Accumulator[Parameters]):
    """Topics with records, batches and bytes by `FLOWS`, sizes of their records, codecs, and compression ratios.

    Bytes are those of batches on the wire. `record_bytes_…` are those of key, value and headers before compression, of
    every captured record except control records; null without the table `records`. `compression_ratio` is the size of
    batches before compression divided by that on the wire, if both are known. Topics of the same name in two clusters
    are two; their record sizes are null, since records do not show their broker.
    """

    name: ClassVar[str] = "overview-topics"

    def reads(self) -> Mapping[str, TableReading]:
        return {
            "exchanges": TableReading(("api", "client_id", *_BROKER, "partitions"), _APIS),
            "records": TableReading(("topic", "topic_id", "key", "value", "headers", "control"), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("flow", TEXT), *_CLUSTER, *_TOPIC, ("compression", TEXT))
        names = (*_SUMS, "exchanges", "plain_bytes", "packed_bytes")
        measures: Any = tuple((name, pa.int64(), "sum") for name in names)
        return {
            "traffic": Shape(keys=keys, measures=measures, weight="exchanges"),
            "partitions": Shape(keys=(*_CLUSTER, *_TOPIC, ("partition", pa.int32()))),
            "sizes": distribution_shape(_TOPIC),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "records":
            batch = only(batch, pc.is_null(column(batch, "control")))
            keys = {name: column(batch, name) for name, _ in _TOPIC}
            self.parts["sizes"].add(distribution_rows(keys, record_bytes(batch)))
            return
        batch = only(batch, in_any(batch, "api", _APIS))
        parts = exploded(batch, ["api", "client_id", *_BROKER])
        follower = is_follower(column(parts, "client_id"))
        flow = pc.if_else(in_any(parts, "api", ["Produce"]), FLOWS[0], pc.if_else(follower, FLOWS[2], FLOWS[1]))
        keys = {"cluster": brokers(parts), **{name: column(parts, name) for name, _ in _TOPIC}}
        size, plain = column(parts, "bytes"), column(parts, "uncompressed_bytes")
        both = pc.and_(pc.is_valid(size), pc.is_valid(plain))
        self.parts["traffic"].add(
            {
                "flow": flow,
                **keys,
                "compression": column(parts, "compression"),
                "records": pc.fill_null(column(parts, "record_count"), 0),
                "batches": pc.fill_null(column(parts, "batch_count"), 0),
                "bytes": pc.fill_null(size, 0),
                "exchanges": np.ones(parts.num_rows, np.int64),
                "plain_bytes": where(both, plain),
                "packed_bytes": where(both, size),
            }
        )
        self.parts["partitions"].add({**keys, "partition": column(parts, "partition")})

    def result(self) -> pa.Table:
        traffic = topic_names(self.clusters.folded(self.parts["traffic"]), self.names)
        numbers = topic_names(self.clusters.folded(self.parts["partitions"]), self.names)
        numbers = numbers.group_by(["cluster", "topic", "partition"]).aggregate([])
        numbers = numbers.group_by(["cluster", "topic"]).aggregate([([], "count_all")])
        counts = {(row["cluster"], row["topic"]): row["count_all"] for row in numbers.to_pylist()}
        found: dict[tuple[str | None, str | None], dict[str, Any]] = {}
        sums: Any = dict.fromkeys((*_SUMS, "exchanges", "plain_bytes", "packed_bytes"), "sum")
        for row in folded(traffic, ["cluster", "topic", "flow", "compression"], sums).to_pylist():
            topic = found.setdefault(
                (row["cluster"], row["topic"]), {"codecs": set(), "plain": 0, "packed": 0, "bytes": 0}
            )
            for name in _SUMS:
                key = f"{row['flow']}_{name}"
                topic[key] = topic.get(key, 0) + row[name]
            topic["bytes"] += row["bytes"]
            topic["plain"] += row["plain_bytes"]
            topic["packed"] += row["packed_bytes"]
            if row["compression"] is not None and row["batches"]:
                topic["codecs"].add(row["compression"])
        sizes = self._sizes()
        often = Counter(name for _, name in found)
        rows = [
            {
                "topic": name,
                "cluster": cluster,
                "partitions": counts.get((cluster, name), 0),
                **{f"{flow}_{one}": topic.get(f"{flow}_{one}", 0) for flow in FLOWS for one in _SUMS},
                "bytes": topic["bytes"],
                "compression": sorted(topic["codecs"]),
                "compression_ratio": topic["plain"] / topic["packed"] if topic["packed"] else None,
                **(sizes.get(name, {}) if often[name] == 1 else {}),
            }
            for (cluster, name), topic in found.items()
        ]
        rows.sort(key=lambda row: (-row["bytes"], row["topic"] is None, row["topic"] or "", row["cluster"] or ""))
        return pa.Table.from_pylist(rows, schema=_ANSWER)

    def _sizes(self) -> dict[str | None, dict[str, int]]:
        """Sizes of records by topic."""
        named = topic_names(self.parts["sizes"].table(), self.names)
        part = Partials(distribution_shape((("topic", TEXT),)))
        part.add({name: named.column(name) for name in named.schema.names})
        keys, found = distributions(part, ["topic"], _QUANTILES)
        columns = [found["high"], *(found[name] for name in _QUANTILES), found["total"], found["count"]]
        rows = zip(keys.column("topic").to_pylist(), *(one.to_pylist() for one in columns), strict=True)
        return {
            topic: {
                "record_bytes_p50": p50,
                "record_bytes_p99": p99,
                "record_bytes_max": high,
                "record_bytes_mean": total / count,
            }
            for topic, high, p50, p99, total, count in rows
        }


_ANSWER: Final = pa.schema(
    [
        ("topic", TEXT),
        ("cluster", TEXT),
        ("partitions", pa.int64()),
        *((f"{flow}_{one}", pa.int64()) for flow in FLOWS for one in _SUMS),
        ("bytes", pa.int64()),
        ("compression", pa.list_(TEXT)),
        ("compression_ratio", pa.float64()),
        *((f"record_bytes_{one}", pa.int64()) for one in ("p50", "p99", "max")),
        ("record_bytes_mean", pa.float64()),
    ]
)


_PROTOCOLS: Final = {**dict.fromkeys(("JoinGroup", "SyncGroup", "LeaveGroup", "Heartbeat"), "classic"), **HEARTBEATS}
_ASKED: Final = ("SyncGroup", "Heartbeat", "OffsetCommit")
"""Their requests contain the generation; in later versions of OffsetCommit it may be a member epoch."""
GENERATION_APIS: Final = (*_PROTOCOLS, "OffsetCommit")
"""APIs whose bodies contain a generation."""

# Fields of fixed shape: a quote within a JSON string is escaped, so nothing else looks like them.
_FIELD: Final = r'"(?:generation_id|generation_id_or_member_epoch|member_epoch)":(?P<number>-?\d{1,10})[,}]'


class Groups(Accumulator[Parameters]):
    """Groups that requests name, each with its generations (member epochs in the newer protocols)."""

    name: ClassVar[str] = "overview-groups"

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "time_ns", "client_id", "client_ip", "broker_ip", "broker_port", "group_id")
        return {"exchanges": TableReading((*own, "error_count", "request_body", "response_body"))}

    def shapes(self) -> Mapping[str, Shape]:
        sums: Any = tuple((name, pa.int64(), "sum") for name in ("requests", "errors", "with_errors"))
        bounds: Any = tuple(
            (name, pa.int64(), how)
            for name, how in (
                ("generation_first", "min"),
                ("generation_last", "max"),
                ("first", "min"),
                ("last", "max"),
            )
        )
        group = (("cluster", TEXT), ("group_id", TEXT))
        return {
            "groups": Shape(keys=(*group, ("protocol", TEXT)), measures=(*sums, *bounds), weight="requests"),
            "clients": Shape(keys=(*group, ("client_id", TEXT), ("client_ip", TEXT))),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.is_valid(column(batch, "group_id")))
        text = pc.if_else(
            in_any(batch, "api", _ASKED),
            column(batch, "request_body"),
            pc.if_else(in_any(batch, "api", GENERATION_APIS), column(batch, "response_body"), pa.scalar(None, TEXT)),
        )
        number = pc.struct_field(pc.extract_regex(text, _FIELD), "number").cast(pa.int64())
        # -1 is not a generation: the sender is not a member, or no longer one.
        number = pc.if_else(pc.greater_equal(number, 0), number, pa.scalar(None, pa.int64()))
        time = column(batch, "time_ns")
        # Endpoints of brokers, until their clusters are known.
        keys = {"cluster": brokers(batch), "group_id": column(batch, "group_id")}
        self.parts["groups"].add(
            {
                **keys,
                "protocol": looked_up(batch, "api", _PROTOCOLS.get, TEXT),
                "requests": pa.array([1] * batch.num_rows, pa.int64()),
                **errors_of(batch),
                "generation_first": number,
                "generation_last": number,
                "first": time,
                "last": time,
            }
        )
        self.parts["clients"].add({**keys, **{name: column(batch, name) for name in ("client_id", "client_ip")}})

    def result(self) -> pa.Table:
        clients = self.clusters.folded(self.parts["clients"]).to_pylist()
        counts = Counter((row["cluster"], row["group_id"]) for row in clients)
        found: dict[tuple[str | None, str], dict[str, Any]] = {}
        for row in self.clusters.folded(self.parts["groups"]).to_pylist():
            group = found.setdefault((row["cluster"], row["group_id"]), {"protocols": set()})
            if row["protocol"] is not None:
                group["protocols"].add(row["protocol"])
            for name in ("requests", "errors", "with_errors"):
                group[name] = group.get(name, 0) + row[name]
            for name, choose in (("generation_first", min), ("generation_last", max), ("first", min), ("last", max)):
                numbers = [one for one in (group.get(name), row[name]) if one is not None]
                group[name] = choose(numbers) if numbers else None
        rows = [
            {
                **group,
                "group_id": name,
                "cluster": cluster,
                "protocols": sorted(group["protocols"]),
                "clients": counts[cluster, name],
            }
            for (cluster, name), group in found.items()
        ]
        rows.sort(key=lambda row: (-row["requests"], row["group_id"], row["cluster"] or ""))
        return pa.Table.from_pylist(rows, schema=_GROUPS)


_GROUPS: Final = pa.schema(
    [
        ("group_id", TEXT),
        ("cluster", TEXT),
        ("protocols", pa.list_(TEXT)),
        *(
            (name, pa.int64())
            for name in ("clients", "requests", "errors", "with_errors", "generation_first", "generation_last")
        ),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
