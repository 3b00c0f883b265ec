"""Each detector on a capture that shows what it looks for, and on one that only looks like it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.detectors import scenes
from tests.detectors.scenes import Scene
from tests.detectors.talks import checked
from tests.kafka.records_craft import GZIP

PRODUCER = {"client_id": "crafted", "client_ip": "10.0.0.5"}
AT = {**PRODUCER, "broker": "10.0.0.9:9092"}
ORDERS = {**PRODUCER, "topic": "orders"}
GROUP = {**PRODUCER, "group_id": "workers"}
IN_PAYMENTS = {"transactional_id": "payments", **PRODUCER}


class Case(NamedTuple):
    detector: str
    scene: Scene
    severity: str
    count: int
    subject: dict[str, Any]
    said: str
    """Part of the title."""
    evidence: list[int | None]
    """Numbers of exchanges, the first five."""
    values: Mapping[str, Any] = MappingProxyType({})
    settings: tuple[str, ...] = ()


CASES = [
    Case("unanswered-requests", scenes.unanswered, "error", 2, {**AT, "api": "Metadata"}, "waited 40 s", [2, 3]),
    Case("unanswered-requests", scenes.stopped, "error", 2, {**AT, "api": "Metadata"}, "waited 41 s", [1, 2]),
    Case(
        "undecoded-traffic",
        scenes.one_direction,
        "note",
        1,
        {},
        "only 62% of the traffic could be decoded; not decoded: 38% only client → broker was captured (1 connection)",
        [None],
        {"bytes": 106, "bytes_decoded": 66, "client_to_broker_only": 40 / 106},
    ),
    Case(
        "undecoded-traffic",
        scenes.other_direction,
        "warning",
        1,
        {},
        "none of the traffic could be decoded; not decoded: 100% only broker → client was captured (1 connection)",
        [None],
        {"bytes": 4 * 20 + 4 * 33, "bytes_decoded": 0},
    ),
    Case("late-answers", scenes.late, "warning", 6, {**AT, "api": "Metadata"}, "by up to 4 s", [1, 2, 3, 4, 5]),
    Case(
        "late-answers",
        scenes.late,
        "error",
        6,
        {**AT, "api": "Metadata"},
        "6 Metadata requests",
        [1, 2, 3, 4, 5],
        settings=("late-answers.timeout=3s",),
    ),
    Case(
        "hidden-errors",
        scenes.hidden,
        "error",
        2,
        {**PRODUCER, "api": "OffsetCommit", "topic": "orders", "error_code": 12},
        "with partition-level error OFFSET_METADATA_TOO_LARGE for topic orders",
        [1, 2],
        {"exchanges": 2, "errors": 2, "retriable": False},
    ),
    Case(
        "not-leader",
        scenes.stale,
        "warning",
        9,
        PRODUCER,
        "9 of them in a row within 8 s, though it asked for metadata 2 times",
        [1, 2, 3, 5, 6],
        {"topics": ["orders"], "lasted_s": 8, "in_a_row": 9, "metadata_requests": 2},
    ),
    Case("not-leader", scenes.moved, "note", 1, PRODUCER, "1 request of crafted", [1]),
    Case(
        "not-leader",
        scenes.stale,
        "error",
        9,
        PRODUCER,
        "9 of them in a row within 8 s",
        [1, 2, 3, 5, 6],
        settings=("not-leader.stuck=8s",),
    ),
    Case(
        "metadata-storms",
        scenes.metadata(35, {"topics": [{"name": "orders"}]}),
        "warning",
        35,
        PRODUCER,
        "asked for metadata 35 times within 10 s",
        [1, 2, 3, 4, 5],
        {"requests": 35, "spans": 1, "errors": 0},
    ),
    Case(
        "all-topics",
        scenes.all_topics,
        "note",
        6,
        PRODUCER,
        "of all topics 6 times",
        [1, 2, 3, 4, 5],
        {"requests": 6},
    ),
    Case(
        "rebalance-storms",
        scenes.storm,
        "warning",
        4,
        {"group_id": "workers"},
        "rebalanced 4 times",
        [3, 8, 13, 18],
        {"rebalances": 4},
    ),
    Case(
        "lost-members",
        scenes.lost,
        "warning",
        2,
        {"group_id": "workers"},
        "lost 1 member that had not left (b) and was left 1 time by members that did not poll in time (crafted)",
        [3, 5],
        {"lost": 1, "poll_timeouts": 1},
    ),
    Case(
        "frequent-commits",
        scenes.commits(120, 0.01),
        "warning",
        120,
        GROUP,
        "committed offsets of group workers 120 times within 10 s",
        [1, 2, 3, 4, 5],
        {"commits": 120, "spans": 1},
    ),
    Case(
        "refused-commits",
        scenes.commits(2, 1, error=22),
        "warning",
        2,
        {**GROUP, "error_code": 22},
        "refused with ILLEGAL_GENERATION",
        [1, 2],
        {"commits": 2, "partitions": 2},
    ),
    Case(
        "refused-commits",
        scenes.commits(1, 1, error=27),
        "note",
        1,
        {**GROUP, "error_code": 27},
        "refused with REBALANCE_IN_PROGRESS",
        [1],
    ),
    Case(
        "oversized-messages",
        scenes.produced(2, scenes.records(1, 3000), error=10),
        "error",
        2,
        {**ORDERS, "error_code": 10},
        "2 batches of crafted at 10.0.0.5 for topic orders refused with MESSAGE_TOO_LARGE, the largest of 3.1 kB",
        [1, 2],
    ),
    Case(
        "oversized-messages",
        scenes.produced(1, scenes.records(1, 3000)),
        "note",
        1,
        ORDERS,
        "1 batch of crafted at 10.0.0.5 for topic orders near the limit",
        [1],
        settings=("oversized-messages.limit=3100",),
    ),
    Case(
        "small-batches",
        scenes.produced(40, scenes.records()),
        "warning",
        40,
        ORDERS,
        "sent 40 records to topic orders in 40 batches",
        [1, 2, 3, 4, 5],
        {"batches": 40, "records_per_batch": 1.0},
        settings=("small-batches.at_least=40",),
    ),
    Case(
        "uncompressed-batches",
        scenes.produced(3, scenes.records(10, 1000)),
        "note",
        3,
        ORDERS,
        "sent 30 kB to topic orders without compression",
        [1, 2, 3],
        settings=("uncompressed-batches.size=30000",),
    ),
    Case(
        "repeated-sequences",
        scenes.repeated(0),
        "note",
        1,
        {"client_id": "crafted", "topic": "orders", "partition": 0, "producer_id": 7, "producer_epoch": 0},
        "crafted sent 5 records more than once for orders-0 (producer id 7)",
        [1],
        {"records": 15, "repeated_records": 5, "duplicate_errors": 0, "out_of_order_errors": 0},
    ),
    Case(
        "repeated-sequences",
        scenes.repeated(45),
        "error",
        2,
        {"client_id": "crafted", "topic": "orders", "partition": 0, "producer_id": 7, "producer_epoch": 0},
        "was told OUT_OF_ORDER_SEQUENCE_NUMBER 1 time for orders-0",
        [1, 3],
    ),
    Case(
        "acks-zero",
        scenes.produced(3, scenes.records(2), acks=0),
        "note",
        3,
        PRODUCER,
        "sent 3 Produce requests with acks=0 for orders",
        [1, 2, 3],
        {"requests": 3, "records": 6, "topics": ["orders"]},
    ),
    Case(
        "hanging-transactions",
        scenes.hanging,
        "error",
        2,
        IN_PAYMENTS,
        "open for longer than 10 s, the longest for 21 s; 1 still open at the end of the capture",
        [4, 6],
        {"timeout_told": True, "timeout_ms": 10_000.0, "not_ended": 1},
    ),
    Case(
        "fenced-producers",
        scenes.fenced(3),
        "warning",
        3,
        {**PRODUCER, "transactional_id": "payments", "error_code": 47},
        "3 requests of crafted at 10.0.0.5 (payments) refused with INVALID_PRODUCER_EPOCH",
        [1, 2, 3],
    ),
    Case(
        "throttled-clients",
        scenes.produced(2, scenes.records(), throttle=600),
        "warning",
        2,
        {**AT, "api": "Produce"},
        "for 1.2 s, in 2 responses to Produce",
        [1, 2],
        {"throttle_ms": 1200, "worst_ms": 600},
    ),
    Case(
        "empty-fetches",
        scenes.fetches(210, 0.01),
        "warning",
        210,
        AT,
        "210 returned nothing",
        [1, 2, 3, 4, 5],
        {"fetches": 210, "empty": 210, "spans": 1},
    ),
]

FINE: list[tuple[str, Scene, tuple[str, ...]]] = [
    ("unanswered-requests", scenes.waiting_consumer, ()),
    ("unanswered-requests", scenes.one_direction, ()),
    ("unanswered-requests", scenes.lost_midway, ()),
    ("undecoded-traffic", scenes.stopped, ()),
    ("undecoded-traffic", scenes.silent_by_request, ()),
    ("late-answers", scenes.patient, ()),
    ("hidden-errors", scenes.passing_errors, ()),
    ("not-leader", scenes.in_order, ()),
    ("metadata-storms", scenes.metadata(35, {"topics": [{"name": "orders"}]}, then=0.5), ()),
    ("all-topics", scenes.metadata(6, {"topics": [{"name": "orders"}]}), ()),
    ("rebalance-storms", scenes.growing, ()),
    ("lost-members", scenes.orderly, ()),
    ("frequent-commits", scenes.commits(120, 0.2), ()),
    ("refused-commits", scenes.commits(3, 0.1), ()),
    ("oversized-messages", scenes.produced(1, scenes.records(1, 3000)), ()),
    ("small-batches", scenes.produced(40, scenes.records(2)), ("small-batches.at_least=40",)),
    ("small-batches", scenes.produced(40, scenes.records(), then=0.05), ("small-batches.at_least=40",)),
    (
        "uncompressed-batches",
        scenes.produced(3, scenes.records(10, 1000, codec=GZIP)),
        ("uncompressed-batches.size=1", "uncompressed-batches.batch=0"),
    ),
    ("repeated-sequences", scenes.in_order, ()),
    ("acks-zero", scenes.produced(3, scenes.records(2), acks=1), ()),
    ("hanging-transactions", scenes.in_time, ()),
    ("fenced-producers", scenes.fenced(3, error=51), ()),
    ("throttled-clients", scenes.produced(2, scenes.records()), ()),
    ("empty-fetches", scenes.fetches(25, 0.5), ()),
    ("empty-fetches", scenes.fetches(210, 0.01, scenes.records()), ()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.detector}-{case.severity}")
def test_what_is_there_is_found(case: Case, tmp_path: Path) -> None:
    answer = checked(tmp_path / "crafted.pcap", case.scene(), case.detector, settings=case.settings)
    (found,) = answer.findings
    assert answer.notes == []
    assert (found.detector, found.severity, found.count, found.subject) == (
        case.detector,
        case.severity,
        case.count,
        case.subject,
    )
    assert case.said in found.title
    assert [one.exchange for one in found.evidence][:5] == case.evidence
    assert {one.connection for one in found.evidence} == {1}
    assert {name: found.values[name] for name in case.values} == case.values
    assert found.first is not None
    assert found.last is not None
    assert found.first <= found.last
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")


@pytest.mark.parametrize(("detector", "scene", "settings"), FINE, ids=lambda value: value if type(value) is str else "")
def test_what_is_fine_is_not(detector: str, scene: Scene, settings: tuple[str, ...], tmp_path: Path) -> None:
    answer = checked(tmp_path / "crafted.pcap", scene(), detector, settings=settings)
    assert (answer.findings, answer.notes, answer.broken) == ([], [], False)
