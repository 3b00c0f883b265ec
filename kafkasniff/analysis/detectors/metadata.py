"""Clients that request metadata too often, or metadata of all topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, floor_divided, in_any, integers, only, with_client
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape, united
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.tally import CLIENT, CLIENT_COLUMNS, Tally, clients
from kafkasniff.analysis.detectors.wording import client, elapsed, plural, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.metadata_storms import MetadataStormParameters, MetadataStorms
from kafkasniff.engine.roles import Bodies
from kafkasniff.sinks.summaries.phrases import amount


class StormThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `FrequentMetadata`."""

    every: Annotated[Duration, Meta(ge=1, description="Time span in which requests are counted.")] = 10_000_000_000
    at_least: Annotated[
        int, Meta(ge=1, description="This many Metadata requests of a client in a span are a storm.")
    ] = 30


class FrequentMetadata(Detector[StormThresholds]):
    """Periods in which a client sent many Metadata requests.

    Clients normally send one at the start, every five minutes, and when a leader has moved.

    Caveats: short-lived programs with the same client id add up.
    """

    name: ClassVar[str] = "metadata-storms"
    summary: ClassVar[str] = "Clients that request metadata too often."
    parameters_type = StormThresholds

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        return {
            "storms": MetadataStorms(
                MetadataStormParameters(every=self.thresholds.every, at_least=self.thresholds.at_least)
            )
        }

    def reads(self) -> Mapping[str, TableReading]:
        return united(super().reads(), {"exchanges": TableReading((*ORDER, "problems"), ("Metadata",))})

    def shapes(self) -> Mapping[str, Shape]:
        return {"evidence": evidence_shape((("span", pa.int64()), *CLIENT))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = with_client(only(batch, in_any(batch, "api", ["Metadata"])))
        self.asked["storms"].update(batch)
        span = floor_divided(column(batch, "time_ns"), self.thresholds.every)
        self.parts["evidence"].add(evidence_columns(batch, {"span": span, **clients(batch)}))

    def findings(self) -> Iterator[Finding]:
        evidence = self.evidence("evidence")
        by_client: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.parts["storms.spans"].table().to_pylist():
            if row["requests"] >= self.thresholds.at_least:
                by_client.setdefault((row["client_id"], row["client_ip"]), []).append(row)
        every = self.thresholds.every
        for key, rows in by_client.items():
            worst = max(rows, key=lambda row: (row["requests"], -(row["span"] or 0)))
            spans = [row["span"] for row in rows if row["span"] is not None]
            who = client(worst)
            yield self.finding(
                "warning",
                f"{who} asked for metadata {plural(worst['requests'], 'time')} within {elapsed(every)}"
                + (
                    f", and at least {self.thresholds.at_least:,} times in {plural(len(rows) - 1, 'other such span')}"
                    if rows[1:]
                    else ""
                ),
                meaning=(
                    "Clients request metadata at start, every few minutes, and when a leader has moved. More "
                    "requests load the brokers, especially in clusters with many topics."
                ),
                advice=(
                    "Look at the responses: clients repeat requests for a topic that does not exist or has no "
                    "leader. Otherwise look for programs that create a client for each message."
                ),
                subject=subject(worst, "client_id", "client_ip"),
                count=sum(row["requests"] for row in rows),
                first=min(spans) * every if spans else None,
                last=(max(spans) + 1) * every if spans else None,
                evidence=evidence.get((worst["span"], *key), ()),
                values={
                    "requests": worst["requests"],
                    "spans": len(rows),
                    "errors": worst["errors"],
                    "response_bytes": worst["response_bytes"],
                },
            )


class AllTopicsThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `AllTopics`."""

    at_least: Annotated[int, Meta(ge=1, description="Report a client from this many requests for all topics.")] = 5
    size: Annotated[
        int, Meta(ge=1, description="They are a warning if the responses have this many bytes in total.")
    ] = 10_000_000


class AllTopics(Detector[AllTopicsThresholds]):
    """Metadata requests for all topics of the cluster: `topics` is null, or empty in version 0.

    Caveats: tools that need all topics (a UI, a mirror, a consumer with a pattern) are reported, too.
    """

    name: ClassVar[str] = "all-topics"
    summary: ClassVar[str] = "Clients that request the metadata of all topics."
    parameters_type = AllTopicsThresholds
    bodies: ClassVar[Bodies] = {("request", "Metadata"): None}

    _all = Tally("all", CLIENT, sums=("response_bytes",))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_version", *CLIENT_COLUMNS, "response_size", "request_body")
        return {"exchanges": TableReading((*ORDER, *own), ("Metadata",))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, in_any(batch, "api", ["Metadata"]))
        # `topics` is the first field of the body, in every version.
        body = column(batch, "request_body")
        none = pc.and_(pc.starts_with(body, '{"topics":[]'), pc.equal(column(batch, "api_version"), 0))
        batch = only(batch, pc.or_(pc.starts_with(body, '{"topics":null'), none))
        self._all.add(self, batch, clients(batch), response_bytes=integers(column(batch, "response_size")))

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._all.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            size = row["response_bytes"]
            yield self.row_finding(
                row,
                evidence,
                "warning" if size >= self.thresholds.size else "note",
                f"{client(row)} asked for the metadata of all topics {plural(row['count'], 'time')}, "
                f"{amount(size)} of responses",
                meaning="Such responses grow with the cluster, and brokers build each of them from scratch.",
                advice=(
                    "Let the client ask only for its own topics: subscribe by name rather than by pattern, and "
                    "check its settings for full metadata (Sarama: Metadata.Full)."
                ),
                subject=("client_id", "client_ip"),
                values={"requests": row["count"], "response_bytes": size},
            )
