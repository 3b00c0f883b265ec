"""Material for seeds: packets, streams and messages of the shipped captures, and the vectors of Kafka's classes."""

from __future__ import annotations

import functools
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tests.craft.packet import FIN, RST, SYN, Packet
from tests.craft.read import read_packets
from tests.vectors.reader import Vector, vectors

_Item = TypeVar("_Item")

CAPTURES: Final = Path(__file__).resolve().parents[2] / "captures"


class Said(NamedTuple):
    """Bytes that one side of a connection sent at once."""

    from_client: bool
    data: bytes


@functools.cache
def capture_files() -> tuple[Path, ...]:
    found = sorted(path for path in CAPTURES.iterdir() if path.suffix in (".pcap", ".pcapng"))
    assert found
    return tuple(found)


@functools.cache
def conversations(per_capture: int = 4, longest: int = 12_000) -> tuple[tuple[Said, ...], ...]:
    """Connections of every capture with their data in order: the first bytes of each, without retransmissions."""
    found: list[tuple[Said, ...]] = []
    for path in capture_files():
        talks: dict[object, list[Packet]] = defaultdict(list)
        for packet in read_packets(path):
            talks[packet.connection].append(packet)
        for packets in list(talks.values())[:per_capture]:
            said = _said(packets, longest)
            if said:
                found.append(said)
    return tuple(found)


def _said(packets: list[Packet], longest: int) -> tuple[Said, ...]:
    syn = next((packet for packet in packets if packet.flags & SYN), None)
    client = syn.stream if syn is not None else min(packets, key=lambda packet: -packet.sport).stream
    sent: dict[object, int] = {}
    said: list[Said] = []
    for packet in packets:
        if packet.payload and not packet.flags & (SYN | FIN | RST) and sent.get(packet.stream, -1) < packet.seq:
            sent[packet.stream] = packet.seq
            said.append(Said(packet.stream == client, packet.payload[: max(longest, 0)]))
            longest -= len(packet.payload)
            if longest <= 0:
                break
    return tuple(said)


def vectors_of(*kinds: str, longest: int = 4096) -> list[Vector]:
    """Vectors of these kinds that are short enough to be changed often."""
    return [vector for vector in vectors() if vector.kind in kinds and len(vector.data) <= longest]


def spread(items: list[_Item], count: int) -> list[_Item]:
    """At most `count` items, evenly spread."""
    return items[:: max(1, -(-len(items) // count))]
