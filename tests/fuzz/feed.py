"""Connections in step, and events that bring them out of step: results with the kernel and with Python alone agree.

An input gives options of the inspector, and then the steps of three connections, each with a few earlier exchanges. A
step is three bytes (what happens, on which connection, whether everything waiting is sent then and whether a batch ends
there) and two numbers. Requests and responses wait until they are sent, whole or in pieces. Packets are then lost,
moved, repeated, overlapped, cut, or have other bytes, numbers or flags. The inspectors with and without the kernel get
the same batches. Events, summaries and the state of connections must be equal, at the end and after each batch that the
input selects.

`native_streams.py` gives the kernel many more packets, without Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkasniff.engine.inspector import Inspector
from kafkasniff.tcp.packets import ACK, FIN, RST, SYN
from kafkasniff.tcp.segments import NO_TIME
from tests.craft import kafka_bytes as kafka
from tests.fuzz.intake import Intake
from tests.oracle.inspector import ByPython, kept
from tests.oracle.tcp.batches import Raw, batch

MAX_LENGTH = 1 + 3 * 80
DEAR = 2
MEGABYTES = 128
WORDS = (b"\x40\x00\x00\x44\x00\x00", b"\x0a\x02\x00", b"\x0b\x01\x00", b"\xc0\x00\x00\xc4\x00\x00", b"\x05\x10\x00")

_SEND: Final = 64
"""Bits of a step's first byte: everything that waits is sent; """
_BORDER: Final = 128

CONNECTIONS: Final = 3
MOST_PACKETS: Final = 400
_PAUSES: Final = (1_000, 40_000, 400_000_000, 61_000_000_000, 3_601_000_000_000, -50_000)
_SIZES: Final = (65_000, 1448, 60, 7, 4, 1)
_RECORDS: Final = kafka.record_batch([kafka.record(0, b"k", b"v" * 30)])
_FLAGS: Final = (ACK, FIN | ACK, RST, SYN, RST | ACK, SYN | ACK, FIN, 0)

_Message = Callable[[int], bytes]


def _beat(number: int) -> bytes:
    return kafka.request(12, 0, number, kafka.string("group") + kafka.int32(3) + kafka.string("member"))


def _heard(number: int) -> bytes:
    return kafka.response(number, kafka.int16(0))


_KINDS: Final[tuple[tuple[_Message, _Message], ...]] = (
    (_beat, _heard),
    (
        lambda n: kafka.produce_request(n, "orders", _RECORDS),
        lambda n: kafka.produce_response(n, "orders", n),
    ),
    (
        lambda n: kafka.produce_request(n, "orders", _RECORDS, version=9),
        lambda n: kafka.produce_response(n, "orders", n, version=9),
    ),
    (lambda n: kafka.fetch_request(n, "orders", n), lambda n: kafka.fetch_response(n, "orders", _RECORDS, n + 1)),
    (lambda n: kafka.produce_request(n, "orders", _RECORDS, acks=0), lambda _: b""),
    (lambda n: kafka.api_versions_request(n, 3), lambda n: kafka.api_versions_response(n, 3)),
    (lambda n: kafka.request(12, 9, n, b"whatever", flexible=True), _heard),
    (lambda n: kafka.request(900, 0, n, b"whatever"), _heard),
    (lambda n: kafka.request(120, 0, n, b"whatever"), _heard),
    (lambda n: kafka.request(0, 30, n, b"\0\0\0", flexible=True), _heard),
    (lambda n: kafka.request(16, 3, n, b"\0", flexible=True), lambda n: kafka.response(n, b"\1\5\1x" + bytes(8))),
    (lambda n: _beat(n % 3), lambda n: _heard(n % 3)),
    (lambda n: kafka.produce_request(n, "o" * 3000, _RECORDS), lambda n: kafka.produce_response(n, "o" * 900, n)),
)


