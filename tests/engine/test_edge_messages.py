"""Exchanges that begin in one batch of packets and end in another: the same as in one batch."""

from __future__ import annotations

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Exchange, Message
from tests.engine.test_in_step import _Counting, run, talks
from tests.native.one_by_one import OneByOne


def test_later_messages_do_not_interfere() -> None:
    """An assignment, heartbeats, a retransmission, and no interest in assignments: all in one batch."""
    before, after = talks([["sync", *["heartbeat"] * 40, "join", "sync"]])
    joins = next(place for place, packet in enumerate(after) if b"range" in packet.payload)
    packets = [before, [*after[:joins], after[joins - 2], *after[joins:]]]
    expected = run(OneByOne, packets, [])[0]
    messages = [one for one in expected if isinstance(one, Message)]
    answers = [one.body for one in messages if one.api == "SyncGroup" and one.type == "response" and one.body]
    assert ["_assignment" in body for body in answers] == [True, False]
    assert run(Inspector, packets, [])[0] == expected


def test_exchanges_over_two_batches() -> None:
    """An exchange that begins in one batch and ends in another is emitted once, in its place, with its number."""
    packets = talks([["crossing", "in a row", "heartbeat"]] * 3)
    for cut in range(5, 100, 5):
        found, _ = run(_Counting, packets, [cut])
        exchanges = [one for one in found if isinstance(one, Exchange)]
        assert [one.status for one in exchanges].count("answered") == 3 * (3 + 3 + 5 + 1)
        times = [one.time_ns for one in found if isinstance(one, Message)]
        assert times == sorted(times)
