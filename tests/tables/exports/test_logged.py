"""The table `exchanges` of the shipped captures, compared with the clients' own logs."""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Enricher
from kafkasniff.model import Message
from kafkasniff.sinks.jsonl import body_json
from tests.choice import one_in
from tests.tables.exports.exported import CAPTURES, LOGGED, MANIFEST, logged, rows, run


@functools.lru_cache(maxsize=2)
def exported(name: str) -> tuple[list[dict[str, Any]], list[Message]]:
    """Rows of the table, and messages of the capture with the names from its bodies."""
    capture = CAPTURES / name
    inspector = Inspector(exchanges=True, records="columns")
    events: list[Any] = []
    with open_captures([str(capture)]) as source:
        for batch in source:
            events += inspector.feed(batch)
    events += inspector.close()
    Enricher().feed(events)
    with tempfile.TemporaryDirectory() as folder:
        run([capture], Path(folder))
        found = rows(Path(folder), "exchanges")
    return found, [event for event in events if isinstance(event, Message)]


@pytest.mark.parametrize("name", one_in(2, LOGGED))
def test_rows_match_the_requests_in_the_clients_log(name: str) -> None:
    found, _ = exported(name)
    requests = logged(name)["request"]
    # Not every client logs all of these for every request; everything it logs must be in the rows.
    reported = [key for key in ("client_id", "correlation_id") if all(key in one for one in requests)]
    columns = ("api", "api_version", *reported)
    sent = Counter(tuple(one[column] for column in columns) for one in requests)
    seen = Counter(tuple(row[column] for column in columns) for row in found)
    assert seen == sent
    assert len({(row["connection_id"], row["exchange_id"]) for row in found}) == len(found)
    assert {row["broker_port"] for row in found} <= set(MANIFEST[name]["broker_ports"])


@pytest.mark.parametrize("name", [name for name in LOGGED if "codecs" in name])
def test_produced_records_match_the_clients_log(name: str) -> None:
    found, _ = exported(name)
    client = logged(name)
    codecs = {one["topic"]: one["codec"] for one in client["produced"]}
    expected = Counter(one["topic"] for one in client["produced"] if one["error"] is None)
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for row in found:
        if row["api"] == "Produce":
            for part in row["partitions"]:
                topic = part["topic"]
                # librdkafka sends a batch uncompressed where compression would make it longer, for example one short
                # record.
                assert part["compression"] in ({codecs[topic]} if part["record_count"] > 1 else {codecs[topic], "none"})
                assert part["batch_count"] >= 1
                assert (part["uncompressed_bytes"] == part["bytes"]) == (part["compression"] == "none")
                if part["error_code"]:
                    # The leader was not elected yet; the client does not log retransmissions.
                    assert (part["error"], part["offset"]) == ("NOT_LEADER_OR_FOLLOWER", -1)
                    continue
                counts[topic] += part["record_count"]
                first[topic] = min(first.get(topic, part["offset"]), part["offset"])
    assert counts == expected
    assert set(first.values()) == {0}, "the first batch of each topic was given offset 0"


@pytest.mark.parametrize("name", one_in(2, LOGGED))
def test_rows_agree_with_the_messages_of_the_run(name: str) -> None:
    found, messages = exported(name)
    assert Counter(row["request_size"] for row in found) == Counter(m.size for m in messages if m.type == "request")
    bodies = Counter(row["response_body"] for row in found if row["response_body"])
    assert bodies == Counter(body_json(m.body) for m in messages if m.type == "response" and m.body is not None)
    latencies = sorted(m.latency_ns // 1000 for m in messages if m.latency_ns is not None)
    assert sorted(row["latency_us"] for row in found if row["latency_us"] is not None) == latencies


def test_groups_and_transactions() -> None:
    found, _ = exported("java-group-classic.pcap")
    assert {row["group_id"] for row in found if row["api"] in ("JoinGroup", "SyncGroup", "Heartbeat")} == {
        "events-group"
    }
    members = {one["member_id"] for one in logged("java-group-classic.pcap")["assigned"]}
    assert members <= {row["member_id"] for row in found if row["api"] == "SyncGroup"}
    found, _ = exported("java-transactions.pcap")
    assert {row["transactional_id"] for row in found if row["api"] == "EndTxn"} == {"ledger-writer"}
    (producer,) = {
        part["producer_id"]
        for row in found
        if row["api"] == "Produce" and row["transactional_id"] == "ledger-writer"
        for part in row["partitions"]
    }
    assert producer == logged("java-transactions.pcap")["described_producer"][0]["producer_id"]
