"""The times of records, on rows with known answers, and compared with the way of each record that `follow` finds."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow import RecordWay, Wanted, follow
from kafkasniff.analysis.follow.way import LogPlace
from tests.analysis.tables import answers, exchange, partition, record
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

MILLISECOND = 1000


def part(**columns: Any) -> list[dict[str, Any]]:
    return [partition("a", **{"batch_count": 1, **columns})]


def produced(at: float, number: int, offset: int, count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    sent = exchange("Produce", at, exchange_id=number, latency_us=5 * MILLISECOND, partitions=part(offset=offset))
    return sent, [record("a", at, exchange_id=number, offset=place) for place in range(count)]


def fetched(at: float, number: int, offset: int, *offsets: int, **columns: Any) -> tuple[dict[str, Any], list[Any]]:
    """A fetch from an offset, whose response comes at a time with records."""
    got = exchange("Fetch", at - 0.1, exchange_id=number, partitions=part(offset=offset), **columns)
    return got, [
        record("a", at, exchange_id=number, offset=place, api="Fetch", direction="response") for place in offsets
    ]


def flight(*exchanges: Any, **parameters: Any) -> Any:
    """The answer to exchanges, some of them with their records."""
    pairs = [one if isinstance(one, tuple) else (one, []) for one in exchanges]
    return answers("flight", [one for one, _ in pairs], [row for _, rows in pairs for row in rows], **parameters)


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param({"status": "lost"}, id="not-answered"),
        pytest.param({"partitions": part(offset=10, error_code=6)}, id="refused"),
        pytest.param({"partitions": part(offset=-1)}, id="offset-unknown"),
        pytest.param({"partitions": part(offset=10, batch_count=2)}, id="counts-of-several-batches"),
    ],
)
def test_a_record_without_a_known_offset_does_not_count(attempt: dict[str, Any]) -> None:
    sent, records = produced(1, 1, 10, 1)
    assert flight(({**sent, **attempt}, records), fetched(2, 2, 10, 10)) == []


def of_ways(ways: list[RecordWay]) -> dict[tuple[str | None, str | None, str | None], dict[str, Any]]:
    """What the ways of all records of a topic say."""
    delays: dict[tuple[str | None, str | None, str | None], list[int]] = defaultdict(list)
    for way in ways:
        kinds = [(step.kind, step) for step in way.steps]
        sent = next(step for kind, step in reversed(kinds) if kind == "produced")
        for kind, step in kinds:
            if kind == "delivered" and step.time is not None and sent.time is not None:
                client = None if step.group_id is not None else step.client_id
                delays[way.topic, step.group_id, client].append(step.time - sent.time)
    return {who: {"fetched": len(found), "most": max(found)} for who, found in delays.items()}


@pytest.mark.parametrize(
    "name", one_in(5, ["java-group-classic", "java-transactions", "librdkafka-group-consumer", "franz-go", "java-2.4"])
)
def test_the_same_as_the_ways_of_the_records(name: str, tmp_path: Path) -> None:
    assert kafkasniff("export", ROOT / "captures" / f"{name}.pcap", "-q", "-o", tmp_path / "out").code == 0
    found = kafkasniff("analyze", "flight", tmp_path / "out", "-q", "--format", "json").objects
    export = Export.open(str(tmp_path / "out"))
    carried = (
        "SELECT DISTINCT topic, partition, r.offset FROM records r WHERE direction = 'response' AND control IS NULL"
    )
    places = kafkasniff("sql", carried, tmp_path / "out", "-q", "--format", "json").objects
    ways = [
        way
        for place in places
        for way in follow(export, Wanted(place=LogPlace(place["topic"], place["partition"], place["offset"])), 1).ways
        if any(step.kind == "acknowledged" for step in way.steps)
    ]
    assert ways
    told = {(row["topic"], row["group_id"], row["client_id"]): row for row in found if row["fetched"]}
    assert {who: {"fetched": row["fetched"], "most": row["fetched_max_us"]} for who, row in told.items()} == of_ways(
        ways
    )
