from __future__ import annotations

from typing import Any

from kafkasniff.analysis.questions.retries import SEQUENCES
from tests.analysis.tables import answers, asked, exchange, moment, partition, pick, record

TOLD = ("kind", "client_id", "topic", "partition", "producer_id", "records", "repeated_records")


def sent(at: float, base: int, count: int = 10, producer: int = 7, **facts: Any) -> dict[str, Any]:
    facts = {"producer_id": producer, "producer_epoch": 0, "record_count": count, "batch_count": 1, **facts}
    parts = [partition("orders", 0, base_sequence=base, **facts)]
    return exchange("Produce", at, exchange_id=int(at * 10), partitions=parts)


def test_repeated_sequence_numbers() -> None:
    rows = [sent(1, 0), sent(2, 10), sent(3, 10), sent(4, 20), sent(5, 15, 10), sent(6, 0, producer=8)]
    (found,) = answers("retries", rows)
    # 10-19 twice, 15-24 once more.
    assert [found[name] for name in TOLD] == ["sequence", "app", "orders", 0, 7, 50, 20]
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
    assert [found[name] for name in TOLD] == ["records", "app", "orders", 0, None, 8, 3]
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
