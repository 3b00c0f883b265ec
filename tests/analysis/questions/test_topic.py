from __future__ import annotations

from tests.analysis.tables import answers, exchange, moment, partition, pick

ROWS = [
    exchange(
        "Produce", 1, client_id="shop", partitions=[partition("orders", n, record_count=5, bytes=50) for n in (0, 1)]
    ),
    exchange("Produce", 2, client_id="shop", partitions=[partition("audit", record_count=1, bytes=9)]),
    exchange(
        "Fetch", 3, client_id="billing", topics=["orders"], partitions=[partition("orders", record_count=5, bytes=50)]
    ),
    exchange("Fetch", 4, client_id="billing", topics=["orders"]),
    exchange("Heartbeat", 5, client_id="billing", group_id="billers"),
    exchange("Fetch", 6, client_id="broker-2-fetcher-0", partitions=[partition("orders", record_count=1, bytes=9)]),
    exchange("Metadata", 7, client_id="admin", topics=["orders"]),
]
TOLD = ("topic", "role", "client_id", "group_id", "exchanges", "records", "bytes", "partitions")


def test_producers_consumers_and_followers() -> None:
    found = answers("topic", ROWS, topic="orders")
    assert pick(found, *TOLD) == [
        ("orders", "consumer", "billing", "billers", 2, 5, 50, 1),
        ("orders", "follower", "broker-2-fetcher-0", None, 1, 1, 9, 1),
        ("orders", "producer", "shop", None, 1, 10, 100, 2),
    ]
    assert pick(found, "first", "last")[0] == (moment(3), moment(4))


def test_patterns() -> None:
    assert {row["topic"] for row in answers("topic", ROWS)} == {"orders", "audit"}
    assert {row["topic"] for row in answers("topic", ROWS, topic="a*,x")} == {"audit"}
    assert answers("topic", ROWS, topic="order") == []


def test_a_client_of_two_groups_is_listed_without_a_group() -> None:
    rows = [*ROWS, exchange("OffsetCommit", 8, client_id="billing", group_id="another")]
    assert answers("topic", rows, topic="orders")[0]["group_id"] is None
