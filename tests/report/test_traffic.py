"""Exchanges, error codes and latencies per span: known answers, whatever the order and batches of rows."""

from __future__ import annotations

import pytest

from kafkasniff.report.traffic import EDGES, ErrorsOverTime, LatenciesOverTime, TrafficOverTime
from tests.analysis.tables import SECOND, Row, batch_of, exchange, partition

KINDS = (TrafficOverTime, ErrorsOverTime, LatenciesOverTime)


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


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_merging_do_not_matter(kind: type[TrafficOverTime]) -> None:
    everything = rows()
    whole, forwards, merged = kind(), kind(), kind()
    whole.update(batch_of(everything))
    parts = [everything[start : start + 23] for start in range(0, len(everything), 23)]
    for part in parts:
        forwards.update(batch_of(part))
    for part in reversed(parts):
        one = kind()
        one.update(batch_of(part))
        # On its way from another process.
        merged.merge(kind.from_state(one.state()))
    for found in (forwards, merged, kind.from_state(forwards.state())):
        assert found.result().equals(whole.result())
        assert found.width == 10 * SECOND
    nothing = kind()
    nothing.update(batch_of([]))
    assert nothing.result().num_rows == 0


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
