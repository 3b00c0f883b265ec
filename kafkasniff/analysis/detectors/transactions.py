"""Transactions that never end, the consumers that they hold back, and producers that fence each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import (
    ORDER,
    column,
    encoded,
    exploded,
    floor_divided,
    in_any,
    integers,
    is_follower,
    named,
    only,
    order_columns,
)
from kafkasniff.analysis.detectors.detector import Detector, Effect
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding, Severity
from kafkasniff.analysis.detectors.tally import (
    CLIENT,
    CLIENT_COLUMNS,
    CLUSTER,
    CLUSTER_COLUMNS,
    PARTITION,
    Row,
    Tally,
    clients,
    clusters,
    in_all,
    partition_of,
)
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, some, subject
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.analysis.questions.errors import error_codes
from kafkasniff.engine.roles import Bodies
from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.text.printable import word

_BEGIN: Final = "begin"
_END: Final = "end"
_FENCES: Final = "fenced"
_OPEN: Final = "open"
"""Kinds of events of a transaction, or of how it ended."""
_NAME: Final = ("transactional_id", pa.string())
SHOWN: Final = 3
"""Clients that a sentence names."""
MAX_TAKERS: Final = 1 << 16
"""Maximum number of producers whose InitProducerId is remembered."""
MAX_SECONDS: Final = 1 << 18
"""Maximum number of seconds of transactional ids in which something began or ended, the earliest."""
_SECOND: Final = 1_000_000_000
_BEGINS: Final = ("AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit")
"""APIs that are only used within a transaction. Since KIP-890 partitions need not be added first."""
_ENDS: Final = ("EndTxn", "InitProducerId")
"""InitProducerId aborts an open transaction of its predecessor (KIP-98)."""
_FENCED: Final = (47, 90)
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""
_INVALID_STATE: Final = 48
"""INVALID_TXN_STATE: with KIP-890, EndTxn of a producer whose transaction another one has aborted."""


class HangingThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `HangingTransactions`."""

    timeout: Annotated[
        Duration,
        Meta(
            ge=1,
            description="Timeout to assume if the InitProducerId that sets it was not captured.",
        ),
    ] = 60_000_000_000


