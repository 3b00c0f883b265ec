"""The phases of one exchange's time, with times given by the test; and the waits that requests ask brokers for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.timing import PARTS, Marks, TimeParts, Wait, split


def parts(marks: Marks, **options: Any) -> dict[str, int]:
    """The parts that took any time."""
    options = {"network": None, "wait": None, "throttle_ns": 0, "at_once": True, **options}
    found = split(marks, **options)
    return {name: getattr(found, name) for name in (*PARTS, "throttled", "may_wait") if getattr(found, name)}


def test_the_plain_case() -> None:
    marks = Marks(1000, 1010, 1110, 1115, before_done=700, quiet_since=700)
    assert parts(marks, network=30) == {"think": 300, "request": 10, "network": 30, "broker": 70, "response": 5}
    # The way is never longer than what there is.
    assert parts(marks, network=500) == {"think": 300, "request": 10, "network": 100, "response": 5}


def test_in_line_behind_an_earlier_request() -> None:
    marks = Marks(1000, 1010, 1110, 1115, before_done=1080, quiet_since=1080)
    assert parts(marks) == {"request": 10, "behind": 70, "broker": 30, "response": 5}
    assert split(marks, network=None, wait=None, throttle_ns=0, at_once=True).think is None
    # Both responses came in one packet.
    assert parts(marks._replace(before_done=1110)) == {"request": 10, "behind": 100, "response": 5}


def test_lost_on_the_way() -> None:
    """The broker has the request when it was sent again; what was answered meanwhile held up nothing."""
    marks = Marks(1000, 1010, 1110, 1115, before_done=1030, quiet_since=1030, resent_at=1050)
    assert parts(marks, network=5) == {"request": 10, "resent": 40, "network": 5, "broker": 55, "response": 5}
    assert parts(marks._replace(before_done=1070)) == {
        "request": 10,
        "resent": 40,
        "behind": 20,
        "broker": 40,
        "response": 5,
    }


def test_throttled_after_the_response() -> None:
    """KIP-219: the broker answered at once and does not read; the client waits, or sends and is not heard."""
    marks = Marks(1000, 1010, 1110, 1115, before_done=700, quiet_since=700, muted_until=900)
    assert parts(marks) == {"think": 300, "throttled": 200, "request": 10, "broker": 100, "response": 5}
    marks = marks._replace(muted_until=1050)
    reported = {"think": 300, "throttled": 300, "request": 10, "muted": 40, "broker": 60, "response": 5}
    assert parts(marks) == reported
    assert parts(marks, throttle_ns=50) == reported


def test_throttled_before_the_response() -> None:
    marks = Marks(1000, 1010, 1110, 1115)
    assert parts(marks, throttle_ns=80, at_once=False) == {"request": 10, "held": 80, "broker": 20, "response": 5}
    # It came sooner: a newer broker answered an old version at once.
    assert parts(marks, throttle_ns=101, at_once=False) == {"request": 10, "broker": 100, "response": 5}


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (Wait("data", 60, sure=True), {"wait": 60, "broker": 30}),
        (Wait("data", 60, sure=False), {"broker": 90, "may_wait": 60}),
        (Wait("data", 100, sure=True), {"wait": 90}),
        (Wait("data", 500, sure=True), {"broker": 90, "may_wait": 90}),
        (Wait("members", 500, sure=True), {"wait": 90}),
        (Wait("leader", None, sure=True), {"wait": 90}),
    ],
)
def test_waits_that_were_asked_for(wait: Wait, expected: dict[str, int]) -> None:
    found = split(Marks(1000, 1000, 1100, 1100), network=10, wait=wait, throttle_ns=0, at_once=True)
    assert {name: getattr(found, name) for name in ("wait", "broker", "may_wait") if getattr(found, name)} == expected
    assert (found.network, found.reason) == (10, wait.reason)


def test_times_that_go_backwards() -> None:
    found = split(Marks(1000, 1010, 990, 1020, 700, 700), network=5, wait=None, throttle_ns=0, at_once=True)
    assert found == TimeParts(think=300)


TIMES = st.integers(0, 1000)


MAYBE = st.none() | TIMES


@given(st.lists(TIMES, min_size=4, max_size=4).map(sorted), st.tuples(MAYBE, MAYBE, MAYBE, MAYBE), TIMES, st.booleans())
def test_parts_add_up_to_the_duration(
    times: list[int], others: tuple[int | None, ...], throttle: int, at_once: bool
) -> None:
    before, muted, network, limit = others
    resent = times[1] + throttle % 7 if throttle % 3 else None
    wait = None if limit is None else Wait("data", limit, sure=bool(limit % 2))
    marks = Marks(*times, before, before, resent, muted)
    found = split(marks, network=network, wait=wait, throttle_ns=throttle, at_once=at_once)
    values = [getattr(found, name) for name in PARTS if name != "think"]
    assert sum(values) == times[3] - times[0]
    assert min(values) >= 0
    assert 0 <= found.may_wait <= found.broker  # type: ignore[operator]
    assert 0 <= found.throttled <= (found.think or 0)
