"""Rows of the table `transport`: network facts of each connection, from its packets.

It has one row for each TCP connection, including refused and unanswered ones: the table `connections` has only those
that carried data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import connection_id, endpoint
from kafkasniff.model import NO_TIME
from kafkasniff.native.streams import OPENINGS, UNKNOWN, Links
from kafkasniff.tables.rows.schemas import STALL
from kafkasniff.tables.rows.staged import STAGED

TABLE: Final = "transport"

_SIDES: Final = ("client", "broker")
"""The first of two values in a row of `Links` is the client's."""
_STALLS: Final = ("unacknowledged", "hole")
"""`stream_types.StallKind`."""


class TransportRows:
    """Rows of `transport` that wait to become a record batch."""

    def __init__(self) -> None:
        self._links: list[Links] = []

    def __len__(self) -> int:
        return sum(map(len, self._links))

    def append(self, links: Links) -> None:
        """Add the rows of connections that are over."""
        if len(links):
            self._links.append(links)

    def take(self) -> pa.RecordBatch:
        """Return the waiting rows as one record batch and forget them."""
        links, self._links = self._links, []
        return transport_rows(Links.together(links)) if links else pa.RecordBatch.from_pylist([], STAGED[TABLE])


def transport_rows(links: Links) -> pa.RecordBatch:
    """The rows of these connections."""
    rows = links.rows
    first, last, ended, spoke = (rows[name] for name in ("first_time", "last_time", "ended", "spoke"))
    has_ended = ended != NO_TIME
    columns: dict[str, Any] = {
        "connection_id": _ids(rows),
        "time": first // 1000,
        "time_ns": first,
        "end_time": last // 1000,
        "end_time_ns": last,
        "opening": _named(OPENINGS, rows["opening"]),
        "syns": rows["syns"].astype(np.int64),
        "ended_by": _named((*_SIDES, None), rows["ended_by"]),
        "ended_with": _named(("fin", "rst", None), np.where(has_ended, rows["reset"], 2)),
        "ended_ns": _unless(~has_ended, ended),
        "quiet_ns": _unless(~has_ended | (spoke == NO_TIME), np.maximum(ended - np.where(has_ended, spoke, 0), 0)),
        "lost_longest_us": rows["lost_longest"] // 1000,
        "slowest_round_trip_us": rows["slowest_trip"] // 1000,
        "stalls": _stalls(links),
    }
    for number, side in enumerate(_SIDES):
        columns[f"{side}_ip"] = _addresses(rows, number)
        columns[f"{side}_port"] = rows["port"][:, number].astype(np.int32)
        # Those of the client lead to the broker.
        trips = rows["round_trips"][:, 1 - number]
        columns[f"{side}_round_trip_us"] = _unless(trips == UNKNOWN, trips // 1000)
        columns[f"{side}_round_trips"] = rows["trips"][:, 1 - number]
        columns[f"{side}_slow_round_trips"] = rows["slow_trips"][:, 1 - number]
        for name in ("packets", "data", "again", "late", "lost", "closed"):
            columns[f"{side}_{name}"] = rows[name][:, number]
        columns[f"{side}_closed_us"] = rows["closed_ns"][:, number] // 1000
    schema = STAGED[TABLE]
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    found = pa.array(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values)
    return found if found.type == kind else found.cast(kind)


def _unless(unknown: NDArray[np.bool_], values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=unknown)


def _named(names: Sequence[str | None], numbers: NDArray[Any]) -> list[str | None]:
    return [names[number] for number in numbers.tolist()]


def _ids(rows: NDArray[np.void]) -> list[int]:
    ends = [[rows[name][:, number].tolist() for name in ("high", "low", "port")] for number in (0, 1)]
    both = zip(*(zip(*columns, strict=True) for columns in ends), strict=True)
    return [connection_id(pair, time) for pair, time in zip(both, rows["first_time"].tolist(), strict=True)]


def _addresses(rows: NDArray[np.void], number: int) -> list[str]:
    halves = zip(*(rows[name][:, number].tolist() for name in ("high", "low")), strict=True)
    texts: dict[tuple[int, int], str] = {}
    found: list[str] = []
    for address in halves:
        text = texts.get(address)
        if text is None:
            text = texts[address] = endpoint((*address, 0)).address
        found.append(text)
    return found


def _stalls(links: Links) -> pa.Array:
    """The stalls of each connection."""
    stalls = links.stalls
    columns: dict[str, Any] = {
        "sender": _named(_SIDES, stalls["sender"]),
        "kind": _named(_STALLS, stalls["kind"]),
        "over": stalls["over"] > 0,
        "retried": _unless(stalls["retried"] == NO_TIME, stalls["retried"]),
        **{name: stalls[name] for name in ("since", "until", "retries", "size", "passed", "heard", "quiet")},
    }
    values = pa.StructArray.from_arrays(
        [_array(columns[field.name], field.type) for field in STALL], fields=list(STALL)
    )
    starts = np.append(links.rows["stalls"], len(stalls)).astype(np.int32)
    kind = STAGED[TABLE].field("stalls").type
    return pa.ListArray.from_arrays(starts, values, type=kind)
