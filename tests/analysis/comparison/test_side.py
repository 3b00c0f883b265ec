"""One side of a comparison: what its rows count as."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from kafkasniff.analysis.comparison import side as module
from kafkasniff.analysis.comparison.side import Side
from tests.analysis.comparison.traffic import side, traffic
from tests.analysis.tables import Row, batch_of, exchange, partition

ORPHAN = exchange(None, status="orphan", request_size=None)


def counted(*rows: Row) -> Side:
    return side(batch_of(rows))


def totals(sums: Any) -> dict[str, int]:
    return {name: int(values.sum()) for name, values in sums.items()}


def everything(made: Side) -> tuple[Any, ...]:
    """All counts of a side, comparable."""
    spanned = [
        {key: {name: values.tolist() for name, values in sums.items()} for key, sums in found.items()}
        for found in (made.apis(), made.errors(), made.topics())
    ]
    latencies = {
        api: (sorted(zip(one.spans, one.buckets, one.counts, strict=True)), one.low, one.high)
        for api, one in made.latencies().items()
    }
    return spanned, latencies, made.versions(), made.codecs(), made.clients(), made.brokers(), made.notes()


def test_exchanges_of_apis() -> None:
    made = counted(
        exchange("Metadata", request_size=10, response_size=20, api_version=9),
        exchange("Metadata", at=5, request_size=1, response_size=None, status="unanswered", api_version=9),
        exchange("Metadata", at=9, request_size=2, response_size=3, api_version=12),
        exchange(None, api_key=5000, api_version=1),
        ORPHAN,
    )
    found = made.apis()
    assert totals(found["Metadata"]) == {
        "exchanges": 3,
        "requests": 3,
        "responses": 2,
        "request_bytes": 13,
        "response_bytes": 23,
    }
    assert found.keys() == {"Metadata", "5000"}, "an orphan belongs to no API, an unknown API is named by its number"
    assert made.versions() == {"Metadata": {9: 2, 12: 1}, "5000": {1: 1}}
    assert made.exchanges == 5


def test_counts_lie_in_the_spans_of_their_times() -> None:
    made = counted(exchange("Metadata"), exchange("Metadata"), exchange("Metadata", at=9))
    (row,) = [sums["exchanges"].tolist() for sums in made.apis().values()]
    assert len(row) == made.spans.count
    assert (row[0], row[-1], sum(row)) == (2, 1, 3)


def test_an_exchange_counts_once_for_each_of_its_errors() -> None:
    produced = exchange(
        "Produce",
        error_code=0,
        partitions=[partition(number=number, error_code=code) for number, code in enumerate((6, 6, 7, 0))],
    )
    made = counted(produced, produced, exchange("Metadata", error_code=29))
    found = {key: totals(sums)["exchanges"] for key, sums in made.errors().items()}
    assert found == {("Produce", 6): 2, ("Produce", 7): 2, ("Metadata", 29): 1}


def test_records_of_topics_without_those_of_followers() -> None:
    sent = partition(record_count=3, batch_count=1, bytes=100, compression="lz4")
    fetched = partition(record_count=5, batch_count=2, bytes=70, compression="zstd")
    made = counted(
        exchange("Produce", partitions=[sent, sent | {"topic": "other"}]),
        exchange("Fetch", partitions=[fetched]),
        exchange("Fetch", partitions=[fetched], client_id="broker-2-fetcher-0"),
        exchange("ListOffsets", partitions=[partition()]),
    )
    assert {key: totals(sums) for key, sums in made.topics().items()} == {
        ("produced", "orders"): {"records": 3, "batches": 1, "bytes": 100, "times": 1},
        ("produced", "other"): {"records": 3, "batches": 1, "bytes": 100, "times": 1},
        ("fetched", "orders"): {"records": 5, "batches": 2, "bytes": 70, "times": 1},
    }
    assert made.codecs() == {"orders": {"lz4": 1}, "other": {"lz4": 1}}, "codecs are those of producers"


def test_latencies_without_what_the_broker_is_not_responsible_for() -> None:
    made = counted(
        exchange("Metadata", latency_us=1000),
        exchange("Metadata", at=1, latency_us=5000, behind_us=1000, muted_us=500),
        exchange("Metadata", at=2, latency_us=None, response_size=None),
        exchange("Fetch", latency_us=900_000, wait_us=None, waits_for="data"),
    )
    (api, found) = made.latencies().popitem()
    assert (api, found.low, found.high, int(found.counts.sum())) == ("Metadata", 1000, 3500, 2)
    assert made.latencies().keys() == {"Metadata"}, "how long the Fetch was allowed to wait is unknown"


def test_latencies_as_a_matrix_of_spans_and_buckets() -> None:
    made = counted(*(exchange("Metadata", at=at, latency_us=us) for at, us in ((0, 10), (9, 10), (9, 5000))))
    (found,) = made.latencies().values()
    axis = np.unique(np.concatenate([found.buckets, [0, found.buckets.max() + 1]]))
    matrix = found.matrix(axis, made.spans.count)
    assert matrix.shape == (made.spans.count, len(axis))
    assert (matrix[0].sum(), matrix[-1].sum(), matrix.sum()) == (1, 2, 3)
    assert matrix.sum(axis=0).tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 exchange without a time is"), (3, "3 exchanges without a time are")]
)
def test_exchanges_without_a_time_are_noted(count: int, said: str) -> None:
    timeless = exchange("Metadata", api_version=9, time=None, time_ns=None)
    made = counted(exchange("Metadata", api_version=9), *[timeless] * count)
    assert made.timeless == count
    assert made.notes() == [f"{said} not included in rates, latencies and shares"]
    assert totals(made.apis()["Metadata"])["exchanges"] == 1
    assert made.versions() == {"Metadata": {9: 1 + count}}, "versions need no time"


def test_the_smallest_rows_are_dropped_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 8)
    made = Side()
    for topic in range(40):
        made.update(batch_of([exchange("Produce", partitions=[partition(f"topic-{topic}", bytes=1)])]))
    assert any(note.startswith("topics: the smallest ones were dropped") for note in made.notes())
    assert len(made.topics()) <= 8


def test_order_and_batches_change_nothing() -> None:
    rows = traffic(seconds=20, fail=0.1)
    expected = everything(side(rows))
    for seed in range(2):
        random = Random(seed)
        shuffled = rows.take(random.sample(range(rows.num_rows), rows.num_rows))
        cut = random.randrange(1, rows.num_rows)
        assert everything(side(shuffled.slice(0, cut), shuffled.slice(cut))) == expected
