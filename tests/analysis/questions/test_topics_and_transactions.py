"""Topics and transactions, on rows with known answers, and transactions as the clients themselves report them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.analysis.tables import answers, exchange, moment, partition, pick
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.conftest import ROOT


def exchanged(api: str | None, second: float, **columns: Any) -> dict[str, Any]:
    return exchange(api, second, **{"transactional_id": "t", "client_id": "writer", "error_code": 0, **columns})


def end(second: float, committed: bool, **columns: Any) -> dict[str, Any]:
    return exchanged("EndTxn", second, request_body={"committed": committed}, **columns)


def produce(second: float, **columns: Any) -> dict[str, Any]:
    return exchanged("Produce", second, **{"record_count": 3, "partitions": [partition("a", 0, bytes=90)], **columns})


def test_a_transaction_is_between_two_ends() -> None:
    rows = [
        exchanged("InitProducerId", 1),
        exchanged("AddPartitionsToTxn", 2, api_version=3, partitions=[partition("a", 0), partition("b", 1)]),
        produce(3),
        produce(4, partitions=[partition("b", 1, bytes=10)]),
        end(5, True, duration_us=250_000, latency_us=7000),
        produce(6, transactional_id="other"),
        produce(7),
        end(8, False),
    ]
    found = answers("transactions", rows)
    names = (
        "time",
        "transactional_id",
        "outcome",
        "duration_us",
        "produces",
        "records",
        "bytes",
        "topics",
        "partitions",
    )
    assert pick(found, *names) == [
        (moment(2), "t", "committed", 3_250_000, 2, 6, 100, 2, 2),
        (moment(6), "other", "open", 1200, 1, 3, 90, 1, 1),
        (moment(7), "t", "aborted", 1_001_200, 1, 3, 90, 1, 1),
    ]
    assert found[0]["end_us"] == 7000
    assert pick(answers("transactions", rows, outcome="open,aborted"), "outcome") == [("open",), ("aborted",)]


def test_a_retried_end_is_one_transaction() -> None:
    refused = end(2, True, error_code=51, error="CONCURRENT_TRANSACTIONS", error_count=1)
    (found,) = answers("transactions", [produce(1), refused, end(3, True)])
    assert (found["outcome"], found["with_errors"], found["error"]) == ("committed", 1, "CONCURRENT_TRANSACTIONS")


@pytest.mark.parametrize(("committed", "outcome"), [(True, "committing"), (False, "aborting")])
def test_an_end_without_success(committed: bool, outcome: str) -> None:
    lost = end(2, committed, status="unanswered", error_code=None)
    assert pick(answers("transactions", [produce(1), lost]), "outcome") == [(outcome,)]


def test_a_new_start_ends_what_was_open() -> None:
    rows = [produce(1), exchanged("InitProducerId", 2), produce(3), end(4, True)]
    assert pick(answers("transactions", rows), "outcome") == [("open",), ("committed",)]


def test_partitions_that_brokers_verify_and_damaged_bodies_do_not_count() -> None:
    of_broker = exchanged("AddPartitionsToTxn", 1, api_version=5, client_id="broker-1", partitions=[partition("a", 0)])
    damaged = {**end(3, True), "request_body": '{"committed": tr'}
    assert answers("transactions", [of_broker]) == []
    assert pick(answers("transactions", [of_broker, produce(2), damaged]), "outcome", "partitions") == [("open", 1)]


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
