"""Wait columns for real brokers and clients: quotas, long polls, replicated clusters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.tables.exports.counted import CountedRows
from kafkasniff.tables.exports.options import ExportOptions
from tests.conftest import ROOT

COLUMNS = ["api", "sender", "latency_us", "throttle_time_ms", "behind_us", "muted_us", "wait_us", "waits_for"]


def rows(name: str, api: str) -> list[dict[str, Any]]:
    """Answered exchanges of a capture."""
    found: list[dict[str, Any]] = []

    def take(batch: Any, _table: str) -> None:
        found.extend(row for row in batch.select(COLUMNS).to_pylist() if row["latency_us"] is not None)

    counted = CountedRows(ExportOptions(tables=("exchanges",)), take)
    with open_captures([str(ROOT / "captures" / name)]) as source:
        for batch in source:
            counted.feed(batch)
    counted.end()
    return [row for row in found if row["api"] == api]


def work_ms(row: dict[str, Any]) -> float:
    """The latency without its known waits."""
    excused = row["behind_us"] + row["muted_us"] + (row["wait_us"] if row["waits_for"] != "replicas" else 0)
    return float(row["latency_us"] - excused) / 1000


def test_quotas() -> None:
    """A muted client keeps sending; its throttle time counts neither as broker time nor for other requests."""
    produced = rows("faults/throttled-producer.pcap", "Produce")
    assert sum(row["throttle_time_ms"] for row in produced) == 7188
    assert max(row["latency_us"] for row in produced) > 1_200_000
    assert sum(row["muted_us"] for row in produced) > 6_000_000
    assert max(map(work_ms, produced)) < 300
    slow = rows("faults/slow-broker-not-throttled.pcap", "Produce")
    assert {row["muted_us"] for row in slow} == {0}
    assert max(map(work_ms, slow)) > 2_500


def test_few_records_are_less_than_a_megabyte() -> None:
    fetched = rows("faults/fetch-min-bytes.pcap", "Fetch")
    assert {(row["sender"], row["waits_for"]) for row in fetched} == {("client", "data")}
    assert max(row["latency_us"] for row in fetched) > 2_400_000
    assert max(map(work_ms, fetched)) < 300
    assert max(map(work_ms, rows("faults/fetch-beyond-max-wait.pcap", "Fetch"))) > 3_000


@pytest.mark.parametrize(
    ("name", "api", "senders", "most_ms"),
    [
        ("kraft-three-brokers.pcap", "Fetch", {"quorum": 161, "replica": 35}, 500),
        ("java-streams-group.pcap", "Fetch", {"client": 25}, 500),
        ("java-group-share.pcap", "ShareFetch", {None: 2}, 100),
    ],
)
def test_long_polls(name: str, api: str, senders: dict[str | None, int], most_ms: int) -> None:
    polled = rows(name, api)
    assert Counter(row["sender"] for row in polled if row["wait_us"]) == senders
    assert {row["waits_for"] for row in polled if row["wait_us"]} == {"data"}
    assert max(map(work_ms, polled)) < most_ms
