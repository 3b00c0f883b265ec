"""Sizes of rings, and places of packets in blocks as the kernel lays them out."""

from __future__ import annotations

import mmap
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.capture.live import ring as module
from kafkasniff.capture.live.ring import BLOCK_COUNT, BLOCK_SIZES, HEADER, MIN_BLOCK, Ring, blocks_of

MIB = 1 << 20
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


@given(st.integers(1, 4096))
def test_a_ring_of_a_given_size(mib: int) -> None:
    size, count = blocks_of(mib * MIB)
    assert size * count == mib * MIB
    assert MIN_BLOCK <= size <= BLOCK_SIZES[0]
    # Few blocks lose packets of an idle interface; small ones cost more.
    assert count >= BLOCK_COUNT or size == MIN_BLOCK or size * BLOCK_COUNT == mib * MIB or count >= BLOCK_COUNT // 2


@pytest.mark.parametrize("native", [True, False])
@given(packets=st.lists(st.binary(max_size=40), max_size=8))
def test_packets_of_a_block(native: bool, packets: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(module, "kernel", lambda: None)
        found = ring([block(packets)]).take()
    assert found is not None
    spans = zip(found.start.tolist(), found.captured.tolist(), strict=True)
    assert [found.buffer[start : start + size] for start, size in spans] == packets
    assert found.wire.tolist() == [100 + place for place in range(len(packets))]
    assert found.time_ns.tolist() == [1_700_000_000 * 10**9 + place for place in range(len(packets))]


def test_blocks_are_taken_in_turn_and_given_back() -> None:
    made = ring([block([b"a"]), block([b"b"]), block([], released=False)])
    for expected in (b"a", b"b"):
        found = made.take()
        assert found is not None
        assert found.buffer[found.start[0] : found.start[0] + 1] == expected
    assert made.take() is None
    # All were returned to the kernel, which has not filled them again.
    made._next = 0
    assert made.take() is None


def test_a_block_whose_packets_end_early() -> None:
    """The kernel is trusted, but memory is never read beyond a block."""
    raw = bytearray(block([b"a", b"b"]))
    raw[48:52] = struct.pack("=I", 10_000)
    with pytest.raises(ValueError, match="holds 1 of its 2 packets"):
        ring([bytes(raw)]).take()


def test_a_backlog_counts_if_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    little = ring([block([b"a"]), block([b"b"]), block([], released=False), block([], released=False)])
    assert little.backlog() == 0.0
    monkeypatch.setattr(module, "LITTLE_PACKETS", 2)
    assert little.backlog() == 0.5
    little.take()
    monkeypatch.setattr(module, "LITTLE_PACKETS", 1)
    assert little.backlog() == 0.25


def test_statistics_are_packets_and_drops() -> None:
    assert ring([block([])]).statistics() == (9, 2)
