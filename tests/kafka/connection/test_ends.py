"""How exchanges end: which status, which problem, and where the problem is reported."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.kafka.connection.ends import CLOSED_BEFORE, ExchangeEnds
from kafkasniff.kafka.connection.events import EventLog, ExchangeEvent, ProblemEvent
from kafkasniff.kafka.connection.exchange import Pending
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.tcp.segments import NO_TIME

MS = 1_000_000


def pending(ordinal: int, **more: Any) -> Pending:
    return Pending(ordinal, 3, 1, 100 + ordinal, "app", 10 * MS, 11 * MS, **more)


def ends(*requests: Pending, every_end: bool = True) -> ExchangeEnds:
    log = EventLog(0)
    log.at(7, 20 * MS, 5)
    made = ExchangeEnds(log, Detail(DecodeOptions()), every_end=every_end)
    for request in requests:
        made.ledger.add(request)
    return made


def logged(made: ExchangeEnds) -> list[tuple[int, str, list[str]]]:
    return [
        (event.ordinal, event.status, [problem.kind for problem in event.problems])
        for event in made._log.events
        if isinstance(event, ExchangeEvent)
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end", [(1, "open", [])]),
        *((reason, [(1, "unanswered", ["request-unanswered"])]) for reason in ("fin", "rst", "reused", "idle")),
    ],
)
def test_requests_that_are_open_at_the_end(
    reason: Literal["fin", "rst", "reused", "idle", "end"], expected: list[tuple[int, str, list[str]]]
) -> None:
    made = ends(pending(1))
    made._end_rest(reason, NO_TIME)
    assert logged(made) == expected
    made._end_rest(reason, NO_TIME)
    assert logged(made) == expected, "each ends once"


def test_requests_without_the_need_for_an_answer() -> None:
    made = ends(pending(1, silent=True), pending(2, silent=True, hidden=True))
    made._end_rest("fin", NO_TIME)
    assert logged(made) == [(1, "no_response", [])]


def test_one_side_alone_is_no_problem_of_each_request() -> None:
    made = ends(pending(1))
    made.one_sided = True
    made._end_rest("fin", NO_TIME)
    assert logged(made) == [(1, "lost", [])]


@pytest.mark.parametrize(("early", "text"), [(3 * MS, "3 ms"), (2_500 * MS, "2.5 s")])
def test_requests_after_the_broker_had_closed(early: int, text: str) -> None:
    request = pending(1)
    request.first_time += 10_000 * MS
    made = ends(request)
    made._end_rest("end", request.first_time - early)
    (event,) = made._log.events
    assert isinstance(event, ExchangeEvent)
    (problem,) = event.problems
    assert event.status == "unanswered"
    assert problem.detail.endswith(f": {CLOSED_BEFORE} {text} before the request")


def test_hidden_requests_have_problems_alone() -> None:
    made = ends(pending(1, hidden=True))
    made._end_rest("fin", NO_TIME)
    (event,) = made._log.events
    assert isinstance(event, ProblemEvent)
    assert (event.kind, event.is_request) == ("request-unanswered", True)
    assert event.detail.startswith("API 3 v1 corr 101, not shown: ")


def test_lost_answers() -> None:
    made = ends()
    made._end_without(pending(1), "lost")
    made._end_without(pending(2), "lost", reported=False)
    assert logged(made) == [(1, "lost", ["response-lost"]), (2, "lost", [])]


def test_retransmits_are_those_since_the_last_end() -> None:
    made = ends()
    made.retransmits = 3
    made._end(1, "answered", 5, 6)
    made._end(2, "answered")
    first, second = made._log.events
    assert isinstance(first, ExchangeEvent)
    assert isinstance(second, ExchangeEvent)
    assert (first.order, first.time_ns, first.packet, first.latency_ns, first.duration_ns) == (7, 20 * MS, 5, 5, 6)
    assert (first.retransmits, second.retransmits) == (3, 0)


def test_ends_that_are_not_asked_for() -> None:
    made = ends(every_end=False)
    made.retransmits = 3
    made._end(1, "answered")
    made._end(2, "orphan")
    assert logged(made) == []
    made._end(3, "unanswered")
    assert logged(made) == [(3, "unanswered", [])]
