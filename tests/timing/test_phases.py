"""The phases of one exchange's time, with times given by the test; and the waits that requests ask brokers for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.native.links import UNKNOWN
from kafkasniff.tcp.packets import NO_TIME
from kafkasniff.timing import PARTS, Marks, TimeParts, Wait, Waits, split


class One(NamedTuple):
    """The marks of one exchange."""

    request_first: int
    request_done: int
    response_first: int
    response_done: int
    before_done: int | None = None
    quiet_since: int | None = None
    resent_at: int | None = None
    muted_until: int | None = None


def parts_of(marks: One, *, network: int | None, wait: Wait | None, throttle_ns: int, at_once: bool) -> TimeParts:
    columns = Marks(*(np.array([NO_TIME if one is None else one], np.int64) for one in marks))
    found = split(
        columns,
        network=np.array([UNKNOWN if network is None else network]),
        waits=Waits.of([wait]),
        throttle_ns=np.array([throttle_ns]),
        at_once=np.array([at_once]),
    )
    return found.one(0, wait)


PLAIN = One(1000, 1010, 1110, 1115)
THOUGHT = PLAIN._replace(before_done=700, quiet_since=700)
LOST = PLAIN._replace(before_done=1030, quiet_since=1030, resent_at=1050)
BEHIND = PLAIN._replace(before_done=1080, quiet_since=1080)
SENT = {"request": 10, "response": 5}


@pytest.mark.parametrize(
    ("marks", "options", "expected"),
    [
        (THOUGHT, {"network": 30}, {"think": 300, "network": 30, "broker": 70}),
        # The way is never longer than what there is.
        (THOUGHT, {"network": 500}, {"think": 300, "network": 100}),
        (BEHIND, {}, {"behind": 70, "broker": 30}),
        # Both responses came in one packet.
        (BEHIND._replace(before_done=1110), {}, {"behind": 100}),
        # The broker has the request when it was sent again; what was answered meanwhile held up nothing.
        (LOST, {"network": 5}, {"resent": 40, "network": 5, "broker": 55}),
        (LOST._replace(before_done=1070), {}, {"resent": 40, "behind": 20, "broker": 40}),
        # KIP-219: the broker answered at once and does not read; the client waits, or sends and is not heard.
        (THOUGHT._replace(muted_until=900), {}, {"think": 300, "throttled": 200, "broker": 100}),
        (THOUGHT._replace(muted_until=1050), {}, {"think": 300, "throttled": 300, "muted": 40, "broker": 60}),
        (
            THOUGHT._replace(muted_until=1050),
            {"throttle_ns": 50},
            {"think": 300, "throttled": 300, "muted": 40, "broker": 60},
        ),
        # Before KIP-219 it held the response back.
        (PLAIN, {"throttle_ns": 80, "at_once": False}, {"held": 80, "broker": 20}),
        # It came sooner: a newer broker answered an old version at once.
        (PLAIN, {"throttle_ns": 101, "at_once": False}, {"broker": 100}),
    ],
)
def test_known_parts(marks: One, options: dict[str, Any], expected: dict[str, int]) -> None:
    found = parts_of(marks, **{"network": None, "wait": None, "throttle_ns": 0, "at_once": True, **options})
    shown = {name: getattr(found, name) for name in (*PARTS, "throttled", "may_wait") if getattr(found, name)}
    assert shown == expected | SENT
    assert found.think == expected.get("think")


def test_times_that_go_backwards() -> None:
    found = parts_of(One(1000, 1010, 990, 1020, 700, 700), network=5, wait=None, throttle_ns=0, at_once=True)
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
    marks = One(*times, before, before, resent, muted)
    found = parts_of(marks, network=network, wait=wait, throttle_ns=throttle, at_once=at_once)
    values = [getattr(found, name) for name in PARTS if name != "think"]
    assert sum(values) == times[3] - times[0]
    assert min(values) >= 0
    assert 0 <= found.may_wait <= found.broker  # type: ignore[operator]
    assert 0 <= found.throttled <= (found.think or 0)
