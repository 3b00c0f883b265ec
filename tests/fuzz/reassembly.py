"""TCP reassembly: packets with any numbers and flags, on at most two connections.

A byte of a stream depends on its sequence number only, so delivered bytes can be compared with sent ones. Every
delivered segment is part of the packet that delivered it, segments and gaps are contiguous, and batch boundaries change
nothing. If the first bit of the input is set, bytes depend on the packet, too, like forged or damaged retransmissions;
then only the first and the last rule hold.

A packet is 11 bytes: conversation, direction and meaning of numbers, flags, sequence number, acknowledgement, length,
bytes cut off, and the time since the packet before. Given together, the packets of all inputs are captured in order of
their times.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.packets import ACK, FIN, RST, SYN, PacketBatch
from kafkasniff.tcp.reassembly import Reassembler
from kafkasniff.tcp.segments import PACKET_NUMBER, Closed, Gap, Item, Late, Run, Stretch, TcpProblem
from tests.craft.read import read_packets
from tests.fuzz.corpus import capture_files
from tests.fuzz.intake import Intake
from tests.fuzz.streams import in_batches, some_of
from tests.tcp.batches import Raw

MAX_LENGTH = 1 + 11 * 60
MEGABYTES = 128
TOGETHER = 50
WORDS = (b"\x02", b"\x12", b"\x10", b"\x11", b"\x04", b"\x7f\xff", b"\x80\x00", b"\xff\xff")

FEW: Final = 8
"""Packets that are fed one by one; each batch costs as much as many packets."""

_SIZE: Final = 11
_PERIOD: Final = 1 << 16
_CONTENT: Final = random.Random(9).randbytes(2 * _PERIOD)
"""Content of a stream by its sequence numbers; repeats after each period."""
_FAR: Final = (1, 1 << 8, 1 << 16, 1 << 24)
"""Factor of a step of sequence numbers."""
_PAUSES: Final = (1_000, 400_000_000, 61_000_000_000, 3_601_000_000_000)
"""Nanoseconds of a burst, an expired grace period, a lingering and an idle connection."""


def packets_of(intake: Intake, *, forged: bool, number: int = 0) -> list[Raw]:
    """The packets of an input; `number` counts the inputs whose packets are captured together."""
    packets: list[Raw] = []
    clock = 1_000
    following: dict[tuple[int, int], int] = {}
    while len(intake) >= _SIZE:
        kind, flags, step = intake.number(), intake.number(), intake.number(2, signed=True)
        ack, length, cut, pause = intake.number(2, signed=True), intake.number(2), intake.number(), intake.number(2)
        conversation, sender = kind & 1, kind >> 1 & 1
        # Numbers are relative to the stream's position, so most packets are near plausible ones.
        here = following.get((conversation, sender), 1000 * (1 + sender))
        there = following.get((conversation, 1 - sender), 1000 * (2 - sender))
        seq = here + step * _FAR[kind >> 2 & 3]
        size = length % 1500 if kind & 16 else length % 9
        begin = seq + (flags & SYN > 0)
        payload = _CONTENT[begin % _PERIOD : begin % _PERIOD + size]
        if forged:
            payload = bytes(byte ^ (len(packets) & 0xFF) for byte in payload)
        wire = size + (cut if kind & 32 else 0)
        clock += pause * (_PAUSES[kind >> 6] // 1000 or 1)
        packets.append(Raw(sender, seq, payload, flags, there + ack, clock, cut + 1, wire, 2 * number + conversation))
        if step == 0 or kind & 64:
            following[conversation, sender] = begin + wire + (flags & FIN > 0)
    return packets


def _segments(run: Run) -> list[tuple[int, bytes, int, int]]:
    """Order, bytes, packet and time of each segment of a run."""
    return [
        (
            run.order[index],
            run.buffer[run.offset[index] : run.offset[index] + run.length[index]],
            run.packet[index],
            run.released[index],
        )
        for index in range(run.first, run.last)
    ]


def outcome(batches: list[PacketBatch]) -> dict[tuple[int, Any], list[Any]]:
    """The output of each connection: single segments with their direction, and the other items."""
    reassembler = Reassembler()
    found: dict[tuple[int, Any], list[Any]] = defaultdict(list)

    def take(deltas: list[tuple[TcpConnection, list[Item]]]) -> None:
        for connection, items in deltas:
            rows = found[connection.first_order, connection.endpoints]
            for item in items:
                if isinstance(item, Stretch):
                    segments = [
                        (order, direction, *rest)
                        for direction, run in enumerate(item.runs)
                        if run is not None
                        for order, *rest in _segments(run)
                    ]
                    rows += sorted(segments, key=lambda row: row[0])
                else:
                    rows.append(item)

    for one in batches:
        take(reassembler.feed(one))
    take(reassembler.close())
    return dict(found)


class _Follower:
    """Compares one stream with the sent data: the positions at which it may be."""

    def __init__(self) -> None:
        self.places: set[int] | None = None

    def segment(self, data: bytes, sent: Raw) -> None:
        begin = sent.seq + (sent.flags & SYN > 0)
        # Positions within its packet at which the content equals the delivered bytes; single bytes may match anywhere.
        places = {
            (begin + at) % _PERIOD
            for at in range(len(sent.payload) - len(data) + 1)
            if sent.payload.startswith(data, at)
        }
        assert places, "bytes that the packet does not contain"
        if self.places is not None:
            places &= self.places
        assert places, "segments do not follow each other"
        self.places = {(place + len(data)) % _PERIOD for place in places}

    def gap(self, size: int) -> None:
        assert size >= 0
        if self.places is not None:
            self.places = {(place + size) % _PERIOD for place in self.places}


def _check(rows: list[Any], packets: list[Raw], forged: Sequence[bool]) -> None:
    """Compare a connection's output with the packets; `forged`: by input."""
    followers = (_Follower(), _Follower())
    closed = False
    order = -1
    for row in rows:
        # Data that the peer of a RST had in flight is reported there.
        on_the_way = isinstance(row, TcpProblem) and row.kind == "tcp-data-after-rst"
        assert not closed or on_the_way, "something after the end"
        if isinstance(row, tuple):
            place, direction, data, packet, _ = row
            sent = packets[(packet & PACKET_NUMBER) - 1]
            if forged[sent.conversation // 2]:
                assert data in sent.payload
            elif data:
                followers[direction].segment(data, sent)
        else:
            place = row.order
            if isinstance(row, Gap):
                followers[row.direction].gap(row.size)
            if isinstance(row, Late):
                sent = packets[(row.packet & PACKET_NUMBER) - 1]
                assert row.data == sent.payload
            closed = closed or isinstance(row, Closed)
        assert place >= order, "out of capture order"
        order = place
    assert closed


def one_input(data: bytes) -> None:
    intake = Intake(data)
    forged = bool(intake.number() & 1)
    packets = packets_of(intake, forged=forged)
    # One packet at a time if that is fast.
    parts = max(len(packets), 1) if len(packets) <= FEW else 3 + len(data) % 5
    _check_all(packets, [forged], (1, parts))


def many_inputs(inputs: Sequence[bytes]) -> None:
    intakes = [Intake(data) for data in inputs]
    forged = [bool(intake.number() & 1) for intake in intakes]
    each = [
        packets_of(intake, forged=one, number=number)
        for number, (intake, one) in enumerate(zip(intakes, forged, strict=True))
    ]
    packets = list(heapq.merge(*each, key=lambda packet: packet.time_ns))
    number = len(packets)
    _check_all(packets, forged, some_of((1, 3 + number % 5), number // 5))


def _check_all(packets: list[Raw], forged: Sequence[bool], counts: tuple[int, ...]) -> None:
    """`counts`: the numbers of batches that are compared."""
    first, *others = [outcome(in_batches(packets, count)) for count in counts]
    for rows in first.values():
        _check(rows, packets, forged)
    assert all(other == first for other in others), "a different result in other batches"


def _seed(steps: list[tuple[int, int, int, int, int]]) -> bytes:
    """An input of these (kind, flags, step, ack, length)."""
    out = bytearray(1)
    for kind, flags, step, ack, length in steps:
        out += bytes((kind, flags)) + step.to_bytes(2, "big", signed=True) + ack.to_bytes(2, "big", signed=True)
        out += length.to_bytes(2) + b"\0" + b"\0\1"
    return bytes(out)


_HANDSHAKE: Final = [(0, SYN, 0, 0, 0), (2, SYN | ACK, 0, 0, 0), (0, ACK, 0, 0, 0)]
_TALK: Final = [(0, ACK, 0, 0, 8), (2, ACK, 0, 0, 8), (16, ACK, 0, 0, 900), (18, ACK, 0, 0, 700)]


def seeds() -> list[bytes]:
    lost = [(64, ACK, 5, 0, 8), (0, ACK, 0, 0, 8), *[(2, ACK, 0, 0, 0)] * 34]
    found = [
        _seed([*_HANDSHAKE, *_TALK, (0, FIN | ACK, 0, 0, 0), (2, FIN | ACK, 0, 0, 0), (0, ACK, 0, 0, 0)]),
        _seed([*_TALK, (0, ACK, -4, 0, 8), (0, ACK, 4, 0, 4), (0, ACK, 0, 0, 8), (2, RST, 0, 0, 0)]),
        _seed([*_HANDSHAKE, *lost, *_TALK]),
        _seed([*_HANDSHAKE, *_TALK, *_HANDSHAKE, *_TALK]),
        _seed([*_TALK, (0, SYN, 500, 0, 0), (0, ACK, 501, 0, 8), (0xC0, ACK, 0, 0, 8), *_TALK]),
        _seed([(1, ACK, 0, 0, 8), *_TALK, (8, ACK, 100, 0, 8), (12, ACK, 100, 0, 8), (3, ACK, 0, 0, 8)]),
        _seed([*_TALK, (48, ACK, 0, 0, 60), (0, ACK, 0, 0, 8), (1, FIN, 0, 0, 3), (0, FIN, 9, 0, 3), *_TALK]),
    ]
    found += [b"\1" + seed[1:] for seed in found]
    for path in capture_files()[::10]:
        steps = []
        client = None
        for packet in read_packets(path)[:40]:
            client = packet.stream if client is None else client
            sender = 0 if packet.stream == client else 2
            steps.append((16 | sender, packet.flags, 0, 0, min(len(packet.payload), 1400)))
        found.append(_seed(steps))
    return found
