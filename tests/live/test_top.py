from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.live import top
from kafkasniff.live.counts import WINDOW_SLOTS
from kafkasniff.live.snapshot import LiveRow, Snapshot
from kafkasniff.live.top import MAX_CLIENTS, MAX_CONNECTIONS, MAX_RECENT, MAX_TOPICS, TopModel
from kafkasniff.model import ErrorCode, Exchange, Message, Problem, SaslToken
from kafkasniff.tcp.packets import PacketBatch
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.live.scenes import SECOND, START_NS, Scene, Talk, cluster, produce_body


def by_name(rows: tuple[LiveRow, ...]) -> dict[Any, LiveRow]:
    return {row.name: row for row in rows}


def of_capture(*sizes: int) -> Snapshot:
    """The snapshot after the crafted capture, read in batches of this many packets."""
    model, packets = TopModel(), mixed()
    inspector = Inspector(connections=True, records="metadata")
    place = 0
    batches: list[PacketBatch] = []
    while place < len(packets):
        count = sizes[len(batches) % len(sizes)]
        part = packets[place : place + count]
        batches.append(batch(part, range(place, place + len(part))))
        place += len(part)
    for one in batches:
        for event in inspector.feed(one):
            model.take(event)
    for event in inspector.close():
        model.take(event)
    model.captured(len(packets), 0, inspector.summary.kafka_connections)
    return model.snapshot(focus=1)


def test_snapshot_of_a_capture() -> None:
    """Counted by hand: see `tests.craft.samples`."""
    shot = of_capture(1000)
    apis = by_name(shot.apis)
    assert {name: row.total for name, row in apis.items()} == {
        "ApiVersions": 2,
        "Metadata": 2,
        "Produce": 12,
        "Fetch": 8,
    }
    assert [(error.api, error.error, error.responses) for error in shot.errors] == [
        ("Produce", "NOT_LEADER_OR_FOLLOWER", 1)
    ]
    assert (shot.all.total, shot.all.total_errors) == (24, 1)
    assert {(row.name, row.client): row.total for row in shot.clients} == {
        ("crafted", "10.0.0.5"): 15,
        ("crafted", "10.0.0.6"): 9,
    }
    # 3 … 8 records, five times 2, and one; 1 + 0 + 40 + 3 + 200 + 0 + 2 fetched. The window is at least a second.
    topic = by_name(shot.topics)["orders"]
    assert (topic.produced, topic.fetched, topic.errors) == (44, 246, 1)
    assert (shot.connections, shot.connections_open, shot.without_response) == (2, 0, 1)
    assert (shot.outstanding, shot.overdue, shot.waiting) == (0, 0, ())
    assert shot.detail is not None
    assert shot.detail.row.software == "craft 1.0"
    assert [one.api for one in shot.detail.recent[:2]] == ["Metadata", "Produce"]
    assert {row.name: row.total for row in shot.detail.apis} == {"ApiVersions": 1, "Metadata": 2, "Produce": 12}


@pytest.mark.parametrize("sizes", [(1,), (2, 7, 1), (50,)])
def test_batches_change_nothing(sizes: tuple[int, ...]) -> None:
    assert of_capture(*sizes) == of_capture(1000)


def test_rates_cover_the_window() -> None:
    model, scene = TopModel(), Scene()
    talk = Talk(scene, 1, "c", "10.0.0.1", "")
    model.advance(START_NS)
    for step in range(200):
        for event in scene.whole(talk, step * SECOND // 10, 1_000_000, "Metadata", sent=96, size=196):
            model.take(event)
    model.advance(START_NS + 20 * SECOND)
    shot = model.snapshot()
    # Slots 11 to 20 are in the window, the last one only partly: nine seconds.
    assert shot.all.requests == pytest.approx(10)
    assert shot.all.sent == pytest.approx(1000)
    assert shot.all.received == pytest.approx(2000)
    assert (shot.all.mean, shot.all.slowest, shot.all.total) == (1000, 1000, 200)
    assert shot.all.p50 == shot.all.p99 == 1000
    assert shot.seconds == 20
    model.advance(START_NS + (20 + WINDOW_SLOTS) * SECOND)
    silent = model.snapshot().all
    assert (silent.requests, silent.mean, silent.p50, silent.total) == (0, None, None, 200)


def test_percentiles_of_latencies() -> None:
    model, scene = TopModel(), Scene()
    talk = Talk(scene, 1, "c", "10.0.0.1", "")
    for step in range(1, 101):
        for event in scene.whole(talk, step * 1000, step * 1_000_000, "Metadata"):
            model.take(event)
    (api,) = model.snapshot().apis
    assert api.p50 == pytest.approx(50_000, rel=0.004)
    assert api.p99 == pytest.approx(99_000, rel=0.004)
    assert (api.slowest, api.mean) == (100_000, 50_500)


def test_overdue_requests() -> None:
    shot = cluster().snapshot()
    assert [(one.api, one.age_ns, one.connection) for one in shot.waiting] == [
        ("JoinGroup", int(3.5 * SECOND), 3),
        ("Metadata", int(2.8 * SECOND), 6),
    ]
    assert (shot.outstanding, shot.overdue) == (2, 2)
    assert cluster().snapshot(threshold_ns=3 * SECOND).overdue == 1
    assert cluster().snapshot(threshold_ns=10 * SECOND).waiting == ()


def test_drops_per_second() -> None:
    model = TopModel()
    model.advance(START_NS)
    model.captured(100, 0, 0)
    model.advance(START_NS + 30 * SECOND)
    model.captured(200, 90, 0)
    shot = model.snapshot()
    assert (shot.packets, shot.drops, shot.drops_now) == (200, 90, pytest.approx(10))
    model.advance(START_NS + 60 * SECOND)
    model.captured(300, 90, 0)
    shot = model.snapshot()
    assert (shot.drops, shot.drops_now) == (90, 0)


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
    model, scene = TopModel(), Scene()
    talk = Talk(scene, 1, "c", "10.0.0.1", "")
    for step, api in enumerate(["Metadata", "Fetch", "Produce", "Heartbeat"] * 20):
        errors = (ErrorCode(1000 + step, None, "error_code"),)
        for event in scene.whole(talk, step * 1000, 500, api, errors=errors):
            model.take(event)
    shot = model.snapshot(focus=1)
    assert shot.detail is not None
    assert {row.name: row.total for row in shot.detail.apis} == {"Metadata": 20, "Fetch": 20, "other": 40}
    assert len(shot.detail.recent) == MAX_RECENT
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
    assert shot.detail is not None
    assert shot.detail.recent[0].api == "?"


def test_the_clock_does_not_go_back() -> None:
    model, talk = TopModel(), Talk(Scene(), 1, "c", "10.0.0.1", "")
    model.take(talk.request(30 * SECOND, "Metadata"))
    model.take(talk.request(0, "Metadata"))  # waited for its connection's verdict
    model.advance(START_NS)
    shot = model.snapshot()
    assert shot.now_ns == START_NS + 30 * SECOND
    assert shot.all.requests == 2
