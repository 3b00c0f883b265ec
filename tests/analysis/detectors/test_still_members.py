"""Clients that stand still: what their silence may have been instead."""

from __future__ import annotations

from typing import Any

from kafkasniff.analysis.detectors.groups import StillMembers
from tests.analysis.tables import Row, batch_of, exchange, partition


def fetch(at: float, size: int = 0, *, wait: float = 0.5, **values: Any) -> Row:
    """A fetch that the broker answers after `wait` seconds."""
    return exchange("Fetch", at, partitions=[partition(bytes=size)], latency_us=round(wait * 1e6), **values)


def beat(at: float) -> Row:
    return exchange("Heartbeat", at, group_id="g")


def severities(*rows: Row) -> list[str]:
    detector = StillMembers()
    numbered = [{**row, "exchange_id": place} for place, row in enumerate(rows)]
    for row in numbered[::-1]:
        detector.update(batch_of([row]))
    return [one.severity for one in detector.findings()]


IDLE = [fetch(place * 0.501) for place in range(6)]
"""The last one is answered after 3 seconds."""


def test_a_consumer_without_a_group() -> None:
    assert severities(*IDLE, fetch(10)) == ["warning"]
    assert severities(*IDLE, fetch(6.5)) == ["note"]
    assert severities(*IDLE, fetch(4)) == []
    assert severities(*IDLE[:2], fetch(10)) == [], "too few fetches to know its pace"


def test_a_consumer_that_has_got_records_works() -> None:
    assert severities(*IDLE[:5], fetch(2.6, 100), fetch(10)) == []
    other = fetch(1, 100, wait=2.5, connection_id=2)
    assert severities(*IDLE, other, fetch(10)) == [], "from another broker"


def test_a_consumer_that_waits_or_goes_elsewhere() -> None:
    assert severities(*IDLE, {**fetch(3.1), "latency_us": None}, fetch(10)) == []
    assert severities(*IDLE, fetch(3.1, wait=6), fetch(9.2)) == []
    assert severities(*IDLE, *(fetch(3.1 + place, connection_id=2) for place in range(6)), fetch(10)) == []
    assert severities(*IDLE, fetch(10), exchange("OffsetCommit", 11, group_id="g")) == [], "a group's consumer"
    assert severities(*IDLE, fetch(10, connection_id=2)) == [], "it may have left and come back"


def test_followers_have_nothing_to_process() -> None:
    follower = [{**row, "client_id": "broker-2-fetcher-0"} for row in (*IDLE[:5], fetch(2.6, 100), fetch(10))]
    assert severities(*follower) == ["warning"]
    assert severities(*({**row, "client_id": "raft-client-2"} for row in follower)) == []


def test_a_member_that_waits_for_a_fetch_before_its_next_heartbeat() -> None:
    beats = [beat(place) for place in range(5)]
    assert severities(*beats, beat(10)) == ["warning"]
    assert severities(*beats, fetch(4.1, wait=5.8, client_id="other"), beat(10)) == ["warning"]
    assert severities(*beats, fetch(4.1, wait=5.8), beat(10)) == []
    assert severities(*beats, fetch(4.1), beat(10)) == ["warning"]
