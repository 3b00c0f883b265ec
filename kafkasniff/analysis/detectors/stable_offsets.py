"""Open transactions that hold back what read_committed consumers get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import ORDER, column, exploded, in_any, is_follower, named, only
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence, Finding
from kafkasniff.analysis.detectors.tally import CLIENT, CLIENT_COLUMNS, CLUSTER, CLUSTER_COLUMNS, Tally, clusters
from kafkasniff.analysis.detectors.wording import client, elapsed, in_cluster, plural, some
from kafkasniff.analysis.parameters import Duration
from kafkasniff.analysis.partials import Shape
from kafkasniff.text.printable import word

_PARTITION: Final[Any] = (*CLUSTER, ("topic", pa.string()), ("partition", pa.int32()))
_STABLE: Final = ("last_stable_offset", pa.int64())
_NAME: Final = ("transactional_id", pa.string())
MAX_WRITTEN: Final = 1 << 17
"""Maximum number of batches of transactions that are remembered, the earliest."""
_LIKE: Final = 0.5
"""A wait is usual if the partition has seen one of at least this fraction of it, after which the offset moved."""

Row = dict[str, Any]


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

    _blocked = Tally("blocked", (*_PARTITION, _STABLE), highs=("high_watermark",))

    def reads(self) -> Mapping[str, TableReading]:
        own = ("api", *ORDER, *CLIENT_COLUMNS, *CLUSTER_COLUMNS, "transactional_id", "partitions")
        return {"exchanges": TableReading(own, ("Fetch", "Produce"))}

    def shapes(self) -> Mapping[str, Shape]:
        first: Any = tuple((name, kind, "first") for name, kind in (_NAME, *CLIENT))
        place: Any = tuple((name, pa.int64(), "first") for name in ORDER)
        return {
            **super().shapes(),
            "highest": Shape(keys=_PARTITION, measures=(("last_stable_offset", pa.int64(), "max"),)),
            "written": Shape(
                keys=(*_PARTITION, ("offset", pa.int64())),
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
        highest = {_place(row): row["last_stable_offset"] for row in self.resolved("highest").to_pylist()}
        written = {(*_place(row), row["offset"]): row for row in self.resolved("written").to_pylist()}
        # The longest wait of each partition after which the offset moved.
        usual: dict[tuple[Any, ...], int] = {}
        for row, _ in blocked:
            row["moved"] = highest[_place(row)] > row["last_stable_offset"]
            if row["moved"]:
                usual[_place(row)] = max(usual.get(_place(row), 0), _lasted(row))
        found: dict[tuple[Any, ...], list[tuple[Row, tuple[Evidence, ...], Row | None]]] = {}
        for row, evidence in stuck:
            is_usual = usual.get(_place(row), 0) >= _lasted(row) * _LIKE
            writer = written.get((*_place(row), row["last_stable_offset"]))
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
        seen = sorted(
            (one for _, evidence, _ in rows for one in evidence),
            key=lambda one: (one.time_ns or 0, one.connection_id, one.exchange_id or 0),
        )
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
            count=sum(row["count"] for row, _, _ in rows),
            first=min(row["first"] for row, _, _ in rows),
            last=max(row["last"] for row, _, _ in rows),
            evidence=(*began, *seen)[:MAX_EVIDENCE],
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


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name, _ in _PARTITION)


def _lasted(row: Row) -> int:
    lasted: int = row["last"] - row["first"]
    return lasted


def _label(row: Row) -> str:
    return f"{word(row['topic'])}-{row['partition']}"
