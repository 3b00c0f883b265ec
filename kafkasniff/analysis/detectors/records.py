"""Records that are damaged, lost on the way to the broker, or overwritten by a later leader; malformed messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import (
    ORDER,
    broker_endpoint,
    column,
    encoded,
    exploded,
    floor_divided,
    in_any,
    integers,
    named,
    only,
)
from kafkasniff.analysis.detectors.absences import (
    TRANSPORT_READING,
    Spans,
    TcpLink,
    add_links,
    links_by_broker,
    links_shape,
    usual_absences,
)
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.producers import (
    ATTEMPT_COLUMNS,
    UNANSWERED,
    Attempt,
    Attempts,
    add_attempts,
    attempt_shapes,
)
from kafkasniff.analysis.detectors.tally import (
    BROKER,
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    Row,
    Tally,
    clients,
    clusters,
)
from kafkasniff.analysis.detectors.wording import client, in_cluster, plural, some, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.tables.rows.transport import TABLE
from kafkasniff.text.printable import word

_UNREADABLE: Final = pa.array(["array-too-long", "body-truncated", "length-negative", "varint-too-long"])
"""Problems that end a body before its end."""
_INCOMPLETE: Final = pa.array(["body-let-go", "body-skipped", "frame-incomplete", "stream-cut"])
"""Not all bytes were there to be decoded."""
_CRC_MISMATCH: Final = "crc-mismatch"
_PRODUCE: Final = "Produce"


class MalformedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `MalformedMessages`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many malformed messages.")] = 1


class MalformedMessages(Detector[MalformedThresholds]):
    """Requests and responses that are captured whole, but cannot be decoded to their end as their API and version say.

    Brokers close the connection at such a request (InvalidRequestException), clients at such a response.

    Caveats: forks of Kafka may have other fields in an API of the same number. An exchange does not say whether its
    request or its response is malformed; `decode -v` does.
    """

    name: ClassVar[str] = "malformed-messages"
    by_absence = True
    summary: ClassVar[str] = "Messages that do not follow the protocol of the version that they name."
    parameters_type = MalformedThresholds

    _malformed = Tally("malformed", (*CLIENT, *BROKER, ("api", pa.string()), ("api_version", pa.int16())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_version", *CLIENT_COLUMNS, "broker_ip", "broker_port", "problems")
        return {"exchanges": TableReading((*ORDER, *own))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        kinds = column(batch, "problems")
        flat, rows = pc.list_flatten(kinds).cast(pa.string()), pc.list_parent_indices(kinds)
        cut = pc.unique(rows.filter(pc.is_in(flat, value_set=_INCOMPLETE)))
        unreadable = pc.and_(pc.is_in(flat, value_set=_UNREADABLE), pc.invert(pc.is_in(rows, value_set=cut)))
        places, firsts = np.unique(rows.filter(unreadable).to_numpy(), return_index=True)
        batch = batch.take(pa.array(places))
        keys = {name: column(batch, name) for name in ("api", "api_version")}
        notes = flat.filter(unreadable).take(pa.array(firsts))
        self._malformed.add(self, batch, {**clients(batch, broker=True), **keys}, notes)

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._malformed.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            what = plural(row["count"], f"{word(row['api'])} v{row['api_version']} exchange")
            yield self.row_finding(
                row,
                evidence,
                "warning",
                f"{what} of {client(row)} with {row['broker']} {'has' if row['count'] == 1 else 'have'} a malformed "
                "request or response: its body does not follow the protocol",
                meaning=(
                    "All bytes are in the capture, but fields end beyond the message, or have impossible lengths. The "
                    "sender encodes another version than the header names, has a bug, or something on the way changes "
                    "data. Brokers and clients close the connection at such a message."
                ),
                advice=(
                    "Look at the fields before the problem (decode -v, --hex) and compare them with the definition "
                    "(kafkasniff api). If several clients are affected, look for a proxy, or a fork of Kafka."
                ),
                subject=("client_id", "client_ip", "broker", "api", "api_version"),
                values={},
            )


class DamagedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `DamagedRecords`."""

    at_least: Annotated[int, Meta(ge=1, description="Report from this many messages with a damaged batch.")] = 1


