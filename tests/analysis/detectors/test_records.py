"""Records: damaged ones, the fate of batches that failed, offsets that two leaders have given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kafkasniff.analysis.detectors import Finding
from tests.analysis.detectors.talks import findings_of, numbered
from tests.analysis.tables import Row, connection, exchange, partition


def produce(
    at: float, sequence: int, *, error: int = 0, epoch: int = 0, status: str = "answered", number: int = 0, **more: Any
) -> Row:
    """A Produce with one batch of three records; `error` of its partition."""
    size = {"record_count": 3, "bytes": more.pop("size", 300), "batch_count": 1}
    reported = None if status != "answered" else error
    numbers = {"producer_id": more.pop("producer_id", 7), "producer_epoch": epoch, "base_sequence": sequence}
    facts = partition(number=number, error_code=reported, **numbers, **size)
    return exchange("Produce", at, acks=-1, status=status, partitions=[facts], **more)


def lost(*rows: Row) -> list[Finding]:
    return findings_of("lost-records", rows)


UNANSWERED = produce(1, 0, status="unanswered")
NEXT_EPOCH = produce(9, 0, epoch=1, size=301)
"""Another batch, with the first number of the next epoch."""
UNNUMBERED = {"producer_id": -1, "epoch": -1}


def test_a_batch_skipped_in_the_next_epoch() -> None:
    rows = [produce(0, 0), produce(1, 3, status="unanswered")]
    (one,) = lost(*rows, NEXT_EPOCH, produce(10, 0, epoch=2, size=302))
    assert (one.severity, one.count) == ("error", 1)
    assert one.values == {"batches": 1, "records": 3, "attempts": 1, "next_epoch": 1}
    assert "gave up 1 batch with 3 records for orders-0: no response in 1 attempt" in one.title
    assert "unknown" in one.meaning
    (one,) = lost(*rows, produce(2, 6, error=45, size=301), NEXT_EPOCH)
    assert "does not have them" in one.meaning, "the broker misses them before a later number"
    (one,) = lost(*rows, produce(2, 6, error=45, size=301, producer_id=8), NEXT_EPOCH)
    assert "unknown" in one.meaning, "that is another producer"


@pytest.mark.parametrize(("lived", "severity"), [(1.5, "warning"), (9, "error")])
def test_a_batch_that_is_too_large_just_before_the_end(lived: float, severity: str) -> None:
    """Its producer may still split it."""
    found = findings_of("oversized-messages", [produce(1, 0, error=10)], connections=[connection(lived=lived)])
    assert [one.severity for one in found] == [severity]


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([produce(1, 0, error=6), produce(2, 0, error=6), NEXT_EPOCH], 1),
        ([UNANSWERED, produce(2, 3, size=301, error=6), NEXT_EPOCH], 1),
        ([UNANSWERED, produce(2, 3, size=301, producer_id=8), NEXT_EPOCH], 1),
        ([UNANSWERED, produce(2, 3, size=301, number=1), NEXT_EPOCH], 1),
        ([UNANSWERED, produce(2, 0), NEXT_EPOCH], 0),
        # The broker has it already, or a later one: it accepts batches in order.
        ([UNANSWERED, produce(2, 0, error=46), NEXT_EPOCH], 0),
        ([UNANSWERED, produce(2, 3, size=301), NEXT_EPOCH], 0),
        # The next epoch has new sequence numbers: the batch is recognized by its size.
        ([UNANSWERED, produce(9, 0, epoch=1)], 0),
        ([UNANSWERED, NEXT_EPOCH, produce(10, 3, epoch=1)], 0),
        # Undecided.
        ([UNANSWERED], 0),
        ([UNANSWERED, produce(9, 0, epoch=1, size=301, number=1)], 0),
        ([UNANSWERED, produce(0.5, 0, epoch=1, size=301)], 0),
        ([produce(1, 0, status="open"), NEXT_EPOCH], 0),
        ([produce(1, 0, status="lost"), NEXT_EPOCH], 0),
        # The client continues on another partition, but not for long enough; a restarted program is another producer.
        ([UNANSWERED, produce(200, 0, number=1)], 0),
        ([UNANSWERED, produce(302, 0, number=1, client_ip="10.0.0.6")], 0),
        # Some clients regroup records without sequence numbers into other batches when they retry.
        ([produce(1, -1, status="unanswered", producer_id=-1), produce(400, -1, producer_id=-1, size=301)], 0),
        # A transaction is aborted as a whole, and the program knows. `oversized-messages` reports the other one.
        ([{**UNANSWERED, "transactional_id": "t"}, {**NEXT_EPOCH, "transactional_id": "t"}], 0),
        ([produce(1, 0, error=10), NEXT_EPOCH], 0),
    ],
)
def test_which_batches_are_lost(rows: list[Row], count: int) -> None:
    assert sum(one.values["batches"] for one in lost(*rows)) == count


@pytest.mark.parametrize(
    ("rows", "severity", "fate"),
    [
        ([produce(1, 0, error=10)], "error", None),
        ([produce(1, 0, error=10), produce(2, 0, size=100), produce(3, 1, size=100)], "note", ("stored", 1)),
        # Without sequence numbers their fate is unknown.
        ([produce(1, -1, error=10, **UNNUMBERED), produce(2, -1, **UNNUMBERED)], "warning", ("unknown", 1)),
        ([produce(1, -1, error=10, **UNNUMBERED)], "error", None),
    ],
)
def test_batches_that_are_too_large(rows: list[Row], severity: str, fate: tuple[str, int] | None) -> None:
    (one,) = findings_of("oversized-messages", rows)
    assert one.severity == severity
    assert fate is None or fate in one.values.items()


def message(api: str, *problems: str, topic: str = "orders", client_id: str = "app") -> Row:
    """One with an empty partition, and one with records."""
    places = [partition("idle", record_count=0), partition(topic, record_count=3)]
    return exchange(api, partitions=places, problems=list(problems), client_id=client_id)


def test_problems_that_are_no_damage() -> None:
    assert findings_of("damaged-records", [message("Fetch", "tag-unknown"), message("Produce")]) == []


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


def overwritten(*rows: Row) -> list[Finding]:
    return findings_of("overwritten-records", numbered(*rows))


def test_offsets_that_only_look_given_twice() -> None:
    """A leader that continues, a retry of a batch that the former leader had stored, and a topic created again."""
    assert overwritten(*stored(1, 0, range(20)), *stored(2, 30, range(20, 40))) == []
    assert overwritten(*stored(1, 0, range(20)), *stored(2, 30, [12, *range(20, 40)])) == []
    assert overwritten(*stored(1, 0, range(20), "old"), *stored(2, 30, range(20), "new")) == []
    assert overwritten(*stored(1, 0, range(20)), *stored(1, 30, range(20))) == [], "one broker: order may differ"
