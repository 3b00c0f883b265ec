"""Packets of rings: blocks as the kernel lays them out, restored headers, and the order of several interfaces."""

from __future__ import annotations

import mmap
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.live import frames as module
from kafkasniff.capture.live.frames import HEADER, Frames, Ring, TimeMerge
from tests.capture.fake_interface import raw_packets

SIZE = 4096


class FakeSocket:
    """Takes options; its statistics are those given."""

    def __init__(self, packets: int = 0, drops: int = 0) -> None:
        self.numbers = struct.pack("=3I", packets, drops, 0)

    def getsockopt(self, *_: object) -> bytes:
        return self.numbers


def ring(blocks: list[bytes]) -> Ring:
    """A ring over memory of this process."""
    made = Ring.__new__(Ring)
    made._socket = FakeSocket(9, 2)  # type: ignore[assignment]
    made._size, made._count, made._next = SIZE, len(blocks), 0
    made._memory = mmap.mmap(-1, SIZE * len(blocks))
    made._memory[:] = b"".join(block.ljust(SIZE, b"\0") for block in blocks)
    return made


def block(packets: list[bytes], *, released: bool = True, used: int | None = None) -> bytes:
    """After include/uapi/linux/if_packet.h."""
    first, body = 48, b""
    for place, packet in enumerate(packets):
        link_at = HEADER.itemsize
        size = link_at + len(packet) + -(link_at + len(packet)) % 16
        following = 0 if place == len(packets) - 1 else size
        head = struct.pack("=7IHHIH", following, 1_700_000_000, place, len(packet), 100 + place, 0, link_at, 0, 0, 0, 0)
        body += (head.ljust(link_at, b"\0") + packet).ljust(size, b"\0")
    status = struct.pack("=2I4I", 1, 0, int(released), len(packets), first, used or first + len(body))
    return status.ljust(first, b"\0") + body


@given(packets=st.lists(st.binary(max_size=40), max_size=8))
def test_packets_of_a_block(packets: list[bytes]) -> None:
    found = ring([block(packets)]).next_block()
    assert found is not None
    spans = zip(found.start.tolist(), found.captured.tolist(), strict=True)
    assert [found.buffer[start : start + size] for start, size in spans] == packets
    assert found.wire.tolist() == [100 + place for place in range(len(packets))]
    assert found.time_ns.tolist() == [1_700_000_000 * 10**9 + place for place in range(len(packets))]


def test_blocks_are_taken_in_turn_and_given_back() -> None:
    made = ring([block([b"a"]), block([b"b"]), block([], released=False)])
    for expected in (b"a", b"b"):
        found = made.next_block()
        assert found is not None
        assert found.buffer[found.start[0] : found.start[0] + 1] == expected
    assert made.next_block() is None
    # All were returned to the kernel, which has not filled them again.
    made._next = 0
    assert made.next_block() is None


def test_a_block_whose_packets_end_early() -> None:
    """The kernel is trusted, but memory is never read beyond a block."""
    raw = bytearray(block([b"a", b"b"]))
    raw[48:52] = struct.pack("=I", 10_000)
    with pytest.raises(ValueError, match="holds 1 of its 2 packets"):
        ring([bytes(raw)]).next_block()


WAIT = 0.1


def frames(capture: int, times: list[int], first: int = 1) -> Frames:
    data = [(f"{capture} {first + place} {time}".encode(), 99, time) for place, time in enumerate(times)]
    return Frames.plain(raw_packets(data, capture=capture, first_number=first))


def names(found: Frames | None) -> list[str]:
    """Each packet by its bytes, so that a packet with another packet's columns would show."""
    if found is None:
        return []
    packets = found.packets
    columns = (packets.start, packets.captured, packets.capture, packets.number, packets.time_ns)
    reported = []
    for start, size, capture, number, time in zip(*(column.tolist() for column in columns), strict=True):
        text = packets.buffer[start : start + size].decode()
        assert text == f"{capture} {number} {time}"
        reported.append(text)
    return reported


TIMELINES = st.lists(st.lists(st.integers(0, 60), max_size=12).map(sorted), min_size=1, max_size=4)


@given(TIMELINES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_blocks_within_the_wait_make_one_timeline(lines: list[list[int]], block: int, dice: object) -> None:
    """Times in ticks of 10 ms. A block is available up to 50 ms after its last packet, which is within the wait."""
    arrivals = []
    for capture, times in enumerate(lines):
        at = 0.0
        for first in range(0, len(times), block):
            part = times[first : first + block]
            at = max(at, part[-1] / 100 + dice.uniform(0, 0.05))  # type: ignore[attr-defined]
            arrivals.append((at, capture, first, frames(capture, part, first + 1)))
    arrivals.sort(key=lambda arrival: arrival[:3])
    merge = TimeMerge(len(lines), WAIT + 0.6)
    out = []
    for at, _, _, part in arrivals:
        out += names(merge.due(at))
        merge.add(part, at)
    out += names(merge.rest())
    every = [(time, capture, number) for capture, times in enumerate(lines) for number, time in enumerate(times, 1)]
    assert [int(text.split()[2]) for text in out] == sorted(time for time, _, _ in every)
    assert sorted(out) == sorted(f"{capture} {number} {time}" for time, capture, number in every)


def test_no_packet_is_passed_on_early() -> None:
    merge = TimeMerge(2, WAIT)
    assert merge.due_in(0) is None
    merge.add(frames(0, [10, 20]), 5.0)
    assert merge.due_in(5.04) == pytest.approx(0.06)
    assert merge.due(5.05) is None
    merge.add(frames(1, [5, 15, 25]), 5.06)
    assert names(merge.due(5.11)) == ["1 1 5", "0 1 10", "1 2 15", "0 2 20"]
    assert merge.due(5.12) is None
    assert names(merge.due(5.2)) == ["1 3 25"]
    assert merge.rest() is None


def test_known_unread_packets_are_waited_for() -> None:
    """One interface has a ring full of older packets, the other one is up to date."""
    merge = TimeMerge(2, WAIT)
    merge.add(frames(0, [10]), 5.0)
    merge.add(frames(1, [50]), 5.0)
    assert names(merge.due(5.2, {0})) == ["0 1 10"]
    assert merge.due(5.2, {0}) is None
    merge.add(frames(0, [20], 2), 5.3)
    assert names(merge.due(5.31)) == ["0 2 20", "1 1 50"]


def test_no_more_waits_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 500)
    merge = TimeMerge(2, WAIT)
    merge.add(frames(0, [10]), 5.0)
    assert merge.due(5.0, {1}) is None
    merge.add(frames(0, [11, 12, 13, 14, 15, 16], 2), 5.0)
    assert names(merge.due(5.0, {1})) == ["0 1 10"]
