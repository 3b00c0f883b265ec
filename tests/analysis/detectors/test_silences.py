"""Brokers that answer nothing, clients that do not wait, and who is not to blame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.analysis.detectors.silences import Silence, without_leaders
from tests.analysis.detectors.scenes import produce, records
from tests.analysis.detectors.talks import Talk, checked, findings_of
from tests.analysis.tables import connection, exchange
from tests.craft.conversation import Conversation

OTHER = ("10.0.0.10", 9092)
BATCH = records()


def talk(number: int, waits: Sequence[float], *, broker: tuple[str, int] = ("10.0.0.9", 9092), acks: int = 1) -> Talk:
    """A client of a second per request; `waits` are the times to the responses."""
    one = Talk(f"10.0.1.{number}", 51_000 + number, broker=broker, after=number / 100)
    for wait in waits:
        produce(one, BATCH, acks=acks, wait=wait, then=1)
    return one


@pytest.mark.parametrize(("backs", "back"), [((9, 12), 12), ((None, 12), None), ((12, None), None)])
def test_leaders_that_wait_for_each_other_are_back_together(backs: Sequence[int | None], back: int | None) -> None:
    silences = [Silence((f"b{n}",), n, one, 12, [], replicas=True) for n, one in enumerate(backs)]
    assert without_leaders(silences, []) == [Silence(("b0", "b1"), 0, back, 12, [], replicas=True)]


def paused(number: int, pauses: int, *, wait: float = 0.4, fastest: float = 0.01) -> Talk:
    """A client of two requests per second; each second, one of them waits."""
    one = Talk(f"10.0.1.{number}", 51_000 + number, broker=("10.0.0.9", 9092))
    for turn in range(10):
        produce(one, BATCH, acks=1, wait=wait if turn < pauses else fastest, then=0.5 - wait)
        produce(one, BATCH, acks=1, wait=fastest, then=0.5)
    return one


def served() -> Talk:
    """A client of ten requests per second that are answered at once."""
    one = Talk("10.0.1.3", 51_003, broker=("10.0.0.9", 9092))
    for _ in range(100):
        produce(one, BATCH, acks=1, wait=0.01, then=0.09)
    return one


def throttled(number: int, *, wait: float = 0.07, fastest: float = 0.002, offset: float = 0) -> Talk:
    """A client of a broker that gets no CPU for 70 of each 100 ms."""
    one = Talk(f"10.0.1.{number}", 51_000 + number, broker=("10.0.0.9", 9092), after=offset)
    for _ in range(30):
        produce(one, BATCH, acks=1, wait=wait, then=0.01)
        produce(one, BATCH, acks=1, wait=fastest, then=0.09 - wait - fastest)
    return one


@pytest.mark.parametrize(
    ("scene", "severity", "said"),
    [
        ([talk(1, [0.1, 0.1, 2, 0.1])], "note", "answered late"),
        ([talk(1, [0.1, 0.1, 3, 0.1])], "warning", "answered late"),
        ([talk(number, [0.1, 0.1, 3, 0.1]) for number in range(2)], "warning", "answered nothing"),
        ([talk(1, [0.1, 0.1, 32, 0.1])], "error", "answered nothing"),
        # A broker that answers others is not silent.
        ([talk(1, [0.1, 0.1, 3]), talk(2, [0.1, 0.1, 3]), talk(3, [0.1] * 6)], "warning", "answered late"),
        # Leaders that wait for a broker that the capture does not show.
        (
            [talk(one, [0.1, 0.1, 3.8], broker=OTHER, acks=-1) for one in (3, 4)],
            "warning",
            "it, or a follower, stood still",
        ),
        ([paused(1, 6)], "warning", "may pause"),
        ([paused(number, 6) for number in (1, 2)], "warning", "answered nothing for up to 390 ms, 6 times"),
        ([throttled(1), throttled(2, offset=0.003)], "warning", "up to 68 ms, 29 times within 2.9 s"),
        # Two pauses, one connection, others are served, waits far apart, not together, slow or short: nothing is found.
        ([paused(number, 2) for number in (1, 2)], None, ""),
        ([paused(1, 4)], None, ""),
        ([paused(1, 6), paused(2, 6), served()], None, ""),
        ([paused(number, 6, fastest=0.35) for number in (1, 2)], None, ""),
        ([throttled(1)], None, ""),
        ([throttled(1), throttled(2, offset=0.035)], None, ""),
        ([throttled(number, fastest=0.06, wait=0.08) for number in (1, 2)], None, ""),
        (
            [throttled(1), throttled(2), *(throttled(3 + one, wait=0.002, offset=0.03 * one) for one in range(3))],
            None,
            "",
        ),
        ([throttled(1, wait=0.03), throttled(2, wait=0.03)], None, ""),
    ],
)
def test_waits_and_pauses(tmp_path: Path, scene: Sequence[Conversation], severity: str | None, said: str) -> None:
    found = checked(tmp_path / "a.pcap", scene, "late-answers").findings
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all(said in f"{one.title} {one.meaning}" for one in found)


REQUESTS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "Heartbeat": ("Heartbeat", 1, {"group_id": "g", "generation_id": 1, "member_id": "m"}),
    "Fetch": ("Fetch", 4, {"max_wait_ms": 5000, "min_bytes": 1, "max_bytes": 1, "topics": []}),
}


def gives_up(number: int, api: str, waited: float, every: float) -> Talk:
    """A client that closes its connection after a time without a response."""
    one = Talk("10.0.1.9", 52_000 + number, after=every * number)
    one.ask(*REQUESTS[api], None, then=waited)
    return one.ended()


@pytest.mark.parametrize(
    ("api", "waits", "every", "expected"),
    [
        ("Heartbeat", (1.0, 1.05, 1.0), 2, {"error"}),
        ("Heartbeat", (1.0, 0.3, 2.5), 2, {"note"}),
        # A consumer that lets the broker wait for 5 s: `fetch-wait-long` in captures has the error.
        ("Fetch", (2.0, 2.1, 2.0), 6, set()),
        ("Fetch", (0.2, 0.2, 0.2), 0.3, set()),
        ("Fetch", (2.0, 2.1), 2.2, set()),
    ],
    ids=["same-time", "other-times", "ends-each-time", "short-lived", "twice"],
)
def test_a_client_that_gives_up(
    tmp_path: Path, api: str, waits: Sequence[float], every: float, expected: set[str]
) -> None:
    # The broker answers another client meanwhile.
    scene = [talk(1, [0.1] * 8), *(gives_up(one, api, wait, every) for one, wait in enumerate(waits))]
    found = checked(tmp_path / "a.pcap", scene, "unanswered-requests").findings
    assert {one.severity for one in found} == expected


def test_a_request_behind_one_that_lets_the_broker_wait() -> None:
    """It was not due before the broker answered the earlier one."""

    def severities(wait_us: int) -> list[str]:
        waits = {"wait_us": wait_us, "waits_for": "members", "latency_us": 17_500_000}
        leave = exchange("LeaveGroup", 12, status="unanswered", latency_us=None, exchange_id=2)
        last = exchange("Metadata", 17.6, connection_id=2)
        rows = [exchange("Metadata", -1, connection_id=2), exchange("JoinGroup", **waits), leave, last]
        connections = [connection(lived=17.6, unanswered=1), connection(lived=20, connection_id=2)]
        return [one.severity for one in findings_of("late-answers", rows, connections=connections)]

    assert severities(300_000_000) == []
    assert severities(0) == ["warning"]
