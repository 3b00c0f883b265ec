"""What TLS shows of requests and answers without keys, compared with what the keys show."""

from __future__ import annotations

import functools

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Connection, Exchange
from kafkasniff.tcp.segments import Segment
from kafkasniff.tls.keylog import KeyLog
from kafkasniff.tls.session import LARGEST_ALERT, Turns
from tests.craft.batches import batch
from tests.tls.captured import RESUMED, WITH_SECRETS, key_log, packets
from tests.tls.reading import keys

MS = 1_000_000
C, B = 0, 1


@functools.cache
def ends(name: str, *, decrypted: bool) -> tuple[list[Connection], dict[int, list[int]]]:
    """The connections of a capture, and the latencies of exchanges on each."""
    inspector = Inspector(keys=keys(key_log(name)) if decrypted else KeyLog(), connections=True)
    found = [*inspector.feed(batch(packets(name))), *inspector.close()]
    latencies: dict[int, list[int]] = {}
    for one in found:
        if isinstance(one, Exchange) and one.latency_ns is not None:
            latencies.setdefault(one.connection_id, []).append(one.latency_ns)
    return [one for one in found if isinstance(one, Connection)], latencies


@pytest.mark.parametrize("name", WITH_SECRETS)
def test_estimates_are_near_the_latencies(name: str) -> None:
    """Nearly always the longest time is a latency to the nanosecond; otherwise requests were pipelined or refused."""
    connections, latencies = ends(name, decrypted=True)
    exact = 0
    for one in connections:
        assert one.tls is not None
        turns, known = one.tls.turns, latencies[one.connection_id]
        assert 0 < turns.answers <= len(known) + 1
        exact += turns.longest_ns in known
    assert exact >= 0.6 * len(connections)


@pytest.mark.parametrize("name", [*WITH_SECRETS, RESUMED])
def test_keys_change_no_estimate(name: str) -> None:
    hidden, shown = (ends(name, decrypted=decrypted)[0] for decrypted in (False, True))
    for one, other in zip(hidden, shown, strict=True):
        assert one.tls is not None
        assert other.tls is not None
        assert one.tls.handshake_ns is not None
        assert (one.tls.handshake_ns, one.tls.turns) == (other.tls.handshake_ns, other.tls.turns)


Spoken = tuple[int, int, int]
"""Direction, milliseconds, bytes."""


def heard(spoken: list[Spoken]) -> Turns:
    turns = Turns()
    for direction, ms, size in spoken:
        turns.take(Segment(0, direction, bytes(size), 0, ms * MS, 0))
    return turns


ASK, ANSWER = 200, 50


@pytest.mark.parametrize(
    ("spoken", "answers", "longest", "unanswered"),
    [
        ([(C, 0, ASK), (B, 5, ANSWER), (C, 6, ASK), (B, 8, ANSWER)], 2, 5, None),
        # Pipelined requests: from the last one on.
        ([(C, 0, ASK), (C, 3, ASK), (B, 5, ANSWER), (B, 6, ANSWER)], 1, 2, None),
        # A client that gave up, and said so.
        ([(C, 0, ASK), (B, 5, ANSWER), (C, 6, ASK), (C, 90, LARGEST_ALERT)], 1, 5, 94),
        # A client that leaves.
        ([(C, 0, ASK), (B, 5, ANSWER), (C, 90, LARGEST_ALERT), (B, 95, LARGEST_ALERT)], 1, 5, None),
        ([(B, 0, ANSWER), (C, 1, ASK)], 0, None, 99),
    ],
)
def test_turns(spoken: list[Spoken], answers: int, longest: int | None, unanswered: int | None) -> None:
    found = heard(spoken).summary(C, 100 * MS, midway=True)
    times = [None if one is None else one * MS for one in (longest, unanswered)]
    assert (found.answers, found.longest_ns, found.unanswered_ns) == (answers, *times)


def test_missing_bytes_part_an_answer_from_what_was_asked() -> None:
    turns = heard([(C, 0, ASK)])
    turns.lose()
    turns.take(Segment(0, B, bytes(ANSWER), 0, MS, 0))
    assert turns.summary(C, MS, midway=True).answers == 0


@pytest.mark.parametrize("took", [0, 1, 15, 16, 31, 32, 1000, 2**40 + 12345, 2**62])
def test_a_time_is_at_most_3_percent_off(took: int) -> None:
    turns = Turns()
    for direction, time in ((C, 0), (B, took)):
        turns.take(Segment(0, direction, bytes(ASK), 0, time, 0))
    found = turns.summary(C, took, midway=True)
    assert found.p50_ns is not None
    assert found.longest_ns == took
    assert abs(found.p50_ns - took) <= 0.03 * took
