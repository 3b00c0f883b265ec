"""Answers of questions, on rows with known answers, and transactions as the clients themselves report them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from kafkasniff.analysis.questions.retries import SEQUENCES
from kafkasniff.analysis.waits import is_long_poll
from tests.analysis.tables import answers, asked, batch_of, exchange, moment, partition, pick, record
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT


def test_percentiles_are_exact_for_all_clients() -> None:
    values = np.random.default_rng(5).lognormal(8, 2, 4000).astype(np.int64)
    rows = [exchange(client_id=f"client-{place % 80}", latency_us=int(one)) for place, one in enumerate(values)]
    found = answers("latency", rows, by=("api", "client"))
    assert [row["count"] for row in found] == [50] * 80
    for row in found:
        own = np.sort(values[int(row["client_id"].removeprefix("client-")) :: 80])
        assert [row[name] for name in ("min_us", "p50_us", "p90_us", "p99_us", "max_us")] == [
            own[place] for place in (0, 24, 44, 49, 49)
        ]


@pytest.mark.parametrize(
    ("api", "waits", "polls"),
    [
        pytest.param("Fetch", {"wait_us": 500_000, "waits_for": "data"}, True, id="for-data"),
        pytest.param("JoinGroup", {"wait_us": 500_000, "waits_for": "members"}, True, id="for-members"),
        pytest.param("Fetch", {"wait_us": None}, True, id="unknown"),
        pytest.param("Fetch", {"wait_us": 0}, False, id="no-wait"),
        pytest.param("Produce", {"wait_us": 500_000, "waits_for": "replicas"}, False, id="for-replicas"),
        pytest.param("Metadata", {"wait_us": None}, False, id="never"),
    ],
)
def test_long_polls_are_counted_apart(api: str, waits: dict[str, Any], polls: bool) -> None:
    row = exchange(api, latency_us=7, **waits)
    names = ("count", "long_polls", "mean_us", "p99_us")
    assert pick(answers("latency", [row]), *names) == [(0, 1, None, None) if polls else (1, 0, 7.0, 7)]
    assert pick(answers("latency", [row], long_polls=True), *names) == [(1, 0, 7.0, 7)]
    assert is_long_poll(batch_of([row])).to_pylist() == [polls]


def answered(api: str, broker: int, latency: int, count: int, **values: Any) -> list[dict[str, Any]]:
    return [exchange(api, broker_id=broker, broker_ip=f"10.0.0.{broker}", latency_us=latency, **values)] * count


def test_waiting_does_not_count_as_slow() -> None:
    rows = answered("Fetch", 1, 100, 30) + answered("Fetch", 2, 110, 30)
    # A few records are less than min.bytes: the fetch took its whole wait.
    waited = {"wait_us": 500_000, "waits_for": "data"}
    rows += answered("Fetch", 2, 500_000, 90, record_count=3, **waited)
    rows += answered("JoinGroup", 2, 3_000_000, 30, **waited)
    # The bytes requested are unknown.
    rows += answered("Fetch", 2, 500_000, 90, wait_us=None) + answered("SyncGroup", 2, 500_000, 90, wait_us=None)
    found = answers("slow-brokers", rows)
    assert pick(found, "api", "broker_id", "p50_us") == [("Fetch", 2, 110), ("Fetch", 1, 100)]


def test_quotas_and_earlier_requests_do_not_count_as_slow() -> None:
    rows = answered("Produce", 1, 100, 30) + answered("Produce", 2, 1_000_150, 30, muted_us=1_000_000)
    rows += answered("Metadata", 1, 100, 30) + answered("Metadata", 2, 500_100, 30, behind_us=500_000)
    found = answers("slow-brokers", rows)
    assert {row["p50_us"] for row in found} == {100, 150}


def test_lagging_replicas_count_as_slow() -> None:
    waited = {"wait_us": 80_000, "waits_for": "replicas"}
    rows = answered("Produce", 1, 100, 30) + answered("Produce", 2, 80_000, 30, **waited)
    (slow,) = [row for row in answers("slow-brokers", rows) if row["slow"]]
    assert (slow["api"], slow["broker_id"], slow["p50_us"]) == ("Produce", 2, 80_000)


def test_fetching_brokers_are_compared_separately() -> None:
    rows = answered("Fetch", 1, 100, 30, sender="client") + answered("Fetch", 2, 90_000, 30, sender="quorum")
    rows += answered("Fetch", 3, 9_000, 30, sender="replica")
    found = answers("slow-brokers", rows)
    assert pick(found, "api", "broker_id", "slow") == [
        ("Fetch", 1, None),
        ("quorum Fetch", 2, None),
        ("replica Fetch", 3, None),
    ]


@pytest.mark.parametrize("body", [None, "{}", '{"error_code":1}', "[]"])
def test_the_rest_is_unknown_without_a_matching_body(body: str | None) -> None:
    found = answers("errors", [exchange("CreateTopics", error_code=36, error_count=3, response_body=body)])
    assert pick(found, "error_code", "error", "errors") == [(None, None, 2), (36, "TOPIC_ALREADY_EXISTS", 1)]


def commit(at: float, offset: int, group: str = "g", client: str = "c1", **facts: Any) -> dict[str, Any]:
    parts = [partition("orders", 0, offset=offset, **facts)]
    return exchange("OffsetCommit", at, exchange_id=int(at * 10), client_id=client, group_id=group, partitions=parts)


def fetch(at: float, offset: int, watermark: int | None, client: str = "c1", **facts: Any) -> dict[str, Any]:
    parts = [partition("orders", 0, offset=offset, high_watermark=watermark, **facts)]
    return exchange("Fetch", at, exchange_id=int(at * 10), client_id=client, partitions=parts)


def test_only_successful_commits_count() -> None:
    rows = [commit(1, 10), commit(2, 99, error_code=27), commit(3, 98, error_code=None)]
    rows += [fetch(4, 5, -1), fetch(5, 6, 50, error_code=1)]
    (found,) = answers("lag", rows)
    assert (found["committed_offset"], found["high_watermark"], found["commit_lag"]) == (10, None, None)
    # A request counts with the offset that it asks for.
    assert found["fetched_offset"] == 6


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


REPEATED = ("kind", "client_id", "topic", "partition", "producer_id", "records", "repeated_records")


def sent(at: float, base: int, count: int = 10, producer: int = 7, **facts: Any) -> dict[str, Any]:
    facts = {"producer_id": producer, "producer_epoch": 0, "record_count": count, "batch_count": 1, **facts}
    parts = [partition("orders", 0, base_sequence=base, **facts)]
    return exchange("Produce", at, exchange_id=int(at * 10), partitions=parts)


def test_repeated_sequence_numbers() -> None:
    rows = [sent(1, 0), sent(2, 10), sent(3, 10), sent(4, 20), sent(5, 15, 10), sent(6, 0, producer=8)]
    (found,) = answers("retries", rows)
    # 10-19 twice, 15-24 once more.
    assert [found[name] for name in REPEATED] == ["sequence", "app", "orders", 0, 7, 50, 20]
    assert (found["first"], found["last"]) == (moment(1), moment(5))


def test_regular_producers_cost_no_memory() -> None:
    question = asked("retries", [sent(number, number * 10) for number in range(500)])
    assert question.parts["steps"].table().num_rows == 2
    assert question.result().num_rows == 0


def test_sequence_numbers_wrap_around() -> None:
    around = [sent(1, SEQUENCES - 10), sent(2, 0), sent(3, SEQUENCES - 5)]
    (found,) = answers("retries", around)
    assert found["repeated_records"] == 10
    assert answers("retries", around[:2]) == []


def test_sequence_errors_of_brokers() -> None:
    rows = [sent(1, 5, error_code=45), sent(2, 90, error_code=46)]
    (found,) = answers("retries", rows)
    assert pick([found], "repeated_records", "duplicate_errors", "out_of_order_errors") == [(0, 1, 1)]


def test_producers_without_sequence_numbers_are_recognized_by_their_records() -> None:
    exchanges = [sent(number, -1, producer=-1) for number in range(4)]
    first = [{"value": b"a"}, {"value": b"b"}, {"value": b"b"}]
    records = [record("orders", 0, exchange_id=1, **one) for one in first]
    records += [record("orders", 1, exchange_id=2, value=b"b"), record("orders", 1, exchange_id=2, value=b"a")]
    records += [record("orders", 2, exchange_id=3, **one) for one in reversed(first)]
    records += [record("other", 3, exchange_id=4, **one) for one in first]
    (found,) = answers("retries", exchanges, records)
    assert [found[name] for name in REPEATED] == ["records", "app", "orders", 0, None, 8, 3]
    assert (found["repeated_batches"], found["first"]) == (1, moment(2))


def exchanged(api: str | None, second: float, **columns: Any) -> dict[str, Any]:
    return exchange(api, second, **{"transactional_id": "t", "client_id": "writer", "error_code": 0, **columns})


def end(second: float, committed: bool, **columns: Any) -> dict[str, Any]:
    return exchanged("EndTxn", second, request_body={"committed": committed}, **columns)


def written(second: float, **columns: Any) -> dict[str, Any]:
    return exchanged("Produce", second, **{"record_count": 3, "partitions": [partition("a", 0, bytes=90)], **columns})


def test_a_transaction_is_between_two_ends() -> None:
    rows = [
        exchanged("InitProducerId", 1),
        exchanged("AddPartitionsToTxn", 2, api_version=3, partitions=[partition("a", 0), partition("b", 1)]),
        written(3),
        written(4, partitions=[partition("b", 1, bytes=10)]),
        end(5, True, duration_us=250_000, latency_us=7000),
        written(6, transactional_id="other"),
        written(7),
        end(8, False),
    ]
    found = answers("transactions", rows)
    names = ("time", "transactional_id", "outcome", "duration_us", "produces", "records", "bytes", "topics")
    assert pick(found, *names, "partitions") == [
        (moment(2), "t", "committed", 3_250_000, 2, 6, 100, 2, 2),
        (moment(6), "other", "open", 1200, 1, 3, 90, 1, 1),
        (moment(7), "t", "aborted", 1_001_200, 1, 3, 90, 1, 1),
    ]
    assert found[0]["end_us"] == 7000
    assert pick(answers("transactions", rows, outcome="open,aborted"), "outcome") == [("open",), ("aborted",)]


def test_partitions_that_brokers_verify_and_damaged_bodies_do_not_count() -> None:
    of_broker = exchanged("AddPartitionsToTxn", 1, api_version=5, client_id="broker-1", partitions=[partition("a", 0)])
    damaged = {**end(3, True), "request_body": '{"committed": tr'}
    assert answers("transactions", [of_broker]) == []
    assert pick(answers("transactions", [of_broker, written(2), damaged]), "outcome", "partitions") == [("open", 1)]


@pytest.mark.parametrize(
    "name", one_in(3, ["java-transactions", "java-4.4-transactions", "librdkafka-transactions"], 2)
)
def test_transactions_as_the_client_reports_them(name: str) -> None:
    log = (ROOT / "captures" / f"{name}.log.jsonl").read_text(encoding="utf-8").splitlines()
    said = [one for one in map(json.loads, log) if one["kind"] == "transaction"]
    found = kafkasniff("analyze", "transactions", ROOT / "captures" / f"{name}.pcap", "-q", "--format", "json").objects
    outcomes = {"commit": "committed", "abort": "aborted"}
    assert [(one["transactional_id"], one["outcome"]) for one in found] == [
        (one["transactional_id"], outcomes[one["result"]]) for one in said
    ]
