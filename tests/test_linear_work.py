"""Linear work: several times the input that makes a parser start over takes about that many times the steps, and time.

Each maker yields bytes that a malicious peer, or the author of a capture, could have made on purpose.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import pytest

from kafkasniff.capture import open_captures
from kafkasniff.tls.record import HandshakeBuffer
from tests.capture.files import pcap, pcap_header, pcap_record
from tests.steps import steps


def read(data: bytes) -> None:
    with open_captures(["-"], stdin=io.BytesIO(data)) as source:
        for _ in source:
            pass


def odd_records(count: int) -> bytes:
    """Every fifth record claims fewer bytes on the wire than captured; the records in between form a chain."""
    records = []
    for number in range(count):
        size = 14 + number * 7 % 23
        records.append(pcap_record(b"\xff" * size, number, wire=size if number % 5 else 3))
    return pcap_header() + b"".join(records)


def ip4(protocol: int, total: int, payload: bytes = b"", *, fragment: int = 0) -> bytes:
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 7, fragment, 64, protocol, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    return header + payload


def ethernet(packet: bytes) -> bytes:
    return bytes(12) + b"\x08\x00" + packet


def labels_in_each_other(count: int) -> bytes:
    """IP in MPLS in IP …, which does not count as nested tunnels."""
    level = 24
    layers = b"".join(ip4(137, level * (count - number), b"\0\0\1\0") for number in range(count))
    return pcap([ethernet(layers)] * 8)


def overlapping_fragments(count: int) -> bytes:
    """More bytes than the datagram has, with a hole among them."""
    packets = [ethernet(ip4(6, 420, bytes(400), fragment=65_000 // 8))]
    packets += [ethernet(ip4(6, 1420, bytes(1400), fragment=0x2000 | (1008 + 8 * number) // 8)) for number in range(50)]
    packets += [ethernet(ip4(6, 28, bytes(8), fragment=0x2000 | (2000 + 8 * number) // 8)) for number in range(count)]
    return pcap(packets)


def byte_by_byte(count: int) -> None:
    """A handshake message in records of one byte each."""
    buffer = HandshakeBuffer()
    assert not list(buffer.add(b"\x0b\x03\xff\xf0"))
    for _ in range(count):
        assert not list(buffer.add(b"a"))


CASES: dict[str, tuple[Callable[[int], Callable[[], None]], int]] = {
    "odd records of pcap": (lambda count: of_capture(odd_records(count)), 1_000),
    "labels in each other": (lambda count: of_capture(labels_in_each_other(count)), 300),
    "overlapping fragments": (lambda count: of_capture(overlapping_fragments(count)), 240),
    "a handshake byte by byte": (lambda count: lambda: byte_by_byte(count), 25_000),
}
"""What makes the work, and the size of the smaller input."""


def of_capture(data: bytes) -> Callable[[], None]:
    return lambda: read(data)


@pytest.mark.parametrize("name", CASES)
def test_steps_are_linear(name: str) -> None:
    prepare, count = CASES[name]
    count = min(count // 5, 500)
    prepare(count)()
    little, much = steps(prepare(count)), steps(prepare(4 * count))
    assert much < 5 * little, f"{much} steps for 4 times of what takes {little}"
