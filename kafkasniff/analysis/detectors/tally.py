"""Partial answers that most detectors consist of: counts, first and last times, and exchanges as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator
from kafkasniff.analysis.columns import brokers, column, encoded
from kafkasniff.analysis.detectors.detector import Detector, evidence_columns, evidence_shape
from kafkasniff.analysis.detectors.finding import MAX_EVIDENCE, Evidence
from kafkasniff.analysis.partials import Shape

Keys = tuple[tuple[str, pa.DataType], ...]

CLIENT: Final[Keys] = (("client_id", pa.string()), ("client_ip", pa.string()))
"""The client: a client id at an address."""
BROKER: Final[Keys] = (("broker", pa.string()),)
"""`address:port`, since broker numbers may become known late."""
PAIR: Final[Keys] = (("client_ip", pa.string()), *BROKER)
"""A client's address and a broker."""
CLIENT_COLUMNS: Final = ("client_id", "client_ip")
CLUSTER: Final[Keys] = (("cluster", pa.string()),)
"""Endpoint of the broker, which `Detector.resolved` replaces with its cluster; for detectors with `parts_clusters`."""
CLUSTER_COLUMNS: Final = ("broker_ip", "broker_port")
PARTITION: Final[Keys] = (*CLUSTER, ("topic", pa.string()), ("partition", pa.int32()))

Row = dict[str, Any]
"""A row of a partial answer."""


def clients(batch: pa.RecordBatch, *, broker: bool = False) -> dict[str, pa.Array]:
    """The key columns of `CLIENT`, and with `broker` those of `BROKER`."""
    found = {name: encoded(batch, name) for name in CLIENT_COLUMNS}
    return {**found, "broker": brokers(batch)} if broker else found


def pairs(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The key columns of `PAIR`."""
    return {"client_ip": encoded(batch, "client_ip"), "broker": brokers(batch)}


def clusters(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The key column of `CLUSTER`."""
    return {"cluster": brokers(batch)}


def partition_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of `PARTITION`."""
    return tuple(row[name] for name, _ in PARTITION)


class Tally:
    """Counts of subjects and their evidence, as two partial answers of a detector: `NAME` and `NAME-evidence`.

    `sums` and `highs` are further integers that are added up, or whose maximum is kept. If there are more subjects than
    `bound`, the rarest are dropped first.
    """

    def __init__(
        self, name: str, keys: Keys, *, sums: tuple[str, ...] = (), highs: tuple[str, ...] = (), bound: int = 1 << 17
    ) -> None:
        self.name = name
        self.keys = keys
        self._sums = sums
        self._highs = highs
        self._bound = bound

    def __set_name__(self, owner: type[Detector[Any]], name: str) -> None:
        owner.tallies = (*owner.tallies, self)

    def shapes(self) -> dict[str, Shape]:
        """For `Detector.shapes`."""
        sums: Any = tuple((name, pa.int64(), "sum") for name in ("count", *self._sums))
        highs: Any = tuple((name, pa.int64(), "max") for name in self._highs)
        times: Any = (("first", pa.int64(), "min"), ("last", pa.int64(), "max"))
        whole = Shape(keys=self.keys, measures=(*sums, *highs, *times), weight="count", bound=self._bound)
        return {self.name: whole, f"{self.name}-evidence": evidence_shape(self.keys)}

    def add(
        self,
        detector: Accumulator[Any],
        batch: pa.RecordBatch,
        keys: Mapping[str, Any],
        note: str | pa.Array = "",
        **measures: Any,
    ) -> None:
        """Count the rows of a batch, which has the columns of `ORDER`; `measures` have the constructor's names."""
        if not batch.num_rows:
            return
        time = column(batch, "time_ns")
        count = measures.pop("count", None)
        ones = np.ones(batch.num_rows, np.int64) if count is None else count
        detector.parts[self.name].add({**keys, "count": ones, **measures, "first": time, "last": time})
        detector.parts[f"{self.name}-evidence"].add(evidence_columns(batch, keys, note))

    def rows(
        self, detector: Detector[Any], reports: Callable[[Mapping[str, Any]], bool] | None = None
    ) -> Iterator[tuple[dict[str, Any], tuple[Evidence, ...]]]:
        """The subjects: keys and measures of each, and its evidence; only those of which `reports` is true."""
        found = [row for row in detector.resolved(self.name).to_pylist() if reports is None or reports(row)]
        # Mostly there are none, and evidence is by far more.
        evidence = detector.evidence(f"{self.name}-evidence") if found else {}
        for row in found:
            yield row, evidence.get(tuple(row[name] for name, _ in self.keys), ())


def in_all(rows: Iterable[tuple[Mapping[str, Any], Sequence[Evidence]]]) -> dict[str, Any]:
    """`count`, `first`, `last` and `evidence` of a finding about several rows of a `Tally`, each with its evidence."""
    some = list(rows)
    firsts, lasts = ([row[name] for row, _ in some if row[name] is not None] for name in ("first", "last"))
    shown = sorted(
        (one for _, evidence in some for one in evidence),
        key=lambda one: (one.time_ns or 0, one.connection_id, one.exchange_id or 0, one.note),
    )
    return {
        "count": sum(row["count"] for row, _ in some),
        "first": min(firsts, default=None),
        "last": max(lasts, default=None),
        "evidence": tuple(shown[:MAX_EVIDENCE]),
    }
