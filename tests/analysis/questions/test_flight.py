"""The times of records, on rows with known answers, and compared with the way of each record that `follow` finds."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis.export import Export
from kafkasniff.analysis.follow import RecordWay, Wanted, follow
from kafkasniff.analysis.follow.way import LogPlace
from tests.analysis.tables import answers, exchange, partition, pick, record
from tests.cli.console import kafkasniff
from tests.conftest import ROOT

FETCHED = ("group_id", "client_id", "records", "fetched", "fetched_p50_us", "fetched_max_us")
COMMITTED = ("group_id", "committed", "committed_p50_us", "committed_max_us")
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


def member(client: str, group: str) -> dict[str, Any]:
    return exchange("Heartbeat", 0, client_id=client, group_id=group)


def commit(at: float, group: str, offset: int, **columns: Any) -> dict[str, Any]:
    return exchange("OffsetCommit", at, group_id=group, partitions=part(offset=offset, **columns))


def flight(*exchanges: Any, **parameters: Any) -> Any:
    """The answer to exchanges, some of them with their records."""
    pairs = [one if isinstance(one, tuple) else (one, []) for one in exchanges]
    return answers("flight", [one for one, _ in pairs], [row for _, rows in pairs for row in rows], **parameters)


def test_legs() -> None:
    """Offsets 10 to 12: one group fetches all, 11 and 12 late, and commits up to 11; another client begins at 12."""
    found = flight(
        produced(1, 1, 10, 3),
        member("reader", "g"),
        fetched(2, 2, 10, 10, client_id="reader"),
        fetched(3, 3, 11, 10, 11, 12, client_id="reader"),
        fetched(5, 4, 12, 10, 11, 12, client_id="lonely"),
        fetched(1.5, 5, 10, 10, 11, 12, client_id="broker-2-fetcher-0"),
        fetched(1.5, 6, 10, 10, 11, 12, client_id="other", sender="replica"),
        commit(2.5, "g", 10),
        commit(4, "g", 12),
        commit(9, "g", 12),
        commit(9, "h", 13),
    )
    assert pick(found, *FETCHED) == [
        ("g", None, 3, 3, 2_000_000, 2_000_000),
        (None, "lonely", 1, 1, 4_000_000, 4_000_000),
    ]
    assert pick(found, *COMMITTED) == [("g", 2, 1_001_000, 2_001_000), (None, 0, None, None)]
    assert pick(found, "topic", "acknowledged_p50_us", "acknowledged_max_us") == [("a", 5000, 5000)] * 2
    (whole,) = flight(produced(1, 1, 10, 3), by="topic")
    assert (whole["records"], whole["fetched"], whole["fetched_p50_us"]) == (3, 0, None)


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


def test_groups_that_are_unknown() -> None:
    """A client in two groups, a commit before the fetch, and one that was refused."""
    rows = [produced(1, 1, 10, 1), fetched(3, 2, 10, 10, client_id="both"), member("both", "g"), member("both", "h")]
    assert pick(flight(*rows), "group_id", "client_id") == [(None, "both")]
    rows = [*rows[:2], member("both", "g"), commit(2, "g", 11), commit(4, "g", 11, error_code=25)]
    assert pick(flight(*rows), *COMMITTED) == [("g", 0, None, None)]


def test_racks() -> None:
    racks = [("zone-a", 2.0), ("zone-b", 3.0), ("", 4.0)]
    got = [
        fetched(at, number, 10, 10, request_body={"rack_id": rack}, client_id=f"reader-{number}")
        for number, (rack, at) in enumerate(racks, 2)
    ]
    found = flight(produced(1, 1, 10, 1), *got, by="rack")
    assert pick(found, "client_rack", "fetched_p50_us") == [
        ("zone-a", 1_000_000),
        ("zone-b", 2_000_000),
        (None, 3_000_000),
    ]


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
    "name",
    [
        "java-group-classic",
        pytest.param("java-group-consumer", marks=pytest.mark.extended),
        pytest.param("java-transactions", marks=pytest.mark.extended),
        pytest.param("librdkafka-group-consumer", marks=pytest.mark.extended),
        pytest.param("librdkafka-transactions", marks=pytest.mark.extended),
        pytest.param("java-4.4-transactions", marks=pytest.mark.extended),
        pytest.param("franz-go", marks=pytest.mark.extended),
        pytest.param("kafkajs", marks=pytest.mark.extended),
        pytest.param("java-2.4", marks=pytest.mark.extended),
    ],
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
