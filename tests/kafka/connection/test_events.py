"""The log of a connection: at which packet events are reported, and what is kept until the verdict."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.connection import events
from kafkasniff.kafka.connection.events import EventLog, ProblemEvent, VerdictEvent
from kafkasniff.tcp.segments import NO_TIME, TcpProblem


def problem(order: int, kind: str = "tcp-out-of-window", direction: int = 0) -> TcpProblem:
    return TcpProblem(order, direction, kind, f"problem {order}", packet=10 * order, time_ns=100 * order, bytes=order)


def test_events_belong_to_the_current_packet() -> None:
    log = EventLog(client=1)
    log.at(3, 300, 30)
    log.problem("frame-unreadable", "what", direction=1, count=8)
    log.problem("frame-unreadable", "what", direction=0)
    assert log.take() == [
        ProblemEvent(3, "frame-unreadable", "what", 300, 30, is_request=True, bytes=8),
        ProblemEvent(3, "frame-unreadable", "what", 300, 30, is_request=False),
    ]
    assert log.take() == []


def test_the_order_never_decreases() -> None:
    """A frame that was complete earlier may be processed later: its time and packet are its own, its order is not."""
    log = EventLog(client=None)
    log.at(7, 700, 70)
    log.at(5, 500, 50)
    assert (log.order, log.time_ns, log.packet) == (7, 500, 50)


def test_without_roles_a_problem_is_of_neither_direction() -> None:
    log = EventLog(client=None)
    log.problem("tcp-gap", "missing", direction=0)
    (event,) = log.take()
    assert isinstance(event, ProblemEvent)
    assert (event.is_request, event.time_ns) == (None, NO_TIME)


def test_problems_kept_until_the_verdict_are_reported_at_their_own_packets() -> None:
    log = EventLog(client=None)
    for order in (2, 4):
        log.hold(problem(order))
    log.at(9, 900, 90)
    assert log.take() == []
    log.client = 0
    log.report_held()
    reported = log.take()
    assert [event for event in reported if isinstance(event, ProblemEvent)] == [
        # Their order is that of the packet at which they became known to concern Kafka.
        ProblemEvent(9, "tcp-out-of-window", "problem 2", 200, 20, is_request=True, bytes=2),
        ProblemEvent(9, "tcp-out-of-window", "problem 4", 400, 40, is_request=True, bytes=4),
    ]
    log.verdict(True, "requests")
    assert log.take() == [VerdictEvent(9, True, 0, "requests", 900, 90)]
    log.report_held()
    assert log.take() == []


@pytest.mark.parametrize("others", [0, 5])
def test_kept_problems_are_bounded_by_kind(others: int) -> None:
    log = EventLog(client=None)
    for order in range(others):
        log.hold(problem(order, kind="tcp-gap"))
    for order in range(events.MAX_HELD + 10):
        log.hold(problem(order))
    of_kind = [item for item in log.held if item.kind == "tcp-out-of-window"]
    assert len(of_kind) == events.MAX_HELD
    assert len(log.held) == events.MAX_HELD + others
    assert of_kind[-1].detail == f"problem {events.MAX_HELD - 1} (further ones are not reported)"
    assert not any("further" in item.detail for item in of_kind[:-1])
