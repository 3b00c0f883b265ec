"""Groups: their members' clients, requests and generations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import TableReading
from kafkasniff.analysis.columns import broker_endpoint, column, in_any, looked_up, only
from kafkasniff.analysis.group_events import HEARTBEATS
from kafkasniff.analysis.overview.section import TEXT, Section, errors_of
from kafkasniff.analysis.partials import Shape

__all__ = ["GENERATION_APIS", "Groups"]

_PROTOCOLS: Final = {**dict.fromkeys(("JoinGroup", "SyncGroup", "LeaveGroup", "Heartbeat"), "classic"), **HEARTBEATS}
_ASKED: Final = ("SyncGroup", "Heartbeat", "OffsetCommit")
"""Their requests contain the generation; in later versions of OffsetCommit it may be a member epoch."""
GENERATION_APIS: Final = (*_PROTOCOLS, "OffsetCommit")
"""APIs whose bodies contain a generation."""

# Fields of fixed shape: a quote within a JSON string is escaped, so nothing else looks like them.
_FIELD: Final = r'"(?:generation_id|generation_id_or_member_epoch|member_epoch)":(?P<number>-?\d{1,10})[,}]'


class Groups(Section):
    """Groups that requests name, each with its generations (member epochs in the newer protocols)."""

    name: ClassVar[str] = "overview-groups"
    summary: ClassVar[str] = "Groups with their clients and generations."

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
        keys = {"cluster": broker_endpoint(batch), "group_id": column(batch, "group_id")}
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
        return pa.Table.from_pylist(rows, schema=_ANSWER)


_ANSWER: Final = pa.schema(
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