class _Talk:
    """One connection: the data that waits to be sent, and the packets so far."""

    def __init__(self, packets: list[Raw], number: int) -> None:
        self.packets = packets
        self.number = number
        # Sequence numbers wrap early on some connections.
        self.following = [(1 << 32) - 40 * number, (1 << 31) - 3]
        self.waiting = [b"", b""]
        self.asked: list[tuple[int, _Message]] = []
        self.next_id = 0
        self.packet(0, SYN)
        self.packet(1, SYN | ACK)
        for _ in range(3):
            self.ask(0)
            self.send(0)
            self.answer(0)
            self.send(1)

    def packet(self, sender: int, flags: int, payload: bytes = b"", *, step: int = 0) -> None:
        seq = self.following[sender] + step
        if not step:
            self.following[sender] += len(payload) + (flags & (SYN | FIN) > 0)
        if len(self.packets) < MOST_PACKETS:
            self.packets.append(Raw(sender, seq, payload, flags, self.following[1 - sender], 0, 0, None, self.number))

    def ask(self, kind: int) -> None:
        request, response = _KINDS[kind % len(_KINDS)]
        self.waiting[0] += request(self.next_id)
        self.asked.append((self.next_id, response))
        self.next_id += 1

    def answer(self, place: int) -> None:
        if self.asked:
            number, response = self.asked.pop(place % len(self.asked))
            self.waiting[1] += response(number)

    def send(self, sender: int, count: int | None = None, size: int = _SIZES[0]) -> None:
        """Send this many of the waiting bytes, in segments of this size except for the last of a few."""
        data = self.waiting[sender][:count]
        self.waiting[sender] = self.waiting[sender][len(data) :]
        for _ in range(12):
            if not data:
                return
            self.packet(sender, ACK, data[:size])
            data = data[size:]
        if data:
            self.packet(sender, ACK, data)


def packets_of(intake: Intake) -> tuple[list[Raw], list[int]]:
    """The packets of an input, and where its batches end."""
    packets: list[Raw] = []
    talks = [_Talk(packets, one) for one in range(CONNECTIONS)]
    pauses: dict[int, int] = {}
    borders = [len(packets)]
    first = len(packets)
    while len(intake) >= 3:
        what, one, other = intake.number(), intake.number(), intake.number()
        talk = talks[(what >> 4 & 3) % CONNECTIONS]
        match what & 15:
            case 0 | 1:
                talk.ask(one)
            case 2:
                for _ in range(one % 7):
                    talk.ask(other)
            case 3 | 4:
                for _ in range(1 + one % 4):
                    talk.answer(0)
            case 5:
                for _ in range(one % 24):
                    talk.ask(0)
                    talk.send(0)
                    talk.answer(0)
                    talk.send(1)
            case 6:
                talk.answer(one)
            case 7 | 8 as way:
                talk.send(way - 7, one, _SIZES[other % len(_SIZES)])
            case 9:
                talk.waiting[one & 1] += bytes((other, one)) * (one >> 4)
            case 10:
                _move(packets, first, one, other)
            case 11:
                _repeat(packets, first, one, other)
            case 12:
                if len(packets) - first > one % 4:
                    del packets[-1 - one % 4]
            case 13:
                talk.packet(other & 1, _FLAGS[one % len(_FLAGS)], b"x" * (one >> 5), step=(other >> 1) - 64)
            case 14:
                pauses[len(packets)] = _PAUSES[one % len(_PAUSES)]
            case _:
                _damage(packets, first, one, other)
        if what & _SEND:
            for sender in (0, 1):
                talk.send(sender, None, _SIZES[other % len(_SIZES)])
        if what & _BORDER:
            borders.append(len(packets))
    clock = 1_000_000_000
    for place, packet in enumerate(packets):
        clock += pauses.get(place, 1_000)
        packets[place] = packet._replace(time_ns=packet.time_ns or clock, ident=packet.ident or 1 + place)
    return packets, [border for border in borders if border <= len(packets)]


def _move(packets: list[Raw], first: int, places: int, back: int) -> None:
    """A packet arrives later than it was sent."""
    at = len(packets) - 1 - back % 8
    if at >= first:
        packet = packets.pop(at)
        packets.insert(max(at - 1 - places % 40, first), packet)


