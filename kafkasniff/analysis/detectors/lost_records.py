"""Records that producers sent and that no broker acknowledged in the end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, exploded, in_any, integers, named, only
from kafkasniff.analysis.detectors.absences import (
    TRANSPORT_READING,
    Spans,
    TcpLink,
    add_links,
    links_by_broker,
    links_shape,
    usual_absences,
)
from kafkasniff.analysis.detectors.attempts import (
    ATTEMPT_COLUMNS,
    UNANSWERED,
    Attempt,
    Attempts,
    add_attempts,
    attempt_shapes,
)
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import CLIENT, Tally, clients
from kafkasniff.analysis.detectors.wording import client, plural, some, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.tables.rows.transport import TABLE
from kafkasniff.text.printable import word

_REFUSED: Final = (10, 18)
"""MESSAGE_TOO_LARGE and RECORD_LIST_TOO_LARGE: `oversized-messages` reports them."""
_FAILED: Final = (*CLIENT, ("topic", pa.string()), ("partition", pa.int32()), ("producer_id", pa.int64()))
STAYS_NS: Final = 1_000_000_000
"""A broker that answers a connect, or keeps another connection, for this long after closing one did not stop."""


class LostRecordsThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `LostRecords`."""

    soon: Annotated[
        Duration, Meta(ge=1, description="A connection that the broker closes this soon after acks=0 was refused.")
    ] = 2_000_000_000
    abandoned: Annotated[
        Duration,
        Meta(ge=1, description="A batch not sent again for this long, while its client continues, was given up."),
    ] = 300_000_000_000


