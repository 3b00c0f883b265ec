"""Fate of batches that failed: stored by a later attempt, lost, or still unknown."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors import find_detector
from kafkasniff.analysis.detectors.finding import Finding
from tests.analysis.tables import Row, batch_of, connection, exchange, partition


def produce(
    at: float, sequence: int, *, error: int = 0, epoch: int = 0, status: str = "answered", number: int = 0, **more: Any
) -> Row:
    """A Produce with one batch of three records; `error` of its partition."""
    size = {"record_count": 3, "bytes": more.pop("size", 300), "batch_count": 1}
    reported = None if status != "answered" else error
    facts = partition(
        number=number,
        producer_id=more.pop("producer_id", 7),
        producer_epoch=epoch,
        base_sequence=sequence,
        error_code=reported,
        **size,
    )
    return exchange("Produce", at, acks=-1, status=status, partitions=[facts], **more)


def found(name: str, *rows: Row) -> list[Finding]:
    detector = find_detector(name)()
    detector.update(batch_of(rows))
    return detector.findings()


def lost(*rows: Row) -> list[Finding]:
    return found("lost-records", *rows)


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


def test_a_partition_without_further_batches() -> None:
    (one,) = lost(UNANSWERED, produce(302, 0, number=1, size=301))
    assert "then it sent nothing more to this partition" in one.title


@pytest.mark.parametrize(("lived", "severity"), [(1.5, "warning"), (9, "error")])
def test_a_batch_that_is_too_large_just_before_the_end(lived: float, severity: str) -> None:
    """Its producer may still split it."""
    detector = find_detector("oversized-messages")()
    detector.update(batch_of([produce(1, 0, error=10)]))
    detector.update(batch_of([connection(lived=lived)], "connections"), "connections")
    assert [one.severity for one in detector.findings()] == [severity]


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
    (one,) = found("oversized-messages", *rows)
    assert one.severity == severity
    assert fate is None or fate in one.values.items()