def _repeat(packets: list[Raw], first: int, back: int, how: int) -> None:
    """A packet comes twice: as it was, sent again, or with other bounds."""
    at = len(packets) - 1 - back % 40
    if at < first or len(packets) >= MOST_PACKETS:
        return
    packet = packets[at]
    if how & 1:
        ident = packet.ident or 1 + (at << 10)
        packets[at] = packet._replace(ident=ident)
        packets.append(packets[at])
        return
    cut, rest = how >> 3 & 7, how >> 6
    if how & 2:
        packet = packet._replace(seq=packet.seq + cut, payload=packet.payload[cut:])
    if how & 4 and rest:
        packet = packet._replace(payload=packet.payload + b"more"[:rest])
    packets.append(packet._replace(ident=0))


def _damage(packets: list[Raw], first: int, how: int, other: int) -> None:
    """Change the last packet."""
    if len(packets) <= first:
        return
    packet = packets[-1]
    payload = packet.payload
    match how & 3:
        case 0:
            packet = packet._replace(wire=len(payload), payload=payload[: len(payload) * other // 256])
        case 1 if payload:
            at = (how >> 2) % len(payload)
            packet = packet._replace(payload=payload[:at] + bytes((other,)) + payload[at + 1 :])
        case 2:
            packet = packet._replace(time_ns=NO_TIME)
        case _:
            packet = packet._replace(ack=packet.ack + other - 128)
    packets[-1] = packet


def reported(
    kind: type[Inspector], packets: list[Raw], borders: Sequence[int], looks: int, **options: Any
) -> tuple[list[Any], list[Any], object]:
    """An inspector's events, its state whenever that is inspected, and its summary."""
    inspector = kind(**options)
    events: list[Any] = []
    seen: list[Any] = []
    ends = sorted({*borders, len(packets)} - {0})
    for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if begin < end:
            events += inspector.feed(batch(packets[begin:end], start=begin))
            if number and looks and number % looks == 0:
                seen.append(kept(inspector))
    seen.append(kept(inspector))
    return events + inspector.close(), seen, inspector.summary


def options_of(how: int) -> tuple[int, dict[str, Any]]:
    """After how many batches the state is inspected (0: at the end only), and options of the inspector."""
    records = ("full", "columns", "skip", "full")[how >> 4 & 3]
    options: dict[str, Any] = {"exchanges": bool(how & 1), "connections": bool(how & 2), "records": records}
    if how & 4:
        options["max_frame"] = 2000
    return how >> 6, options


def one_input(data: bytes) -> None:
    intake = Intake(data)
    how = intake.number()
    packets, borders = packets_of(intake)
    looks, options = options_of(how)
    found = reported(Inspector, packets, borders, looks, **options)
    expected = reported(ByPython, packets, borders, looks, **options)
    assert found[0] == expected[0], "different events"
    assert found[1] == expected[1], "different states"
    assert found[2] == expected[2], "a different summary"


def _steps(*steps: tuple[int, int, int], how: int = 3) -> bytes:
    return bytes((how,)) + b"".join(map(bytes, steps))


@functools.cache
def seeds() -> list[bytes]:
    exchange = [(_SEND, 0, 0), (_SEND | 4, 0, 0)]
    found = []
    for kind in range(len(_KINDS)):
        for size in range(len(_SIZES)):
            found.append(
                _steps((0, kind, 0), (_SEND, kind, size), (_SEND | 4, 1, size), *exchange, how=kind * 16 | size)
            )
    ahead = [(2, 6, 1), (_SEND, 0, 0), (3, 3, 0), (_SEND | 3, 3, 0)]
    damage = [
        *((10, places, back) for places in (0, 1, 4) for back in (0, 1, 2)),
        *((11, back, how) for back in (0, 2, 5) for how in (0, 1, 2, 0x12, 0x44, 0x5E)),
        *((12, back, 0) for back in (0, 1, 2)),
        *((13, flags, step) for flags in range(8) for step in (128, 129, 127, 10)),
        *((14, pause, 0) for pause in range(len(_PAUSES))),
        *((15, way, 100) for way in range(4)),
    ]
    for number, one in enumerate(damage):
        found.append(_steps(*exchange, *ahead, one, *ahead, *exchange, how=number % 256))
        found.append(_steps((2, 6, 3), (7, 255, 2), one, (8, 99, 3), (0x83, 5, 0), (_SEND | 3, 5, 2), *exchange))
        found.append(_steps((5, 9, 0), one, (0x85, 23, 0), one, (5, 12, 0), how=number % 256))
    return found
