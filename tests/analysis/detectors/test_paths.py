"""Connections that nobody closes: what shows that their client gave them up."""

from __future__ import annotations

import pytest

from tests.analysis.detectors.talks import findings_of
from tests.analysis.tables import SECOND, START_NS, Row, exchange, partition


def produce(connection: int, at: float, *, producer: int = 7, client_ip: str = "10.0.0.5") -> Row:
    places = [partition(producer_id=producer, producer_epoch=0)]
    return {**exchange("Produce", at=at, partitions=places, client_ip=client_ip), "connection_id": connection}


def ended(connection: int, until: float, *, closed: bool = False) -> Row:
    """A connection whose last packet was at `until`."""
    end = START_NS + round(until * SECOND)
    times = {"time_ns": START_NS, "end_time_ns": end, "ended_ns": end if closed else None}
    return {"connection_id": connection, **times}


USED = [produce(1, 0), produce(2, 20), produce(3, 40)]


@pytest.mark.parametrize(
    ("requests", "connections", "expected"),
    [
        (USED, [ended(1, 1), ended(2, 21)], ["warning"]),
        (USED, [ended(1, 1), ended(2, 21, closed=True)], ["note"]),
        (USED, [ended(1, 1, closed=True), ended(2, 21, closed=True)], []),
        (USED, [ended(1, 41), ended(2, 41)], []),
        ([produce(1, 0), produce(2, 20, producer=8)], [ended(1, 1)], []),
        ([produce(1, 0, producer=-1), produce(2, 20, producer=-1)], [ended(1, 1)], []),
        ([produce(1, 0), produce(2, 20, client_ip="10.0.0.6")], [ended(1, 1)], []),
    ],
    ids=["two", "one", "closed", "still-used", "other-producers", "no-producer-id", "other-hosts"],
)
def test_a_producer_goes_on_with_another_connection(
    requests: list[Row], connections: list[Row], expected: list[str]
) -> None:
    found = findings_of("forgotten-connections", requests, transport=connections)
    assert [one.severity for one in found] == expected
