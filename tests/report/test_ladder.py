"""Which exchanges of a connection are kept, and how they become steps."""

from __future__ import annotations

import pytest

from kafkasniff.report import ladder as module
from kafkasniff.report.ladder import EARLIEST, SLOWEST, TROUBLED, Ladder
from tests.analysis.tables import Row, batch_of, exchange


def connection(number: int, exchanges: int, **values: object) -> list[Row]:
    return [
        exchange("Produce", number + place / 100, connection_id=number, exchange_id=place, client_port=50_000 + number,
                 latency_us=1000 + place, **values)
        for place in range(exchanges)
    ]  # fmt: skip


def kept(ladder: Ladder, number: int) -> list[int]:
    return [rung.exchange_id for rung in ladder.rungs({number})[number]]


def taken(rows: list[Row]) -> Ladder:
    ladder = Ladder()
    ladder.update(batch_of(rows))
    return ladder


def test_the_first_the_troubled_and_the_slowest() -> None:
    rows = connection(1, 1000)
    for place in range(500, 600):
        rows[place] |= {"error_code": 3, "error": "UNKNOWN_TOPIC_OR_PARTITION", "error_count": 1}
    assert kept(taken(rows), 1) == [
        *range(EARLIEST), *range(500, 500 + TROUBLED), *range(1000 - SLOWEST, 1000)
    ]  # fmt: skip


def test_the_note_about_missing_rows_depends_on_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 100)
    rows = [row for number in range(40) for row in connection(number + 1, 5)]
    rows += [row for number in range(40) for row in connection(number + 1, 70)[5:]]
    found = []
    for size in (90, 1000, len(rows)):
        ladder = Ladder()
        for start in range(0, len(rows), size):
            ladder.update(batch_of(rows[start : start + size]))
        found.append((ladder.notes(), ladder.rungs({1, 2, 3})))
    assert found[0][0] == ["some rows are missing: the limit is 100"] * 2
    assert all(one == found[0] for one in found)
