"""Brokers that answer nothing, clients that do not wait, and who is not to blame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkasniff.analysis.detectors.finding import Finding
from kafkasniff.analysis.detectors.silences import Silence, without_leaders
from tests.analysis.detectors.scenes import produce, records
from tests.analysis.detectors.talks import Talk, checked
from tests.craft.conversation import Conversation

OTHER = ("10.0.0.10", 9092)
BATCH = records()


def talk(number: int, waits: Sequence[float], *, broker: tuple[str, int] = ("10.0.0.9", 9092), acks: int = 1) -> Talk:
    """A client of a second per request; `waits` are the times to the responses."""
    one = Talk(f"10.0.1.{number}", 51_000 + number, broker=broker, after=number / 100)
    for wait in waits:
        produce(one, BATCH, acks=acks, wait=wait, then=1)
    return one


def found(path: Path, scene: Sequence[Conversation], *detectors: str) -> list[Finding]:
    return [one for name in detectors for one in checked(path, scene, name).findings]


@pytest.mark.parametrize(
    ("clients", "wait", "severity"), [(1, 2, "note"), (1, 3, "warning"), (2, 3, "warning"), (1, 32, "error")]
)
def test_several_connections_have_to_wait(tmp_path: Path, clients: int, wait: float, severity: str) -> None:
    scene = [talk(number, [0.1, 0.1, wait, 0.1]) for number in range(clients)]
    (one, *more) = found(tmp_path / "a.pcap", scene, "late-answers")
    assert not more
    assert (one.severity, "answered nothing" in one.title) == (severity, clients > 1 or wait > 10)


def test_a_broker_that_answers_others_is_not_silent(tmp_path: Path) -> None:
    scene = [talk(1, [0.1, 0.1, 3]), talk(2, [0.1, 0.1, 3]), talk(3, [0.1] * 6)]
    (one,) = found(tmp_path / "a.pcap", scene, "late-answers")
    assert "answered late" in one.title


def test_a_leader_that_waits_for_the_silent_broker_is_not_reported(tmp_path: Path) -> None:
    scene = [talk(number, [0.1, 0.1, 4]) for number in (1, 2)]
    scene += [talk(number, [0.1, 0.1, 3.8], broker=OTHER, acks=-1) for number in (3, 4)]
    (one,) = found(tmp_path / "a.pcap", scene, "late-answers")
    assert one.subject["broker"] == "10.0.0.9:9092"
    assert one.values["leaders_waiting"] == ["10.0.0.10:9092"]


@pytest.mark.parametrize(("backs", "back"), [((9, 12), 12), ((None, 12), None), ((12, None), None)])
def test_leaders_that_wait_for_each_other_are_back_together(backs: Sequence[int | None], back: int | None) -> None:
    silences = [Silence((f"b{n}",), n, one, 12, [], replicas=True) for n, one in enumerate(backs)]
    assert without_leaders(silences, []) == [Silence(("b0", "b1"), 0, back, 12, [], replicas=True)]


def test_leaders_that_wait_for_a_broker_out_of_sight(tmp_path: Path) -> None:
    scene = [talk(number, [0.1, 0.1, 3.8], broker=OTHER, acks=-1) for number in (3, 4)]
    (one,) = found(tmp_path / "a.pcap", scene, "late-answers")
    assert "it, or a follower, stood still" in one.title


def heartbeats(number: int, waits: Sequence[float]) -> Talk:
    """A broker that reports to its controller."""
    one = Talk(f"10.0.1.{number}", 51_000 + number, after=number / 100)
    for wait in waits:
        one.ask("BrokerHeartbeat", 0, {"broker_id": number}, {}, wait=wait, then=1)
    return one


def test_a_controller_is_called_so(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "a.pcap", [heartbeats(number, [0.1, 0.1, 4, 0.1]) for number in (1, 2)], "late-answers")
    assert one.title.startswith("controller 10.0.0.9:9092 answered nothing from")
    assert "no leader moves" in one.meaning


def impatient(number: int, waited: float) -> Talk:
    """A client that closes its connection after a time without a response."""
    one = Talk("10.0.1.9", 52_000 + number, after=2 * number)
    produce(one, BATCH, acks=1, wait=0.1)
    one.ask("Heartbeat", 1, {"group_id": "g", "generation_id": 1, "member_id": "m"}, None, then=waited)
    return one.ended()


@pytest.mark.parametrize(
    ("waits", "expected"), [((1.0, 1.05, 1.0), {"error"}), ((1.0, 0.3, 2.5), {"note"}), ((1.0,), set())]
)
def test_a_client_that_gives_up_after_the_same_time(tmp_path: Path, waits: Sequence[float], expected: set[str]) -> None:
    # The broker answers another client meanwhile.
    scene = [talk(1, [0.1] * 8), *(impatient(number, wait) for number, wait in enumerate(waits))]
    severities = {one.severity for one in found(tmp_path / "a.pcap", scene, "unanswered-requests")}
    assert severities == expected


def hasty(number: int, waited: float, every: float) -> Talk:
    """A consumer that lets the broker wait for 5 s, and closes its connection before."""
    one = Talk("10.0.1.9", 53_000 + number, after=every * number)
    fetch = {"max_wait_ms": 5000, "min_bytes": 1, "max_bytes": 1, "topics": []}
    one.ask("Fetch", 4, fetch, None, then=waited)
    return one.ended()


@pytest.mark.parametrize(
    ("waits", "every", "expected"),
    [([2.0, 2.1, 2.0], 2.2, ["error"]), ([2.0, 2.1, 2.0], 6, []), ([0.2] * 3, 0.3, []), ([2.0, 2.1], 2.2, [])],
    ids=["timeout", "ends-each-time", "short-lived", "twice"],
)
def test_a_client_that_gives_up_before_its_own_wait_is_over(
    tmp_path: Path, waits: Sequence[float], every: float, expected: Sequence[str]
) -> None:
    scene = [talk(1, [0.1] * 8), *(hasty(number, wait, every) for number, wait in enumerate(waits))]
    findings = found(tmp_path / "a.pcap", scene, "unanswered-requests")
    assert [one.severity for one in findings] == expected
    assert all("after 2 s, but lets the broker wait for 5 s" in one.title for one in findings)


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


def test_one_connection_that_waits_often(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "a.pcap", [paused(1, 6)], "late-answers")
    assert (one.severity, one.count) == ("warning", 6)
    assert "may pause" in one.meaning


def test_a_broker_that_pauses_again_and_again(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "a.pcap", [paused(number, 6) for number in (1, 2)], "late-answers")
    assert (one.severity, one.count, one.subject["broker"]) == ("warning", 6, "10.0.0.9:9092")
    assert "answered nothing for up to 390 ms, 6 times" in one.title


@pytest.mark.parametrize(
    "scene",
    [
        [paused(number, 2) for number in (1, 2)],
        [paused(1, 4)],
        [paused(1, 6), paused(2, 6), served()],
        [paused(number, 6, fastest=0.35) for number in (1, 2)],
    ],
    ids=["twice", "one-connection", "others-are-served", "far"],
)
def test_what_is_no_pause_of_a_broker(tmp_path: Path, scene: Sequence[Conversation]) -> None:
    assert not found(tmp_path / "a.pcap", scene, "late-answers")


def throttled(number: int, *, wait: float = 0.07, fastest: float = 0.002, offset: float = 0) -> Talk:
    """A client of a broker that gets no CPU for 70 of each 100 ms."""
    one = Talk(f"10.0.1.{number}", 51_000 + number, broker=("10.0.0.9", 9092), after=offset)
    for _ in range(30):
        produce(one, BATCH, acks=1, wait=wait, then=0.01)
        produce(one, BATCH, acks=1, wait=fastest, then=0.09 - wait - fastest)
    return one


def test_a_broker_that_pauses_many_times_a_second(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "a.pcap", [throttled(1), throttled(2, offset=0.003)], "late-answers")
    assert (one.severity, one.subject["broker"]) == ("warning", "10.0.0.9:9092")
    assert "answered nothing for up to 68 ms, 29 times within 2.9 s" in one.title


@pytest.mark.parametrize(
    "scene",
    [
        [throttled(1)],
        [throttled(1), throttled(2, offset=0.035)],
        [throttled(number, fastest=0.06, wait=0.08) for number in (1, 2)],
        [throttled(1), throttled(2), *(throttled(3 + place, wait=0.002, offset=0.03 * place) for place in range(3))],
        [throttled(1, wait=0.03), throttled(2, wait=0.03)],
    ],
    ids=["one-connection", "not-together", "slow", "others-are-served", "short"],
)
def test_what_is_no_short_pause_of_a_broker(tmp_path: Path, scene: Sequence[Conversation]) -> None:
    assert not found(tmp_path / "a.pcap", scene, "late-answers")
