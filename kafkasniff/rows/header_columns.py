"""Rows of `exchanges` from headers alone, a column at a time: the same as `exchange_row` makes of one exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.accounts import InspectedConnection
from kafkasniff.entities import text
from kafkasniff.paired import PairColumns
from kafkasniff.rows.exchanges import capture_name
from kafkasniff.rows.staged import STAGED
from kafkasniff.streams import PACKET_SHIFT
from kafkasniff.versions import version_of

__all__ = ["header_rows"]


def header_rows(found: PairColumns, captures: Sequence[str]) -> pa.RecordBatch:
    """Answered exchanges as a record batch of the staged schema; `captures`: names by index."""
    schema = STAGED["exchanges"]
    count = len(found.client_id)

    def by_connection(value: Callable[[InspectedConnection], Any], kind: pa.DataType) -> pa.Array:
        values = [None if owner is None else value(owner) for owner in found.owners]
        return pc.take(pa.array(values, kind), pa.array(found.connection))

    def by_number(numbers: np.ndarray[Any, np.dtype[Any]], value: Callable[[int], Any], kind: pa.DataType) -> pa.Array:
        different, where = np.unique(numbers, return_inverse=True)
        return pc.take(pa.array([value(one) for one in different.tolist()], kind), pa.array(where))

    def plain(numbers: np.ndarray[Any, np.dtype[Any]], kind: pa.DataType) -> pa.Array:
        return pa.array(numbers).cast(kind)

    made: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "capture": lambda kind: by_number(
            found.packet >> PACKET_SHIFT, lambda one: capture_name(captures[one]) if one < len(captures) else None, kind
        ),
        "connection_id": lambda kind: by_connection(InspectedConnection.identify, kind),
        "exchange_id": lambda kind: plain(found.ordinal, kind),
        # Floored, also below zero.
        "time": lambda kind: plain(found.time_ns // 1000, pa.int64()).cast(kind),
        "time_ns": lambda kind: plain(found.time_ns, kind),
        "client_ip": lambda kind: by_connection(lambda one: one.client.address if one.client else None, kind),
        "client_port": lambda kind: by_connection(lambda one: one.client.port if one.client else None, kind),
        "broker_ip": lambda kind: by_connection(lambda one: one.broker.address if one.broker else None, kind),
        "broker_port": lambda kind: by_connection(lambda one: one.broker.port if one.broker else None, kind),
        "api_key": lambda kind: by_number(found.code, lambda code: version_of(code).key, kind),
        "api": lambda kind: by_number(found.code, lambda code: version_of(code).request.api, kind),
        "api_version": lambda kind: by_number(found.code, lambda code: version_of(code).version, kind),
        "correlation_id": lambda kind: plain(found.correlation_id, kind),
        "client_id": lambda kind: pa.array(map(text, found.client_id), kind, size=count),
        "software_name": lambda kind: by_connection(lambda one: one.account and one.account.software[0], kind),
        "software_version": lambda kind: by_connection(lambda one: one.account and one.account.software[1], kind),
        "status": lambda kind: pa.repeat(pa.scalar("answered", kind), count),
        "request_size": lambda kind: plain(found.request_size, kind),
        "response_size": lambda kind: plain(found.response_size, kind),
        "latency_us": lambda kind: plain(found.latency_ns // 1000, kind),
        "duration_us": lambda kind: plain(found.duration_ns // 1000, kind),
        "retransmits": lambda kind: pa.repeat(pa.scalar(0, kind), count),
        **dict.fromkeys(("topics", "partitions", "problems"), lambda kind: _empty_lists(kind, count)),
    }
    arrays = [made[field.name](field.type) if field.name in made else pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _empty_lists(kind: pa.DataType, count: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.nulls(0, kind.value_type), type=kind)
