"""Lag, efficiency and racks of consumers, on rows with known answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.tables import answers, exchange, moment, partition, pick

OFFSETS = ("group_id", "topic", "partition", "committed_offset", "fetched_offset", "high_watermark", "log_end_offset")
LAGS = ("commit_lag", "fetch_lag", "max_fetch_lag")


def commit(at: float, offset: int, group: str = "g", client: str = "c1", **facts: Any) -> dict[str, Any]:
    parts = [partition("orders", 0, offset=offset, **facts)]
    return exchange("OffsetCommit", at, exchange_id=int(at * 10), client_id=client, group_id=group, partitions=parts)


def fetch(at: float, offset: int, watermark: int | None, client: str = "c1", **facts: Any) -> dict[str, Any]:
    parts = [partition("orders", 0, offset=offset, high_watermark=watermark, **facts)]
    return exchange("Fetch", at, exchange_id=int(at * 10), client_id=client, partitions=parts)


def test_commits_and_fetches_against_the_end() -> None:
    rows = [commit(2, 10), commit(5, 40), fetch(1, 0, 100), fetch(6, 60, 130), fetch(4, 50, 120)]
    (found,) = answers("lag", rows)
    assert [found[name] for name in OFFSETS] == ["g", "orders", 0, 40, 60, 130, None]
    assert [found[name] for name in LAGS] == [90, 70, 100]
    assert pick([found], "client_id", "committed_at", "fetched_at", "watermark_at") == [
        ("c1", moment(5), moment(6), moment(6))
    ]


def test_a_producer_shows_the_end_too() -> None:
    produced = exchange("Produce", 9, partitions=[partition("orders", offset=200, record_count=5)])
    (found,) = answers("lag", [commit(1, 150), produced])
    assert [found[name] for name in ("log_end_offset", *LAGS)] == [205, 55, None, None]


def test_only_successful_commits_count() -> None:
    rows = [
        commit(1, 10),
        commit(2, 99, error_code=27),
        commit(3, 98, error_code=None),
        fetch(4, 5, -1),
        fetch(5, 6, 50, error_code=1),
    ]
    (found,) = answers("lag", rows)
    assert (found["committed_offset"], found["high_watermark"], found["commit_lag"]) == (10, None, None)
    # A request counts with the offset that it asks for.
    assert found["fetched_offset"] == 6


def test_a_client_without_a_group_has_its_own_row() -> None:
    found = answers("lag", [fetch(1, 10, 30, client="alone"), commit(2, 20)])
    assert pick(found, "group_id", "client_id", "fetched_offset", "committed_offset") == [
        ("g", None, None, 20),
        (None, "alone", 10, None),
    ]


def test_the_last_member_that_had_the_partition() -> None:
    rows = [commit(1, 5), commit(1, 5, client="c2"), fetch(7, 70, 100, client="c2"), fetch(3, 30, 100)]
    (found,) = answers("lag", rows)
    assert (found["client_id"], found["fetched_offset"], found["max_fetch_lag"]) == ("c2", 70, 70)


@pytest.mark.parametrize(("at_least", "shown"), [(0, 1), (50, 1), (51, 0)])
def test_only_large_lags(at_least: int, shown: int) -> None:
    assert len(answers("lag", [fetch(1, 0, 50)], at_least=at_least)) == shown


BROKERS = {"brokers": [{"node_id": 1, "host": "b1", "rack": "east"}, {"node_id": 2, "host": "b2", "rack": "west"}]}


def test_fetches_across_zones() -> None:
    rows = [
        exchange("Metadata", 5, response_body=BROKERS),
        exchange("Metadata", 1, exchange_id=2, response_body={"brokers": [{"node_id": 1, "rack": "north"}]}),
        exchange(
            "Fetch", 2, request_body={"topics": [], "rack_id": "east"}, partitions=[partition(bytes=10, record_count=1)]
        ),
        exchange("Fetch", 3, broker_id=2, request_body={"rack_id": "east"}, response_size=500),
        exchange("Fetch", 4, broker_id=3, request_body={"rack_id": "east"}),
        exchange("Fetch", 6, broker_id=2, request_body={"rack_id": ""}, client_id="anywhere"),
    ]
    found = answers("racks", rows)
    names = ("client_id", "client_rack", "broker_id", "broker_rack", "cross_zone", "fetches", "bytes", "response_bytes")
    assert pick(found, *names) == [
        ("app", "east", 2, "west", True, 1, 0, 500),
        ("app", "east", 1, "east", False, 1, 10, 200),
        ("anywhere", None, 2, "west", None, 1, 0, 200),
        ("app", "east", 3, None, None, 1, 0, 200),
    ]


@pytest.mark.parametrize("body", [None, "{", "[1]", '{"rack_id":{"base64":"//8="}}', '{"brokers":[7]}'])
def test_invalid_bodies_name_no_rack(body: str | None) -> None:
    rows = [exchange("Metadata", response_body=body), exchange("Fetch", request_body=body)]
    assert pick(answers("racks", rows), "client_rack", "broker_rack", "cross_zone") == [(None, None, None)]


FETCHES = [
    exchange(
        "Fetch",
        topics=["a", "b"],
        latency_us=10,
        partitions=[partition("a", bytes=1000, record_count=10), partition("b")],
    ),
    exchange("Fetch", topics=["a", "b"], latency_us=500),
    exchange("Fetch", topics=["a", "b"], latency_us=300, error_count=1, error_code=6),
    exchange("Fetch", latency_us=100),
    exchange("Fetch", topics=["a"], status="open", error_count=None, latency_us=None),
    exchange("Produce", topics=["a"], partitions=[partition("a", bytes=7, record_count=7)]),
]


EFFICIENCY = ("fetches", "empty", "failed", "bytes", "records", "empty_ratio", "bytes_per_fetch", "empty_wait_us")


def test_fetches_by_client_a_fetch_counts_once() -> None:
    (found,) = answers("fetch-efficiency", FETCHES, by="client")
    assert [found[name] for name in EFFICIENCY] == [4, 2, 1, 1000, 10, 0.5, 1000.0, 300.0]
    assert "topic" not in found


def share(api: str, asked: list[dict[str, Any]], answered: list[dict[str, Any]], **facts: Any) -> dict[str, Any]:
    """An exchange about partition 0 of a topic."""
    bodies = {
        name: {key: [{"topic_id": "id", "partitions": [{"partition_index": 0, **part} for part in parts]}]}
        for name, key, parts in (("request_body", "topics", asked), ("response_body", "responses", answered))
    }
    return exchange(api, 1, group_id="workers", partitions=[partition("tasks", topic_id="id")], **{**bodies, **facts})


def acquired(first: int, last: int, deliveries: int) -> dict[str, Any]:
    return {"acquired_records": [{"first_offset": first, "last_offset": last, "delivery_count": deliveries}]}


def acknowledged(first: int, last: int, *types: int) -> dict[str, Any]:
    batch = {"first_offset": first, "last_offset": last, "acknowledge_types": types}
    return {"acknowledgement_batches": [batch]}


def test_share_groups() -> None:
    released = acknowledged(0, 2, 1, 2, 0)
    rows = [
        share("ShareFetch", [released], [acquired(3, 7, 1), acquired(0, 1, 4)]),
        share("ShareFetch", [released], [{"acknowledge_error_code": 121, **acquired(8, 8, 1)}]),
        share("ShareFetch", [], [{"error_code": 6, **acquired(0, 9, 1)}]),
        share("ShareAcknowledge", [acknowledged(3, 7, 3), acknowledged(0, 0, 4)], [{"error_code": 0}]),
        share("ShareAcknowledge", [released], [{"error_code": 121}]),
        share("ShareAcknowledge", [released], [], status="unanswered"),
        share("ShareAcknowledge", [], [], request_body='{"topics": [', response_body=None),
    ]
    columns = ("topic", "acquired", "redelivered", "most_deliveries", "accepted", "released", "rejected", "renewed")
    assert pick(answers("share", rows), *columns) == [("tasks", 8, 2, 4, 1, 1, 5, 1)]
