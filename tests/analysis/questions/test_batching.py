from __future__ import annotations

from typing import Any

from tests.analysis.tables import answers, exchange, partition, pick, record


def produce(
    exchange_id: int, topic: str, connection_id: int = 1, client_id: str = "app", **facts: Any
) -> dict[str, Any]:
    facts = {"batch_count": 1, "compression": "none", **facts}
    part = partition(topic, **facts)
    return exchange(
        "Produce", exchange_id=exchange_id, connection_id=connection_id, client_id=client_id, partitions=[part]
    )


def test_records_and_bytes_per_batch() -> None:
    rows = [
        produce(1, "a", record_count=10, bytes=1000),
        produce(2, "a", record_count=30, bytes=2000),
        produce(3, "b", record_count=1, bytes=100, compression="lz4", client_id="other", connection_id=2),
        exchange("Fetch", partitions=[partition("a", batch_count=1, record_count=9, bytes=9, compression="none")]),
        exchange("Produce", partitions=[partition("c")]),
    ]
    found = answers("batching", rows)
    names = ("topic", "client_id", "compression", "exchanges", "batches", "records", "bytes")
    assert pick(found, *names) == [("a", "app", "none", 2, 2, 40, 3000), ("b", "other", "lz4", 1, 1, 1, 100)]
    assert pick(found, "records_per_batch", "bytes_per_batch")[0] == (20.0, 1500.0)
    assert pick(found, "payload_bytes", "payload_ratio") == [(None, None)] * 2
    fetched = answers("batching", rows, direction="fetch")
    assert pick(fetched, "topic", "records") == [("a", 9)]


def test_savings_of_the_codec() -> None:
    exchanges = [produce(1, "a", record_count=2, bytes=50, compression="zstd")]
    headers = [{"key": "h", "value": b"12345"}, {"key": "n", "value": None}]
    records = [
        record("a", compression="zstd", key=b"12", value=b"x" * 85, headers=headers),
        record("a", compression="zstd", key=None, value=b"123456"),
        record("a", compression="zstd", api="Fetch", direction="response"),
    ]
    (found,) = answers("batching", exchanges, records)
    assert found["payload_bytes"] == 2 + 85 + 1 + 5 + 1 + 6
    assert found["payload_ratio"] == 2.0


def test_missing_records_and_mixed_clients_are_not_compared() -> None:
    half = [produce(1, "a", record_count=2, bytes=50)]
    assert pick(answers("batching", half, [record("a")]), "payload_bytes") == [(None,)]
    two = [produce(1, "a", record_count=1, bytes=50), produce(2, "a", record_count=1, bytes=50, client_id="other")]
    assert pick(answers("batching", two, [record("a"), record("a")]), "payload_bytes") == [(None,), (None,)]
