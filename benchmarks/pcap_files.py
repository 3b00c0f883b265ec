"""Capture files made of others: a beginning, copies with other clients. Bytes are moved, none decoded.

All of it is for little-endian pcap files with Ethernet headers, in which IPv4 has no options: what `small_messages`,
`resegment` and tcpdump on loopback write.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

FILE_HEADER: Final = 24
RECORD_HEADER: Final = 16
"""pcap, and what precedes each of its packets: seconds, fraction, length, length on the wire."""

ETHERNET: Final = 14
IP_AT: Final = RECORD_HEADER + ETHERNET
MAX_PACKET: Final = 262_144
MAX_COPIES: Final = 1 << 16
"""Two bytes of the clients' address identify a copy."""

NANOSECONDS: Final = 0xA1B23C4D
PCAP: Final = struct.pack("<IHHiIII", NANOSECONDS, 2, 4, 0, 0, MAX_PACKET, 1)
"""The head of a file with nanoseconds and Ethernet headers."""


def packet_places(data: bytes) -> tuple[Numbers, Numbers]:
    """Where each whole packet's record begins in a little-endian pcap, and the packets' lengths."""
    found, lengths = [], []
    at, step = FILE_HEADER, struct.Struct("<8xI4x").unpack_from
    while at + RECORD_HEADER <= len(data):
        (length,) = step(data, at)
        if at + RECORD_HEADER + length > len(data):
            break
        found.append(at)
        lengths.append(length)
        at += RECORD_HEADER + length
    return np.array(found, np.int64), np.array(lengths, np.int64)


def write_copies(data: bytes, path: Path, count: int, ports: list[int]) -> int:
    """Write `count` copies of a capture one after the other, each later and with other clients; returns its packets.

    `ports` are the brokers'; the second and third byte of the clients' addresses identify the copy. Checksums are not
    updated, so they are wrong, as on loopback.
    """
    at, lengths = packet_places(data)
    end = int(at[-1] + RECORD_HEADER + lengths[-1])
    base = np.frombuffer(data[:end], np.uint8).copy()
    seconds = _seconds(base, at)
    span = int(seconds[-1] - seconds[0]) + 1
    is_ipv6 = base[at + IP_AT] >> 4 == 6
    source_port = at + IP_AT + np.where(is_ipv6, 40, 20)
    from_broker = np.isin(base[source_port].astype(np.int64) * 256 + base[source_port + 1], ports)
    # The target of what brokers say is the client.
    source, target = np.where(is_ipv6, 20, 12), np.where(is_ipv6, 36, 16)
    client = at + IP_AT + np.where(from_broker, target, source) + 1
    with path.open("wb") as out:
        out.write(data[:FILE_HEADER])
        for number in range(count):
            base[client], base[client + 1] = number >> 8, number & 0xFF
            later = seconds + number * span
            for byte in range(4):
                base[at + byte] = (later >> (8 * byte)) & 0xFF
            out.write(base[FILE_HEADER:].tobytes())
    return count * len(at)


def _seconds(base: NDArray[np.uint8], at: Numbers) -> Numbers:
    columns = base[at[:, None] + np.arange(4)].astype(np.int64)
    numbers: Numbers = columns @ (np.int64(1) << np.arange(0, 32, 8))
    return numbers


def write_beginning(source: Path, target: Path, size: int) -> int:
    """Write the first packets of `source`, at most `size` bytes of file; returns how many. Raises ValueError for none.

    Connections that continue after the end are cut, as in any capture that was stopped.
    """
    with source.open("rb") as file:
        data = file.read(size)
    at, lengths = packet_places(data)
    if not len(at):
        raise ValueError(f"{source}: the first {size} bytes hold no whole packet")
    target.write_bytes(memoryview(data)[: int(at[-1] + RECORD_HEADER + lengths[-1])])
    return len(at)


def count_packets(path: Path) -> int:
    """How many packets a pcap has; a last one that is cut does not count."""
    found, size = 0, path.stat().st_size
    step = struct.Struct("<8xI4x").unpack
    with path.open("rb", buffering=1 << 20) as file:
        at = FILE_HEADER
        file.seek(at)
        while len(head := file.read(RECORD_HEADER)) == RECORD_HEADER:
            (length,) = step(head)
            at += RECORD_HEADER + length
            if at > size:
                break
            file.read(length)
            found += 1
    return found
