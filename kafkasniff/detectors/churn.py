"""Clients that open connections over and over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, Reading
from kafkasniff.analysis.columns import column, floor_divided, in_any, only
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.churn import Churn, ChurnParameters
from kafkasniff.detectors.connections_known import first_ids
from kafkasniff.detectors.detector import Detector, evidence_columns, evidence_shape, united
from kafkasniff.detectors.finding import Finding
from kafkasniff.detectors.tally import CLIENT
from kafkasniff.detectors.wording import client, subject
from kafkasniff.sinks.times import duration

__all__ = ["ConnectionChurn"]


class ChurnThresholds(Parameters, frozen=True, kw_only=True):
    """Of `ConnectionChurn`."""

    every: Annotated[Duration, Meta(ge=1, description="Span of time in which connections are counted.")] = (
        60_000_000_000
    )
    at_least: Annotated[int, Meta(ge=1, description="So many connections of a client in a span are churn.")] = 20
    short: Annotated[Duration, Meta(ge=0, description="A connection that lived no longer is short.")] = 5_000_000_000
    share: Annotated[float, Meta(ge=0, le=1, description="If this part of them was short.")] = 0.5


class ConnectionChurn(Detector[ChurnThresholds]):
    """Spans of time in which a client opened many connections, most of which did not live.

    A client has one connection to each broker that it needs, and one to its group's coordinator, as long as it runs.
    """

    name: ClassVar[str] = "connection-churn"
    summary: ClassVar[str] = "Clients that open connections over and over."
    parameters_type = ChurnThresholds

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        limits = self.thresholds
        return {"churn": Churn(ChurnParameters(every=limits.every, short=limits.short, at_least=limits.at_least))}

    def reads(self) -> Mapping[str, Reading]:
        return united(super().reads(), {"connections": Reading(("connection_id", "time_ns"))})

    def shapes(self) -> Mapping[str, Shape]:
        return {"evidence": evidence_shape((("span", pa.int64()), *CLIENT))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.asked["churn"].update(batch, "connections")
        batch = only(batch, in_any(batch, "verdict", ["kafka"]))
        keys = {
            "span": floor_divided(column(batch, "time_ns"), self.thresholds.every),
            "client_id": first_ids(column(batch, "client_ids")),
            "client_ip": column(batch, "client_ip"),
        }
        self.parts["evidence"].add(evidence_columns(batch, keys))

    def findings(self) -> list[Finding]:
        limits, evidence = self.thresholds, self.evidence("evidence")
        by_client: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.parts["churn.connections"].table().to_pylist():
            if row["opened"] >= limits.at_least and row["short"] >= limits.share * row["opened"]:
                by_client.setdefault((row["client_id"], row["client_ip"]), []).append(row)
        found = []
        for key, rows in by_client.items():
            worst = max(rows, key=lambda row: (row["opened"], -(row["span"] or 0)))
            spans = [row["span"] for row in rows if row["span"] is not None]
            more = f", and likewise in {len(rows) - 1:,} other such spans" if rows[1:] else ""
            found.append(
                self.finding(
                    "warning",
                    f"{client(worst)} opened {worst['opened']:,} connections within {duration(limits.every)}, "
                    f"{worst['short']:,} of them for less than {duration(limits.short)}{more}",
                    meaning=(
                        "Each connection costs greeting, authentication, metadata, and with TLS a handshake; brokers "
                        "limit how many they take from an address."
                    ),
                    advice=(
                        "Keep one producer or consumer for as long as the program runs, in place of one for each "
                        "message or web request; where connections are reset, or nothing is asked on them, look for "
                        "clients that are refused (sasl-failures, wrong-protocol) and for health probes."
                    ),
                    subject=subject(worst, "client_id", "client_ip"),
                    count=sum(row["opened"] for row in rows),
                    first=min(spans) * limits.every if spans else None,
                    last=(max(spans) + 1) * limits.every if spans else None,
                    evidence=evidence.get((worst["span"], *key), ()),
                    values={
                        **{name: worst[name] for name in ("opened", "short", "reset", "without_requests", "requests")},
                        "spans": len(rows),
                    },
                )
            )
        return found
