"""Which exchanges of a connection are kept, and how they become steps.

The steps of a connection's ladder: in order of time, with omissions, and a place for all evidence.
"""

from __future__ import annotations

import pytest

from kafkasniff.analysis.detectors import Evidence, Finding
from kafkasniff.report import ladder as module
from kafkasniff.report.ladder import EARLIEST, SLOWEST, TROUBLED, Ladder, Shown, Step, ladders_of
from tests.analysis.tables import START_NS, Row, batch_of, exchange


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


def steps(rows: list[Row], *evidence: Evidence) -> list[Step]:
    ladder = taken(rows)
    (talk,) = ladder.talks()
    finding = Finding(
        detector="crafted", severity="error", title="t", meaning="m", advice="a", subject={}, count=1, first=None,
        last=None, evidence=evidence,
    )  # fmt: skip
    (found,) = ladders_of([Shown(talk, ladder.rungs({1})[1])], [finding])
    return found.steps


def test_evidence_has_a_place_even_where_its_exchange_was_not_kept() -> None:
    found = steps(connection(1, 500), Evidence(1, 2, START_NS, "seen"), Evidence(1, 300, START_NS + 10**9, "far off"))
    seen = next(step for step in found if step.anchor == "connection-1-2")
    assert (seen.kind, [link.anchor for link in seen.findings]) == ("request", ["finding-1"])
    witness = next(step for step in found if step.kind == "witness")
    assert (witness.anchor, witness.title, witness.detail) == ("connection-1-300", "exchange_id 300", "far off")
    places = [step.anchor for step in found if step.anchor]
    assert len(places) == len(set(places))
