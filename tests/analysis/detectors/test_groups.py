"""Clients that stand still: what their silence may have been instead; statuses of Streams groups and their ends."""

from __future__ import annotations

from typing import Any

from kafkasniff.analysis.detectors import Finding
from tests.analysis.detectors.talks import findings_of, numbered
from tests.analysis.tables import Row, exchange, partition


def fetch(at: float, size: int = 0, *, wait: float = 0.5, **values: Any) -> Row:
    """A fetch that the broker answers after `wait` seconds."""
    return exchange("Fetch", at, partitions=[partition(bytes=size)], latency_us=round(wait * 1e6), **values)


def beat(at: float) -> Row:
    return exchange("Heartbeat", at, group_id="g")


def still(*rows: Row) -> list[str]:
    return [one.severity for one in findings_of("still-members", numbered(*rows)[::-1], size=1)]


IDLE = [fetch(place * 0.501) for place in range(6)]
"""The last one is answered after 3 seconds."""


def test_a_consumer_without_a_group() -> None:
    assert still(*IDLE, fetch(10)) == ["warning"]
    assert still(*IDLE, fetch(6.5)) == ["note"]
    assert still(*IDLE, fetch(4)) == []
    assert still(*IDLE[:2], fetch(10)) == [], "too few fetches to know its pace"


def test_a_consumer_that_has_got_records_works() -> None:
    assert still(*IDLE[:5], fetch(2.6, 100), fetch(10)) == []
    other = fetch(1, 100, wait=2.5, connection_id=2)
    assert still(*IDLE, other, fetch(10)) == [], "from another broker"


def test_a_consumer_that_waits_or_goes_elsewhere() -> None:
    assert still(*IDLE, {**fetch(3.1), "latency_us": None}, fetch(10)) == []
    assert still(*IDLE, fetch(3.1, wait=6), fetch(9.2)) == []
    assert still(*IDLE, *(fetch(3.1 + place, connection_id=2) for place in range(6)), fetch(10)) == []
    assert still(*IDLE, fetch(10), exchange("OffsetCommit", 11, group_id="g")) == [], "a group's consumer"
    assert still(*IDLE, fetch(10, connection_id=2)) == [], "it may have left and come back"


def test_a_member_that_waits_for_a_fetch_before_its_next_heartbeat() -> None:
    beats = [beat(place) for place in range(5)]
    assert still(*beats, beat(10)) == ["warning"]
    assert still(*beats, fetch(4.1, wait=5.8, client_id="other"), beat(10)) == ["warning"]
    assert still(*beats, fetch(4.1, wait=5.8), beat(10)) == []
    assert still(*beats, fetch(4.1), beat(10)) == ["warning"]


def streams_beat(at: float, *codes: int, epoch: int = 3) -> Row:
    statuses = [{"status_code": code, "status_detail": f"detail {code}"} for code in codes]
    body = {"member_epoch": epoch, "status": statuses}
    return exchange("StreamsGroupHeartbeat", at, group_id="app", response_body=body)


def found(*rows: Row) -> list[Finding]:
    return sorted(findings_of("blocked-streams-groups", rows), key=lambda one: one.subject["status"])


def severities(*rows: Row) -> list[str]:
    return [one.severity for one in found(*rows)]


def test_streams_topics_that_are_missing_or_do_not_fit() -> None:
    """Until a heartbeat has another list. Members that leave get an empty one."""
    (one,) = found(streams_beat(0, 2, 5))
    assert (one.severity, one.subject, one.count) == ("error", {"group_id": "app", "status": 2}, 1)
    assert '"detail 2"' in one.title
    assert severities(streams_beat(0, 1), streams_beat(1, epoch=-1)) == ["error"]
    assert severities(streams_beat(0, 1), streams_beat(1)) == ["warning"]
    assert severities(streams_beat(0, 1, 2), streams_beat(1, 2)) == ["warning", "error"]
    assert severities(streams_beat(0, 4)) == ["error"]


def test_streams_statuses_that_are_usual_for_a_short_time() -> None:
    assert severities(streams_beat(0, 5), streams_beat(1, 6)) == []
    assert severities(streams_beat(0, 3), streams_beat(9)) == ["note"]
    assert severities(streams_beat(0, 3), streams_beat(9, 3)) == ["note"], "the capture ends"
    assert severities(streams_beat(0, 0), streams_beat(20, 0)) == ["error"]
    assert severities(streams_beat(0, 3), streams_beat(20)) == ["note"]
    assert severities(streams_beat(0, 3), streams_beat(16, 3), streams_beat(20)) == ["warning"]


def test_streams_bodies_that_are_cut_off() -> None:
    cut = {**streams_beat(1), "response_body": '{"member_epoch":3,"status":[{"status_code":'}
    assert severities(cut) == []
    assert severities(streams_beat(0, 1), cut, {**cut, "response_body": None}) == ["error"]
