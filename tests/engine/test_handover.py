"""The state of a connection in the kernel and back: times, gaps, early responses."""

from __future__ import annotations

import pytest

from kafkasniff.engine.connection_stats import InspectedConnection
from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Problem
from kafkasniff.tcp.segments import NO_TIME
from tests.craft.batches import batch
from tests.engine.test_in_step import _Counting, run, talks
from tests.native.one_by_one import OneByOne, kept


def test_packets_without_time() -> None:
    packets = talks([["heartbeat"] * 4])
    bare = [[packet._replace(time_ns=NO_TIME) for packet in part] for part in packets]
    found, _ = run(Inspector, bare, [30])
    expected, _ = run(OneByOne, bare, [30])
    assert found == expected


@pytest.mark.parametrize("sender", ["client", "broker"])
def test_the_kernel_continues_after_a_gap(sender: str) -> None:
    before, after = talks([["heartbeat"] * 200])
    place = next(
        place for place, one in enumerate(after[20:], 20) if one.payload and (one.sport == 9092) == (sender == "broker")
    )
    packets = [before, [*after[:place], *after[place + 1 :]]]
    found, inspector = run(_Counting, packets, [20, 40], exchanges=False)
    assert any(isinstance(one, Problem) and one.kind == "tcp-gap" for one in found)
    assert inspector.paired >= 2 * 120 - 2
    assert found == run(OneByOne, packets, [20, 40], exchanges=False)[0]


def test_early_responses_wait_in_the_kernel() -> None:
    """After a hole there is no request to pair with until the hole is filled."""
    before, after = talks([["heartbeat"] * 40])
    place = next(place for place, one in enumerate(after) if one.payload and one.sport != 9092)
    packets = [*before, *after[:place], *after[place + 1 : place + 12]]
    states = []
    for kind in (Inspector, OneByOne):
        inspector = kind()
        whole = batch(packets)
        for part in (*whole.split(len(packets) - 9)[0].split(len(before)), whole.split(len(packets) - 9)[1]):
            inspector.feed(part)
        if inspector._kernel.in_step is not None:
            assert len(inspector._kernel.in_step) == 1
        states.append(kept(inspector))
        (tcp,) = inspector.reassembler
        assert isinstance(tcp.owner, InspectedConnection)
        assert len(tcp.owner.kafka._dialogue._early) == 4
    assert states[0] == states[1]
