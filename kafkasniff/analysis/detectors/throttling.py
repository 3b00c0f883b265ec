"""Clients that brokers throttle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, integers, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural
from kafkasniff.analysis.parameters import Duration

__all__ = ["ThrottledClients"]


class ThrottledThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ThrottledClients`."""

    total: Annotated[
        Duration,
        Meta(ge=0, description="This much throttle time of a client at a broker is a warning; less is a note."),
    ] = 1_000_000_000


class ThrottledClients(Detector[ThrottledThresholds]):
    """Responses with a throttle time: the client is over its quota and must be silent for that long (KIP-219).

    Responses do not say which quota.
    """

    name: ClassVar[str] = "throttled-clients"
    summary: ClassVar[str] = "Clients that brokers throttle because of quotas."
    parameters_type = ThrottledThresholds

    _throttled = Tally(
        "throttled", (*CLIENT, *BROKER, ("api", pa.string())), sums=("throttle_ms",), highs=("worst_ms",)
    )

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "throttle_time_ms", *CLIENT_COLUMNS, "broker_ip", "broker_port")
        return {"exchanges": TableReading((*ORDER, *own))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.greater(column(batch, "throttle_time_ms"), 0))
        throttle = integers(column(batch, "throttle_time_ms"))
        keys = {**clients(batch, broker=True), "api": column(batch, "api")}
        notes = pa.array([f"throttled for {elapsed(int(one) * 1_000_000)}" for one in throttle], pa.string())
        self._throttled.add(self, batch, keys, notes, throttle_ms=throttle, worst_ms=throttle)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._throttled.rows(self):
            total = row["throttle_ms"] * 1_000_000
            yield self.row_finding(
                row,
                evidence,
                "warning" if total >= self.thresholds.total else "note",
                f"{client(row)} throttled by {row['broker']} for {elapsed(total)}, in "
                f"{plural(row['count'], 'response')} to {row['api'] or 'requests that were not captured'}",
                meaning=(
                    "The client exceeded a quota for bytes, broker time, or changes to the cluster. After a "
                    "throttled response the broker reads nothing from the connection for that time (KIP-219), so "
                    "late responses and closed windows within it are caused by the quota."
                ),
                advice=(
                    "Check the quotas of this user or client id (kafka-configs.sh --describe --entity-type users, "
                    "clients), and whether the client's rate is as intended."
                ),
                subject=("client_id", "client_ip", "broker", "api"),
                values={"throttle_ms": row["throttle_ms"], "worst_ms": row["worst_ms"]},
            )
