"""Latency, slow brokers, requests without a response, throttling and talkers, on rows with known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkasniff.analysis.waits import is_long_poll
from kafkasniff.errors import UsageError
from tests.analysis.tables import SECOND, START_NS, answers, asked, batch_of, exchange, moment, pick

PERCENTILES = ("count", "min_us", "p50_us", "p90_us", "p99_us", "max_us")


def test_percentiles_by_api() -> None:
    rows = [exchange("Produce", latency_us=latency) for latency in range(1, 101)]
    rows += [exchange("Fetch", latency_us=500_000), exchange("Fetch", latency_us=None, status="open")]
    fetch, produce = answers("latency", rows)
    assert [produce[name] for name in PERCENTILES] == [100, 1, 50, 90, 99, 100]
    assert produce["mean_us"] == 50.5
    assert fetch["api"] == "Fetch"
    # A single value is reported as it is, never outside of the extremes.
    assert [fetch[name] for name in PERCENTILES] == [1, *[500_000] * 5]


def test_percentiles_are_exact_for_all_clients() -> None:
    values = np.random.default_rng(5).lognormal(8, 2, 4000).astype(np.int64)
    rows = [exchange(client_id=f"client-{place % 80}", latency_us=int(one)) for place, one in enumerate(values)]
    found = answers("latency", rows, by=("api", "client"))
    assert [row["count"] for row in found] == [50] * 80
    for row in found:
        own = np.sort(values[int(row["client_id"].removeprefix("client-")) :: 80])
        assert [row[name] for name in ("min_us", "p50_us", "p90_us", "p99_us", "max_us")] == [
            own[place] for place in (0, 24, 44, 49, 49)
        ]


@pytest.mark.parametrize(
    ("api", "waits", "polls"),
    [
        pytest.param("Fetch", {"wait_us": 500_000, "waits_for": "data"}, True, id="for-data"),
        pytest.param("JoinGroup", {"wait_us": 500_000, "waits_for": "members"}, True, id="for-members"),
        pytest.param("Fetch", {"wait_us": None}, True, id="unknown"),
        pytest.param("Fetch", {"wait_us": 0}, False, id="no-wait"),
        pytest.param("Produce", {"wait_us": 500_000, "waits_for": "replicas"}, False, id="for-replicas"),
        pytest.param("Metadata", {"wait_us": None}, False, id="never"),
    ],
)
def test_long_polls_are_counted_apart(api: str, waits: dict[str, Any], polls: bool) -> None:
    row = exchange(api, latency_us=7, **waits)
    names = ("count", "long_polls", "mean_us", "p99_us")
    assert pick(answers("latency", [row]), *names) == [(0, 1, None, None) if polls else (1, 0, 7.0, 7)]
    assert pick(answers("latency", [row], long_polls=True), *names) == [(1, 0, 7.0, 7)]
    assert is_long_poll(batch_of([row])).to_pylist() == [polls]


def test_by_several_dimensions_and_spans_of_time() -> None:
    begin = 60 - START_NS // SECOND % 60
    sent = [(0, "a", 1, 10), (59, "a", 1, 30), (60, "a", 1, 50), (1, "b", 2, 70)]
    rows = [
        exchange("Produce", begin + at, client_id=client, broker_id=broker, broker_ip=f"10.0.0.{broker}", latency_us=us)
        for at, client, broker, us in sent
    ]
    names = ("time", "broker_id", "broker", "client_id", "count", "max_us")
    assert pick(answers("latency", rows, by="broker,client", every="1m"), *names) == [
        (moment(begin), 1, "10.0.0.1:9092", "a", 2, 30),
        (moment(begin), 2, "10.0.0.2:9092", "b", 1, 70),
        (moment(begin + 60), 1, "10.0.0.1:9092", "a", 1, 50),
    ]


def test_by_topic_an_exchange_counts_for_each_topic() -> None:
    found = answers("latency", [exchange(topics=["a", "b"]), exchange(topics=["b"]), exchange()], by=["topic"])
    assert pick(found, "topic", "count") == [("a", 1), ("b", 2), (None, 1)]


def test_negative_latencies_stay_negative() -> None:
    (found,) = answers("latency", [exchange(latency_us=-20), exchange(latency_us=-10)])
    assert [found[name] for name in PERCENTILES] == [2, -20, -20, -10, -10, -10]


def test_no_dimension_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--by"):
        asked("latency", by=())


def answered(api: str, broker: int, latency: int, count: int, **values: Any) -> list[dict[str, Any]]:
    return [exchange(api, broker_id=broker, broker_ip=f"10.0.0.{broker}", latency_us=latency, **values)] * count


def test_waiting_does_not_count_as_slow() -> None:
    rows = answered("Fetch", 1, 100, 30) + answered("Fetch", 2, 110, 30)
    # A few records are less than min.bytes: the fetch took its whole wait.
    waited = {"wait_us": 500_000, "waits_for": "data"}
    rows += answered("Fetch", 2, 500_000, 90, record_count=3, **waited) + answered(
        "JoinGroup", 2, 3_000_000, 30, **waited
    )
    # The bytes requested are unknown.
    rows += answered("Fetch", 2, 500_000, 90, wait_us=None) + answered("SyncGroup", 2, 500_000, 90, wait_us=None)
    found = answers("slow-brokers", rows)
    assert pick(found, "api", "broker_id", "p50_us") == [("Fetch", 2, 110), ("Fetch", 1, 100)]


def test_quotas_and_earlier_requests_do_not_count_as_slow() -> None:
    rows = answered("Produce", 1, 100, 30) + answered("Produce", 2, 1_000_150, 30, muted_us=1_000_000)
    rows += answered("Metadata", 1, 100, 30) + answered("Metadata", 2, 500_100, 30, behind_us=500_000)
    found = answers("slow-brokers", rows)
    assert {row["p50_us"] for row in found} == {100, 150}


def test_lagging_replicas_count_as_slow() -> None:
    waited = {"wait_us": 80_000, "waits_for": "replicas"}
    rows = answered("Produce", 1, 100, 30) + answered("Produce", 2, 80_000, 30, **waited)
    (slow,) = [row for row in answers("slow-brokers", rows) if row["slow"]]
    assert (slow["api"], slow["broker_id"], slow["p50_us"]) == ("Produce", 2, 80_000)


def test_fetching_brokers_are_compared_separately() -> None:
    rows = answered("Fetch", 1, 100, 30, sender="client") + answered("Fetch", 2, 90_000, 30, sender="quorum")
    rows += answered("Fetch", 3, 9_000, 30, sender="replica")
    found = answers("slow-brokers", rows)
    assert pick(found, "api", "broker_id", "slow") == [
        ("Fetch", 1, None),
        ("quorum Fetch", 2, None),
        ("replica Fetch", 3, None),
    ]


def test_a_single_broker_has_no_peers() -> None:
    assert pick(answers("slow-brokers", answered("Produce", 1, 5, 50)), "ratio", "slow") == [(None, None)]


PENDING = [
    exchange("Produce", 3, exchange_id=3, status="open", latency_us=None, duration_us=None),
    exchange("Fetch", 1, exchange_id=1, status="open", latency_us=None, duration_us=None),
    exchange("Fetch", 2, exchange_id=2, status="unanswered", latency_us=None, duration_us=None),
    exchange("Fetch", 4, exchange_id=4, duration_us=1_000_000),
    exchange("Fetch", 4, exchange_id=5, status="lost", duration_us=None),
]


def test_requests_that_ended_in_chosen_ways() -> None:
    assert pick(answers("outstanding", PENDING, status="open"), "exchange_id") == [(1,), (3,)]
    assert pick(answers("outstanding", PENDING, status="unanswered,lost"), "status") == [("unanswered",), ("lost",)]


def test_throttled_clients() -> None:
    rows = [
        exchange("Produce", 1, throttle_time_ms=100),
        exchange("Produce", 2, throttle_time_ms=0),
        exchange("Produce", 3, throttle_time_ms=300),
        exchange("Fetch", 4, throttle_time_ms=None),
        exchange("Fetch", 5, throttle_time_ms=7, client_id="other"),
    ]
    found = answers("throttling", rows)
    names = ("client_id", "api", "exchanges", "throttled", "throttle_ms", "max_ms", "mean_ms", "first", "last")
    assert pick(found, *names) == [
        ("app", "Produce", 3, 2, 400, 300, 200.0, moment(1), moment(3)),
        ("other", "Fetch", 1, 1, 7, 7, 7.0, moment(5), moment(5)),
    ]
