"""Bodies decoded in groups, in the order in which they are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.kafka.messages import ahead
from kafkasniff.kafka.messages.ahead import Ahead, Programs
from kafkasniff.kafka.messages.message_plan import MessagePlan, request_plan
from kafkasniff.kafka.schema.program import program_of
from tests.native.kernel_and_walker import the_kernel

HEARTBEAT = 12


class Maker:
    """Bodies are the bytes of their items, up to `room` of them per call; those without a program are None."""

    memory = 10

    def __init__(self, at_once: int, room: int) -> None:
        self.at_once = at_once
        self.room = room
        self.calls: list[list[int]] = []

    def bodies(self, data: bytes, items: Any, bases: list[int]) -> list[Any]:
        taken = items[: self.room]
        self.calls.append(bases)
        return [
            data[start:end] if program else None
            for program, start, end in zip(*(taken[name].tolist() for name in ("program", "start", "end")), strict=True)
        ]


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 5), st.integers(1, 5), st.randoms(use_true_random=False))
def test_each_is_decoded_once_in_the_order_given(programs: list[bool], at_once: int, room: int, dice: Any) -> None:
    count = len(programs)
    data = b"".join(b"%02d" % index for index in range(count))
    starts = np.arange(count, dtype=np.int64) * 2
    # Some are not reported at all.
    order = dice.sample(range(count), k=dice.randrange(count + 1))
    maker = Maker(at_once, room)
    bodies = Ahead(
        maker,  # type: ignore[arg-type]
        data,
        np.array(programs, dtype=np.uint64),
        starts + 1000,
        starts,
        starts + 2,
        np.array(order, dtype=np.int64),
    )
    assert [bodies.take(index) for index in order] == [
        data[2 * index : 2 * index + 2] if programs[index] else None for index in order
    ]
    looked = [base for call in maker.calls for base in call[:room]]
    assert looked == [1000 + 2 * index for index in order]
    assert all(len(call) <= at_once for call in maker.calls)
    assert bodies.memory == 10 * len(maker.calls)


def programs(make: Callable[[MessagePlan], bytes | None]) -> Programs:
    return Programs(the_kernel(), make)


def made(plan: MessagePlan) -> bytes | None:
    return None if plan.schema is None else program_of(plan.schema.root)


def test_programs_are_made_once() -> None:
    asked: list[MessagePlan] = []

    def make(plan: MessagePlan) -> bytes | None:
        asked.append(plan)
        return made(plan)

    found = programs(make)
    first = found.get(HEARTBEAT, 0, "request")
    assert first is not None
    assert found.get(HEARTBEAT, 0, "request") is first
    assert found.get(HEARTBEAT, 0, "response") is not first
    assert found.get(HEARTBEAT, 999, "request") is None
    assert found.get(HEARTBEAT, 999, "request") is None
    assert len(asked) == 3
    assert found.kept[first.address] == (first, request_plan(HEARTBEAT, 0))


def test_pending_bodies_keep_their_programs() -> None:
    """With other options each kind gets another program, while bodies of the previous one may be pending."""
    found = programs(made)
    first = found.get(HEARTBEAT, 0, "request")
    found.clear()
    second = found.get(HEARTBEAT, 0, "request")
    assert first is not None
    assert second is not None
    assert second is not first
    assert {first.address, second.address} == set(found.kept)


def test_versions_from_the_wire_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MAX_KINDS", 10)
    found = programs(made)
    first = found.get(HEARTBEAT, 0, "request")
    for version in range(1000, 1040):
        assert found.get(HEARTBEAT, version, "request") is None
        assert len(found._programs) <= 10
    assert first is not None
    assert first.address in found.kept
