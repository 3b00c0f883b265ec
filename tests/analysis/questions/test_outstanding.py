from __future__ import annotations

from tests.analysis.tables import answers, exchange, moment, pick

ROWS = [
    exchange("Produce", 3, exchange_id=3, status="open", latency_us=None, duration_us=None),
    exchange("Fetch", 1, exchange_id=1, status="open", latency_us=None, duration_us=None),
    exchange("Fetch", 2, exchange_id=2, status="unanswered", latency_us=None, duration_us=None),
    exchange("Fetch", 4, exchange_id=4, duration_us=1_000_000),
    exchange("Fetch", 4, exchange_id=5, status="lost", duration_us=None),
]


def test_the_longest_wait_comes_first() -> None:
    found = answers("outstanding", ROWS)
    assert pick(found, "api", "exchange_id", "age_us", "time", "broker") == [
        ("Fetch", 1, 4_000_000, moment(1), "10.0.0.9:9092"),
        ("Fetch", 2, 3_000_000, moment(2), "10.0.0.9:9092"),
        ("Produce", 3, 2_000_000, moment(3), "10.0.0.9:9092"),
    ]


def test_chosen_ends() -> None:
    assert pick(answers("outstanding", ROWS, status="open"), "exchange_id") == [(1,), (3,)]
    assert pick(answers("outstanding", ROWS, status="unanswered,lost"), "status") == [("unanswered",), ("lost",)]


def test_ipv6() -> None:
    rows = [exchange("Fetch", status="open", broker_ip="::1")]
    assert pick(answers("outstanding", rows), "broker") == [("[::1]:9092",)]
