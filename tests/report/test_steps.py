"""The steps of a connection's ladder: in order of time, with omissions, and a place for all evidence."""

from __future__ import annotations

from kafkasniff.analysis.detectors import Evidence, Finding
from kafkasniff.report.contents import Shown
from kafkasniff.report.steps import Step, ladders_of
from tests.analysis.tables import START_NS, Row
from tests.report.test_ladder import connection, taken


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
