"""Exchanges, error codes and latencies per span: known answers, whatever the order and batches of rows."""

from __future__ import annotations

from kafkasniff.report.traffic import EDGES, LatenciesOverTime
from tests.analysis.tables import Row, batch_of, exchange, partition


def rows() -> list[Row]:
    found = [exchange("Produce", second / 7, latency_us=100 * second, api_version=9) for second in range(1, 200)]
    found += [
        exchange("Fetch", 300 + second, error_count=2, error_code=3,
                 partitions=[partition(error_code=3), partition(number=1, error_code=6)])
        for second in range(3)
    ]  # fmt: skip
    found.append({**exchange("Metadata"), "time_ns": None, "time": None})
    found.append(exchange("Produce", 150, status="open", response_size=None, latency_us=None))
    return found


def test_latencies_by_span_and_over_all() -> None:
    counted = LatenciesOverTime()
    counted.update(batch_of([exchange("Produce", 0, latency_us=value) for value in (1, 3, 150, 150, 10**9)]))
    (row,) = counted.result().to_pylist()
    assert (row["count"], row["low"], row["high"], row["p50"]) == (5, 1, 10**9, 150)
    (found,) = counted.histograms(["Produce"]).values()
    assert len(found) == len(EDGES) + 1
    assert sum(found) == 5
    # Between 1 and 2, 2 and 5, 100 and 200 microseconds, and beyond the last edge.
    assert {place: number for place, number in enumerate(found) if number} == {1: 1, 2: 1, 7: 2, len(EDGES): 1}
