from __future__ import annotations

from typing import Any

from tests.analysis.tables import answers, exchange, pick


def answered(api: str, broker: int, latency: int, count: int, **values: Any) -> list[dict[str, Any]]:
    return [exchange(api, broker_id=broker, broker_ip=f"10.0.0.{broker}", latency_us=latency, **values)] * count


def test_against_the_median_of_the_others() -> None:
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


def test_waiting_is_not_slowness() -> None:
    rows = answered("Fetch", 1, 100, 30, record_count=5) + answered("Fetch", 2, 110, 30, record_count=1)
    rows += answered("Fetch", 2, 500_000, 90, record_count=0) + answered("JoinGroup", 2, 3_000_000, 30)
    found = answers("slow-brokers", rows)
    assert pick(found, "api", "broker_id", "p50_us") == [("Fetch", 2, 110), ("Fetch", 1, 100)]


def test_alone_there_is_nobody_to_compare_with() -> None:
    assert pick(answers("slow-brokers", answered("Produce", 1, 5, 50)), "ratio", "slow") == [(None, None)]
