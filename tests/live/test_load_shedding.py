"""Load shedding: skipped work is reported, and everything that is emitted stays correct."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.engine.inspector import Inspector
from kafkasniff.kafka.connection.events import LeftOut, Level
from kafkasniff.live.load_shedding import Pressure
from kafkasniff.model import Exchange, Message, Problem, SaslToken
from kafkasniff.packets import PacketBatch
from tests.choice import examples, one_in
from tests.craft.batches import batch
from tests.craft.samples import mixed
from tests.evidence.decoded import objects
from tests.test_boundaries import cut, scene

NEEDED = {11, 17, 18, 36}
"""JoinGroup, SaslHandshake, ApiVersions, SaslAuthenticate: later messages, or the client's name, depend on them."""
WHOLE = ("calm", "resegmented", "reordered", "retransmitted", "java-codecs.pcap", "librdkafka-acks0.pcap")
WHOLE += ("old-raw-sasl.pcap", "java-sasl.pcap", "kraft-three-brokers.pcap", "librdkafka-group-classic.pcap")
"""Scenes of which no byte is missing: there pairing does not ask what is in a body."""


def run(name: str, rows: Iterable[int], levels: Sequence[Level]) -> tuple[list[Any], LeftOut]:
    """Events of an inspector whose level changes at each of `rows`."""
    inspector = Inspector(connections=True)
    found: list[Any] = []
    for part, level in zip(cut(batch(scene(name, 1)), rows), levels, strict=False):
        inspector.level = level
        found += inspector.feed(part)
    return found + inspector.close(), inspector.left_out


def key(message: Message) -> tuple[Any, ...]:
    """A message without its numbers and without the parts that may be skipped."""
    plain = msgspec.structs.replace(message, exchange=0, body=None, errors=(), problems=())
    return tuple(repr(getattr(plain, name)) for name in plain.__struct_fields__ if name not in {"raw", "raw_redacted"})


def reported(events: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(key(event) for event in events if isinstance(event, Message))


level = st.sampled_from(list(Level))


@given(name=st.sampled_from(WHOLE), data=st.data())
@examples(25)
def test_emitted_messages_are_correct_and_skipped_ones_counted(name: str, data: st.DataObject) -> None:
    rows = data.draw(st.sets(st.integers(1, len(scene(name, 1)) - 1), max_size=8))
    levels = data.draw(st.lists(level, min_size=len(rows) + 1, max_size=len(rows) + 1))
    full, _ = run(name, (), [Level.ALL])
    found, left_out = run(name, rows, levels)
    assert not reported(found) - reported(
        full
    )  # nothing is invented: ids, times and latencies equal those of a full run
    sides = {
        kind: sum(isinstance(one, Message) and one.type == kind for one in full) for kind in ("request", "response")
    }
    sides["request"] -= left_out.requests
    sides["response"] -= left_out.responses
    for kind, count in sides.items():
        assert sum(isinstance(one, Message) and one.type == kind for one in found) == count
    # Each exchange is emitted completely or not at all, and ends as in a full run.
    messages = Counter(one.exchange for one in found if isinstance(one, Message))
    exchanges = [one for one in found if isinstance(one, Exchange)]
    assert all(messages[one.exchange] == (one.request is not None) + (one.response is not None) for one in exchanges)
    ends = Counter(one.status for one in full if isinstance(one, Exchange))
    assert not Counter(one.status for one in exchanges) - ends
    if not left_out.requests:
        assert Counter(one.status for one in exchanges) == ends
    assert [one for one in found if isinstance(one, SaslToken)] == [one for one in full if isinstance(one, SaslToken)]
    kinds = Counter(problem.kind for one in found if isinstance(one, Message) for problem in one.problems)
    assert (kinds["records-skipped"], kinds["body-skipped"]) == (left_out.records, left_out.bodies)


@pytest.mark.parametrize("name", one_in(3, WHOLE))
def test_each_level(name: str) -> None:
    full, nothing = run(name, (), [Level.ALL])
    assert nothing == LeftOut()
    messages = [one for one in full if isinstance(one, Message)]
    by_level = {one: run(name, (), [one]) for one in Level}
    found, left_out = by_level[Level.NO_RECORDS]
    assert reported(found) == reported(full)
    lists = [
        one for one in objects([one.body for one in found if isinstance(one, Message)]) if "last_offset_delta" in one
    ]
    assert all("records" not in one for one in lists) or name.startswith("kraft")  # the metadata log is still decoded
    assert (left_out.bodies, left_out.requests, left_out.responses) == (0, 0, 0)

    found, left_out = by_level[Level.NO_BODIES]
    assert reported(found) == reported(full)
    kept = [one for one in messages if one.api_key in NEEDED]
    assert left_out.bodies == len(messages) - len(kept)

    found, left_out = by_level[Level.NO_MESSAGES]
    shown = [one for one in found if isinstance(one, Message)]
    assert {one.api_key for one in shown} <= {*NEEDED, None}
    assert left_out.requests + left_out.responses + len(shown) == len(messages)


class Ring:
    """A backlog and a clock under the test's control."""

    def __init__(self, backlogs: Sequence[float], seconds: float = 0.1) -> None:
        self.backlogs = list(backlogs)
        self.seconds = seconds
        self.now = 0.0

    def backlog(self) -> float:
        self.now += self.seconds
        return self.backlogs.pop(0)

    def batches(self) -> Iterable[PacketBatch]:
        packets = mixed()
        size = len(packets) // len(self.backlogs)
        yield from cut(batch(packets), [size * count for count in range(1, len(self.backlogs))])


def pressed(backlogs: Sequence[float], *, highest: Level = Level.NO_MESSAGES) -> tuple[list[Level], list[Problem]]:
    ring = Ring(backlogs)
    inspector = Inspector()
    pressure = Pressure(ring.backlog, [(inspector, highest)], clock=lambda: ring.now)
    levels: list[Level] = []
    problems: list[Problem] = []
    for one in pressure.batches(ring.batches()):
        levels.append(inspector.level)
        problems += [event for event in inspector.feed(one) if isinstance(event, Problem)]
    return levels, [one for one in problems if one.kind.startswith("live-")]


def test_levels_follow_the_ring() -> None:
    backlogs = [0.52, 0.55, 0.3, 0.71, 0.75, 0.9, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0] + [0.0] * 12
    levels, problems = pressed(backlogs)
    assert levels[:13] == [0, 1, 1, 1, 2, 3, 3, 3, 2, 1, 0, 0, 0]
    assert levels[13:] == [0] * 12
    behind = [one for one in problems if one.kind == "live-behind"]
    assert [one.detail.split("%")[0] for one in behind] == ["55", "75", "90"]
    (over,) = [one for one in problems if one.kind == "live-caught-up"]
    assert re.fullmatch(r"after 0.9 s: .+ without records, .+ without body, .+ not shown", over.detail)
    assert problems[-1] is over
    assert all(one.time_ns is not None for one in behind)
