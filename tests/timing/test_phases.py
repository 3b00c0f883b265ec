"""The phases of one exchange's time, with times given by the test; and the waits that requests ask brokers for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.model import NO_TIME
from kafkasniff.native.streams import UNKNOWN
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
