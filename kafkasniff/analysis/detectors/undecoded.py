"""Traffic that could not be decoded, so that problems in it remain unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, only
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape, united
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.visible_wording import decoded_share, reasons_text
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.visibility import TLS, Visibility

_NOTES = {
    "tls": "TLS without keys",
    "client": "only client → broker",
    "broker": "only broker → client",
    "not_kafka": "not Kafka",
    "undecided": "too little data to judge",
}
_COLUMNS = ("time_ns", "connection_id", "verdict", "protocol", "captured")


class UndecodedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `UndecodedTraffic`."""

    high: Annotated[float, Meta(ge=0, le=1, description="A smaller share of decoded bytes is a note.")] = 0.9
    low: Annotated[float, Meta(ge=0, le=1, description="A smaller share of decoded bytes is a warning.")] = 0.5


class UndecodedTraffic(Detector[UndecodedThresholds]):
    """A low share of decoded traffic, with all reasons in one finding.

    If only one direction was captured, it is reported however large the share is.

    Caveats: TLS without keys need not be Kafka; only connections that offer another application protocol (ALPN) are
    excluded. The share counts bytes, so a few large responses outweigh many small ones.
    """

    name: ClassVar[str] = "undecoded-traffic"
    summary: ClassVar[str] = "Traffic that could not be decoded and was not checked."
    parameters_type = UndecodedThresholds

    def questions(self) -> Mapping[str, Accumulator[Any]]:
        return {"visibility": Visibility()}

    @property
    def visibility(self) -> Visibility:
        """The account of what was decoded."""
        question = self.asked["visibility"]
        assert isinstance(question, Visibility)
        return question

    def reads(self) -> Mapping[str, TableReading]:
        return united(super().reads(), {"connections": TableReading(_COLUMNS, optional=True)})

    def shapes(self) -> Mapping[str, Shape]:
        return {"evidence": evidence_shape((("reason", pa.string()),))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.visibility.update(batch, table)
        if table != "connections":
            return
        verdict, protocol, captured = (column(batch, name) for name in ("verdict", "protocol", "captured"))
        tls = pc.fill_null(pc.equal(protocol, TLS), False)
        kafka = pc.equal(verdict, "kafka")
        # Kafka's connections count if one side is missing; others are grouped by their classification.
        side = pc.if_else(pc.fill_null(pc.not_equal(captured, "both"), False), captured, pa.scalar(None, pa.string()))
        other = pc.if_else(tls, "tls", verdict)
        batch = batch.append_column("reason", pc.if_else(kafka, side, other))
        batch = only(batch, pc.is_valid(column(batch, "reason")))
        notes = pa.array([_NOTES[one] for one in column(batch, "reason").to_pylist()], pa.string())
        self.parts["evidence"].add(evidence_columns(batch, {"reason": column(batch, "reason")}, notes))

    def findings(self) -> list[Finding]:
        visible = self.visibility.visible()
        share, thresholds = visible.share, self.thresholds
        sided = visible.is_one_sided
        if share is None:
            # A capture without any connection has no Kafka, unless its packets could not be read.
            share = 0.0 if any(one.reason == "unread-packets" for one in visible.undecoded) else 1.0
        if not visible.undecoded or (share >= thresholds.high and not sided):
            return []
        severity: Severity = "warning" if share < thresholds.low else "note"
        # Kafka counts as one of several protocols only if nothing else was decoded.
        wanted = {"tls", "client", "broker", "undecided"} | ({"not_kafka"} if not visible.bytes_decoded else set())
        by_reason = self.evidence("evidence")
        shown: list[Evidence] = sorted(
            (one for (reason,), some in by_reason.items() if reason in wanted for one in some),
            key=lambda one: (one.time_ns or 0, one.connection_id),
        )
        first, last = self.visibility.span()
        sized = [one for one in visible.undecoded if one.bytes is not None]
        return [
            self.finding(
                severity,
                f"{decoded_share(visible)} of the traffic could be decoded; not decoded: {reasons_text(visible)}",
                meaning=(
                    "Findings and numbers cover only the decoded part. Requests whose responses were not captured are "
                    "not called unanswered."
                    if sided
                    else "Findings and numbers cover only the decoded part."
                ),
                advice=_sentence(dict.fromkeys(one.advice for one in visible.undecoded)),
                subject={},
                count=max(sum(one.connections or 0 for one in sized), 1),
                first=first,
                last=last,
                evidence=tuple(shown[:MAX_EVIDENCE]),
                values={
                    "share": share,
                    "bytes": visible.bytes,
                    "bytes_decoded": visible.bytes_decoded,
                    **{one.reason.replace("-", "_"): one.share for one in sized},
                },
            )
        ]


def _sentence(parts: dict[str, None]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
