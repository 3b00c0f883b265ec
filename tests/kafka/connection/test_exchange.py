"""The ledger of outstanding requests."""

from __future__ import annotations

import pytest

from kafkasniff.kafka.connection import exchange
from kafkasniff.kafka.connection.exchange import Ledger, Pending


def pending(ordinal: int, correlation_id: int | None = None, *, silent: bool = False, time_ns: int = 0) -> Pending:
    return Pending(
        ordinal, 3, 0, ordinal if correlation_id is None else correlation_id, "id", 0, time_ns, silent=silent
    )


def ledger(*requests: Pending) -> Ledger:
    made = Ledger()
    for each in requests:
        assert made.add(each) is None
    return made


def ordinals(requests: list[Pending]) -> list[int]:
    return [each.ordinal for each in requests]


def answer(of: Ledger, correlation_id: int) -> tuple[int, bool] | None:
    """The ordinal of the answered request, and whether it is the first to overtake others."""
    found = of.answer(correlation_id)
    if found is None:
        return None
    return found[0].ordinal, found[1] and of.pass_over(found[0].ordinal)


def test_in_order() -> None:
    requests = ledger(*map(pending, range(3)))
    assert [answer(requests, number) for number in range(4)] == [(0, False), (1, False), (2, False), None]
    assert len(requests) == 0


def test_the_oldest_request_with_an_id() -> None:
    requests = ledger(pending(0, 7), pending(1, 8), pending(2, 7))
    assert requests.has_same_id(7)
    assert not requests.has_same_id(8)
    assert 7 in requests
    assert [answer(requests, number) for number in (7, 8, 7, 7)] == [(0, False), (1, False), (2, False), None]
    assert 7 not in requests


def test_overtaking_is_reported_once() -> None:
    """A request that is never answered must not make every later response out of order."""
    requests = ledger(*map(pending, range(8)))
    assert [answer(requests, number) for number in (1, 2, 3)] == [(1, True), (2, False), (3, False)]
    assert [answer(requests, number) for number in (5, 6)] == [(5, True), (6, False)]
    # An overtaken request can still be answered.
    assert len(requests) == 3
    assert [answer(requests, number) for number in (4, 0, 7)] == [(4, False), (0, False), (7, False)]
    assert len(requests) == 0


def test_the_remaining_requests_come_in_order() -> None:
    requests = ledger(pending(0), pending(1, silent=True), pending(2), pending(3))
    answer(requests, 2)
    assert ordinals(requests.drain()) == [0, 1, 3]
    assert len(requests) == 0
    assert requests.drain() == []


def test_both_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_OUTSTANDING", 4)
    monkeypatch.setattr(exchange, "MAX_SILENT", 2)
    requests = ledger(*map(pending, range(4)))
    answer(requests, 1)
    assert requests.add(pending(4)) is None
    leaver = requests.add(pending(5))
    assert leaver is not None
    assert leaver.ordinal == 0
    assert requests.add(pending(6, silent=True)) is None
    assert requests.add(pending(7, silent=True)) is None
    leaver = requests.add(pending(8, silent=True))
    assert leaver is not None
    assert (leaver.ordinal, leaver.silent) == (6, True)
    assert ordinals(requests.silent_before(8)) == [7]


def test_a_gap_may_hold_responses_to_requests_before_its_end() -> None:
    requests = ledger(*(pending(number, time_ns=10 * number) for number in range(5)))
    assert requests.gap(25, has_head=True) == []
    assert answer(requests, 3) == (3, True)
    assert ordinals(requests.older_lost(3)) == [0, 1, 2]
    assert requests.older_lost(5) == []
    (left,) = requests.drain()
    assert (left.ordinal, left.lost) == (4, False)


def test_requests_overtaken_before_the_gap_are_lost_too() -> None:
    requests = ledger(*map(pending, range(5)))
    answer(requests, 1)
    requests.gap(0, has_head=True)
    assert ordinals(requests.older_lost(4)) == [0, 2, 3]


def test_the_oldest_request_is_lost_with_the_header_of_a_response() -> None:
    requests = ledger(pending(0, 7), pending(1, 7, time_ns=50))
    assert ordinals(requests.gap(10, has_head=True)) == [0]
    assert answer(requests, 7) == (1, False)
    requests = ledger(pending(0, 7), pending(1, 7, time_ns=50))
    assert requests.gap(10, has_head=False) == []


def test_no_more_requests_with_an_id_wait_than_ever_before() -> None:
    requests = ledger(pending(0, 7), pending(1, 7))
    answer(requests, 7)
    answer(requests, 7)
    # This client sends two at once; a third one shows that a response is missing.
    for number in (2, 3, 4):
        requests.add(pending(number, 7))
    assert ordinals(requests.gap(0, has_head=False)) == [2]
    assert answer(requests, 7) == (3, False)


def test_delayed_responses_prove_no_loss() -> None:
    requests = Ledger()
    requests.responses_behind = True
    for number in (0, 1, 2):
        requests.add(pending(number, 7))
    answer(requests, 7)
    requests.responses_behind = False
    assert ordinals(requests.gap(0, has_head=False)) == [1]
