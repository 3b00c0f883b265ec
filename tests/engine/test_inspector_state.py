"""The memory budget of a process: what it counts, what it drops first, and how the cost is reported."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.inspector_state import FOLLOWED_BYTES, OPENED_BYTES
from kafkasniff.engine.message_table import Output
from kafkasniff.errors import UsageError
from kafkasniff.model import Connection, Exchange, Message
from kafkasniff.runtime.memory_limits import MIN_MEMORY
from tests.craft import kafka_bytes as kafka
from tests.craft.packet import ACK, RST, SYN, Packet
from tests.test_memory_bounds import REQUEST, Feeder, by, packet, reported


def with_budget(limit: int, **options: Any) -> Feeder:
    feeder = Feeder(**options)
    # Budgets of users are larger.
    feeder.inspector._memory.limit = limit
    return feeder


def is_whole(feeder: Feeder) -> bool:
    """Whether each byte of the streams was counted once."""
    summary = feeder.inspector.summary
    return summary.bytes_decoded + summary.bytes_skipped + summary.bytes_lost == summary.bytes_stream


def opened(number: int) -> list[Packet]:
    """A connection known to be Kafka, with both streams seen from their beginning."""
    return [
        packet(number, 0, b"", SYN),
        packet(number, 0, b"", SYN | ACK, answer=True),
        packet(number, 1, REQUEST),
        packet(number, 1, ANSWER, answer=True),
    ]


ANSWER = kafka.api_versions_response(1, 0)
FIRST = 1 + len(REQUEST)


def idle(number: int) -> list[Packet]:
    return [packet(number, 1, REQUEST, ident=1)]


def requests(number: int) -> list[Packet]:
    """Small unanswered requests that all fit into one segment."""
    data = b"".join(kafka.metadata_request(place, ["a", "b"]) for place in range(2, 202))
    return [packet(number, FIRST, data, ident=1)]


def numbered(count: int) -> bytes:
    """A batch of small, distinct records, compressed as much as writers can (`record_list.MAX_RECORD_RATE`)."""
    return kafka.record_batch([kafka.record(place, None, b"v") for place in range(count)], compressed=True)


def produces(number: int) -> list[Packet]:
    data = b"".join(kafka.produce_request(place, "orders", numbered(2_000), version=3) for place in range(2, 6))
    return [packet(number, FIRST, data, ident=1)]


def test_a_loaded_state_counts_as_before() -> None:
    feeder, resumed = Feeder(), Feeder()
    feeder.feed([*opened(1), *requests(1), *idle(2)])
    state = resumed.inspector.state
    state.followed, state.clocks = feeder.inspector.followed, feeder.inspector._feeder.clocks
    resumed.inspector.begin_following()
    found, expected = ((one._followed, one._kept) for one in (resumed.inspector._memory, feeder.inspector._memory))
    assert found == expected
    assert expected[0] == 2
    assert expected[1] > 0


# -- what is dropped first --------------------------------------------------------------------------------------------


def test_connections_with_one_byte_each() -> None:
    limit = 64 * OPENED_BYTES
    feeder = with_budget(limit, connections=True)
    events: list[Output] = []
    for part in by([packet(number, 1, b"\0", ident=number) for number in range(1_000)], 32):
        events += feeder.feed(part)
        assert feeder.inspector._memory.used <= limit
    problems = reported(events, "memory-bound")
    assert "that are over or silent for longest" in problems[0].detail
    assert len(problems) < 1_000 / 8
    events += feeder.inspector.close()
    ends = [event for event in events if isinstance(event, Connection)]
    assert len(ends) == 1_000
    # The longest silent connection was dropped first.
    left = [end.connection for end in ends if end.ended == "end"]
    assert len(left) > 30
    assert left == list(range(1_001 - len(left), 1_001))
    summary = feeder.inspector.summary
    assert (summary.connections, summary.bytes_stream, summary.bytes_skipped) == (1_000, 1_000, 1_000)


def test_closed_connections_are_dropped_first() -> None:
    feeder = Feeder()
    feeder.feed([packet(number, 1, REQUEST, ident=number) for number in range(10)])
    feeder.inspector._memory.limit = feeder.inspector._memory.used + 35 * FOLLOWED_BYTES
    events = feeder.feed([packet(number, 1, b"", RST, ident=number) for number in range(100, 140)])
    assert reported(events, "memory-bound")
    assert sum(not one.ended for one in feeder.connections) == 10


def test_frames_that_are_never_complete() -> None:
    limit = 24 << 20
    feeder = with_budget(limit)
    huge = (90 << 20).to_bytes(4) + b"\0\0\0\x09\0\0\0\x02\0\4hook" + bytes(60_000)
    most = 0
    events: list[Output] = []
    for round_ in range(24):
        packets = []
        for number in range(20):
            if round_ == 0:
                packets += [packet(number, 0, b"", SYN), packet(number, 1, REQUEST)]
            payload = huge if round_ == 0 else bytes(len(huge))
            packets.append(packet(number, 1 + len(REQUEST) + round_ * len(huge), payload, ident=round_))
        events += feeder.feed(packets)
        most = max(most, feeder.buffered)
        assert feeder.inspector._memory.used <= limit
    assert most > limit / 2
    assert any("that hold most" in problem.detail for problem in reported(events, "memory-bound"))
    feeder.inspector.close()
    assert is_whole(feeder)


def test_the_largest_connections_are_dropped_and_small_ones_kept() -> None:
    feeder = with_budget(1 << 20)
    numbers = range(8)
    for number in numbers:
        feeder.feed(opened(number))
    events: list[Output] = []
    data = (90 << 20).to_bytes(4) + b"\0\0\0\x09\0\0\0\x02\0\4hook" + bytes(1 << 20)
    for at in range(0, len(data), 1 << 16):
        events += feeder.feed([packet(numbers[3], FIRST + at, data[at : at + (1 << 16)], ident=at >> 16)])
    assert len(reported(events, "memory-bound")) == 1
    left = {one.number for one in feeder.connections}
    assert {1, 2, 3, 5, 6, 7, 8} <= left
    assert 4 not in left
    feeder.inspector.close()
    assert is_whole(feeder)


# -- open requests ----------------------------------------------------------------------------------------------------


def test_unanswered_requests() -> None:
    data = b"".join(produces(1)[0].payload for _ in range(4))
    feeder = with_budget(8_000_000)
    events = feeder.feed([packet(1, 0, b"", SYN), packet(1, 1, REQUEST), packet(1, FIRST, data)])
    (bound,) = reported(events, "memory-bound")
    assert "without their bodies" in bound.detail
    sent = [event for event in events if isinstance(event, Message)]
    assert all(request.body is not None for request in sent)
    ends = [event for event in feeder.inspector.close() if isinstance(event, Exchange)]
    kept = [end.request for end in ends if end.request is not None]
    bare = [request for request in kept if request.body is None]
    assert len(kept) == 17
    assert 6 < len(bare) < 14
    assert all(request.problems[-1].kind == "body-let-go" for request in bare)
    assert feeder.inspector._memory._kept == 0


# -- the option -----------------------------------------------------------------------------------------------------


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 128 MiB"):
        Inspector(memory=MIN_MEMORY - 1)
    assert Inspector(memory=MIN_MEMORY)._memory.limit == MIN_MEMORY
    assert Inspector()._memory.limit == 1 << 30
