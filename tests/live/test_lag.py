"""Lag of groups, from commits and watermarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.live import lag as module
from kafkasniff.live.lag import GroupLag, GroupLags
from kafkasniff.model import Exchange
from tests.cli.console import kafkasniff
from tests.live.scenes import Scene, Talk, commit_body, committed_body, fetched_body

CAPTURES = Path(__file__).parents[2] / "captures"


def lags(*exchanges: tuple[str, dict[str, Any], dict[str, Any] | None]) -> list[GroupLag]:
    found, scene = GroupLags(), Scene()
    talk = Talk(scene, 1, "reader", "10.0.0.5", "")
    for api, asked, answered in exchanges:
        request = talk.request(0, api, asked)
        response = None if answered is None else talk.response(request, 1000, answered)
        found.feed(talk.end(request, response))
    return list(found.rows())


def commit(offset: int, *, group: str = "g", topic: str = "orders", error: int = 0) -> Any:
    return "OffsetCommit", commit_body(group, topic, offset), committed_body(topic, error)


def fetch(watermark: int, *, error: int = 0) -> Any:
    return "Fetch", {}, fetched_body("orders", 1, error=error, watermark=watermark)


def test_from_the_commit_to_the_watermark() -> None:
    assert lags(commit(5), fetch(9)) == [GroupLag("g", "orders", 0, 5, 9)]
    assert [(row.committed, row.lag) for row in lags(fetch(9), commit(5), commit(8))] == [(8, 1)]
    # The end is older than the commit.
    assert lags(fetch(9), commit(12))[0].lag == 0


@pytest.mark.parametrize(
    "exchanges",
    [
        [commit(5)],
        [fetch(9)],
        [commit(5), fetch(9, error=6)],
        [commit(5, error=25), fetch(9)],
        [commit(-1), fetch(9)],
        [commit(5), fetch(-1)],
        [commit(5, topic="other"), fetch(9)],
        [("OffsetCommit", commit_body("g", "orders", 5), None), fetch(9)],
    ],
)
def test_nothing_is_guessed(exchanges: list[Any]) -> None:
    assert lags(*exchanges) == []


def test_a_topic_that_is_made_anew() -> None:
    assert lags(fetch(100), fetch(3), commit(1))[0].end == 3


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COMMITS", 3)
    commits = [commit(1, group=group) for group in ("0", "1", "2", "3", "4", "2", "7")]
    assert [row.group for row in lags(fetch(9), *commits)] == ["4", "2", "7"]


def test_ends_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENDS", 1)
    other = fetched_body("other", 1, watermark=4)
    assert lags(commit(5), fetch(9), ("Fetch", {}, other)) == []


@pytest.mark.parametrize(
    "name", ["java-group-classic", "java-transactions", "kafka-python-group", "sarama", "java-2.4"]
)
def test_as_in_the_question(name: str) -> None:
    """The tables have the same offsets."""
    path = CAPTURES / f"{name}.pcap"
    found, inspector = GroupLags(), Inspector(exchanges=True, records="metadata")
    enricher = Enricher(Catalog())
    with open_captures([str(path)]) as source:
        for events in (*(inspector.feed(part) for part in source), inspector.close()):
            for event in enricher.feed(events) or events:
                if isinstance(event, Exchange):
                    found.feed(event)
    rows = kafkasniff("analyze", "lag", "-q", "--format", "json", path).objects
    expected = {
        (row["group_id"], row["topic"], row["partition"], row["committed_offset"], row["high_watermark"])
        for row in rows
        if row["committed_offset"] is not None and row["high_watermark"] is not None
    }
    assert {(row.group, row.topic, row.partition, row.committed, row.end) for row in found.rows()} == expected
    assert expected
