"""Moves of leaders, with leader epochs and without."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import Row, exchange


def metadata(at: float, leader: int, epoch: int | None = None, *, port: int = 9092) -> Row:
    """A broker's answer that this one leads orders-0."""
    one = {"partition_index": 0, "leader_id": leader, **({} if epoch is None else {"leader_epoch": epoch})}
    return exchange(
        "Metadata", at, response_body={"topics": [{"name": "orders", "partitions": [one]}]}, broker_port=port
    )


TURNS = [metadata(2 * at, 1 + at % 2) for at in range(6)]
LATER = [metadata(at + 0.1, 1 if at < 3 else 2, port=9093) for at in range(6)]
"""Another broker, which learns late of the only move."""


@pytest.mark.parametrize(
    ("rows", "moves"),
    [
        (TURNS, 5),
        (TURNS[:4], None),
        ([metadata(at, 1 + at % 2, epoch) for at, epoch in enumerate((0, 1, 2, 3, 4))], 4),
        # Answers that are out of date.
        ([metadata(at, 1 + at % 2, at % 2) for at in range(6)], None),
        ([*LATER, *(metadata(at, 2) for at in range(6))], None),
        ([*TURNS, *LATER], 5),
    ],
    ids=["without-epochs", "few", "epochs", "stale", "stale-without-epochs", "two-brokers"],
)
def test_moves_of_leaders(rows: Sequence[Row], moves: int | None) -> None:
    for order in (rows, rows[::-1]):
        assert [one.count for one in findings_of("not-leader", order, size=1)] == ([] if moves is None else [moves])
