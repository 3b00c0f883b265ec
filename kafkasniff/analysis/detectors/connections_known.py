"""Facts about connections by their id, for rows of other tables that contain nothing else about them."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, TableReading
from kafkasniff.analysis.columns import broker_endpoint, column, first_of_each
from kafkasniff.analysis.partials import Shape

MAX_CONNECTIONS: Final = 1 << 18
"""Maximum number of connections that are remembered, the earliest."""

_COLUMNS: Final = ("connection_id", "time_ns", "client_ip", "client_port", "broker_ip", "broker_port", "verdict")
CONNECTIONS: Final = TableReading(
    (
        *_COLUMNS,
        "client_ids",
        "sasl_mechanism",
        "principal",
        "authentication",
        "authentication_error",
        "by_token",
        "ended",
        "end_time_ns",
        "captured",
        "broker_bytes",
        "syn_seen",
        "requests",
        "responses",
        "bytes_lost",
    ),
    optional=True,
)
_KEYS: Final = (
    ("connection_id", pa.int64()),
    ("time_ns", pa.int64()),
    ("client_id", pa.string()),
    ("client_ip", pa.string()),
    ("client", pa.string()),
    ("broker", pa.string()),
    ("verdict", pa.string()),
    ("sasl_mechanism", pa.string()),
    ("principal", pa.string()),
    ("authentication", pa.string()),
    ("authentication_error", pa.string()),
    ("by_token", pa.bool_()),
    ("ended", pa.string()),
    ("end_time_ns", pa.int64()),
    ("captured", pa.string()),
    ("broker_bytes", pa.int64()),
    ("syn_seen", pa.bool_()),
    ("requests", pa.int64()),
    ("responses", pa.int64()),
    ("bytes_lost", pa.int64()),
)


def connections_shape() -> Shape:
    """For `Detector.shapes`: a row for each connection."""
    return Shape(keys=_KEYS, order=("time_ns", "connection_id"), keep="earliest", bound=MAX_CONNECTIONS)


def add_connections(detector: Accumulator[Any], name: str, batch: pa.RecordBatch) -> None:
    """Add rows of the table `connections` to the partial answer of that name."""
    columns = {key: column(batch, key) for key, _ in _KEYS if key in batch.schema.names}
    client = pa.RecordBatch.from_arrays(
        [column(batch, "client_ip"), column(batch, "client_port")], names=["broker_ip", "broker_port"]
    )
    detector.parts[name].add(
        {
            **columns,
            "client_id": first_of_each(column(batch, "client_ids")),
            "client": broker_endpoint(client),
            "broker": broker_endpoint(batch),
        }
    )


def connections_by_id(detector: Accumulator[Any], name: str) -> dict[int, dict[str, Any]]:
    """The connections of a partial answer."""
    return {row["connection_id"]: row for row in detector.parts[name].table().to_pylist()}
