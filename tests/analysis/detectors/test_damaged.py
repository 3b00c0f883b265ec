"""Malformed bodies and batches with a wrong checksum: whose, and of which API or topic."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.detectors.detector import Detector
from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.records import DamagedRecords, MalformedMessages
from tests.analysis.tables import Row, batch_of, exchange, partition


def message(api: str, *problems: str, topic: str = "orders", client_id: str = "app") -> Row:
    """One with an empty partition, and one with records."""
    places = [partition("idle", record_count=0), partition(topic, record_count=3)]
    return exchange(api, partitions=places, problems=list(problems), client_id=client_id)


def found(*rows: Row, detector: Detector[Any] | None = None) -> list[Finding]:
    detector = detector or DamagedRecords()
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


def test_malformed_messages() -> None:
    """Those that a capture has cut are not malformed, nor is what a tolerant reader understands."""
    rows = [
        message("Fetch", "body-truncated"),
        message("Fetch", "trailing-bytes", "array-too-long", "length-negative"),
        message("Fetch", "frame-incomplete", "body-truncated"),
        message("Fetch", "trailing-bytes"),
        message("Metadata", "varint-too-long", client_id="other"),
    ]
    several, one = sorted(found(*rows, detector=MalformedMessages()), key=lambda finding: -finding.count)
    assert several.title.startswith("2 Fetch v18 exchanges of app at 10.0.0.5 with 10.0.0.9:9092 have a malformed ")
    assert [entry.note for entry in several.evidence] == ["array-too-long", "body-truncated"]
    assert (several.severity, one.count, one.subject["client_id"]) == ("warning", 1, "other")
