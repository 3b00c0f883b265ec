from __future__ import annotations

from typing import Any

from tests.analysis.tables import answers, exchange, pick


def answered(api: str, broker: int, latency: int, count: int, **values: Any) -> list[dict[str, Any]]:
    return [exchange(api, broker_id=broker, broker_ip=f"10.0.0.{broker}", latency_us=latency, **values)] * count


def test_compared_with_the_median_of_the_others() -> None:
    rows = answered("Produce", 1, 100, 30) + answered("Produce", 2, 120, 30) + answered("Produce", 3, 80, 30)
    rows += answered("Produce", 4, 230, 30) + answered("Produce", 5, 9000, 3)
    found = answers("slow-brokers", rows)
    assert pick(found, "broker_id", "p50_us", "peers_p50_us", "slow") == [
        (4, 230, 100, True),
        (2, 120, 100, False),
        (1, 100, 120, False),
        (3, 80, 120, False),
        (5, 9000, None, None),
    ]
    assert found[0]["ratio"] == 2.3
    assert not any(row["slow"] for row in answers("slow-brokers", rows, factor=3))
    assert answers("slow-brokers", rows, at_least=3)[0]["broker_id"] == 5


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
