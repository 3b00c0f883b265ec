"""Topics, batching, sizes of records and retries, on rows with known answers."""

from __future__ import annotations

from typing import Any

from kafkasniff.analysis.questions.retries import SEQUENCES
from tests.analysis.tables import answers, asked, exchange, moment, partition, pick, record

USES = [
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


def test_patterns_of_topics() -> None:
    assert {row["topic"] for row in answers("topic", USES)} == {"orders", "audit"}
    assert {row["topic"] for row in answers("topic", USES, topic="a*,x")} == {"audit"}
    assert answers("topic", USES, topic="order") == []
    assert [row["topic"] for row in answers("topics", USES, topic="a*")] == ["audit"]


def produce(
    exchange_id: int, topic: str, connection_id: int = 1, client_id: str = "app", **facts: Any
) -> dict[str, Any]:
    facts = {"batch_count": 1, "compression": "none", **facts}
    part = partition(topic, **facts)
    return exchange(
        "Produce", exchange_id=exchange_id, connection_id=connection_id, client_id=client_id, partitions=[part]
    )


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


REPEATED = ("kind", "client_id", "topic", "partition", "producer_id", "records", "repeated_records")


def sent(at: float, base: int, count: int = 10, producer: int = 7, **facts: Any) -> dict[str, Any]:
    facts = {"producer_id": producer, "producer_epoch": 0, "record_count": count, "batch_count": 1, **facts}
    parts = [partition("orders", 0, base_sequence=base, **facts)]
    return exchange("Produce", at, exchange_id=int(at * 10), partitions=parts)


def test_repeated_sequence_numbers() -> None:
    rows = [sent(1, 0), sent(2, 10), sent(3, 10), sent(4, 20), sent(5, 15, 10), sent(6, 0, producer=8)]
    (found,) = answers("retries", rows)
    # 10-19 twice, 15-24 once more.
    assert [found[name] for name in REPEATED] == ["sequence", "app", "orders", 0, 7, 50, 20]
    assert (found["first"], found["last"]) == (moment(1), moment(5))


def test_regular_producers_cost_no_memory() -> None:
    question = asked("retries", [sent(number, number * 10) for number in range(500)])
    assert question.parts["steps"].table().num_rows == 2
    assert question.result().num_rows == 0


def test_sequence_numbers_wrap_around() -> None:
    around = [sent(1, SEQUENCES - 10), sent(2, 0), sent(3, SEQUENCES - 5)]
    (found,) = answers("retries", around)
    assert found["repeated_records"] == 10
    assert answers("retries", around[:2]) == []


def test_sequence_errors_of_brokers() -> None:
    rows = [sent(1, 5, error_code=45), sent(2, 90, error_code=46)]
    (found,) = answers("retries", rows)
    assert pick([found], "repeated_records", "duplicate_errors", "out_of_order_errors") == [(0, 1, 1)]


def test_producers_without_sequence_numbers_are_recognized_by_their_records() -> None:
    exchanges = [sent(number, -1, producer=-1) for number in range(4)]
    first = [{"value": b"a"}, {"value": b"b"}, {"value": b"b"}]
    records = [record("orders", 0, exchange_id=1, **one) for one in first]
    records += [record("orders", 1, exchange_id=2, value=b"b"), record("orders", 1, exchange_id=2, value=b"a")]
    records += [record("orders", 2, exchange_id=3, **one) for one in reversed(first)]
    records += [record("other", 3, exchange_id=4, **one) for one in first]
    (found,) = answers("retries", exchanges, records)
    assert [found[name] for name in REPEATED] == ["records", "app", "orders", 0, None, 8, 3]
    assert (found["repeated_batches"], found["first"]) == (1, moment(2))


def test_timestamps_keys_and_headers_count() -> None:
    same = {"exchange_id": 2}
    others: list[dict[str, Any]] = [
        {"timestamp": 5},
        {"key": None},
        {"headers": [{"key": "h", "value": b""}]},
        {"partition": 1},
        {"producer_id": 5},
        {"api": "Fetch"},
    ]
    for other in others:
        assert answers("retries", (), [record(), record(**same, **other)]) == []
    assert len(answers("retries", (), [record(), record(**same)])) == 1


def test_the_same_records_of_another_client_are_not_a_retry() -> None:
    exchanges = [sent(1, -1, producer=-1), sent(2, -1, producer=-1) | {"connection_id": 2, "client_id": "other"}]
    records = [record(), record(exchange_id=2, connection_id=2)]
    assert answers("retries", exchanges, records) == []
    again = [*exchanges, sent(3, -1, producer=-1) | {"connection_id": 3}]
    (found,) = answers("retries", again, [*records, record(exchange_id=3, connection_id=3)])
    assert (found["client_id"], found["repeated_records"]) == ("app", 1)
