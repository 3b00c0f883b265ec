"""Memory and calls of the native feed. `tests/engine/test_in_step.py` compares its messages with those of Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkasniff.engine.in_step_messages import kind_of
from kafkasniff.native import feed_calls
from kafkasniff.native.feed import ARENA, JUDGED, KEYS, MAX_FRAME, NONE, REQUEST, VERSIONS
from kafkasniff.native.feed_calls import Fed, Feed
from kafkasniff.tcp.packets import PacketBatch
from tests.craft import kafka_bytes as kafka
from tests.craft.batches import batch
from tests.engine.test_in_step import RECORDS, USUAL, _exchange, talks
from tests.native.kernel_and_walker import the_kernel

SECOND = 1_000_000_000
LARGE = _exchange(
    lambda n: kafka.produce_request(n, "orders", RECORDS * 40), lambda n: kafka.produce_response(n, "orders", n)
)
WORDS = USUAL | {"large": LARGE}
ENDS = (0, 1, 9092), (0, 2, 50_000)


def _feed(judge: Any = lambda data, start, end: True, kind: Any = kind_of) -> Feed:
    return Feed(the_kernel(), kind, judge, idle=60 * SECOND, max_frame=MAX_FRAME, every_end=False)


def _packets() -> PacketBatch:
    """Three connections from their SYN on, with three exchanges each, and large ones in several segments."""
    return batch([packet for part in talks([["produce", "large"]] * 3, words=WORDS) for packet in part])


def _fed(feed: Feed, packets: PacketBatch) -> Fed:
    syns = np.flatnonzero(packets.flags & 0x12 == 0x02).astype(np.uint32)
    return feed.feed(packets, packets.time_ns.copy(), syns)


def _messages(fed: Fed, packets: PacketBatch) -> list[tuple[Any, ...]]:
    """The messages with their bytes."""
    found = []
    for row in fed.messages:
        source = fed.arena if row["flags"] & ARENA else packets.buffer
        start = int(row["start"])
        data = bytes(source[start : start + int(row["size"])])
        names = "connection", "correlation", "code", "ordinal", "latency", "time", "packet"
        found.append((data, int(row["flags"]) & REQUEST, *(int(row[name]) for name in names)))
    return found


def test_messages_of_connections_that_begin_here() -> None:
    packets = _packets()
    feed = _feed()
    fed = _fed(feed, packets)
    assert [place for place, _ in fed.begun] == [0, 1, 2]
    assert [row for _, row in fed.begun] == np.flatnonzero(packets.flags & 0x12 == 0x02).tolist()
    assert sorted(place for place, _ in fed.judged) == [0, 1, 2]
    assert {int(feed.connections["begun"][place]) for place in range(3)} == {JUDGED}
    assert not len(fed.left)
    assert not fed.back
    found = _messages(fed, packets)
    assert len(found) == 2 * 3 * 5
    assert sum(one[1] for one in found) == 15
    # Whole frames, without their size.
    assert fed.framed == fed.bytes == sum(len(one[0]) + 4 for one in found)


def test_the_same_in_batches_of_one_packet() -> None:
    packets = _packets()
    whole = _messages(_fed(_feed(), packets), packets)
    feed, found = _feed(), []
    rest = packets
    while len(rest):
        one, rest = rest.split(1)
        found += _messages(_fed(feed, one), one)
    assert found == whole
    assert any(len(one[0]) > 1448 for one in whole)


@pytest.mark.parametrize("first", [1, 2])
def test_memory_that_is_too_small_grows(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = _packets()
    whole = _messages(_fed(_feed(), packets), packets)
    for name in ("FIRST_CONNECTIONS", "FIRST_WAITING", "FIRST_HELD", "FIRST_ARENA"):
        monkeypatch.setattr(feed_calls, name, first)
    monkeypatch.setattr(feed_calls, "SPARE_MESSAGES", 0)
    feed = _feed()
    assert (len(feed.connections), len(feed.waiting)) == (first, first)
    head, rest = packets.split(len(packets) // 2)
    assert _messages(_fed(feed, head), head) + _messages(_fed(feed, rest), rest) == whole
    assert len(feed.connections) >= 3


def test_connections_that_are_not_judged_to_be_kafka() -> None:
    packets = _packets()
    asked: list[bytes] = []

    def judge(data: bytes, start: int, end: int) -> bool:
        asked.append(data[start:end])
        return False

    fed = _fed(_feed(judge), packets)
    assert not len(fed.messages)
    assert not fed.judged
    assert len(asked) == 3
    assert len(fed.left)


def test_kinds_are_asked_for_once() -> None:
    asked: list[int] = []

    def kind(code: int) -> int:
        asked.append(code)
        return kind_of(code)

    feed = _feed(kind=kind)
    packets = _packets()
    codes = {int(code) for code in _fed(feed, packets).messages["code"]}
    assert sorted(asked) == sorted(codes)
    for code in codes:
        assert feed.kind(code) == kind_of(code)
    other = next(code for code in range(KEYS * VERSIONS) if code not in codes)
    assert [feed.kind(other), feed.kind(other)] == [kind_of(other)] * 2
    assert len(asked) == len(codes) + 1


def test_places_are_used_again() -> None:
    feed = _feed()
    first, second = feed.add(ENDS), feed.add(ENDS[::-1])
    assert [first, second] == [0, 1]
    feed.remove(first)
    assert not feed.connections["here"][first]
    assert feed.add(ENDS) == first
    assert feed.connections["port"][first].tolist() == [9092, 50_000]


def test_waiting_requests_are_a_list_of_free_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_calls, "FIRST_WAITING", 2)
    feed = _feed()
    places = [feed.wait() for _ in range(5)]
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert len(feed.waiting) == 8
    feed.wait_no_more(places[1])
    assert feed.wait() == places[1]
    assert feed._call.free != NONE


def test_bytes_of_incomplete_frames_are_kept_while_the_arena_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_calls, "FIRST_ARENA", 16)
    feed = _feed()
    places = [feed.put(bytes([number]) * 10) for number in range(5)]
    assert places == [0, 10, 20, 30, 40]
    assert len(feed.arena) >= 50
    assert feed.arena[:50] == b"".join(bytes([number]) * 10 for number in range(5))
