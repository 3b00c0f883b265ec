"""What remains of latencies for brokers to answer for, by the columns of `exchanges`: the one judge for detectors.

Taken off are the time behind earlier requests of the connection, the time for which a quota muted it (KIP-219), and the
wait that the request asks for. A wait for replicas stays: nobody wants it, and it shows brokers that lag.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import column, in_any, integers
from kafkasniff.kafka.waits import waiting_apis

__all__ = ["WAIT_COLUMNS", "excused_us", "may_have_waited", "with_sender", "work_us"]

WAIT_COLUMNS: Final = ("api", "sender", "behind_us", "muted_us", "wait_us", "waits_for")
"""Columns that the functions of this module need, besides `latency_us`."""
_BLAMED: Final = "replicas"
_OTHERS: Final = ("replica", "quorum")
UNKNOWN_US: Final = 1 << 50
"""Taken off where it is unknown how long a request may wait (its body could not be read): 35 years."""

Integers = npt.NDArray[np.int64]


def _excusable(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    reason = pc.fill_null(column(batch, "waits_for"), "")
    return pc.not_equal(reason, _BLAMED).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _unknown(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Requests that may ask for a wait, and of which nothing is known."""
    apis = [api for api, reason in waiting_apis().items() if reason != _BLAMED]
    unknown = pc.and_(pc.is_null(column(batch, "wait_us")), in_any(batch, "api", apis))
    return unknown.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def excused_us(batch: pa.RecordBatch) -> Integers:
    """How long each exchange may have taken without anybody's fault, in microseconds.

    Of an answered one it is part of its latency; of others, how long the broker has leave not to answer.
    """
    wait = np.where(_excusable(batch), integers(column(batch, "wait_us")), 0)
    off = wait + integers(column(batch, "behind_us")) + integers(column(batch, "muted_us"))
    excused: Integers = np.where(_unknown(batch), UNKNOWN_US, off).astype(np.int64)
    return excused


def work_us(batch: pa.RecordBatch) -> Integers:
    """What remains of each latency, in microseconds; 0 where there is no latency."""
    work: Integers = np.maximum(integers(column(batch, "latency_us")) - excused_us(batch), 0)
    return work


def may_have_waited(batch: pa.RecordBatch) -> pa.Array:
    """Where the broker waited as asked, or may have: how long it took says nothing of how fast it is."""
    waited = _excusable(batch) & (integers(column(batch, "wait_us")) > 0)
    return pa.array(waited | _unknown(batch))


def with_sender(batch: pa.RecordBatch, labels: pa.Array | None = None) -> pa.Array:
    """`Fetch`, `replica Fetch`, `quorum Fetch`: requests of clients, replicas and the quorum are compared apart.

    `labels`: instead of the names of the APIs.
    """
    labels = column(batch, "api") if labels is None else labels
    others = in_any(batch, "sender", _OTHERS)
    return pc.if_else(others, pc.binary_join_element_wise(column(batch, "sender"), labels, " "), labels)
