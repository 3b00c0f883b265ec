"""Offsets that two leaders have given, and retries that only look like it."""

from __future__ import annotations

from collections.abc import Iterable

from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.records import OverwrittenRecords
from tests.analysis.tables import Row, batch_of, exchange, partition


def stored(broker: int, first_second: int, offsets: Iterable[int], topic_id: str | None = None) -> list[Row]:
    """Produce requests with a record each, one a second, and the offsets that a broker gave."""
    return [
        exchange(
            "Produce",
            first_second + place,
            broker_port=9090 + broker,
            partitions=[partition(offset=offset, record_count=1, topic_id=topic_id)],
        )
        for place, offset in enumerate(offsets)
    ]


def found(*rows: Row) -> list[Finding]:
    detector = OverwrittenRecords()
    detector.update(batch_of([{**row, "exchange_id": place} for place, row in enumerate(rows)]))
    return list(detector.findings())


def test_offsets_given_twice() -> None:
    (one,) = found(*stored(1, 0, range(20)), *stored(2, 30, range(12, 30)))
    assert (one.severity, one.count, one.subject["partition"]) == ("error", 8, 0)
    assert (one.values["high"], one.values["low"]) == (19, 12)


def test_what_only_looks_like_it() -> None:
    """A leader that continues, a retry of a batch that the former leader had stored, and a topic created again."""
    assert found(*stored(1, 0, range(20)), *stored(2, 30, range(20, 40))) == []
    assert found(*stored(1, 0, range(20)), *stored(2, 30, [12, *range(20, 40)])) == []
    assert found(*stored(1, 0, range(20), "old"), *stored(2, 30, range(20), "new")) == []
    assert found(*stored(1, 0, range(20)), *stored(1, 30, range(20))) == [], "one broker: order may differ"
