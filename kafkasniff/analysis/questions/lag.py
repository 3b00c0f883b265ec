"""Consumer lag, as far as the traffic shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, TIME, datetimes, table_of
from kafkasniff.analysis.group_history import MEMBER_APIS
from kafkasniff.analysis.sql.question import SqlQuestion, texts

_COMMITS: Final = ("OffsetCommit", "TxnOffsetCommit", "OffsetFetch")
_APIS: Final = ("Produce", "Fetch", *_COMMITS)
_TEXTS: Final = ("group_id", "topic", "client_id", "client_ip")
_OFFSETS: Final = ("committed_offset", "fetched_offset", "high_watermark", "log_end_offset")
_LAGS: Final = {"commit_lag": "committed_offset", "fetch_lag": "fetched_offset"}
"""Columns, and from where to the end of the log they count."""
_TIMES: Final = {"committed_at": "committed_ns", "fetched_at": "fetched_ns", "watermark_at": "watermark_ns"}


class LagParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `Lag`."""

    at_least: Annotated[
        int, Meta(ge=0, description="Show only rows with a known lag of at least this many records.")
    ] = 0


class Lag(SqlQuestion[LagParameters]):
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
        return {"exchanges": TableReading(own, tuple(dict.fromkeys([*_APIS, *MEMBER_APIS])))}

    def pieces(self) -> dict[str, str]:
        owner = (
            "group_id, CASE WHEN group_id IS NULL THEN client_id END, CASE WHEN group_id IS NULL THEN client_ip END, "
            "topic, part"
        )
        return {"apis": texts(_APIS), "commits": texts(_COMMITS), "owner": owner}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        numbers = ("part", *_OFFSETS, "max_fetch_lag", *_TIMES.values())
        return [*((name, pa.string()) for name in _TEXTS), *((name, pa.int64()) for name in numbers)]

    def finish(self, found: pa.Table) -> pa.Table:
        columns: dict[str, Any] = {name: found.column(name) for name in found.column_names}
        columns["partition"] = found.column("part")
        end = pc.max_element_wise(columns["high_watermark"], columns["log_end_offset"])
        for lag, offset in _LAGS.items():
            columns[lag] = pc.max_element_wise(pc.subtract(end, columns[offset]), 0, skip_nulls=False)
        columns |= {name: datetimes(columns[source]) for name, source in _TIMES.items()}
        fields = [
            ("group_id", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("client_id", pa.string()),
            ("client_ip", pa.string()),
            *((name, pa.int64()) for name in (*_OFFSETS, *_LAGS, "max_fetch_lag")),
            *((name, TIME) for name in _TIMES),
        ]
        names = ("group_id", "topic", "partition", "client_id", "client_ip")
        table = table_of(columns, fields, [(name, "ascending") for name in names])
        if not self.parameters.at_least:
            return table
        furthest = pc.max_element_wise(*(table.column(name) for name in _LAGS))
        return table.filter(pc.greater_equal(furthest, self.parameters.at_least))
