"""Batches with a wrong checksum: whose, and of which topic."""

from __future__ import annotations

import pytest

from kafkasniff.analysis.detectors.damaged import DamagedRecords
from kafkasniff.analysis.detectors.finding import Finding
from tests.analysis.tables import Row, batch_of, exchange, partition


def message(api: str, *problems: str, topic: str = "orders", client_id: str = "app") -> Row:
    """One with an empty partition, and one with records."""
    places = [partition("idle", record_count=0), partition(topic, record_count=3)]
    return exchange(api, partitions=places, problems=list(problems), client_id=client_id)


def found(*rows: Row) -> list[Finding]:
    detector = DamagedRecords()
    detector.update(batch_of(rows))
    return list(detector.findings())


@pytest.mark.parametrize(("api", "who"), [("Produce", "of app at 10.0.0.5 to"), ("Fetch", "of 10.0.0.9:9092 to app")])
def test_a_wrong_checksum(api: str, who: str) -> None:
    (one,) = found(message(api), message(api, "tag-unknown", "crc-mismatch"), message(api, "crc-mismatch"))
    assert (one.severity, one.count, one.subject["topic"]) == ("error", 2, "orders")
    assert who in one.title


def test_other_problems() -> None:
    assert found(message("Fetch", "tag-unknown"), message("Produce")) == []


def test_topics_and_clients_apart() -> None:
    rows = [message("Fetch", "crc-mismatch", topic=topic, client_id=name) for topic in "ab" for name in "xy"]
    assert len(found(*rows)) == 4
