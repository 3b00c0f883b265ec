"""Consumer lag, as far as the traffic shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    ORDER,
    TIME,
    column,
    datetimes,
    exploded,
    in_any,
    is_follower,
    named,
    only,
    order_columns,
    table_of,
)
from kafkasniff.analysis.members import MEMBER_APIS, MEMBER_SHAPE, groups_by_client, member_rows
from kafkasniff.analysis.partials import Shape

__all__ = ["Lag", "LagParameters"]

_COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit", "OffsetFetch")
_PARTITION: Final[Any] = (("topic", pa.string()), ("partition", pa.int32()))
_CLIENT: Final[Any] = (("client_id", pa.string()), ("client_ip", pa.string()))
_ORDER: Final[Any] = tuple((name, pa.int64(), "last") for name in ORDER)


class LagParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Lag`."""

    at_least: Annotated[
        int, Meta(ge=0, description="Show only rows with a known lag of at least this many records.")
    ] = 0


class Lag(Accumulator[LagParameters]):
    """For each group, topic and partition: the last committed and fetched offsets, and the end of the log.

    A Fetch names no group: it counts for the group that the same client names in other requests, otherwise it has a row
    without a group. Brokers that replicate are skipped. Share groups have no offsets on the wire. Events before the
    capture, or on other paths, are unknown.
    """

    name: ClassVar[str] = "lag"
    summary: ClassVar[str] = "Consumer lag per group, topic and partition, from commits, fetches and watermarks."
    essential: ClassVar[tuple[str, ...]] = ("group_id", "topic", "partition", "commit_lag", "fetch_lag", "client_id")
    columns: ClassVar[Mapping[str, str]] = {
        "client_id": "the client that fetched last",
        "committed_offset": (
            "the last one in a successful OffsetCommit or TxnOffsetCommit, or in an OffsetFetch response"
        ),
        "fetched_offset": "the last one that a Fetch requested: everything before it was received",
        "high_watermark": "the last one in a Fetch response to any client",
        "log_end_offset": "one past the last record acknowledged by a Produce response; unknown with acks 0",
        "commit_lag": "from `committed_offset` to the end: the higher of `high_watermark` and `log_end_offset`",
        "fetch_lag": "from `fetched_offset` to the end; 0 if it is past the last known end",
        "max_fetch_lag": "largest distance from a Fetch to the watermark in its response",
        "committed_at": "time at which `committed_offset` was seen",
        "fetched_at": "time at which `fetched_offset` was seen",
        "watermark_at": "time at which `high_watermark` was seen",
    }
    parameters_type = LagParameters

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *ORDER, "client_id", "client_ip", "group_id", "partitions")
        return {"exchanges": TableReading(own, tuple(dict.fromkeys(["Produce", "Fetch", *_COMMITS, *MEMBER_APIS])))}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        return {
            "ends": Shape(keys=_PARTITION, measures=(*_ORDER, ("high_watermark", number, "last")), order=ORDER),
            "produced": Shape(keys=_PARTITION, measures=(("log_end_offset", number, "max"),)),
            "commits": Shape(
                keys=(("group_id", pa.string()), *_PARTITION),
                measures=(*_ORDER, ("offset", number, "last")),
                order=ORDER,
            ),
            "fetches": Shape(keys=(*_CLIENT, *_PARTITION), measures=(*_ORDER, ("offset", number, "last")), order=ORDER),
            "furthest": Shape(keys=(*_CLIENT, *_PARTITION), measures=(("max_lag", number, "max"),)),
            "members": MEMBER_SHAPE,
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.parts["members"].add(member_rows(batch))
        rows = named(exploded(batch, ["api", *ORDER, "client_id", "client_ip", "group_id"]))
        fine = pc.equal(column(rows, "error_code"), 0)
        offset, watermark = column(rows, "offset"), column(rows, "high_watermark")
        fetch = in_any(rows, "api", ["Fetch"])
        self._add("ends", only(rows, pc.and_(fetch, pc.and_(fine, pc.greater_equal(watermark, 0)))), ["high_watermark"])
        self._committed(only(rows, pc.and_(in_any(rows, "api", _COMMITS), pc.and_(fine, pc.greater_equal(offset, 0)))))
        self._produced(
            only(rows, pc.and_(in_any(rows, "api", ["Produce"]), pc.and_(fine, pc.greater_equal(offset, 0))))
        )
        consumers = pc.and_(fetch, pc.invert(is_follower(column(rows, "client_id"))))
        asked = only(rows, pc.and_(consumers, pc.greater_equal(offset, 0)))
        self._add("fetches", asked, ["offset"])
        answered = only(asked, pc.greater_equal(column(asked, "high_watermark"), column(asked, "offset")))
        lag = pc.subtract(column(answered, "high_watermark"), column(answered, "offset"))
        keys = {name: column(answered, name) for name, _ in (*_CLIENT, *_PARTITION)}
        self.parts["furthest"].add({**keys, "max_lag": lag})

    def _add(self, part: str, rows: pa.RecordBatch, measures: list[str]) -> None:
        names = [name for name, _ in self.parts[part].shape.keys]
        values = {name: column(rows, name) for name in (*names, *measures)}
        self.parts[part].add({**order_columns(rows), **values})

    def _committed(self, rows: pa.RecordBatch) -> None:
        # A request for several groups (OffsetFetch v8) does not show here which partition belongs to which.
        self._add("commits", only(rows, pc.is_valid(column(rows, "group_id"))), ["offset"])

    def _produced(self, rows: pa.RecordBatch) -> None:
        end = pc.add(column(rows, "offset"), column(rows, "record_count"))
        self.parts["produced"].add({**{name: column(rows, name) for name, _ in _PARTITION}, "log_end_offset": end})

    def result(self) -> pa.Table:
        rows = sorted(self._rows(), key=_key)
        at_least = self.parameters.at_least
        if at_least:
            rows = [row for row in rows if max(row["commit_lag"] or 0, row["fetch_lag"] or 0) >= at_least]
        text: Any = [("group_id", pa.string()), *_PARTITION, *_CLIENT]
        numbers = ("committed_offset", "fetched_offset", "high_watermark", "log_end_offset")
        lags = ("commit_lag", "fetch_lag", "max_fetch_lag")
        fields = [
            *text,
            *((name, pa.int64()) for name in (*numbers, *lags)),
            *((name, TIME) for name in ("committed_at", "fetched_at", "watermark_at")),
        ]
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name, _ in fields}
        for name in ("committed_at", "fetched_at", "watermark_at"):
            columns[name] = datetimes(pa.array(columns[name], pa.int64()))
        return table_of(columns, fields)

    def _rows(self) -> Iterator[dict[str, Any]]:
        def by_key(part: str) -> dict[tuple[Any, ...], dict[str, Any]]:
            names = [name for name, _ in self.parts[part].shape.keys]
            return {tuple(row[name] for name in names): row for row in self.parts[part].table().to_pylist()}

        ends, produced, commits = by_key("ends"), by_key("produced"), by_key("commits")
        fetches, furthest = by_key("fetches"), by_key("furthest")
        groups = groups_by_client(self.parts["members"])
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for (group, *partition), commit in commits.items():
            row = found[group, None, None, *partition] = {"group_id": group}
            row |= {"committed_offset": commit["offset"], "committed_at": commit["time_ns"]}
        # In order, so that the last of several consecutive owners of a partition wins.
        for key, fetch in sorted(fetches.items(), key=lambda item: [_last(item[1][name]) for name in ORDER]):
            client_id, client_ip, *partition = key
            group = groups.get((client_id, client_ip))
            client = (None, None) if group is not None else (client_id, client_ip)
            row = found.setdefault((group, *client, *partition), {"group_id": group})
            row |= {"client_id": client_id, "client_ip": client_ip}
            row |= {"fetched_offset": fetch["offset"], "fetched_at": fetch["time_ns"]}
            far = furthest.get(key, {}).get("max_lag")
            row["max_fetch_lag"] = max(
                (lag for lag in (far, row.get("max_fetch_lag")) if lag is not None), default=None
            )
        for (*_, topic, partition), row in found.items():
            end, log_end = ends.get((topic, partition), {}), produced.get((topic, partition), {}).get("log_end_offset")
            row |= {"topic": topic, "partition": partition, "log_end_offset": log_end}
            row |= {"high_watermark": end.get("high_watermark"), "watermark_at": end.get("time_ns")}
            known = [offset for offset in (row["high_watermark"], log_end) if offset is not None]
            for lag, place in (("commit_lag", "committed_offset"), ("fetch_lag", "fetched_offset")):
                row[lag] = max(max(known) - row[place], 0) if known and row.get(place) is not None else None
            yield row


def _last(value: int | None) -> tuple[bool, int]:
    return (value is None, value or 0)


def _key(row: Mapping[str, Any]) -> list[tuple[bool, Any]]:
    """Ordered by all names, null ones last."""
    names = ("group_id", "topic", "partition", "client_id", "client_ip")
    return [(row.get(name) is None, row.get(name) if row.get(name) is not None else 0) for name in names]
