"""Clients that brokers throttle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, integers, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import BROKER, CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, some, subject
from kafkasniff.analysis.parameters import Duration

_QUOTAS: Final = {
    "Produce": "producer_byte_rate",
    "Fetch": "consumer_byte_rate",
    "ShareFetch": "consumer_byte_rate",
    **dict.fromkeys(("CreateTopics", "CreatePartitions", "DeleteTopics"), "controller_mutation_rate (KIP-599)"),
}


class ThrottledThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `ThrottledClients`."""

    total: Annotated[
        Duration,
        Meta(ge=0, description="This much throttle time of a client at a broker is a warning; less is a note."),
    ] = 1_000_000_000


class ThrottledClients(Detector[ThrottledThresholds]):
    """Responses with a throttle time: the client is over its quota and must be silent for that long (KIP-219).

    Responses do not say which quota, but their APIs do.
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
        found: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[Evidence, ...]]]] = {}
        for row, evidence in self._throttled.rows(self):
            found.setdefault((row["client_id"], row["client_ip"], row["broker"]), []).append((row, evidence))
        for rows in found.values():
            # The API with the most throttle time comes first.
            rows.sort(key=lambda one: (-one[0]["throttle_ms"], one[0]["api"] or ""))
            yield self._finding([row for row, _ in rows], [one for _, evidence in rows for one in evidence])

    def _finding(self, rows: list[dict[str, Any]], evidence: list[Evidence]) -> Finding:
        """`rows`: of one client at one broker, one for each API."""
        worst, total = rows[0], sum(row["throttle_ms"] for row in rows)
        apis = [row["api"] for row in rows if row["api"] is not None]
        evidence.sort(key=lambda one: (one.time_ns or 0, one.connection_id, one.exchange_id or 0))
        return self.finding(
            "warning" if total * 1_000_000 >= self.thresholds.total else "note",
            f"{client(worst)} throttled by {worst['broker']} for {elapsed(total * 1_000_000)}, in "
            f"{plural(sum(row['count'] for row in rows), 'response')} to "
            f"{some(apis) if apis else 'requests that were not captured'}",
            meaning=(
                f"The client exceeded a quota: {_quota(apis)}. After a throttled response the broker reads nothing "
                "from the connection for that time (KIP-219), so late responses and closed windows within it are "
                "caused by the quota."
            ),
            advice=(
                "Check the quotas of this user or client id (kafka-configs.sh --describe --entity-type users, "
                "clients), and whether the client's rate is as intended."
            ),
            subject=subject(worst, "client_id", "client_ip", "broker"),
            count=sum(row["count"] for row in rows),
            first=min((row["first"] for row in rows if row["first"] is not None), default=None),
            last=max((row["last"] for row in rows if row["last"] is not None), default=None),
            evidence=tuple(evidence[:MAX_EVIDENCE]),
            values={"throttle_ms": total, "worst_ms": max(row["worst_ms"] for row in rows), "apis": apis},
        )


def _quota(apis: Sequence[str]) -> str:
    """The quotas that throttle these APIs (Kafka's `QuotaType`)."""
    own = {_QUOTAS.get(api) for api in apis}
    only = own.pop() if len(own) == 1 else None
    # The time that requests take counts for all APIs.
    return f"{only} or request_percentage" if only is not None else "request_percentage, most likely"
