"""Which exchanges of a connection are kept, and how they become steps."""

from __future__ import annotations

from random import Random

from kafkasniff.analysis.detectors import Evidence, Finding
from kafkasniff.report import ladder as module
from kafkasniff.report.contents import Shown
from kafkasniff.report.ladder import EARLIEST, SLOWEST, TROUBLED, Ladder
from kafkasniff.report.steps import Step, ladders_of
from tests.analysis.tables import START_NS, Row, batch_of, exchange, partition


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


def test_waiting_on_purpose_is_not_slow() -> None:
    rows = connection(1, 100)
    waited = {"latency_us": 500_000, "wait_us": 500_000, "waits_for": "data"}
    rows += [exchange("Fetch", 5 + place, exchange_id=100 + place, **waited) for place in range(30)]
    assert kept(taken(rows), 1) == [*range(EARLIEST), *range(100 - SLOWEST, 100)]


def test_order_batches_and_merging_do_not_matter() -> None:
    rows = [row for number in (1, 2, 3) for row in connection(number, 150)]
    rows[200] |= {"status": "open", "response_size": None, "latency_us": None}
    expected = taken(rows)
    mixed = Random(1).sample(rows, len(rows))
    merged = Ladder()
    for start in range(0, len(mixed), 37):
        merged.merge(Ladder.from_state(taken(mixed[start : start + 37]).state()))
    assert merged.talks() == expected.talks()
    assert merged.rungs({1, 2, 3}) == expected.rungs({1, 2, 3})


def test_connections_with_trouble_come_first() -> None:
    rows = [*connection(1, 60), *connection(2, 20), *connection(3, 30)]
    rows[60] |= {"status": "unanswered", "response_size": None}
    rows[61] |= {"throttle_time_ms": 100}
    talks = taken(rows).talks()
    assert [talk.connection_id for talk in talks] == [2, 1, 3]
    assert (talks[0].exchanges, talks[0].unanswered, talks[0].client_port) == (20, 1, 50_002)


def test_what_is_kept_is_bounded(monkeypatch: object) -> None:
    rows = [row for number in range(200) for row in connection(number + 1, 3)]
    ladder = taken(rows)
    assert len(ladder.talks()) == 200 < module.MAX_CONNECTIONS
    assert all(part.table().num_rows <= 3 * 200 for part in ladder.parts.values())


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


def test_omissions_are_reported() -> None:
    rows = connection(1, 500)
    told = [step.title for step in steps(rows) if step.kind == "gap"]
    assert told == [f"{500 - EARLIEST - SLOWEST} exchanges not shown"]
    orphan = [exchange(None, 1, exchange_id=3, status="orphan", request_size=None, latency_us=None, api_version=None)]
    found = steps(orphan)
    assert [(step.kind, step.title) for step in found] == [("gap", "3 exchanges not shown"), ("response", "")]
    assert (found[1].anchor, found[1].trouble) == ("connection-1-3", "its request was not captured")


def test_evidence_has_a_place_even_where_its_exchange_was_not_kept() -> None:
    found = steps(connection(1, 500), Evidence(1, 2, START_NS, "seen"), Evidence(1, 300, START_NS + 10**9, "far off"))
    seen = next(step for step in found if step.anchor == "connection-1-2")
    assert (seen.kind, [link.anchor for link in seen.findings]) == ("request", ["finding-1"])
    witness = next(step for step in found if step.kind == "witness")
    assert (witness.anchor, witness.title, witness.detail) == ("connection-1-300", "exchange_id 300", "far off")
    places = [step.anchor for step in found if step.anchor]
    assert len(places) == len(set(places))
