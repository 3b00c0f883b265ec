from __future__ import annotations

import numpy as np
import pytest

from kafkasniff.errors import UsageError
from tests.analysis.tables import SECOND, START_NS, answers, asked, exchange, moment, pick

TOLD = ("count", "min_us", "p50_us", "p90_us", "p99_us", "max_us")


def test_percentiles_by_api() -> None:
    rows = [exchange("Produce", latency_us=latency) for latency in range(1, 101)]
    rows += [exchange("Fetch", latency_us=500_000), exchange("Fetch", latency_us=None, status="open")]
    fetch, produce = answers("latency", rows)
    assert [produce[name] for name in TOLD] == [100, 1, 50, 90, 99, 100]
    assert produce["mean_us"] == 50.5
    assert fetch["api"] == "Fetch"
    # A single value is reported as it is, never outside of the extremes.
    assert [fetch[name] for name in TOLD] == [1, *[500_000] * 5]


def test_percentiles_of_many_values_are_near() -> None:
    latencies = np.random.default_rng(3).lognormal(8, 2, 5000).astype(np.int64)
    (found,) = answers("latency", [exchange(latency_us=int(one)) for one in latencies])
    for name, quantile in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)):
        expected = np.quantile(latencies, quantile, method="inverted_cdf")
        assert found[name] == pytest.approx(expected, rel=1 / 256)


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


def test_an_api_without_a_name_is_listed_by_its_number() -> None:
    assert pick(answers("latency", [exchange(None, api_key=999)]), "api") == [("999",)]


def test_negative_latencies_stay_negative() -> None:
    (found,) = answers("latency", [exchange(latency_us=-20), exchange(latency_us=-10)])
    assert [found[name] for name in TOLD] == [2, -20, -20, -10, -10, -10]


def test_no_rows() -> None:
    assert answers("latency") == []
    assert asked("latency").result().schema.names[0] == "api"


def test_no_dimension_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--by"):
        asked("latency", by=())
