"""Rows between the two steps of an export: final but for names, and with what the second step needs of them.

Columns whose names begin with an underscore are dropped then. `time` of all tables follows from nanoseconds, and so is
made then where a table has none of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.rows.schemas import CONNECTIONS, EXCHANGES, PROBLEMS, RECORDS

__all__ = ["SORT_KEYS", "STAGED", "UNDATED", "Pending", "SessionStep", "date_of", "day_of", "place_name"]

DAY_NS: Final = 86_400 * 10**9
UNDATED: Final = 0
"""The day of rows without a time, and of those whose date has no partition (`exports.partitions`): 1970-01-01."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SessionStep(msgspec.Struct, array_like=True, gc=False):
    """What a Fetch exchange does to a fetch session (KIP-227): enough for `enrich.sessions.FetchSessions`."""

    number: int
    """The request's `session_id`."""
    epoch: int
    """Its `session_epoch`."""
    by_id: bool
    """Topics are named by their ids."""
    added: dict[str, list[int]]
    """Partitions by topic that the request names."""
    forgotten: dict[str, list[int]]
    answer_ns: int | None
    """When the response came; None: it has none that could be read, or no time."""
    answer_number: int | None
    """The response's `session_id`; None: there is no response that could be read."""
    answer_error: int


class Pending(msgspec.Struct, array_like=True, gc=False):
    """What of a row of `exchanges` waits for the whole run; msgpack in the column `_pending`, null where nothing."""

    unnamed: dict[str, int] = {}
    """Topic ids without a name, each with how many topics of `topics` stand in front of it."""
    bodies: bool = False
    """Bodies hold such ids."""
    session: SessionStep | None = None


def _with(schema: pa.Schema, *more: tuple[str, pa.DataType], **changed: pa.DataType) -> pa.Schema:
    fields = [pa.field(field.name, changed.get(field.name, field.type)) for field in schema]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in more)])


_NAME: Final = pa.dictionary(pa.int32(), pa.string())
"""Strings that repeat from row to row: records outnumber all else."""

STAGED: Final = {
    "exchanges": _with(EXCHANGES, ("_pending", pa.binary())),
    "records": _with(
        pa.schema([field for field in RECORDS if field.name not in {"time"}]),
        ("_time_ns", pa.int64()),
        ("_position", pa.int64()),
        **dict.fromkeys(
            ("capture", "api", "direction", "topic", "topic_id", "timestamp_type", "compression", "control"), _NAME
        ),
    ),
    "connections": CONNECTIONS,
    "problems": _with(PROBLEMS, ("_endpoints", pa.string())),
}
"""Schema of the staged rows, by table.

`_position`: ordinal of a record within its exchange. `_endpoints`: of the problem that a connection is not Kafka, both
ends as `place_name` has them, with a space between: it is one only if one of them spoke Kafka before.
"""

SORT_KEYS: Final = {
    "exchanges": ("api", "time_ns", "connection_id", "exchange_id"),
    "records": ("api", "_time_ns", "connection_id", "exchange_id", "_position"),
    "connections": ("time_ns", "connection_id"),
    "problems": ("time_ns", "connection_id", "exchange_id", "packet", "offset", "kind", "detail"),
}
"""How rows are sorted within a date; null is first. Text stands at the front (`api`) or at the end."""


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
