"""Form B: a capture with its payloads in the segments that an Ethernet carries."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.pcap_files import PCAP
from tests.craft.packet import FIN, PSH, Packet
from tests.craft.read import raw_packets, tcp_packet
from tests.craft.write import LINKS, link_bytes

SEGMENT: Final = 1448
"""Payload of a segment on an Ethernet with an MTU of 1,500 bytes, with TCP timestamps."""


def resegment(source: Path, target: Path, segment: int = SEGMENT) -> None:
    """Write `source` with segments of at most `segment` bytes, as a nanosecond pcap with Ethernet headers."""
    write_packets(target, resegmented(source, segment))


def resegmented(source: Path, segment: int = SEGMENT) -> Iterator[Packet]:
    """The TCP packets of a capture, with segments of at most `segment` bytes."""
    for raw in raw_packets(source.read_bytes()):
        packet = tcp_packet(*raw)
        if packet is not None:
            yield from _pieces(packet, segment)


def write_packets(target: Path, packets: Iterable[Packet]) -> None:
    """A nanosecond pcap with Ethernet headers and true checksums."""
    with target.open("wb") as out:
        out.write(PCAP)
        for packet in packets:
            data, wire = link_bytes(packet, LINKS["ethernet"])
            out.write(struct.pack("<IIII", *divmod(packet.time_ns, 1_000_000_000), len(data), wire))
            out.write(data)


def _pieces(packet: Packet, segment: int) -> Iterator[Packet]:
    payload = packet.payload
    if len(payload) <= segment or packet.cut:
        yield packet
        return
    for number, start in enumerate(range(0, len(payload), segment)):
        last = start + segment >= len(payload)
        yield packet.but(
            seq=(packet.seq + start) % 2**32,
            flags=packet.flags if last else packet.flags & ~(FIN | PSH),
            ident=(packet.ident + number) & 0xFFFF,
            payload=payload[start : start + segment],
        )
