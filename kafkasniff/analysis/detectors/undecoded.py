"""Traffic that could not be decoded, so that problems in it remain unknown, and phrases for its share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading, united
from kafkasniff.analysis.columns import column, only
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.wording import percent, plural
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.visibility import HIGH, TLS, Undecoded, Visibility, VisibleTraffic
from kafkasniff.sinks.summaries.phrases import amount


def decoded_share(visible: VisibleTraffic) -> str:
    """`only 37%`, `none`, `100%`."""
    if not visible.share:
        return "none"
    return f"{'' if visible.is_high else 'only '}{percent(visible.share)}"


def reasons_text(visible: VisibleTraffic) -> str:
    """`60% TLS without keys (7 connections), 3% bytes missing in the capture`."""
    return ", ".join(_reason(undecoded) for undecoded in visible.undecoded)


def all_clear(visible: VisibleTraffic | None, *, filtered: bool = False) -> str:
    """What to say if nothing was found; `filtered`: among the exchanges that filters select."""
    if visible is None or visible.is_high:
        return "no problems found"
    if visible.share is None:
        return "no exchanges match the filters" if filtered else "no Kafka traffic"
    if not visible.bytes_decoded:
        return "nothing could be decoded"
    if visible.share >= HIGH:
        return "no problems found in the readable part"
    return f"nothing found in the {percent(visible.share)} of the traffic that could be decoded"


def visibility_lines(visible: VisibleTraffic | None) -> list[str]:
    """One line on the total and one per reason with advice; none if nearly everything was decoded."""
    if visible is None or not visible.undecoded or (visible.is_high and not visible.is_one_sided):
        return []
    lines = []
    if visible.share is not None:
        whole = "the readable part" if visible.unmeasured else "the traffic"
        lines.append(
            f"decoded: {percent(visible.share)} of {whole}, {amount(visible.bytes_decoded)} of "
            f"{amount(visible.bytes)}, on {visible.connections_decoded:,} of {visible.connections:,} connections"
        )
    return [*lines, *(undecoded_line(undecoded) for undecoded in visible.undecoded)]


def undecoded_line(one: Undecoded) -> str:
    """One reason with advice."""
    return f"not decoded: {_reason(one)}; {one.advice}"


def _reason(one: Undecoded) -> str:
    where = f" ({plural(one.connections, 'connection')})" if one.connections else ""
    return f"{'' if one.share is None else f'{percent(one.share)} '}{one.what}{where}"


_NOTES = {
    "tls": "TLS without keys",
    "client": "only client → broker",
    "broker": "only broker → client",
    "not_kafka": "not Kafka",
    "undecided": "too little data to judge",
}
_COLUMNS = ("time_ns", "connection_id", "verdict", "protocol", "captured", "bytes_lost")
CHANCE: Final = 0.1
"""A finding is uncertain if losses alone cause this many of its kind."""
_MAX_GAPS: Final = 1 << 18
"""Maximum number of connections with missing bytes that are known."""
_LOST: Final = "packet-loss"


class Losses(msgspec.Struct, frozen=True):
    """What the capture lost on its way: bytes that were sent, and that it lacks."""

    share: float
    """Share of the traffic's bytes."""
    exchanges: int
    """Number of exchanges of which some part was captured."""
    connections: frozenset[int]
    """Connections that lack bytes."""

    def weighed(self, finding: Finding, absent: int, *, gaps: bool = True) -> Finding:
        """A finding that rests on this many messages that the capture lacks: a note if they may just be lost.

        Any message is lost with the probability `share`, so some `exchanges` * `share` ** `absent` such findings are
        expected without any trouble. If its connections lack no bytes, all that followed the message must be lost, too;
        unless their loss leaves no `gaps`.
        """
        if not absent or finding.severity == "note":
            return finding
        absent += gaps and self.connections.isdisjoint(each.connection_id for each in finding.evidence)
        if self.exchanges * self.share**absent < CHANCE:
            return finding
        return msgspec.structs.replace(
            finding,
            severity="note",
            meaning=f"{finding.meaning} Or the capture lost the messages: it lacks {percent(self.share)} of the bytes.",
        )


class UndecodedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `UndecodedTraffic`."""

    high: Annotated[float, Meta(ge=0, le=1, description="A smaller share of decoded bytes is a note.")] = 0.9
    low: Annotated[float, Meta(ge=0, le=1, description="A smaller share of decoded bytes is a warning.")] = 0.5
    lost: Annotated[
        float, Meta(ge=0, le=1, description="A larger share of bytes that were lost on their way is a note.")
    ] = 0.01


class UndecodedTraffic(Detector[UndecodedThresholds]):
    """A low share of decoded traffic, with all reasons in one finding.

    If only one direction was captured, it is reported however large the share is. Findings that rest on messages which
    the capture lacks are notes if it lost so much that chance explains them.

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
        return {
            "evidence": evidence_shape((("reason", pa.string()),)),
            "gaps": Shape(keys=(("connection_id", pa.int64()),), bound=_MAX_GAPS),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.visibility.update(batch, table)
        if table != "connections":
            return
        gaps = only(batch, pc.fill_null(pc.greater(column(batch, "bytes_lost"), 0), False))
        self.parts["gaps"].add({"connection_id": column(gaps, "connection_id")})
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

    def losses(self) -> Losses:
        """What was lost, by the rows so far."""
        share = _lost_share(self.visibility.visible())
        exchanges = sum(self.visibility.parts["exchanges"].table().column("count").to_pylist())
        return Losses(share, exchanges, frozenset(self.parts["gaps"].table().column("connection_id").to_pylist()))

    def findings(self) -> list[Finding]:
        visible = self.visibility.visible()
        share, thresholds = visible.share, self.thresholds
        sided = visible.is_one_sided
        if share is None:
            # A capture without any connection has no Kafka, unless its packets could not be read.
            share = 0.0 if any(undecoded.reason == "unread-packets" for undecoded in visible.undecoded) else 1.0
        lossy = _lost_share(visible) > thresholds.lost
        if not visible.undecoded or (share >= thresholds.high and not sided and not lossy):
            return []
        severity: Severity = "warning" if share < thresholds.low else "note"
        # Kafka counts as one of several protocols only if nothing else was decoded.
        wanted = {"tls", "client", "broker", "undecided"} | ({"not_kafka"} if not visible.bytes_decoded else set())
        by_reason = self.evidence("evidence")
        shown: list[Evidence] = sorted(
            (evidence for (reason,), some in by_reason.items() if reason in wanted for evidence in some),
            key=lambda one: (one.time_ns or 0, one.connection_id),
        )
        first, last = self.visibility.span()
        sized = [undecoded for undecoded in visible.undecoded if undecoded.bytes is not None]
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
                advice=_sentence(dict.fromkeys(undecoded.advice for undecoded in visible.undecoded)),
                subject={},
                count=max(sum(undecoded.connections or 0 for undecoded in sized), 1),
                first=first,
                last=last,
                evidence=tuple(shown[:MAX_EVIDENCE]),
                values={
                    "share": share,
                    "bytes": visible.bytes,
                    "bytes_decoded": visible.bytes_decoded,
                    **{undecoded.reason.replace("-", "_"): undecoded.share for undecoded in sized},
                },
            )
        ]


def _lost_share(visible: VisibleTraffic) -> float:
    return next((one.share or 0.0 for one in visible.undecoded if one.reason == _LOST), 0.0)


def _sentence(parts: dict[str, None]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
