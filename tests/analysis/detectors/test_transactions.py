"""Consumers that wait at a last stable offset: for how long, and whether it is usual."""

from __future__ import annotations

import pytest

from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import Row, exchange, partition


def fetch(at: float, stable: int, *, end: int = 40, records: int = 0, offset: int | None = None) -> Row:
    """A consumer at the last stable offset, unless it asks for another one."""
    offset = stable if offset is None else offset
    place = partition(offset=offset, high_watermark=end, last_stable_offset=stable, record_count=records)
    return exchange("Fetch", at=at, partitions=[place], exchange_id=round(at * 10))


def waits(since: float, until: float, stable: int) -> list[Row]:
    return [fetch(since, stable), fetch((since + until) / 2, stable), fetch(until, stable)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (waits(0, 9, 5), [("warning", False)]),
        (waits(0, 4, 5), []),
        ([*waits(0, 9, 5), fetch(10, 30, records=3)], [("note", True)]),
        # The last of several alike may still be open.
        ([*waits(0, 9, 5), *waits(10, 19, 20)], [("note", True)]),
        ([*waits(0, 3, 5), *waits(4, 14, 20)], [("warning", False)]),
        # Records that are not committed are read, up to the end.
        ([fetch(at, 5, offset=40) for at in (0, 5, 9)], []),
        ([fetch(at, 5, records=2) for at in (0, 5, 9)], []),
        ([fetch(at, 40) for at in (0, 5, 9)], []),
    ],
    ids=["stuck", "short", "moved", "usual", "longer", "uncommitted", "with-records", "at-the-end"],
)
def test_waits(rows: list[Row], expected: list[tuple[str, bool]]) -> None:
    found = findings_of("stuck-stable-offsets", rows)
    assert [(one.severity, one.values["moved"]) for one in found] == expected


def test_the_transaction_is_named() -> None:
    """By the first batch of it, at the last stable offset."""
    written = exchange("Produce", transactional_id="ledger", partitions=[partition(offset=5)], client_id="writer")
    (found,) = findings_of("stuck-stable-offsets", [written, *waits(1, 9, 5)])
    assert (found.subject["transactional_id"], found.subject["client_id"]) == ("ledger", "writer")
    assert found.values["records"] == 35
