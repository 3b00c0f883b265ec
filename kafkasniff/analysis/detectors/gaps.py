"""Gaps in connections, from the table `problems`: what happened near them may not be in the capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from kafkasniff.analysis.columns import column, in_any, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.partials import Shape

MAX_GAPS: Final = 1 << 16
"""Maximum number of gaps that are remembered, the earliest."""
_KIND: Final = "tcp-gap"
"""Not `stream-resync`: that is also where the capture of a connection begins, after which it is complete."""


def gap_shapes() -> Mapping[str, Shape]:
    """For `Detector.shapes`."""
    keys = (("connection_id", pa.int64()), ("time_ns", pa.int64()))
    return {"gaps": Shape(keys=keys, order=("time_ns",), keep="earliest", bound=MAX_GAPS)}


def add_gaps(detector: Detector[Any], batch: pa.RecordBatch) -> None:
    """Add rows of the table `problems`."""
    batch = only(batch, in_any(batch, "kind", [_KIND]))
    detector.parts["gaps"].add({name: column(batch, name) for name in ("connection_id", "time_ns")})


def gaps_of(detector: Detector[Any]) -> dict[int, list[int]]:
    """Times of gaps by connection, ns since the epoch."""
    found: dict[int, list[int]] = {}
    for row in detector.parts["gaps"].table().to_pylist():
        if row["time_ns"] is not None:
            found.setdefault(row["connection_id"], []).append(row["time_ns"])
    return found