class DamagedRecords(Detector[DamagedThresholds]):
    """Record batches whose checksum (CRC) does not match their bytes, in Produce requests and Fetch responses.

    Brokers refuse such batches of producers (CORRUPT_MESSAGE), but send what their log has without a check. Consumers
    stop at it.

    Caveats: the topic is that of the message's first partition with records.
    """

    name: ClassVar[str] = "damaged-records"
    summary: ClassVar[str] = "Record batches with a wrong checksum: damaged on a disk, on the way, or by a client."
    parameters_type = DamagedThresholds

    _damaged = Tally("damaged", (*CLIENT, *BROKER, ("api", pa.string()), ("topic", pa.string())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *CLIENT_COLUMNS, "broker_ip", "broker_port", "problems", "partitions")
        return {"exchanges": TableReading((*ORDER, *own))}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        kinds = column(batch, "problems")
        damaged = pc.equal(pc.list_flatten(kinds).cast(pa.string()), _CRC_MISMATCH)
        places = pc.unique(pc.list_parent_indices(kinds).filter(damaged))
        batch = batch.take(places)
        if not batch.num_rows:
            return
        rows = batch.append_column("row", pa.array(np.arange(batch.num_rows)))
        parts = named(exploded(rows, ["row"]))
        parts = only(parts, pc.greater(column(parts, "record_count"), 0))
        numbers, firsts = np.unique(column(parts, "row").to_numpy(), return_index=True)
        topics = np.full(batch.num_rows, None, object)
        topics[numbers] = np.array(column(parts, "topic").take(pa.array(firsts)).to_pylist(), object)
        keys = {"api": encoded(batch, "api"), "topic": pa.array(topics, pa.string())}
        self._damaged.add(self, batch, {**clients(batch, broker=True), **keys})

    def findings(self) -> Iterator[Finding]:
        for row, evidence in self._damaged.rows(self, lambda row: row["count"] >= self.thresholds.at_least):
            sent = row["api"] == _PRODUCE
            what = plural(row["count"], f"{word(row['api'])} {'request' if sent else 'response'}")
            to = f"of {client(row)} to {row['broker']}" if sent else f"of {row['broker']} to {client(row)}"
            topic = "" if row["topic"] is None else f" for topic {word(row['topic'])}"
            yield self.row_finding(
                row,
                evidence,
                "error",
                f"{what} {to}{topic} with a damaged record batch: its checksum does not match its bytes",
                meaning=(
                    "The client or something on the way, such as a network card or proxy, damages batches. The broker "
                    "checks them and refuses them (CORRUPT_MESSAGE); retries help only if the damage is rare."
                    if sent
                    else "Brokers send batches as their log has them, so the log of this broker is damaged (its disk, "
                    "memory or file system), or something on the way damages the data. Consumers and followers check "
                    "each batch: they stop here, and come back to it after a restart."
                ),
                advice=(
                    "Find out whether all clients of this machine or version are affected, and compare with a capture "
                    "at the other end: if the checksum is right there, the network damages the data."
                    if sent
                    else "Check the log segment on the broker (kafka-dump-log --deep-iteration) and its disk. If "
                    "another replica is intact, move the leader there and let this broker fetch the partition again; "
                    "otherwise consumers have to seek to the offset after the batch."
                ),
                subject=("client_id", "client_ip", "broker", "topic"),
                values={"api": row["api"]},
            )


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
    by_closing = True
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
        self.parts["topics"].add({"whole_id": column(parts, "connection_id"), "topic": encoded(parts, "topic")})

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
        down = Spans(absence.span for absence in usual_absences(links))
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
        for attempt in attempts.failed:
            if attempt.producer_id < 0 or attempt.error_code in _REFUSED or attempts.is_stored(attempt):
                continue
            epoch = attempts.later_epoch(attempt)
            if epoch is None and attempts.silent_ns(attempt) < self.thresholds.abandoned:
                continue
            key = (*attempt.place, attempt.producer_id, attempt.producer_epoch)
            found.setdefault(key, {}).setdefault(attempt.base_sequence, []).append(attempt)
            went[key] = epoch if went.get(key) is None else went[key]
        evidence = self.evidence("evidence") if found else {}
        for key, batches in found.items():
            missed = any(attempts.is_missed(attempt) for every in batches.values() for attempt in every)
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
        attempts = [attempt for some_of in batches.values() for attempt in some_of]
        records = sum(max(attempt.record_count for attempt in some_of) for some_of in batches.values())
        codes = sorted({attempt.error_code for attempt in attempts})
        causes = ", ".join("no response" if code == UNANSWERED else str(error_name(code)) for code in codes)
        how = f"continued with epoch {epoch}" if epoch is not None else "sent nothing more to this partition"
        times = [attempt.first for attempt in attempts if attempt.first is not None]
        lasts = [attempt.last for attempt in attempts if attempt.last is not None]
        tries = sum(attempt.count for attempt in attempts)
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


_LOG: Final[Any] = (*CLUSTER, ("topic", pa.string()), ("topic_id", pa.string()), ("partition", pa.int32()))
_SPAN_NS: Final = 10_000_000_000
MAX_SPANS: Final = 1 << 17
"""Maximum number of time spans of partitions that are kept; partitions with the fewest are dropped first."""


class OverwrittenThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `OverwrittenRecords`."""

    at_least: Annotated[
        int, Meta(ge=1, description="Report from this many offsets that were given twice, in at least 3 requests.")
    ] = 3


class OverwrittenRecords(Detector[OverwrittenThresholds]):
    """Records that a broker acknowledged, and that are lost: a later leader has given their offsets to other records.

    This happens if a replica becomes leader that did not have these records: after an unclean election, or with acks=1,
    if the leader dies before its followers have fetched them. Retries keep the offset of the first attempt, so only
    offsets that the new leader gives without a gap count.

    Caveats: a topic that was deleted and created again looks the same if Produce requests have no topic ids (before
    version 13).
    """

    name: ClassVar[str] = "overwritten-records"
    summary: ClassVar[str] = "Acknowledged records that are lost, because a later leader did not have them."
    parameters_type = OverwrittenThresholds
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        return {"exchanges": TableReading(("api", *ORDER, *CLUSTER_COLUMNS, "partitions"), ("Produce",))}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        measures: Any = (
            *((name, number, "first") for name in ORDER),
            ("low", number, "min"),
            ("high", number, "max"),
            ("last", number, "max"),
            *((name, number, "sum") for name in ("records", "requests")),
        )
        keys = (*_LOG, ("broker", pa.string()), ("span", number))
        group = tuple(name for name, _ in _LOG)
        return {"spans": Shape(keys=keys, measures=measures, order=ORDER, group=group, bound=MAX_SPANS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.and_(in_any(batch, "api", ["Produce"]), pc.is_valid(column(batch, "time_ns"))))
        batch = batch.append_column("broker", broker_endpoint(batch))
        rows = named(exploded(batch, [*ORDER, *CLUSTER_COLUMNS, "broker"]))
        stored = pc.and_(pc.equal(column(rows, "error_code"), 0), pc.greater_equal(column(rows, "offset"), 0))
        rows = only(rows, pc.and_(stored, pc.greater(column(rows, "record_count"), 0)))
        offset, count, time = (column(rows, name) for name in ("offset", "record_count", "time_ns"))
        names = (*(name for name, _ in _LOG if name != "cluster"), "broker", *ORDER)
        self.parts["spans"].add(
            {
                **clusters(rows),
                **{name: column(rows, name) for name in names},
                "span": floor_divided(time, _SPAN_NS),
                "low": offset,
                "high": pc.subtract(pc.add(offset, count), 1),
                "last": time,
                "records": count,
                "requests": np.ones(rows.num_rows, np.int64),
            }
        )

    def findings(self) -> Iterator[Finding]:
        logs: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.resolved("spans").to_pylist():
            logs.setdefault(tuple(row[name] for name, _ in _LOG), []).append(row)
        for rows in logs.values():
            rows.sort(key=lambda row: (row["time_ns"], row["connection_id"]))
            found = next(self._overwriting(rows), None)
            if found is not None:
                yield self._finding(*found)

    def _overwriting(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
        """The span with the highest offset before, and the first one of another broker that begins below."""
        for index, row in enumerate(rows):
            before = [one for one in rows[:index] if one["broker"] != row["broker"] and one["last"] < row["time_ns"]]
            top = max(before, key=lambda one: one["high"], default=None)
            if top is None or row["requests"] < 3 or row["records"] != row["high"] - row["low"] + 1:
                continue
            if min(top["high"], row["high"]) - row["low"] + 1 >= self.thresholds.at_least:
                yield top, row

    def _finding(self, top: Row, row: Row) -> Finding:
        lost = top["high"] - row["low"] + 1
        name = f"{word(row['topic'])}-{row['partition']}"
        return self.finding(
            "error",
            f"{plural(lost, 'acknowledged record')} of {name}{in_cluster(self.clusters, row['cluster'])} lost: "
            f"{top['broker']} gave offsets up to {top['high']:,}, and {row['broker']} continued at {row['low']:,}",
            meaning=(
                "The new leader did not have the last records of the old one, and gave their offsets to others. "
                "Producers got an acknowledgement for them. Consumers that had read further start over at the point "
                "where the logs differ, or skip what was written there."
            ),
            advice=(
                "Set acks=all and min.insync.replicas=2 with three replicas, and leave unclean.leader.election.enable "
                "off. Find out which records are missing from the producers' own data, at these offsets and times."
            ),
            subject={"topic": row["topic"], "partition": row["partition"]}
            | ({} if row["cluster"] is None else {"cluster": row["cluster"]}),
            count=lost,
            first=row["time_ns"],
            last=row["last"],
            evidence=(
                Evidence(row["connection_id"], row["exchange_id"], row["time_ns"], f"first request to {row['broker']}"),
            ),
            values={"before": top["broker"], "after": row["broker"], "high": top["high"], "low": row["low"]},
        )
