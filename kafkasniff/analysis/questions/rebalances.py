"""Causes of rebalances: generation by generation, who joined, left or was lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, TIME, broker_endpoint, column, datetimes, in_any, only, table_of
from kafkasniff.analysis.group_history import (
    EVENT,
    GROUP_APIS,
    HEARTBEATS,
    Event,
    event_of,
    history,
    refused_heartbeats,
    without_repetitions,
)
from kafkasniff.analysis.partials import Shape

MAX_EVENTS: Final = 1 << 19
"""Maximum number of events of groups that are kept, the earliest."""


class Rebalances(Accumulator[Parameters]):
    """A row for each generation of a group that was seen to begin, with its cause as far as the traffic shows it.

    A loss is known if the leader's list of members was captured, or if a response reports that a member is no longer
    one. Joins and epochs are in bodies: exports with `--no-json` show only joins and leaves.
    """

    name: ClassVar[str] = "rebalances"
    summary: ClassVar[str] = "Rebalances of groups, with members that joined, left or were lost, and why."
    essential: ClassVar[tuple[str, ...]] = ("group_id", "time", "duration_us", "cause")
    columns: ClassVar[Mapping[str, str]] = {
        "time": "time of its trigger: the first join, leave or loss since the previous generation",
        "protocol": "classic (JoinGroup); consumer, share, streams (heartbeats: KIP-848, KIP-932, KIP-1071)",
        "generation": "generation, or member epoch; null if members left and no member received a new one",
        "duration_us": (
            "from `time` to the last member's assignment (classic) or the first member that received the epoch"
        ),
        "members": "number of members; null if the capture lacks the list sent to the leader",
        "joined": "ids of new members",
        "left": "ids of members that left explicitly",
        "lost": "ids of members that disappeared: their session or poll interval timed out, or they were killed",
        "cause": "description of the above, by client id, with the reasons that members sent (KIP-800)",
    }

    def reads(self) -> Mapping[str, TableReading]:
        own = ("client_id", "client_ip", "group_id", "member_id", "error_code", "status", "duration_us")
        more = ("broker_ip", "broker_port", "request_body", "response_body")
        return {"exchanges": TableReading(("api", *ORDER, *own, *more), GROUP_APIS)}

    def shapes(self) -> Mapping[str, Shape]:
        measures: Any = tuple((name, kind, "first") for name, kind in EVENT)
        return {"events": Shape(keys=(), measures=measures, order=ORDER, keep="earliest", bound=MAX_EVENTS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", GROUP_APIS), pc.is_valid(column(batch, "group_id"))))
        # Most heartbeats of the classic protocol contain nothing new.
        beats = in_any(batch, "api", ["Heartbeat"])
        refused = pc.not_equal(pc.fill_null(column(batch, "error_code"), 0), 0)
        self.parts["events"].add(refused_heartbeats(only(batch, pc.and_(beats, refused))))
        batch = only(batch, pc.invert(beats))
        names = (*next(iter(self.reads().values())).columns, "broker")
        batch = batch.append_column("broker", broker_endpoint(batch))
        rows = zip(*(column(batch, name).to_pylist() for name in names), strict=True)
        events = [event for row in rows if (event := event_of(dict(zip(names, row, strict=True)))) is not None]
        columns = {name: pa.array([getattr(event, name) for event in events], kind) for name, kind in EVENT}
        self.parts["events"].add(columns)

    def events(self) -> list[dict[str, Any]]:
        """Events by column, each with its `cluster` where there are several; in no order."""
        return self._rows(self.parts["events"].table())

    def _rows(self, events: pa.Table) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = events.to_pylist()
        return [{**row, "cluster": self.clusters.group(row["cluster"])} for row in rows]

    def generations(self) -> list[dict[str, Any]]:
        """Rows of the answer, each with its `cluster`, and times in nanoseconds (`time_ns`)."""
        by_group: dict[tuple[str | None, str, str], list[Event]] = {}
        for row in self._rows(without_repetitions(self.parts["events"].table())):
            event = Event(**row)
            key = (event.cluster, event.group_id, HEARTBEATS.get(event.api, "classic"))
            by_group.setdefault(key, []).append(event)
        rows = []
        for (cluster, group, protocol), events in by_group.items():
            shared = {"cluster": cluster, "group_id": group, "protocol": protocol}
            rows += [{**shared, **row} for row in history(protocol, events)]
        rows.sort(key=_order)
        return rows

    def result(self) -> pa.Table:
        rows = self.generations()
        fields = [
            ("group_id", pa.string()),
            ("time", TIME),
            ("protocol", pa.string()),
            ("generation", pa.int64()),
            ("duration_us", pa.int64()),
            ("members", pa.int64()),
            *((name, pa.list_(pa.field("element", pa.string()))) for name in ("joined", "left", "lost")),
            ("cause", pa.string()),
        ]
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name, _ in fields}
        columns["time"] = datetimes(pa.array([row["time_ns"] for row in rows], pa.int64()))
        return table_of(columns, fields)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["group_id"], row["time_ns"] is None, row["time_ns"] or 0, row["protocol"], row["cluster"] or "")
