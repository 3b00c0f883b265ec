"""Reassembly the plain way, byte by byte: too slow and too simple for anything but the expected values of tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.craft.packet import SYN, Packet, Stream, ahead


def stream_bytes(packets: Sequence[Packet]) -> dict[Stream, bytes]:
    """The bytes of each stream, put together the plain way: by position, the first arrival wins, far ones ignored."""
    starts: dict[Stream, int] = {}
    found: dict[Stream, dict[int, int]] = defaultdict(dict)
    for packet in packets:
        first = (packet.seq + bool(packet.flags & SYN)) % 2**32
        position = ahead(first, starts.setdefault(packet.stream, first))
        if packet.payload and abs(position) < 1 << 29:
            for index, byte in enumerate(packet.payload, position):
                if index >= 0:
                    found[packet.stream].setdefault(index, byte)
    result = {}
    for stream, content in found.items():
        places = sorted(content)
        result[stream] = bytes(content[place] for place in places)
        if places[-1] - places[0] + 1 != len(places):
            result[stream] += b" with holes"
    return result
