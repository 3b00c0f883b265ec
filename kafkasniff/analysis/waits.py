"""The part of latencies that brokers are responsible for, by the columns of `exchanges`; all detectors use this.

Subtracted are the time spent waiting for earlier requests, the time for which a quota muted the connection (KIP-219),
and the wait that the request allows. A wait for replicas remains, since it is unwanted and shows lagging brokers.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.columns import column, in_any, integers
from kafkasniff.kafka.connection.waits import LONG_POLLS, long_poll_apis, waiting_apis

WAIT_COLUMNS: Final = ("api", "sender", "behind_us", "muted_us", "wait_us", "waits_for")
"""Columns that the functions of this module need, besides `latency_us`."""
LONG_POLL_COLUMNS: Final = ("api", "wait_us", "waits_for")
"""Columns that `is_long_poll` needs."""
_BLAMED: Final = "replicas"
_OTHERS: Final = ("replica", "quorum")
UNKNOWN_US: Final = 1 << 50
"""Subtracted if the allowed wait of a request is unknown (its body could not be read): 35 years."""

Integers = npt.NDArray[np.int64]


def _excusable(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    reason = pc.fill_null(column(batch, "waits_for"), "")
    return pc.not_equal(reason, _BLAMED).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _unknown(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Requests that may allow a wait of unknown length."""
    apis = [api for api, reason in waiting_apis().items() if reason != _BLAMED]
    unknown = pc.and_(pc.is_null(column(batch, "wait_us")), in_any(batch, "api", apis))
    return unknown.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def excused_us(batch: pa.RecordBatch) -> Integers:
    """The excusable time of each exchange, in microseconds.

    For an answered one it is part of its latency; for others, how long the broker is allowed not to answer.
    """
    wait = np.where(_excusable(batch), integers(column(batch, "wait_us")), 0)
    off = wait + integers(column(batch, "behind_us")) + integers(column(batch, "muted_us"))
    excused: Integers = np.where(_unknown(batch), UNKNOWN_US, off).astype(np.int64)
    return excused


def work_us(batch: pa.RecordBatch) -> Integers:
    """The remaining part of each latency, in microseconds; 0 if there is no latency."""
    work: Integers = np.maximum(integers(column(batch, "latency_us")) - excused_us(batch), 0)
    return work


def may_have_waited(batch: pa.RecordBatch) -> pa.Array:
    """Whether the broker waited as requested, or may have: its response time does not show its speed."""
    waited = _excusable(batch) & (integers(column(batch, "wait_us")) > 0)
    return pa.array(waited | _unknown(batch))


def is_long_poll(batch: pa.RecordBatch) -> pa.Array:
    """Whether a request asks the broker to wait for data, or for members of a group, by `LONG_POLL_COLUMNS`.

    Its latency shows when these came, not how fast the broker is.
    """
    wait = column(batch, "wait_us")
    asks = pc.and_(in_any(batch, "waits_for", LONG_POLLS), pc.fill_null(pc.greater(wait, 0), False))
    unknown = pc.and_(pc.is_null(wait), in_any(batch, "api", sorted(long_poll_apis())))
    return pc.or_(asks, unknown)


def long_poll_sql() -> str:
    """The same as `is_long_poll`, as a condition in SQL."""
    reasons, apis = (", ".join(f"'{name}'" for name in names) for names in (LONG_POLLS, sorted(long_poll_apis())))
    return (
        f"coalesce(waits_for IN ({reasons}) AND wait_us > 0, false) "
        f"OR coalesce(wait_us IS NULL AND api IN ({apis}), false)"
    )


def with_sender(batch: pa.RecordBatch, labels: pa.Array | None = None) -> pa.Array:
    """`Fetch`, `replica Fetch`, `quorum Fetch`: requests of clients, replicas and the quorum are compared separately.

    `labels`: instead of the names of the APIs.
    """
    labels = column(batch, "api") if labels is None else labels
    others = in_any(batch, "sender", _OTHERS)
    return pc.if_else(others, pc.binary_join_element_wise(column(batch, "sender"), labels, " "), labels)
