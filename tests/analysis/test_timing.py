"""Time by phase from rows of an export: crafted rows with known answers, in any order and any number of parts."""

from __future__ import annotations

from kafkasniff.analysis.timing import Timing, TimingParameters
from tests.analysis.tables import Row, batch_of, exchange, partition

FETCH = {"max_wait_ms": 500, "min_bytes": 1}


def rows() -> list[Row]:
    return [
        exchange("Fetch", 0, latency_us=503_000, duration_us=503_500, request_body=FETCH, partitions=[partition()]),
        exchange(
            "Fetch",
            1,
            latency_us=40_000,
            duration_us=41_000,
            request_body=FETCH,
            partitions=[partition(bytes=70), partition("payments")],
        ),
        exchange("Produce", 2, latency_us=30_000, duration_us=30_000, api_version=3, throttle_time_ms=20),
        exchange("Produce", 3, latency_us=5_000, duration_us=6_000, api_version=9, throttle_time_ms=900, retransmits=2),
        exchange("SyncGroup", 4, latency_us=8_000, duration_us=8_000, request_body={"assignments": []}),
        exchange("Produce", 5, latency_us=None, duration_us=None, status="no_response"),
        exchange("Produce", 6, latency_us=-5, duration_us=10, request_body="{not json"),
        exchange("Fetch", 7, latency_us=600_000, duration_us=600_000, request_body="[]"),
    ]


def test_parts_merge() -> None:
    whole, parts = Timing(TimingParameters(by=("api", "client"))), []
    every = rows()
    whole.update(batch_of(every))
    for place in (5, 2, 0, 7, 1, 6, 3, 4):
        part = Timing(TimingParameters(by=("api", "client")))
        part.update(batch_of([every[place]]))
        parts.append(Timing.from_state(part.state()))
    first = parts[0]
    for other in parts[1:]:
        first.merge(other)
    assert first.result().equals(whole.result())
