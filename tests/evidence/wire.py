"""The frames of a shipped capture, by a plain walk that shares nothing with kafkasniff. Good for captures of loopback
alone, from their first SYN on: every byte has the number of the packet that brought it first."""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
from array import array
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from tests.craft.packet import ACK, SEQUENCE, SYN, Packet
from tests.craft.read import file_bytes, raw_packets, tcp_packet

PRODUCE, SASL_HANDSHAKE = 0, 17
CONTROLLED_SHUTDOWN_0 = 7, 0
"""The only request whose header names no client."""

RAW_TOKENS = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""Tokens each side sends after SaslHandshake v0, by mechanism, where the log-in succeeds (RFC 4616, RFC 5802)."""


@dataclasses.dataclass
class Frame:
    """A message or raw SASL token of a stream, without its length prefix."""

    kind: Literal["request", "response", "sasl"]
    connection: int
    """Ordinal of the connection, by its first packet, from 1."""
    client: str
    broker: str
    size: int
    """The length prefix."""
    data: bytes
    """What the capture has of it from its beginning on: shorter than `size` where a snap length cut it."""
    time_ns: int
    first_ns: int
    """Time of the packet with its first byte, of the length prefix's that is."""
    first_packet: int
    last_packet: int
    api_key: int = -1
    api_version: int = -1
    correlation_id: int = 0
    client_id: str | None = None
    """From the request's header; on a response, of the request that it answers."""
    pair: Frame | None = None
    """The request of a response, and the other way round."""

    @property
    def cut(self) -> bool:
        return len(self.data) < self.size


class _Stream:
    """One direction of a connection: its bytes, and the index of the packet that brought each of them first."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.data = bytearray()
        self.owner = array("l")
        """Index of a packet; -1: nobody brought it; -2 - index: that packet had it, and the snap length cut it off."""

    def add(self, packet: Packet, index: int) -> None:
        offset = (packet.seq - self.base) % SEQUENCE
        length = len(packet.payload) + packet.cut
        if not length or offset >= SEQUENCE // 2:  # a keep-alive repeats the byte before the stream's next one
            return
        grown = offset + length - len(self.data)
        if grown > 0:
            self.data += bytes(grown)
            self.owner.extend([-1] * grown)
        for at in range(length):
            if self.owner[offset + at] == -1:
                held = at < len(packet.payload)
                self.owner[offset + at] = index if held else -2 - index
                self.data[offset + at] = packet.payload[at] if held else 0


@dataclasses.dataclass
class _Connection:
    ordinal: int
    client: str
    broker: str
    sent: _Stream
    received: _Stream | None = None


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@functools.cache
def broker_ports(capture: Path) -> frozenset[int]:
    """The ports of the capture's brokers, as the recorder wrote them down."""
    manifest = json.loads((capture.parent / "manifest.json").read_text(encoding="utf-8"))
    return frozenset(next(entry["broker_ports"] for entry in manifest["captures"] if entry["file"] == capture.name))


def _connections(packets: list[tuple[int, Packet]], ports: frozenset[int]) -> list[_Connection]:
    current: dict[tuple[object, ...], _Connection] = {}
    found: list[_Connection] = []
    for index, (_, packet) in enumerate(packets):
        to_broker = packet.dport in ports
        here = (packet.src, packet.sport), (packet.dst, packet.dport)
        name = here if to_broker else here[::-1]
        if packet.flags & SYN:
            if to_broker and not packet.flags & ACK:
                connection = current.get(name)
                if connection is None or connection.sent.base != (packet.seq + 1) % SEQUENCE:
                    ends = (_endpoint(*name[0]), _endpoint(*name[1]))
                    current[name] = _Connection(len(found) + 1, *ends, _Stream((packet.seq + 1) % SEQUENCE))
                    found.append(current[name])
            elif current[name].received is None:
                current[name].received = _Stream((packet.seq + 1) % SEQUENCE)
            continue
        stream = current[name].sent if to_broker else current[name].received
        if stream is None and not packet.payload and not packet.cut:
            continue  # a connection refused, or an old one of the same ports answers its SYN
        assert stream is not None, f"packet {index + 1} comes before its connection"
        stream.add(packet, index)
    return found