class LostRecords(Detector[LostRecordsThresholds]):
    """Batches that no broker acknowledged and that their producer gave up.

    With acks=0, a broker can report an error only by closing the connection. If it closes one right after Produce
    requests while others continue, it refused at least one batch. Without other connections it is a warning.

    An idempotent producer gave up a batch if no attempt was acknowledged, and the producer then started a new epoch, or
    sent nothing more to the partition for `abandoned` while it continued elsewhere.

    Caveats: for acks=0, captures are needed: exports do not say who closed a connection. Proxies that close connections
    and expired authentication look like a refusal. An unanswered batch may have been stored. Producers without sequence
    numbers, and transactions, are not judged.
    """

    name: ClassVar[str] = "lost-records"
    summary: ClassVar[str] = "Records that were sent and that no broker acknowledged in the end."
    parameters_type = LostRecordsThresholds

    _silent = Tally("silent", (*CLIENT, ("whole_id", pa.int64())), sums=("records",), highs=("bytes",))
    """Produce requests with acks=0 by connection."""

    def reads(self) -> Mapping[str, TableReading]:
        own = ("acks", "record_count", "request_size")
        return {
            "exchanges": TableReading((*ORDER, *ATTEMPT_COLUMNS, *own), ("Produce",)),
            TABLE: TRANSPORT_READING,
        }

    def shapes(self) -> Mapping[str, Shape]:
        return {
            **self._silent.shapes(),
            **attempt_shapes(),
            "links": links_shape(),
            "topics": Shape(keys=(("whole_id", pa.int64()), ("topic", pa.string()))),
            "evidence": evidence_shape(_FAILED),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == TABLE:
            add_links(self, batch)
            return
        batch = only(batch, in_any(batch, "api", ["Produce"]))
        without = pc.fill_null(pc.equal(column(batch, "acks"), 0), False)
        self._acks_zero(only(batch, without))
        batch = only(batch, pc.and_(pc.is_valid(column(batch, "acks")), pc.invert(without)))
        parts = named(exploded(batch, [*ORDER, *(one for one in ATTEMPT_COLUMNS if one != "partitions")]))
        add_attempts(self, parts)
        failed = pc.or_(
            in_any(parts, "status", ["unanswered"]), pc.greater(pc.fill_null(column(parts, "error_code"), 0), 0)
        )
        parts = only(parts, failed)
        notes = [
            f"from sequence {base}: {error_name(code) if code else status}"
            for base, code, status in zip(
                *(column(parts, name).to_pylist() for name in ("base_sequence", "error_code", "status")), strict=True
            )
        ]
        keys = {name: column(parts, name) for name, _ in _FAILED}
        self.parts["evidence"].add(evidence_columns(parts, keys, pa.array(notes, pa.string())))

    def _acks_zero(self, batch: pa.RecordBatch) -> None:
        keys = {**clients(batch), "whole_id": column(batch, "connection_id")}
        measures = {name: integers(column(batch, name)) for name in ("record_count", "request_size")}
        self._silent.add(self, batch, keys, records=measures["record_count"], bytes=measures["request_size"])
        parts = named(exploded(batch, ["connection_id"]))
        self.parts["topics"].add({"whole_id": column(parts, "connection_id"), "topic": column(parts, "topic")})

    def findings(self) -> list[Finding]:
        return [*self._closed_on(), *self._given_up()]

    # -- acks=0 --------------------------------------------------------------------------------------------------------

    def _closed_on(self) -> Iterator[Finding]:
        silent = {row["whole_id"]: (row, evidence) for row, evidence in self._silent.rows(self)}
        if not silent:
            return
        topics: dict[int, list[str]] = {}
        for row in self.resolved("topics").to_pylist():
            topics.setdefault(row["whole_id"], []).append(row["topic"] or "")
        for broker, links in sorted(links_by_broker(self).items()):
            found: dict[tuple[Any, Any, bool], list[TcpLink]] = {}
            for link, stayed in self._refused_links(links, silent):
                row = silent[link.connection_id][0]
                found.setdefault((row["client_id"], row["client_ip"], stayed), []).append(link)
            for key, closed in found.items():
                yield self._closed_finding(broker, closed, silent, topics, stayed=key[2])

    def _refused_links(self, links: list[TcpLink], silent: Mapping[int, Any]) -> Iterator[tuple[TcpLink, bool]]:
        """Connections that the broker closed right after acks=0, and whether others show that it kept running."""
        down = Spans(one.span for one in usual_absences(links))
        works = [link for link in links if link.works]
        opened = [link.time_ns for link in works]
        held = Spans((link.time_ns, link.over_ns) for link in works)
        for link in links:
            if link.connection_id not in silent or link.ended_by != "broker" or link.ended_ns is None:
                continue
            ended, last = link.ended_ns, silent[link.connection_id][0]["last"]
            if last is None or last < ended - self.thresholds.soon or down.surround(ended, ended):
                continue
            after = bisect_right(opened, ended)
            answered = after < len(opened) and opened[after] <= ended + STAYS_NS
            yield link, answered or held.surround(ended, ended + STAYS_NS)

    def _closed_finding(
        self,
        broker: str,
        closed: list[TcpLink],
        silent: Mapping[int, Any],
        topics: Mapping[int, list[str]],
        *,
        stayed: bool,
    ) -> Finding:
        rows = [silent[link.connection_id][0] for link in closed]
        evidence = [one for link in closed for one in silent[link.connection_id][1]]
        evidence.sort(key=lambda one: (one.time_ns or 0, one.connection_id, one.exchange_id or 0))
        names = sorted({name for link in closed for name in topics.get(link.connection_id, ())})
        largest = max(row["bytes"] for row in rows)
        ends = [link.ended_ns for link in closed if link.ended_ns is not None]
        where = f" for {some(names)}" if names else ""
        unsure = (
            ""
            if stayed
            else ("No other connection shows whether the broker kept running: it may have stopped instead. ")
        )
        return self.finding(
            "error" if stayed else "warning",
            f"{client(rows[0])} {'lost' if stayed else 'may have lost'} records sent with acks=0{where}: {broker} "
            f"closed {plural(len(closed), 'connection')} right after Produce requests",
            meaning=(
                f"{unsure}With acks=0 a broker answers an error by closing the connection: it refused at least one "
                "batch and did not read the following ones. It does not say why: unknown topic or partition, not the "
                "leader, no permission, or a batch that is damaged or too large (the largest request here has "
                f"{amount(largest)}). It is unknown how many of "
                f"{plural(sum(row['records'] for row in rows), 'record')} on "
                f"{'this connection' if len(closed) == 1 else 'these connections'} were stored."
            ),
            advice=(
                'Search the broker\'s log at that time for "Closing connection due to error during produce request", '
                "or send once with acks=1: the response then names the error."
            ),
            subject={**subject(rows[0], "client_id", "client_ip"), "broker": broker, "kind": "acks-zero"},
            count=len(closed),
            first=min(ends, default=None),
            last=max(ends, default=None),
            evidence=tuple(evidence[:MAX_EVIDENCE]),
            values={
                "connections": len(closed),
                "requests": sum(row["count"] for row in rows),
                "records": sum(row["records"] for row in rows),
                "largest_request": largest,
                "topics": names[:20],
            },
        )

    # -- idempotent producers ------------------------------------------------------------------------------------------

    def _given_up(self) -> Iterator[Finding]:
        failed = self.resolved("failed")
        refused = pc.is_in(failed.column("error_code"), value_set=pa.array(sorted(_REFUSED), pa.int64()))
        judged = pc.and_(pc.greater_equal(failed.column("producer_id"), 0), pc.invert(refused))
        if not pc.any(judged).as_py():
            return
        attempts = Attempts(self)
        if not attempts.whole:
            return
        found: dict[tuple[Any, ...], dict[int, list[Attempt]]] = {}
        went: dict[tuple[Any, ...], int | None] = {}
        for one in attempts.failed:
            if one.producer_id < 0 or one.error_code in _REFUSED or attempts.is_stored(one):
                continue
            epoch = attempts.later_epoch(one)
            if epoch is None and attempts.silent_ns(one) < self.thresholds.abandoned:
                continue
            key = (*one.place, one.producer_id, one.producer_epoch)
            found.setdefault(key, {}).setdefault(one.base_sequence, []).append(one)
            went[key] = epoch if went.get(key) is None else went[key]
        evidence = self.evidence("evidence") if found else {}
        for key, batches in found.items():
            missed = any(attempts.is_missed(one) for every in batches.values() for one in every)
            yield self._given_up_finding(key, batches, went[key], evidence.get(key[:5], ()), missed=missed)

    def _given_up_finding(
        self,
        key: tuple[Any, ...],
        batches: Mapping[int, list[Attempt]],
        epoch: int | None,
        evidence: tuple[Evidence, ...],
        *,
        missed: bool,
    ) -> Finding:
        row = dict(
            zip(("client_id", "client_ip", "topic", "partition", "producer_id", "producer_epoch"), key, strict=True)
        )
        every = [one for some_of in batches.values() for one in some_of]
        records = sum(max(one.record_count for one in some_of) for some_of in batches.values())
        codes = sorted({one.error_code for one in every})
        causes = ", ".join("no response" if code == UNANSWERED else str(error_name(code)) for code in codes)
        how = f"continued with epoch {epoch}" if epoch is not None else "sent nothing more to this partition"
        times = [one.first for one in every if one.first is not None]
        lasts = [one.last for one in every if one.last is not None]
        tries = sum(one.count for one in every)
        stored = "The broker refused each attempt: the records are lost to the topic."
        if missed:
            stored = (
                "The broker does not have them: it refused the following batches with OUT_OF_ORDER_SEQUENCE_NUMBER."
            )
        elif UNANSWERED in codes:
            stored = "It is unknown whether the broker stored an attempt that it did not answer."
        return self.finding(
            "error",
            f"{client(row)} gave up {plural(len(batches), 'batch', 'batches')} with {plural(records, 'record')} for "
            f"{word(row['topic'])}-{row['partition']}: {causes} in {plural(tries, 'attempt')}, then it {how}",
            meaning=(
                "No attempt to send these records was acknowledged, and the producer stopped trying: after "
                f"delivery.timeout.ms it reports an error to its program. {stored}"
            ),
            advice=(
                "Check how the program handles failed sends (callback or future), and why the attempts failed: a "
                "stopped broker (broker-gone), late answers, or a delivery.timeout.ms that is too short."
            ),
            subject=subject(row, "client_id", "client_ip", "topic", "partition", "producer_id", "producer_epoch")
            | {"kind": "given-up"},
            count=tries,
            first=min(times, default=None),
            last=max(lasts, default=None),
            evidence=evidence,
            values={"batches": len(batches), "records": records, "attempts": tries, "next_epoch": epoch},
        )
