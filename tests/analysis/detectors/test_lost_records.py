"""Fate of batches that failed: stored by a later attempt, lost, or still unknown."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors import attempts as attempts_module
from kafkasniff.analysis.detectors import find_detector
from kafkasniff.analysis.detectors.attempts import NO_PRODUCER, Attempt, Attempts
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


def test_a_batch_skipped_in_the_next_epoch() -> None:
    (one,) = lost(produce(0, 0), produce(1, 3, status="unanswered"), produce(9, 0, epoch=1, size=301))
    assert (one.severity, one.count) == ("error", 1)
    assert one.values == {"batches": 1, "records": 3, "attempts": 1, "next_epoch": 1}
    assert "gave up 1 batch with 3 records for orders-0: no response in 1 attempt" in one.title
    assert "unknown" in one.meaning


def test_a_later_number_that_the_broker_refuses_as_out_of_order() -> None:
    rows = [produce(0, 0), produce(1, 3, status="unanswered"), produce(2, 6, error=45, size=301)]
    (one,) = lost(*rows, produce(9, 0, epoch=1, size=301))
    assert "does not have them" in one.meaning


def test_attempts_that_succeed() -> None:
    assert lost(UNANSWERED, produce(2, 0), produce(9, 0, epoch=1, size=301)) == []
    # The broker has it already, or a later one: it accepts batches in order.
    assert lost(UNANSWERED, produce(2, 0, error=46), produce(9, 0, epoch=1, size=301)) == []
    assert lost(UNANSWERED, produce(2, 3, size=301), produce(9, 0, epoch=1, size=301)) == []
    # The next epoch has new sequence numbers: the batch is recognized by its size.
    assert lost(UNANSWERED, produce(9, 0, epoch=1)) == []


def test_undecided_batches() -> None:
    assert lost(UNANSWERED) == []
    assert lost(produce(1, 0, status="open"), produce(9, 0, epoch=1, size=301)) == []
    assert lost(produce(1, 0, status="lost"), produce(9, 0, epoch=1, size=301)) == []
    # The client continues on another partition, but not for long enough.
    assert lost(UNANSWERED, produce(200, 0, number=1)) == []


def test_a_partition_without_further_batches() -> None:
    (one,) = lost(UNANSWERED, produce(302, 0, number=1, size=301))
    assert "then it sent nothing more to this partition" in one.title
    # A restarted program is another producer.
    assert lost(UNANSWERED, produce(302, 0, number=1, client_ip="10.0.0.6")) == []


def test_batches_that_are_not_judged() -> None:
    # Some clients regroup records without sequence numbers into other batches when they retry.
    assert lost(produce(1, -1, status="unanswered", producer_id=-1), produce(400, -1, producer_id=-1, size=301)) == []
    # A transaction is aborted as a whole, and the program knows.
    rows = produce(1, 0, status="unanswered", transactional_id="t"), produce(9, 0, epoch=1, transactional_id="t")
    assert lost(*rows) == []
    # `oversized-messages` reports it.
    assert lost(produce(1, 0, error=10), produce(9, 0, epoch=1, size=301)) == []


def test_batches_that_are_too_large() -> None:
    (one,) = found("oversized-messages", produce(1, 0, error=10))
    assert one.severity == "error"
    (one,) = found("oversized-messages", produce(1, 0, error=10), produce(2, 0, size=100), produce(3, 1, size=100))
    assert (one.severity, one.values["stored"]) == ("note", 1)
    # Without sequence numbers their fate is unknown.
    unnumbered = {"producer_id": -1, "epoch": -1}
    (one,) = found("oversized-messages", produce(1, -1, error=10, **unnumbered), produce(2, -1, **unnumbered))
    assert (one.severity, one.values["unknown"]) == ("warning", 1)
    (one,) = found("oversized-messages", produce(1, -1, error=10, **unnumbered))
    assert one.severity == "error"


@pytest.mark.parametrize(("lived", "severity"), [(1.5, "warning"), (9, "error")])
def test_a_batch_that_is_too_large_just_before_the_end(lived: float, severity: str) -> None:
    """Its producer may still split it."""
    detector = find_detector("oversized-messages")()
    detector.update(batch_of([produce(1, 0, error=10)]))
    detector.update(batch_of([connection(lived=lived)], "connections"), "connections")
    assert [one.severity for one in detector.findings()] == [severity]


SECOND = 1_000_000_000


def attempts(*rows: Row) -> Attempts:
    detector = find_detector("lost-records")()
    detector.update(batch_of(rows))
    return Attempts(detector)


def failed(*later: Row, error: int = 6, **more: object) -> tuple[Attempts, Attempt]:
    """A batch with the numbers 3-5 that failed at second 1, and later attempts."""
    found = attempts(produce(0, 0), produce(1, 3, error=error, **more), *later)  # type: ignore[arg-type]
    (one,) = (one for one in found.failed if one.base_sequence in (3, NO_PRODUCER) and one.error_code == error)
    return found, one


def test_failed_attempts() -> None:
    rows = [produce(1, 0, error=6), produce(2, 0, error=6), produce(3, 0, status="unanswered"), produce(4, 0, error=46)]
    found = attempts(*rows).failed
    twice, once = sorted(found, key=lambda one: -one.count)
    assert (twice.error_code, twice.count, once.error_code, once.count) == (6, 2, attempts_module.UNANSWERED, 1)
    assert (twice.record_count, twice.bytes, twice.base_sequence) == (3, 300, 0)
    assert twice.last is not None
    assert twice.first is not None
    assert twice.last - twice.first == SECOND
    assert attempts(produce(1, 0, error=6, transactional_id="payments")).failed == []


@pytest.mark.parametrize(
    ("later", "stored"),
    [
        (produce(2, 3), True),
        (produce(2, 6), True),
        (produce(2, 3, error=46), True),
        (produce(2, 0), False),
        (produce(2, 6, error=6), False),
        (produce(2, 6, status="unanswered"), False),
        (produce(2, 6, producer_id=8), False),
        (produce(2, 6, epoch=1), False),
        (produce(2, 6, number=1), False),
    ],
)
def test_batches_before_an_acknowledged_number_are_stored(later: Row, stored: bool) -> None:
    found, one = failed(later)
    assert found.is_stored(one) is stored


@pytest.mark.parametrize(
    ("later", "missed"),
    [
        (produce(2, 6, error=45), True),
        (produce(2, 0, error=45), False),
        (produce(2, 6, error=45, producer_id=8), False),
        (produce(2, 6, error=6), False),
    ],
)
def test_batches_before_a_number_out_of_order_are_missed(later: Row, missed: bool) -> None:
    found, one = failed(later)
    assert found.is_missed(one) is missed


@pytest.mark.parametrize(
    ("later", "epoch"),
    [
        ([produce(2, 0, epoch=1, size=301)], 1),
        ([produce(3, 0, epoch=2, size=301), produce(2, 0, epoch=1, size=302)], 1),
        # A batch of the same size is the retry.
        ([produce(2, 0, epoch=1)], None),
        ([produce(2, 0, epoch=1, size=301), produce(3, 3, epoch=1)], None),
        ([produce(2, 0, epoch=1, size=301, number=1)], None),
        ([produce(0.5, 0, epoch=1, size=301)], None),
        ([produce(2, 6, size=301), produce(3, 0, epoch=1, size=302)], None),
    ],
)
def test_the_epoch_in_which_a_producer_continues_without_the_batch(later: list[Row], epoch: int | None) -> None:
    found, one = failed(*later)
    assert found.later_epoch(one) == epoch


def test_a_client_that_continues() -> None:
    """On the same or another partition, and for how long."""
    found, one = failed(produce(2, 6))
    assert found.went_on(one)
    assert found.silent_ns(one) == 0
    found, one = failed(produce(2, 0, number=1), produce(5, 3, number=1))
    assert not found.went_on(one)
    assert found.silent_ns(one) == 4 * SECOND
    found, one = failed(produce(2, 0, number=1), produce(3, 6, error=6))
    assert found.silent_ns(one) == 0
    found, one = failed()
    assert (found.went_on(one), found.silent_ns(one), found.whole) == (False, 0, True)
