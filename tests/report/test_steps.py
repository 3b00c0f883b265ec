"""The steps of a connection's ladder: in order of time, with omissions, and a place for all evidence."""

from __future__ import annotations

from kafkasniff.analysis.detectors import Evidence, Finding
from kafkasniff.report.contents import Shown
from kafkasniff.report.steps import Step, ladders_of
from tests.analysis.tables import START_NS, Row, exchange, partition
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


def test_requests_and_responses_in_order_of_time() -> None:
    """Two consecutive requests, answered in the same order; a third without a response."""
    rows = [
        exchange("Produce", 0, exchange_id=0, latency_us=3000, partitions=[partition("orders", 4)],
                 record_count=7, acks=1),
        exchange("Produce", 0.001, exchange_id=1, latency_us=4000, error_code=6, error="NOT_LEADER_OR_FOLLOWER",
                 error_count=2),
        exchange("Metadata", 0.002, exchange_id=2, status="unanswered", response_size=None, latency_us=None),
    ]  # fmt: skip
    found = steps(rows)
    assert [(step.kind, step.time) for step in found] == [
        ("request", "0.000000"),
        ("request", "0.001000"),
        ("request", "0.002000"),
        ("response", "0.003000"),
        ("response", "0.005000"),
    ]
    assert found[0].title == "Produce v13"
    assert found[0].detail == "exchange_id 0, corr 1, orders-4, 7 records, acks 1, 100 B"
    assert found[2].trouble == "unanswered"
    assert found[4].title == "4.00 ms"
    assert found[4].trouble == "NOT_LEADER_OR_FOLLOWER and 1 more"
    assert [step.anchor for step in found[:3]] == ["connection-1-0", "connection-1-1", "connection-1-2"]


def test_evidence_has_a_place_even_where_its_exchange_was_not_kept() -> None:
    found = steps(connection(1, 500), Evidence(1, 2, START_NS, "seen"), Evidence(1, 300, START_NS + 10**9, "far off"))
    seen = next(step for step in found if step.anchor == "connection-1-2")
    assert (seen.kind, [link.anchor for link in seen.findings]) == ("request", ["finding-1"])
    witness = next(step for step in found if step.kind == "witness")
    assert (witness.anchor, witness.title, witness.detail) == ("connection-1-300", "exchange_id 300", "far off")
    places = [step.anchor for step in found if step.anchor]
    assert len(places) == len(set(places))
