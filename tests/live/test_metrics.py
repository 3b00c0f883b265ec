"""Metrics for Prometheus, and the lag of groups among them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkasniff.capture import open_captures
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.live import metrics as module
from kafkasniff.live import traffic
from kafkasniff.live.metrics import PAIRS_PER_LABEL, Metrics
from kafkasniff.live.traffic import GroupLag, GroupLags
from kafkasniff.model import Connection, ErrorCode, Exchange, Message, Problem, SaslToken
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.live.scenes import Scene, Talk, commit_body, committed_body, fetched_body, produce_body

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(metrics: Metrics) -> Samples:
    """A scrape, parsed by Prometheus' own parser: (name, labels) → value."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return {
        (sample.name.removeprefix("kafkasniff_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def values(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """Values of one metric by the values of its labels, with labels in alphabetical order."""
    return {tuple(value for _, value in labels): number for (one, labels), number in samples.items() if one == name}


def taken(metrics: Metrics, events: Iterable[Message | Exchange | Problem | Connection | SaslToken]) -> Metrics:
    for event in events:
        metrics.take(event)
    return metrics


def test_metrics_of_a_capture() -> None:
    """Counted by hand: see `tests.craft.samples`."""
    inspector = Inspector(connections=True, records="metadata")
    events = inspector.feed(batch(mixed())) + inspector.close()
    metrics = taken(Metrics(), events)
    metrics.captured([("eth0", 100, 7)], inspector.summary)
    found = scraped(metrics)
    assert values(found, "requests_total") == {("ApiVersions",): 2, ("Metadata",): 2, ("Produce",): 12, ("Fetch",): 8}
    assert values(found, "responses_total") == {("ApiVersions",): 2, ("Metadata",): 2, ("Produce",): 11, ("Fetch",): 7}
    assert values(found, "errors_total") == {("Produce", "6", "NOT_LEADER_OR_FOLLOWER"): 1}
    assert values(found, "exchanges_total") == {
        **{
            (api, "answered"): count
            for api, count in (("ApiVersions", 2), ("Metadata", 2), ("Produce", 11), ("Fetch", 7))
        },
        **{("Produce", "no_response"): 1, ("Fetch", "unanswered"): 1},
    }
    counts = {("crafted", "produced", "orders"): 44, ("crafted", "fetched", "orders"): 246}
    assert values(found, "records_total") == counts
    assert values(found, "problems_total") == {("request-unanswered",): 1}
    assert values(found, "connections_total") == {(): 2}
    assert values(found, "connections_open") == {(): 0}
    assert values(found, "outstanding_requests") == {(): 0}
    assert values(found, "packets_total") == {("eth0",): 100}
    assert values(found, "dropped_packets_total") == {("eth0",): 7}
    messages = [event for event in events if isinstance(event, Message)]
    assert sum(values(found, "message_bytes_total").values()) == sum(one.size + 4 for one in messages)
    assert values(found, "latency_seconds_count") == values(found, "responses_total")
    latencies = [one.latency_ns for one in messages if one.api == "Fetch" and one.latency_ns is not None]
    assert values(found, "latency_seconds_sum")[("Fetch",)] == pytest.approx(sum(latencies) / 1e9)


def test_labels_are_bounded() -> None:
    scene, metrics = Scene(), Metrics(labels=3)
    for number in range(50):
        talk = Talk(scene, number, f"client-{number}", "10.0.0.1", "")
        taken(metrics, scene.whole(talk, 0, 5, "Produce", asked=produce_body(f"topic-{number}", 2)))
    found = values(scraped(metrics), "records_total")
    assert found == {
        **{(f"client-{number}", "produced", f"topic-{number}"): 2 for number in range(3)},
        ("other", "produced", "other"): 94,
    }


def test_pairs_are_bounded() -> None:
    """All topics with all clients would be a quarter of a million."""
    scene, metrics = Scene(), Metrics(labels=30)
    for number in range(30):
        talk = Talk(scene, number, f"client-{number}", "10.0.0.1", "")
        for topic in range(30):
            metrics.take(talk.response(talk.request(0, "Fetch"), 5, fetched_body(f"topic-{topic}", 1)))
    found = values(scraped(metrics), "records_total")
    assert sum(found.values()) == 900
    assert len(found) == PAIRS_PER_LABEL * 30 + 30
    assert sum(client == "other" for client, _, _ in found) == 30


def test_apis_and_errors_from_the_wire_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ERROR_CODES", 4)
    metrics = Metrics()
    for number in range(1000):
        errors = (ErrorCode(number, None, "a"), ErrorCode(number, None, "b"))
        metrics.take(Message("response", 1, api_key=1000 + number, errors=errors))
    found = scraped(metrics)
    assert len(values(found, "responses_total")) == module.MAX_APIS + 1
    assert {code for _, code, _ in values(found, "errors_total")} == {"0", "1", "2", "3", "other"}
    assert sum(values(found, "errors_total").values()) == 1000


def test_names_from_the_wire_are_safe() -> None:
    scene, metrics = Scene(), Metrics()
    names: list[str | bytes | None] = ['\x1b[2J"\n', b"\xff\xfe", None, "x" * 5000, ""]
    for number, name in enumerate(names):
        talk = Talk(scene, number, name, "10.0.0.1", "")
        taken(metrics, scene.whole(talk, 0, 5, "Produce", asked=produce_body("t", 1)))
    clients = [client for client, _, _ in values(scraped(metrics), "records_total")]
    assert sorted(clients) == ["", '\\x1b[2J"\\x0a', "\\xff\\xfe", "x" * module.MAX_LABEL]


def test_the_documents_list_the_metrics() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `kafkasniff_")]
    listed = {name for row in rows for name in re.findall(r"`(kafkasniff_\w+)`", row.split(" | ")[0])}
    suffix = {"counter": "_total", "info": "_info"}
    assert listed == {family.name + suffix.get(family.type, "") for family in Metrics().collect()}
    for row in rows:
        labels = set(re.findall(r"`(\w+)`", row.split(" | ")[1]))
        for name in re.findall(r"`(kafkasniff_\w+)`", row.split(" | ")[0]):
            family = next(
                one for one in Metrics().collect() if name.startswith(one.name) and len(name) - len(one.name) < 7
            )
            assert labels == (set(getattr(family, "_labelnames", ())) or {"version"} & labels), name


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


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_COMMITS", 3)
    commits = [commit(1, group=group) for group in ("0", "1", "2", "3", "4", "2", "7")]
    assert [row.group for row in lags(fetch(9), *commits)] == ["4", "2", "7"]


def test_ends_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_ENDS", 1)
    other = fetched_body("other", 1, watermark=4)
    assert lags(commit(5), fetch(9), ("Fetch", {}, other)) == []


@pytest.mark.parametrize(
    "name", one_in(5, ["kafka-python-group", "java-transactions", "java-group-classic", "sarama", "java-2.4"])
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
