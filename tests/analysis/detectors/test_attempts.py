"""What later attempts show about a batch that failed."""

from __future__ import annotations

import pytest

from kafkasniff.analysis.detectors import find_detector
from kafkasniff.analysis.detectors.attempts import NO_PRODUCER, UNANSWERED, Attempt, Attempts
from tests.analysis.detectors.test_lost_records import produce
from tests.analysis.tables import Row, batch_of

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
    assert {(one.error_code, one.count) for one in found} == {(6, 2), (UNANSWERED, 1)}
    (twice,) = (one for one in found if one.count == 2)
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


def test_producers_without_sequence_numbers() -> None:
    found, one = failed(produce(2, 6), producer_id=None)
    assert one.producer_id == NO_PRODUCER
    assert not found.is_stored(one)
    assert found.later_epoch(one) is None
