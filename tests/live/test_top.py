"""The model of the view: counts in a window, bounded tables, traffic of topics, open requests."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.percentiles import bucket_of
from kafkasniff.engine.inspector import Inspector
from kafkasniff.live import top
from kafkasniff.live.snapshot import LiveRow, Snapshot
from kafkasniff.live.top import MAX_CLIENTS, MAX_CONNECTIONS, MAX_RECENT, MAX_TOPICS, TopModel
from kafkasniff.live.traffic import WINDOW_SLOTS, Entry, latency_bucket, topic_traffic
from kafkasniff.model import ErrorCode, Exchange, Message, Problem, SaslToken
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.live.scenes import Scene, Talk, fetched_body, produce_body
from tests.test_boundaries import cut


def by_name(rows: tuple[LiveRow, ...]) -> dict[Any, LiveRow]:
    return {row.name: row for row in rows}


def of_capture(*sizes: int) -> Snapshot:
    """The snapshot after the crafted capture, read in batches of this many packets."""
    model, packets = TopModel(), mixed()
    inspector = Inspector(connections=True, records="metadata")
    rows = itertools.takewhile(lambda row: row < len(packets), itertools.accumulate(itertools.cycle(sizes)))
    for part in cut(batch(packets), rows):
        for event in inspector.feed(part):
            model.take(event)
    for event in inspector.close():
        model.take(event)
    model.captured(len(packets), 0, inspector.summary.kafka_connections)
    return model.snapshot(focus=1)


def test_snapshot_of_a_capture() -> None:
    """Counted by hand: see `tests.craft.samples`."""
    shot = of_capture(1000)
    apis = {row.name: row.total for row in shot.apis}
    assert apis == {"ApiVersions": 2, "Metadata": 2, "Produce": 12, "Fetch": 8}
    errors = [(error.api, error.error, error.responses) for error in shot.errors]
    assert errors == [("Produce", "NOT_LEADER_OR_FOLLOWER", 1)]
    assert (shot.all.total, shot.all.total_errors) == (24, 1)
    clients = {(row.name, row.client): row.total for row in shot.clients}
    assert clients == {("crafted", "10.0.0.5"): 15, ("crafted", "10.0.0.6"): 9}
    # 3 … 8 records, five times 2, and one; 1 + 0 + 40 + 3 + 200 + 0 + 2 fetched. The window is at least a second.
    topic = by_name(shot.topics)["orders"]
    assert (topic.produced, topic.fetched, topic.errors) == (44, 246, 1)
    assert (shot.connections, shot.connections_open, shot.without_response) == (2, 0, 1)
    assert (shot.outstanding, shot.overdue, shot.waiting) == (0, 0, ())
    assert shot.detail.row.software == "craft 1.0"
    assert [one.api for one in shot.detail.recent[:2]] == ["Metadata", "Produce"]
    assert {row.name: row.total for row in shot.detail.apis} == {"ApiVersions": 1, "Metadata": 2, "Produce": 12}


@pytest.mark.parametrize("sizes", [(1,), (2, 7, 1), (50,)])
def test_batches_change_nothing(sizes: tuple[int, ...]) -> None:
    assert of_capture(*sizes) == of_capture(1000)


def test_the_tables_are_bounded() -> None:
    """Each client, topic and connection occurs once, and there are more than the table can hold."""
    model, scene = TopModel(), Scene()
    count = MAX_CONNECTIONS + 100
    for number in range(1, count + 1):
        talk = Talk(scene, number, f"client {number}", "10.0.0.1", "")
        asked = produce_body(f"topic-{number}", 2)
        for event in scene.whole(talk, number * 1000, 500, "Produce", asked=asked):
            model.take(event)
    shot = model.snapshot(focus=count)
    for rows, bound in (
        (shot.clients, MAX_CLIENTS),
        (shot.topics, MAX_TOPICS),
        (shot.connections_seen, MAX_CONNECTIONS),
    ):
        assert len(rows) == bound + 1
        assert by_name(rows)[None].total == count - bound
        assert sum(row.total for row in rows) == count
    assert shot.detail is None, "a connection in `other` has no details"
    assert shot.all.total == count


def test_memory_of_a_connection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "MAX_CONNECTION_APIS", 2)
    monkeypatch.setattr(top, "MAX_ERROR_NAMES", 2)
    asked: list[Collection[str]] = []

    def processes(ends: Collection[str]) -> dict[str, str]:
        asked.append(ends)
        return dict.fromkeys([*ends][:1], "java 77")

    model, scene = TopModel(processes=processes), Scene()
    talk = Talk(scene, 1, "c", "10.0.0.1", "")
    for step, api in enumerate(["Metadata", "Fetch", "Produce", "Heartbeat"] * 20):
        errors = (ErrorCode(1000 + step, None, "error_code"),)
        for event in scene.whole(talk, step * 1000, 500, api, errors=errors):
            model.take(event)
    shot = model.snapshot(focus=1)
    assert {row.name: row.total for row in shot.detail.apis} == {"Metadata": 20, "Fetch": 20, "other": 40}
    assert len(shot.detail.recent) == MAX_RECENT
    # Looked for once, however often the connection is shown.
    assert model.snapshot(focus=1).detail == shot.detail
    assert shot.detail.processes == ("java 77", "")
    assert [*map(len, asked)] == [2]
    metadata = [(error.error, error.responses) for error in shot.errors if error.api == "Metadata"]
    assert metadata == [("error 1000", 1), ("error 1004", 1), ("other", 18)]


def test_events_with_missing_facts() -> None:
    """No time, no endpoints, no request, an unknown API: counted, never an error."""
    model = TopModel()
    nothing = Message("request", 10)
    model.take(nothing)
    model.take(msgspec.structs.replace(nothing, api_key=999, connection=7, exchange=1))
    model.take(Message("response", 10, connection=7, exchange=2, latency_ns=-5_000_000, problems=(Problem("a-b", ""),)))
    model.take(Exchange(1, 7, "unanswered", None, None))
    model.take(Exchange(3, 7, "lost", None, None))
    model.take(SaslToken("request", 5, None, None))
    model.take(Problem("tcp-gap", ""))
    shot = model.snapshot(focus=7)
    assert {row.name: row.total for row in shot.apis} == {"?": 1, "key 999": 1}
    assert (shot.problems, shot.without_response, shot.outstanding) == (2, 1, 0)
    assert by_name(shot.apis)["?"].p50 == pytest.approx(-5000, rel=0.004)
    assert (shot.now_ns, shot.seconds) == (None, 0)
    assert shot.detail.recent[0].api == "?"


LATENCIES = st.integers(-(2**40), 2**53)


@given(LATENCIES)
def test_buckets_match_those_of_the_analyses(value: int) -> None:
    assert latency_bucket(value) == bucket_of(np.array([value]))[0]


@given(st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 9)), max_size=60))
def test_nothing_is_lost_when_slots_leave_the_window(steps: list[tuple[int, int]]) -> None:
    """Compared with a plain list of events. If the clock goes back, it stops until time catches up."""
    entry, slot, reported = Entry(0), 0, []
    for step, requests in steps:
        slot = max(slot + step, 0)
        entry.at(slot).requests += requests
        entry.now.latency_max = max(entry.now.latency_max, requests)
        reported.append((entry.slot, requests))
    assert entry.total().requests == sum(requests for _, requests in reported)
    now = entry.slot
    within = [requests for at, requests in reported if at > now - WINDOW_SLOTS]
    assert entry.window(now).requests == sum(within)
    assert entry.window(now).latency_max == max(within, default=0)
    assert entry.window(now + WINDOW_SLOTS).requests == 0


def message(kind: Any, key: int, body: dict[str, Any] | None) -> Message:
    return Message(kind, 10, 1, key, "?", 9, body=body)


def test_names_of_topics_with_ids() -> None:
    body = fetched_body("a", 1)
    (topic,) = body["responses"]
    del topic["topic"]
    assert topic_traffic(message("response", 1, body)) == []
    topic["topic_id"] = "AAAAAAAAAAAAAAAAAAAABg"
    assert topic_traffic(message("response", 78, body))[0].topic == "AAAAAAAAAAAAAAAAAAAABg"
    topic["_topic_name"] = "named"
    assert topic_traffic(message("response", 1, body))[0].topic == "named"
