"""Rows between the two steps of an export: final except for names, with additional columns for the second step.

The second step drops columns whose names begin with an underscore. It derives `time` from nanoseconds in every table,
and so makes it if a table has none of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.tables.rows.schemas import CONNECTIONS, EXCHANGES, PROBLEMS, RECORDS, TRANSPORT

DAY_NS: Final = 86_400 * 10**9
UNDATED: Final = 0
"""The day of rows without a time, and of rows whose date has no partition (`exports.finalise`): 1970-01-01."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StagedParts(msgspec.Struct, array_like=True, gc=False):
    """Parts of a row of `exchanges` that wait for the whole run; msgpack in the column `_pending`, or null."""

    unnamed: dict[str, int] = {}
    """Topic ids without a name, each with the number of topics before it in `topics`."""
    bodies: bool = False
    """Bodies hold such ids."""
    session: SessionStep | None = None


def _with(schema: pa.Schema, *more: tuple[str, pa.DataType], **changed: pa.DataType) -> pa.Schema:
    fields = [pa.field(field.name, changed.get(field.name, field.type)) for field in schema]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in more)])


_NAME: Final = pa.dictionary(pa.int32(), pa.string())
"""Strings that repeat from row to row: `records` has by far the most rows."""

DECODED: Final = ("key_decoded", "value_decoded")
"""Columns of `records` that the second step makes of others."""

STAGED: Final = {
    "exchanges": _with(EXCHANGES, ("_pending", pa.binary())),
    "records": _with(
        pa.schema([field for field in RECORDS if field.name not in {"time", *DECODED}]),
        ("_time_ns", pa.int64()),
        ("_position", pa.int64()),
        **dict.fromkeys(
            ("capture", "api", "direction", "topic", "topic_id", "timestamp_type", "compression", "control"), _NAME
        ),
    ),
    "connections": CONNECTIONS,
    "transport": TRANSPORT,
    "problems": _with(PROBLEMS, ("_endpoints", pa.string())),
}
"""Schema of the staged rows, by table.

`_position`: ordinal of a record within its exchange. `_endpoints`: of the problem that a connection is not Kafka, both
ends as `place_name` has them, with a space between: it is one only if one of them spoke Kafka before.
"""


def unread(field: pa.Field, count: int) -> pa.Array:
    """A column of `exchanges` that nobody reads: null, or empty lists."""
    if pa.types.is_list(field.type):
        borders = pa.array(np.zeros(count + 1, np.int32))
        return pa.ListArray.from_arrays(borders, pa.nulls(0, field.type.value_type), type=field.type)
    return pa.nulls(count, field.type)


def staged_columns(columns: Collection[str], *, problems: bool) -> frozenset[str]:
    """The staged columns of `exchanges` from which the second step makes these; `problems`: and rows of `problems`."""
    waits = problems or not _WAITING.isdisjoint(columns)
    return frozenset((*columns, *SORT_KEYS["exchanges"], *_RESOLVED, *(["_pending", "topics"] if waits else [])))


_WAITING: Final = frozenset({"topics", "problems", "request_body", "response_body"})
"""Columns that may wait for the whole run."""
_RESOLVED: Final = ("capture", "broker_ip", "broker_port", "api_key", "api_version")
"""Columns by which the second step finds names."""

SORT_KEYS: Final = {
    "exchanges": ("api", "time_ns", "connection_id", "exchange_id"),
    "records": ("api", "_time_ns", "connection_id", "exchange_id", "_position"),
    "connections": ("time_ns", "connection_id"),
    "transport": ("time_ns", "connection_id"),
    "problems": ("time_ns", "connection_id", "exchange_id", "packet", "offset", "kind", "detail"),
}
"""The order of rows within a date; null is first. Text comes first (`api`) or last."""


def place_name(address: str, port: int) -> str:
    """An endpoint as text that sorts and splits: address, a slash, port."""
    return f"{address}/{port}"


def date_of(time_ns: int | None) -> str:
    """UTC date of a time; 1970-01-01 for None."""
    return day_of(0 if time_ns is None else time_ns // DAY_NS)


@lru_cache(maxsize=64)
def day_of(number: int) -> str:
    """The date of a day that is numbered from 1970-01-01."""
    return (_EPOCH + timedelta(days=number)).strftime("%Y-%m-%d")