class HangingTransactions(Detector[HangingThresholds]):
    """Transactions that were open for longer than their timeout (`transaction.timeout.ms`).

    The coordinator aborts them; their producer learns this when its next request is refused (INVALID_PRODUCER_EPOCH,
    PRODUCER_FENCED). Those that their producer has not ended by the end of the capture count, too.

    Caveats: if EndTxn is not in the capture, the transaction appears not to have ended.
    """

    name: ClassVar[str] = "hanging-transactions"
    by_absence = True
    summary: ClassVar[str] = "Transactions that did not end within their timeout."
    parameters_type = HangingThresholds
    bodies: ClassVar[Bodies] = {("request", "InitProducerId"): None}
    parts_clusters = True

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "transactional_id", "error_code", "request_body", *CLIENT_COLUMNS, *CLUSTER_COLUMNS)
        return {"exchanges": TableReading((*ORDER, *own)), "connections": TableReading(("end_time_ns",), optional=True)}

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        keys = (*CLUSTER, _NAME, ("kind", pa.string()), ("second", number))
        who: Any = tuple((name, kind, "first") for name, kind in CLIENT)
        place: Any = tuple((name, number, "first") for name in ORDER)
        # The same in reverse order: the last event.
        turned: Any = (("before", number, "first"), *place[1:])
        return {
            "firsts": Shape(keys=keys, measures=(*place, *who), order=ORDER, keep="earliest", bound=MAX_SECONDS),
            "lasts": Shape(
                keys=keys, measures=(*turned, *who), order=("before", *ORDER[1:]), keep="earliest", bound=MAX_SECONDS
            ),
            "timeouts": Shape(keys=(*CLUSTER, _NAME), measures=(("timeout_ms", number, "max"),)),
            "end": Shape(keys=(("one", pa.int8()),), measures=(("end_ns", number, "max"),)),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        time = column(batch, "end_time_ns" if table == "connections" else "time_ns")
        self.parts["end"].add({"one": [0], "end_ns": [pc.max(time).as_py()]})
        if table == "connections":
            return
        mask = pc.and_(in_any(batch, "api", [*_BEGINS, *_ENDS]), pc.is_valid(column(batch, "transactional_id")))
        # Other requests that the coordinator refused began and ended nothing.
        code = pc.fill_null(column(batch, "error_code"), 0)
        known = pc.is_in(code, value_set=pa.array((0, *_FENCED), code.type))
        batch = only(batch, pc.and_(pc.and_(mask, known), pc.is_valid(column(batch, "time_ns"))))
        fenced = pc.greater(pc.fill_null(column(batch, "error_code"), 0), 0)
        name = column(batch, "transactional_id")
        found = pc.struct_field(
            pc.extract_regex(column(batch, "request_body"), r'"transaction_timeout_ms":(?P<number>-?\d{1,10})[,}]'),
            "number",
        )
        self.parts["timeouts"].add({**clusters(batch), "transactional_id": name, "timeout_ms": found.cast(pa.int64())})
        keys = {
            **clusters(batch),
            "transactional_id": name,
            "kind": pc.if_else(fenced, _FENCES, pc.if_else(in_any(batch, "api", _ENDS), _END, _BEGIN)),
            "second": floor_divided(column(batch, "time_ns"), _SECOND),
        }
        rest = {**order_columns(batch), **clients(batch)}
        self.parts["firsts"].add({**keys, **rest})
        self.parts["lasts"].add({**keys, **rest, "before": pa.array(-integers(rest.pop("time_ns")))})

    def findings(self) -> Iterator[Finding]:
        timeouts = {
            (row["cluster"], row["transactional_id"]): row["timeout_ms"]
            for row in self.resolved("timeouts").to_pylist()
        }
        end = pc.max(self.parts["end"].table().column("end_ns")).as_py()
        by_name: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        for row in [*self.resolved("firsts").to_pylist(), *self.resolved("lasts").to_pylist()]:
            if "before" in row:
                row["time_ns"] = -row["before"]
            by_name.setdefault((row["cluster"], row["transactional_id"]), []).append(row)
        for place, rows in by_name.items():
            known = timeouts.get(place)
            timeout = self.thresholds.timeout if known is None else known * 1_000_000
            long = [span for span in _spans(rows, end, timeout) if span[1] - span[0]["time_ns"] > timeout]
            if long:
                yield self._finding(place, long, timeout, known is not None)

    def _finding(
        self, place: tuple[str | None, str], long: list[tuple[dict[str, Any], int, str]], timeout: int, known: bool
    ) -> Finding:
        cluster, name = place
        begin, over, _ = max(long, key=lambda one: one[1] - one[0]["time_ns"])
        open_ones, aborted = (sum(how == kind for _, _, how in long) for kind in (_OPEN, _FENCES))
        lasted = over - begin["time_ns"]
        never = f"; {aborted:,} aborted by the coordinator before the producer ended it" if aborted else ""
        never += f"; {open_ones:,} not ended by the producer in the capture" if open_ones else ""
        return self.finding(
            "error",
            f"{plural(len(long), 'transaction')} of {word(name)}{in_cluster(self.clusters, cluster)} open for longer "
            f"than {elapsed(timeout)}, the longest for {elapsed(lasted)}{never}",
            meaning=(
                "The coordinator aborts a transaction that times out, and read_committed consumers never get its "
                "records. Until then they get nothing after its first record, from any producer."
            ),
            advice=(
                "Check whether the producer died, or works too long between begin and commit; raise "
                "transaction.timeout.ms if necessary. kafka-transactions.sh finds transactions that the coordinator "
                "itself does not end (KIP-664)."
            ),
            subject={"transactional_id": name, **subject(begin, "client_id", "client_ip")},
            count=len(long),
            first=min(one[0]["time_ns"] for one in long),
            last=max(one[0]["time_ns"] for one in long),
            evidence=tuple(
                Evidence(
                    one["connection_id"],
                    one["exchange_id"],
                    one["time_ns"],
                    f"open for {elapsed(to - one['time_ns'])}",
                )
                for one, to, _ in sorted(long, key=lambda one: one[0]["time_ns"])[:MAX_EVIDENCE]
            ),
            values={
                "open_ms": lasted / 1e6,
                "timeout_ms": timeout / 1e6,
                "timeout_told": known,
                "not_ended": open_ones,
                "aborted": aborted,
            },
        )

    def effects(self, finding: Finding) -> Iterator[Effect]:
        if finding.values["aborted"]:
            names = ("client_id", "client_ip", "transactional_id")
            yield "fenced-producers", {name: finding.subject[name] for name in names}


def _spans(rows: list[dict[str, Any]], end: int | None, timeout: int) -> Iterator[tuple[dict[str, Any], int, str]]:
    """Transactions: their beginning, their end or the first request that shows it, and its kind."""
    began: dict[str, Any] | None = None
    for row in sorted(rows, key=lambda row: (row["time_ns"], row["connection_id"], row["exchange_id"])):
        if row["kind"] == _BEGIN:
            began = began or row
        elif began is not None:
            # Before the timeout, it is a former producer that is refused.
            if row["kind"] == _FENCES and row["time_ns"] - began["time_ns"] <= timeout:
                continue
            yield began, row["time_ns"], row["kind"]
            began = None
    if began is not None and end is not None:
        yield began, end, _OPEN


class FencedThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `FencedProducers`."""

    at_least: Annotated[
        int, Meta(ge=1, description="This many fenced requests are a warning; fewer by the same client are a note.")
    ] = 3


class FencedProducers(Detector[FencedThresholds]):
    """Producers that are refused because another one has taken over their transactional id.

    It is a warning if a client with another id or address has taken over, and an error if clients take it over from
    each other.

    Caveats: new instances take over from old ones this way. INVALID_PRODUCER_EPOCH also follows a transaction that the
    coordinator aborted.
    """

    name: ClassVar[str] = "fenced-producers"
    summary: ClassVar[str] = "Producers fenced by others with the same transactional id."
    parameters_type = FencedThresholds
    error_bodies = True

    _fenced = Tally("fenced", (*CLIENT, _NAME, ("error_code", pa.int64())))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", "api_key", "transactional_id", *CLIENT_COLUMNS)
        more = ("error_code", "error_count", "partitions", "response_body")
        return {"exchanges": TableReading((*ORDER, *own, *more))}

    def shapes(self) -> Mapping[str, Shape]:
        last: Any = (("last", pa.int64(), "max"),)
        return {**super().shapes(), "takers": Shape(keys=(_NAME, *CLIENT), measures=last, bound=MAX_TAKERS)}

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        takes = only(batch, pc.and_(in_any(batch, "api", ["InitProducerId"]), pc.equal(column(batch, "error_code"), 0)))
        takes = only(takes, pc.is_valid(column(takes, "transactional_id")))
        name = {"transactional_id": encoded(takes, "transactional_id")}
        self.parts["takers"].add({**name, **clients(takes), "last": column(takes, "time_ns")})
        batch = only(batch, pc.greater(column(batch, "error_count"), 0))
        found = error_codes(batch)
        wanted = pa.array((*_FENCED, _INVALID_STATE), pa.int32())
        # An exchange counts once for each of its codes.
        found = found.filter(pc.is_in(found.column("code"), value_set=wanted))
        found = found.group_by(["row", "code"], use_threads=False).aggregate([])
        batch = batch.take(found.column("row").combine_chunks())
        keys = {
            **clients(batch),
            "transactional_id": encoded(batch, "transactional_id"),
            "error_code": found.column("code"),
        }
        self._fenced.add(self, batch, keys, column(batch, "api"))

    def findings(self) -> Iterator[Finding]:
        takers: dict[str, set[tuple[Any, Any]]] = {}
        for row in self.parts["takers"].table().to_pylist():
            takers.setdefault(row["transactional_id"], set()).add((row["client_id"], row["client_ip"]))
        rows = [
            (row, evidence)
            for row, evidence in self._fenced.rows(self)
            if row["error_code"] != _INVALID_STATE
            or takers.get(row["transactional_id"], set()) - {(row["client_id"], row["client_ip"])}
        ]
        fenced: dict[str | None, set[tuple[Any, Any]]] = {}
        for row, _ in rows:
            fenced.setdefault(row["transactional_id"], set()).add((row["client_id"], row["client_ip"]))
        for row, evidence in rows:
            known = row["transactional_id"]
            name = "" if known is None else f" ({word(known)})"
            who = (row["client_id"], row["client_ip"])
            others = takers.get(known, set()) - {who} if known is not None else set()
            severity: Severity = "warning" if others or row["count"] >= self.thresholds.at_least else "note"
            mutual = known is not None and len(fenced[known]) > 1
            names = " and ".join(sorted(client({"client_id": one, "client_ip": ip}) for one, ip in others)[:SHOWN])
            by = f"; {names} took it over" if others else ""
            yield self.row_finding(
                row,
                evidence,
                "error" if mutual else severity,
                f"{plural(row['count'], 'request')} of {client(row)}{name} refused with "
                f"{error_name(row['error_code'])}{by}",
                meaning=(
                    "Another producer started with the same transactional id, or the coordinator aborted a "
                    "transaction that timed out. This producer can no longer write."
                    if not others
                    else "Two producers with the same transactional id ran at the same time. The coordinator aborted "
                    "the transaction of the older one, which can no longer write."
                ),
                advice=(
                    "Nothing if an instance replaced one that was assumed dead. Otherwise two programs share a "
                    "transactional.id, or transactions last longer than transaction.timeout.ms."
                    if not others
                    else "Give each program its own transactional.id. If one instance replaced another, stop the old "
                    "one before the new one starts."
                ),
                subject=("client_id", "client_ip", "transactional_id", "error_code"),
                values={"requests": row["count"], "mutual": mutual},
            )


_STABLE: Final = ("last_stable_offset", pa.int64())
MAX_WRITTEN: Final = 1 << 17
"""Maximum number of batches of transactions that are remembered, the earliest."""
_LIKE: Final = 0.5
"""A wait is usual if the partition has seen one of at least this fraction of it, after which the offset moved."""


class StuckThresholds(Parameters, frozen=True, kw_only=True):
    """Thresholds of `StuckStableOffsets`."""

    at_least: Annotated[
        Duration, Meta(ge=1, description="Report consumers that got nothing for this long, although there are records.")
    ] = 5_000_000_000


class StuckStableOffsets(Detector[StuckThresholds]):
    """read_committed consumers at a last stable offset that does not move, although the partition has more records.

    A transaction that is not over holds back everything after its first record, of all producers. If the offset moved
    later, or did after such a time before, it is a note: some programs commit rarely on purpose.

    Caveats: the transaction is named only if its first batch was captured.
    """

    name: ClassVar[str] = "stuck-stable-offsets"
    summary: ClassVar[str] = "read_committed consumers that wait for the end of an open transaction."
    parameters_type = StuckThresholds
    parts_clusters = True

    _blocked = Tally("blocked", (*PARTITION, _STABLE), highs=("high_watermark",))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "transactional_id", "partitions")
        return {"exchanges": TableReading(own, ("Fetch", "Produce"))}

    def shapes(self) -> Mapping[str, Shape]:
        first: Any = tuple((name, kind, "first") for name, kind in (_NAME, *CLIENT))
        place: Any = tuple((name, pa.int64(), "first") for name in ORDER)
        return {
            **super().shapes(),
            "highest": Shape(keys=PARTITION, measures=(("last_stable_offset", pa.int64(), "max"),)),
            "written": Shape(
                keys=(*PARTITION, ("offset", pa.int64())),
                measures=(*first, *place),
                order=ORDER,
                keep="earliest",
                bound=MAX_WRITTEN,
            ),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        batch = only(batch, pc.is_valid(column(batch, "time_ns")))
        self._add_written(only(batch, pc.is_valid(column(batch, "transactional_id"))))
        batch = only(
            batch, pc.and_(in_any(batch, "api", ["Fetch"]), pc.invert(is_follower(column(batch, "client_id"))))
        )
        rows = self._partitions(batch, "last_stable_offset")
        self.parts["highest"].add(
            {name: column(rows, name) for name in ("topic", "partition", "last_stable_offset")} | clusters(rows)
        )
        stable, end = column(rows, "last_stable_offset"), column(rows, "high_watermark")
        nothing = pc.equal(pc.fill_null(column(rows, "record_count"), 0), 0)
        # A fetch session asks without naming the offset again. Others read uncommitted records, up to the end.
        waits = pc.fill_null(pc.equal(column(rows, "offset"), stable), True)
        rows = only(rows, pc.and_(pc.and_(nothing, waits), pc.greater(end, stable)))
        keys = {name: column(rows, name) for name in ("topic", "partition", "last_stable_offset")}
        self._blocked.add(self, rows, {**clusters(rows), **keys}, high_watermark=column(rows, "high_watermark"))

    def _add_written(self, batch: pa.RecordBatch) -> None:
        rows = self._partitions(only(batch, in_any(batch, "api", ["Produce"])), "offset")
        names = ("topic", "partition", "offset", "transactional_id", *CLIENT_COLUMNS, *ORDER)
        self.parts["written"].add({**clusters(rows), **{name: column(rows, name) for name in names}})

    @staticmethod
    def _partitions(batch: pa.RecordBatch, offset: str) -> pa.RecordBatch:
        """The partitions without an error that have this offset."""
        rows = named(exploded(batch, [*ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "transactional_id"]))
        known = pc.fill_null(pc.greater_equal(column(rows, offset), 0), False)
        return only(rows, pc.and_(known, pc.equal(column(rows, "error_code"), 0)))

    def findings(self) -> Iterator[Finding]:
        blocked = list(self._blocked.rows(self))
        stuck = [one for one in blocked if _lasted(one[0]) >= self.thresholds.at_least]
        if not stuck:
            return
        highest = {partition_of(row): row["last_stable_offset"] for row in self.resolved("highest").to_pylist()}
        written = {(*partition_of(row), row["offset"]): row for row in self.resolved("written").to_pylist()}
        # The longest wait of each partition after which the offset moved.
        usual: dict[tuple[Any, ...], int] = {}
        for row, _ in blocked:
            row["moved"] = highest[partition_of(row)] > row["last_stable_offset"]
            if row["moved"]:
                usual[partition_of(row)] = max(usual.get(partition_of(row), 0), _lasted(row))
        found: dict[tuple[Any, ...], list[tuple[Row, tuple[Evidence, ...], Row | None]]] = {}
        for row, evidence in stuck:
            is_usual = usual.get(partition_of(row), 0) >= _lasted(row) * _LIKE
            writer = written.get((*partition_of(row), row["last_stable_offset"]))
            name = None if writer is None else writer["transactional_id"]
            found.setdefault((row["cluster"], name, is_usual), []).append((row, evidence, writer))
        for (cluster, name, is_usual), rows in found.items():
            rows.sort(key=lambda one: (-_lasted(one[0]), _label(one[0])))
            yield self._finding(cluster, name, is_usual, rows)

    def _finding(
        self,
        cluster: str | None,
        name: str | None,
        is_usual: bool,
        rows: list[tuple[Row, tuple[Evidence, ...], Row | None]],
    ) -> Finding:
        worst, _, writer = rows[0]
        lasted = _lasted(worst)
        waiting = sum(row["high_watermark"] - row["last_stable_offset"] for row, _, _ in rows)
        whose = (
            "an open transaction, whose beginning was not captured,"
            if writer is None
            else f"the open transaction of {word(name)} ({client(writer)})"
        )
        labels = some([_label(row) for row, _, _ in rows])
        who = {} if writer is None else {"transactional_id": name, **{one: writer[one] for one in CLIENT_COLUMNS}}
        began = (
            ()
            if writer is None
            else (
                Evidence(
                    writer["connection_id"], writer["exchange_id"], writer["time_ns"], "first batch of the transaction"
                ),
            )
        )
        found = in_all((row, evidence) for row, evidence, _ in rows)
        return self.finding(
            "note" if is_usual else "warning",
            f"{whose} held back {plural(waiting, 'record')} of {labels}{in_cluster(self.clusters, cluster)} from "
            f"read_committed consumers, for {elapsed(lasted)}{'' if worst['moved'] else ', and it did not end'}",
            meaning=(
                "The last stable offset does not move beyond the first record of an open transaction: read_committed "
                "consumers get no later record, of any producer."
            ),
            advice=(
                "Check whether the producer died between begin and commit: the coordinator aborts its transaction "
                "after transaction.timeout.ms. If it works that long, let it commit more often. "
                "kafka-transactions.sh find-hanging and abort help if the coordinator does not end it (KIP-664)."
            ),
            subject={
                **who,
                "topic": worst["topic"],
                "partition": worst["partition"],
                **({} if cluster is None else {"cluster": cluster}),
            },
            **found | {"evidence": (*began, *found["evidence"])[:MAX_EVIDENCE]},
            values={
                "blocked_ms": lasted / 1e6,
                "records": waiting,
                "last_stable_offset": worst["last_stable_offset"],
                "high_watermark": worst["high_watermark"],
                "moved": worst["moved"],
                "usual": is_usual,
                "partitions": [_label(row) for row, _, _ in rows[:MAX_EVIDENCE]],
            },
        )


def _lasted(row: Row) -> int:
    lasted: int = row["last"] - row["first"]
    return lasted


def _label(row: Row) -> str:
    return f"{word(row['topic'])}-{row['partition']}"