def _frames(stream: _Stream, kind: Literal["request", "response"], of: _Connection, where: _Packets) -> Iterator[Frame]:
    position, contiguous = 0, -1
    while position + 4 <= len(stream.data):
        if min(stream.owner[position : position + 4]) < 0:
            raise ValueError(f"{of.client} {kind}: a length prefix is not in the capture")
        size = struct.unpack_from(">i", stream.data, position)[0]
        end = position + 4 + size
        if end > len(stream.data):
            return
        assert -1 not in stream.owner[position:end], "a hole in a capture of loopback"
        held = next((at for at, one in enumerate(stream.owner[position + 4 : end]) if one < 0), size)
        brought = stream.owner[position : position + 4 + held]
        contiguous = max(contiguous, *brought)
        data = bytes(stream.data[position + 4 : position + 4 + held])
        places = where[contiguous][1], where[stream.owner[position]][1], where[min(brought)][0], where[max(brought)][0]
        yield Frame(kind, of.ordinal, of.client, of.broker, size, data, *places)
        position = end


_Packets = list[tuple[int, int]]
"""Number and time of each TCP packet."""


def _acks_nothing(request: Frame) -> bool:
    """Whether a Produce request wants no response."""
    position = 8
    (length,) = struct.unpack_from(">h", request.data, position)
    position += 2 + max(0, length)
    if request.api_version >= 9:  # flexible: the header's tags, then a compact transactional id
        position += 1
        return bool(struct.unpack_from(">h", request.data, position + max(1, request.data[position]))[0] == 0)
    if request.api_version >= 3:
        (length,) = struct.unpack_from(">h", request.data, position)
        position += 2 + max(0, length)
    return bool(struct.unpack_from(">h", request.data, position)[0] == 0)


def _pair(requests: list[Frame], responses: list[Frame]) -> None:
    """Read the size before each frame, and join requests and responses."""
    waiting = deque(requests)
    tokens_in = tokens_out = 0
    rest = deque(responses)
    while waiting:
        request = waiting.popleft()
        if tokens_out:
            request.kind, tokens_out = "sasl", tokens_out - 1
            continue
        request.api_key, request.api_version, request.correlation_id = struct.unpack_from(">hhi", request.data)
        if (request.api_key, request.api_version) != CONTROLLED_SHUTDOWN_0:
            (length,) = struct.unpack_from(">h", request.data, 8)
            request.client_id = request.data[10 : 10 + length].decode() if length >= 0 else None
        if request.api_key == PRODUCE and _acks_nothing(request):
            continue
        while tokens_in and rest:
            rest.popleft().kind = "sasl"
            tokens_in -= 1
        if not rest:
            continue  # the connection ended first
        response = rest.popleft()
        (response.correlation_id,) = struct.unpack_from(">i", response.data)
        if response.correlation_id != request.correlation_id:
            raise ValueError(f"{request.client}: response {response.correlation_id} to {request.correlation_id}")
        response.api_key, response.api_version = request.api_key, request.api_version
        response.client_id = request.client_id
        response.pair, request.pair = request, response
        if (request.api_key, request.api_version) == (SASL_HANDSHAKE, 0):
            tokens_in = tokens_out = RAW_TOKENS[_mechanism(request)]
    for response in rest:
        if tokens_in:
            response.kind, tokens_in = "sasl", tokens_in - 1
        else:
            raise ValueError(f"{response.client}: a response that nobody asked for")


def _mechanism(request: Frame) -> str:
    """The mechanism of a SaslHandshake v0 request: the one string of its body, after the client id."""
    position = 10 + max(0, struct.unpack_from(">h", request.data, 8)[0])
    return request.data[position + 2 :].decode()


class Walk(NamedTuple):
    frames: tuple[Frame, ...]
    """Connection by connection: those that the client sent, then those of the broker."""
    rests: dict[tuple[int, str], int]
    """Bytes after the last whole frame of a stream, by connection and direction; only where there are any."""


@functools.cache
def walk(capture: Path) -> Walk:
    """All frames of a capture. Raises ValueError where it would have to guess: such a capture needs another walk."""
    packets: list[tuple[int, Packet]] = []
    for number, raw in enumerate(raw_packets(file_bytes(capture)), 1):
        if (packet := tcp_packet(*raw)) is not None:
            packets.append((number, packet))
    where = [(number, packet.time_ns) for number, packet in packets]
    found: list[Frame] = []
    rests: dict[tuple[int, str], int] = {}
    for connection in _connections(packets, broker_ports(capture)):
        sides: dict[Literal["request", "response"], list[Frame]] = {"request": [], "response": []}
        for kind, stream in zip(sides, (connection.sent, connection.received), strict=True):
            if stream is not None:
                sides[kind] += _frames(stream, kind, connection, where)
                rest = len(stream.data) - sum(4 + frame.size for frame in sides[kind])
                if rest:
                    rests[connection.ordinal, kind] = rest
        _pair(sides["request"], sides["response"])
        found += sides["request"] + sides["response"]
    return Walk(tuple(found), rests)


def frames(capture: Path) -> tuple[Frame, ...]:
    return walk(capture).frames
