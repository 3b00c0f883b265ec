"""Counts of subjects with their evidence."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from kafkasniff.analysis.accumulator import Parameters
from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.tally import CLIENT, Tally, clients


class _Counting(Detector[Parameters]):
    name: ClassVar[str] = "counting"
    summary: ClassVar[str] = "Counts clients."
    seen = Tally("seen", CLIENT, sums=("bytes",), highs=("largest",))

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.seen.add(self, batch, clients(batch), bytes=[10] * batch.num_rows, largest=batch["time_ns"])

    def findings(self) -> list[Finding]:
        return []


class _CountingMore(_Counting):
    also = Tally("also", CLIENT)


def batch(*clients_and_times: tuple[str, int]) -> pa.RecordBatch:
    ids = [name for name, _ in clients_and_times]
    times = pa.array([time for _, time in clients_and_times], pa.int64())
    return pa.record_batch(
        {
            "client_id": pa.array(ids, pa.string()),
            "client_ip": pa.array(["10.0.0.1"] * len(ids), pa.string()),
            "time_ns": times,
            "connection_id": times,
            "exchange_id": times,
        }
    )


def test_a_class_has_its_own_tallies_and_those_of_its_base() -> None:
    assert [one.name for one in _Counting.tallies] == ["seen"]
    assert [one.name for one in _CountingMore.tallies] == ["seen", "also"]
    assert Detector.tallies == ()
    assert set(_CountingMore().shapes()) == {"seen", "seen-evidence", "also", "also-evidence"}


def test_counts_sums_maxima_and_evidence() -> None:
    detector = _Counting()
    for part in (batch(("a", 5), ("b", 6)), batch(("a", 2)), batch()):
        detector.update(part)
    found = {row["client_id"]: (row, evidence) for row, evidence in detector.seen.rows(detector)}
    row, evidence = found["a"]
    assert (row["count"], row["bytes"], row["largest"], row["first"], row["last"]) == (2, 20, 5, 2, 5)
    assert [one.time_ns for one in evidence] == [2, 5]
    assert found["b"][0]["count"] == 1


def test_no_counts_no_findings() -> None:
    assert list(_Counting.seen.rows(_Counting())) == []
