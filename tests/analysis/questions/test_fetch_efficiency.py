from __future__ import annotations

from tests.analysis.tables import answers, exchange, partition, pick

ROWS = [
    exchange(
        "Fetch",
        topics=["a", "b"],
        latency_us=10,
        partitions=[partition("a", bytes=1000, record_count=10), partition("b")],
    ),
    exchange("Fetch", topics=["a", "b"], latency_us=500),
    exchange("Fetch", topics=["a", "b"], latency_us=300, error_count=1, error_code=6),
    exchange("Fetch", latency_us=100),
    exchange("Fetch", topics=["a"], status="open", error_count=None, latency_us=None),
    exchange("Produce", topics=["a"], partitions=[partition("a", bytes=7, record_count=7)]),
]
TOLD = ("fetches", "empty", "failed", "bytes", "records", "empty_ratio", "bytes_per_fetch", "empty_wait_us")


def test_by_client_and_topic() -> None:
    found = answers("fetch-efficiency", ROWS)
    assert pick(found, "client_id", "topic", *TOLD) == [
        ("app", "a", 3, 1, 1, 1000, 10, 1 / 3, 1000.0, 500.0),
        ("app", "b", 3, 2, 1, 0, 0, 2 / 3, None, 255.0),
        ("app", None, 1, 1, 0, 0, 0, 1.0, None, 100.0),
    ]


def test_by_client_a_fetch_counts_once() -> None:
    (found,) = answers("fetch-efficiency", ROWS, by="client")
    assert [found[name] for name in TOLD] == [4, 2, 1, 1000, 10, 0.5, 1000.0, 300.0]
    assert "topic" not in found


def test_by_topic_alone() -> None:
    found = answers("fetch-efficiency", ROWS, by="topic")
    assert pick(found, "topic", "fetches") == [("a", 3), ("b", 3), (None, 1)]


def test_a_topic_without_a_name_is_listed_by_its_id() -> None:
    part = partition(None, topic_id="AAECAwQFBgcICQoLDA0ODw", bytes=5, record_count=1)
    (found,) = answers("fetch-efficiency", [exchange("Fetch", partitions=[part])])
    assert (found["topic"], found["bytes"]) == ("AAECAwQFBgcICQoLDA0ODw", 5)
