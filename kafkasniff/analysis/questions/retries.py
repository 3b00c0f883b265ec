"""Records that producers sent more than once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import (
    TIME,
    brokers,
    column,
    datetimes,
    exploded,
    in_any,
    integers,
    keys_of,
    named,
    only,
    table_of,
)
from kafkasniff.analysis.partials import Shape

SEQUENCES: Final = 1 << 31
"""Sequence numbers wrap around after 2**31 records (`DefaultRecordBatch.incrementSequence`)."""
MAX_RECORDS: Final = 1 << 20
"""Maximum number of records without a sequence number that are remembered; if there are more, a sample."""
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
DUPLICATE_SEQUENCE_NUMBER: Final = 46

_PRODUCER: Final[Any] = (
    ("client_id", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int32()),
)
_NUMBERED: Final[Any] = (("cluster", pa.string()), *_PRODUCER)
"""Producers with sequence numbers: different clusters assign the same producer ids. Endpoints of brokers represent
clusters until these are known.
"""
_COUNTS: Final = ("batches", "records", "duplicate_errors", "out_of_order_errors")


class Retries(Accumulator[Parameters]):
    """Records that were produced again: by sequence number, and for other producers by the records themselves.

    Kind `sequence`: an idempotent producer numbers its records per partition, and retransmits them with the same
    numbers; the broker stores them once. After `2**31` records of a partition numbers are reused.

    Kind `records` (from the table `records`): the same keys, values, headers and timestamps in two Produce requests of
    one client for one partition, without sequence numbers; the topic may have them twice. Batches of one millisecond
    with only equal records look the same, and so do equal records in the oldest format, which has no timestamps. Above
    a million records, a sample is compared.

    Only producers that repeated something, or got an out-of-order error, are listed.
    """

    name: ClassVar[str] = "retries"
    summary: ClassVar[str] = "Duplicate producer sequences, and records that were produced again."
    essential: ClassVar[tuple[str, ...]] = ("kind", "client_id", "topic", "partition", "repeated_records")
    columns: ClassVar[Mapping[str, str]] = {
        "kind": ("sequence: stored once; records: perhaps stored twice"),
        "producer_id": "id of the producer; null for `records`",
        "producer_epoch": "epoch of the producer",
        "records": "records that it sent to the partition",
        "repeated_records": "those of them sent before",
        "repeated_batches": "requests that repeated another; null for `sequence`",
        "duplicate_errors": "responses with DUPLICATE_SEQUENCE_NUMBER",
        "out_of_order_errors": "responses with OUT_OF_ORDER_SEQUENCE_NUMBER",
        "first": "time of the first of its requests; for `records` of the first that repeated another",
        "last": "time of the last of them",
    }

    def reads(self) -> Mapping[str, TableReading]:
        records = ("api", "connection_id", "exchange_id", "time", "topic", "topic_id", "partition", "timestamp")
        more = ("key", "value", "headers", "producer_id", "control")
        return {
            "exchanges": TableReading(
                ("api", "connection_id", "time_ns", "client_id", "broker_ip", "broker_port", "partitions"), ("Produce",)
            ),
            "records": TableReading((*records, *more), ("Produce",), optional=True),
        }

    def shapes(self) -> Mapping[str, Shape]:
        number = pa.int64()
        times: Any = (("first", number, "min"), ("last", number, "max"))
        counts: Any = tuple((name, number, "sum") for name in _COUNTS)
        record: Any = (
            ("fingerprint", number),
            ("connection_id", number),
            ("exchange_id", number),
            ("topic", pa.string()),
            ("partition", pa.int32()),
        )
        return {
            # The number of times that a sequence number was sent is the sum of the steps up to it. Where one batch ends
            # and the next begins, the steps cancel out.
            "steps": Shape(
                keys=(*_NUMBERED, ("position", number)),
                measures=(("step", number, "sum"),),
                without_zero="step",
                group=tuple(name for name, _ in _NUMBERED),
            ),
            "producers": Shape(keys=_NUMBERED, measures=(*counts, *times), weight="batches"),
            "records": Shape(
                keys=record,
                measures=(("times", number, "sum"), ("time_us", number, "min")),
                keep="sampled",
                sample="fingerprint",
                bound=MAX_RECORDS,
            ),
            "clients": Shape(keys=(("connection_id", number), ("client_id", pa.string()))),
        }

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        if table == "records":
            self._records(batch)
            return
        batch = only(batch, in_any(batch, "api", ["Produce"]))
        self.parts["clients"].add({name: column(batch, name) for name in ("connection_id", "client_id")})
        rows = named(exploded(batch, ["time_ns", "client_id", "broker_ip", "broker_port"]))
        rows = only(rows, pc.and_(pc.greater_equal(column(rows, "producer_id"), 0), _numbered(rows)))
        keys = {"cluster": brokers(rows), **{name: column(rows, name) for name, _ in _PRODUCER}}
        times, code = column(rows, "time_ns"), integers(column(rows, "error_code"))
        records = integers(column(rows, "record_count"))
        self.parts["producers"].add(
            {
                **keys,
                "batches": column(rows, "batch_count"),
                "records": records,
                "duplicate_errors": (code == DUPLICATE_SEQUENCE_NUMBER).astype(np.int64),
                "out_of_order_errors": (code == OUT_OF_ORDER_SEQUENCE_NUMBER).astype(np.int64),
                "first": times,
                "last": times,
            }
        )
        base = integers(column(rows, "base_sequence"))
        end = base + records
        around = end > SEQUENCES
        up, down = np.ones(len(base), np.int64), -np.ones(len(base), np.int64)
        self._steps(keys, base, up)
        self._steps(keys, np.where(around, SEQUENCES, end), down)
        rest = {name: values.filter(pa.array(around)) for name, values in keys.items()}
        self._steps(rest, np.zeros(int(around.sum()), np.int64), up[around])
        self._steps(rest, end[around] - SEQUENCES, down[around])

    def _steps(self, keys: dict[str, Any], positions: Any, steps: Any) -> None:
        self.parts["steps"].add({**keys, "position": positions, "step": steps})

    def _records(self, batch: pa.RecordBatch) -> None:
        unnumbered = pc.less(pc.fill_null(column(batch, "producer_id"), -1), 0)
        mask = pc.and_(in_any(batch, "api", ["Produce"]), pc.is_null(column(batch, "control")))
        batch = named(only(batch, pc.and_(mask, unnumbered)))
        names = ("topic", "partition", "timestamp", "key", "value", "headers")
        rows = zip(*(_plain(column(batch, name)) for name in names), strict=True)
        self.parts["records"].add(
            {
                "fingerprint": pa.array([_fingerprint(row) for row in rows], pa.int64()),
                **{name: column(batch, name) for name in ("connection_id", "exchange_id", "topic", "partition")},
                "times": np.ones(batch.num_rows, np.int64),
                "time_us": column(batch, "time").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()),
            }
        )

    def result(self) -> pa.Table:
        rows = [*self.sequences(), *self._repeated_records()]
        text: Any = [("kind", pa.string()), *_PRODUCER]
        numbers = ("records", "repeated_records", "repeated_batches", "duplicate_errors", "out_of_order_errors")
        fields = [*text, *((name, pa.int64()) for name in numbers), ("first", TIME), ("last", TIME)]
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name, _ in fields}
        for name in ("first", "last"):
            columns[name] = datetimes(pa.array(columns[name], pa.int64()))
        order = [("kind", "descending"), ("repeated_records", "descending")]
        return table_of(columns, fields, [*order, *((name, "ascending") for name, _ in _PRODUCER)])

    def sequences(self) -> list[dict[str, Any]]:
        """Rows of kind `sequence`, each with its `cluster` where there are several; times in nanoseconds."""
        names = [name for name, _ in _NUMBERED]
        steps = self.clusters.folded(self.parts["steps"], self.names)
        keys, number = keys_of(steps, names)
        position, step = (integers(steps.column(name)) for name in ("position", "step"))
        order = np.lexsort((position, number))
        number, position, step = number[order], position[order], step[order]
        # All steps of a producer add up to 0, so one running sum serves all of them.
        times = np.cumsum(step)
        length = np.append(position[1:] - position[:-1], 0)
        repeats = np.bincount(number, weights=np.where(times > 1, (times - 1) * length, 0), minlength=keys.num_rows)
        repeated = {tuple(key.values()): int(count) for key, count in zip(keys.to_pylist(), repeats, strict=True)}
        found = []
        for row in self.clusters.folded(self.parts["producers"], self.names).to_pylist():
            count = repeated.get(tuple(row[name] for name in names), 0)
            if count or row["duplicate_errors"] or row["out_of_order_errors"]:
                found.append({**row, "kind": "sequence", "repeated_records": count})
        return found

    def _repeated_records(self) -> list[dict[str, Any]]:
        partition = ["topic", "partition"]
        request = ["connection_id", "exchange_id", *partition]
        table = self.parts["records"].table()
        keys, number = keys_of(table, request)
        times, time = (integers(table.column(name)) for name in ("times", "time_us"))
        whole = np.zeros(keys.num_rows, np.int64)
        # Wraps around, as a sum of hashes may: equal multisets have equal sums.
        np.add.at(whole, number, integers(table.column("fingerprint")) * times)
        count = np.bincount(number, weights=times, minlength=keys.num_rows).astype(np.int64)
        first = np.full(keys.num_rows, np.iinfo(np.int64).max)
        np.minimum.at(first, number, time)
        requests = keys.append_column("whole", pa.array(whole)).append_column("count", pa.array(count))
        requests = requests.append_column("time_us", pa.array(first))
        clients: dict[int, str | None] = {}
        for row in self.parts["clients"].table().to_pylist():
            # If a connection has several client ids, the sender of a request is unknown.
            clients[row["connection_id"]] = None if row["connection_id"] in clients else row["client_id"]
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        seen: dict[tuple[Any, ...], None] = {}
        for row in requests.sort_by([("time_us", "ascending"), *((name, "ascending") for name in request)]).to_pylist():
            client = clients.get(row["connection_id"])
            key = (client, row["topic"], row["partition"])
            producer = found.setdefault(
                key,
                {
                    "kind": "records",
                    **dict(zip(("client_id", *partition), key, strict=True)),
                    "records": 0,
                    "repeated_records": 0,
                    "repeated_batches": 0,
                },
            )
            producer["records"] += row["count"]
            same = (*key, row["whole"], row["count"])
            if same in seen:
                producer["repeated_records"] += row["count"]
                producer["repeated_batches"] += 1
                producer.setdefault("first", row["time_us"] * 1000)
                producer["last"] = row["time_us"] * 1000
            seen[same] = None
        return [row for row in found.values() if row["repeated_batches"]]


def _numbered(rows: pa.RecordBatch) -> pa.Array:
    known = pc.and_(pc.is_valid(column(rows, "record_count")), pc.is_valid(column(rows, "batch_count")))
    return pc.and_(known, pc.greater_equal(column(rows, "base_sequence"), 0))


def _plain(values: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return values.to_pylist()  # type: ignore[no-any-return]


def _fingerprint(row: tuple[Any, ...]) -> int:
    """64 bits of a hash: equal for equal records; `repr` of plain values is unambiguous."""
    return int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=8).digest(), "big", signed=True)
