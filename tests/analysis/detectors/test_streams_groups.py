"""Statuses of Streams groups: how long they last, and what ends them."""

from __future__ import annotations

from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.groups import BlockedStreamsGroups
from tests.analysis.tables import Row, batch_of, exchange


def beat(at: float, *codes: int, epoch: int = 3) -> Row:
    statuses = [{"status_code": code, "status_detail": f"detail {code}"} for code in codes]
    body = {"member_epoch": epoch, "status": statuses}
    return exchange("StreamsGroupHeartbeat", at, group_id="app", response_body=body)


def found(*rows: Row) -> list[Finding]:
    detector = BlockedStreamsGroups()
    detector.update(batch_of(rows))
    return sorted(detector.findings(), key=lambda one: one.subject["status"])


def severities(*rows: Row) -> list[str]:
    return [one.severity for one in found(*rows)]


def test_topics_that_are_missing_or_do_not_fit() -> None:
    """Until a heartbeat has another list. Members that leave get an empty one."""
    (one,) = found(beat(0, 2, 5))
    assert (one.severity, one.subject, one.count) == ("error", {"group_id": "app", "status": 2}, 1)
    assert '"detail 2"' in one.title
    assert severities(beat(0, 1), beat(1, epoch=-1)) == ["error"]
    assert severities(beat(0, 1), beat(1)) == ["warning"]
    assert severities(beat(0, 1, 2), beat(1, 2)) == ["warning", "error"]
    assert severities(beat(0, 4)) == ["error"]


def test_what_is_usual_for_a_short_time() -> None:
    assert severities(beat(0, 5), beat(1, 6)) == []
    assert severities(beat(0, 3), beat(9)) == ["note"]
    assert severities(beat(0, 3), beat(9, 3)) == ["note"], "the capture ends"
    assert severities(beat(0, 0), beat(20, 0)) == ["error"]
    assert severities(beat(0, 3), beat(20)) == ["note"]
    assert severities(beat(0, 3), beat(16, 3), beat(20)) == ["warning"]


def test_bodies_that_are_cut_off() -> None:
    cut = {**beat(1), "response_body": '{"member_epoch":3,"status":[{"status_code":'}
    assert severities(cut) == []
    assert severities(beat(0, 1), cut, {**cut, "response_body": None}) == ["error"]
