"""Disturbances that lose bytes. The rest may yield fewer messages, but never one that was not sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random

from tests.craft.packet import ACK, SYN, Packet, ahead, carriers

Packets = Sequence[Packet]


def clients(packets: Packets) -> dict[object, tuple[str, int]]:
    """The client's end of each connection: who sent the SYN, else the higher port."""
    found: dict[object, tuple[str, int]] = {}
    for packet in packets:
        if packet.flags & SYN and not packet.flags & ACK:
            found[packet.connection] = (packet.src, packet.sport)
        elif packet.connection not in found:
            found[packet.connection] = max(packet.connection, key=lambda end: end[1])
    return found


def _one_side(packets: Packets, *, client: bool) -> list[Packet]:
    ends = clients(packets)
    return [packet for packet in packets if ((packet.src, packet.sport) == ends[packet.connection]) == client]


def requests_only(packets: Packets, rng: Random) -> list[Packet]:
    """Only what the clients sent was captured."""
    del rng
    return _one_side(packets, client=True)


def responses_only(packets: Packets, rng: Random) -> list[Packet]:
    """Only what the brokers sent was captured."""
    del rng
    return _one_side(packets, client=False)


def cut(packets: Packets, rng: Random) -> list[Packet]:
    return list(packets[: rng.randrange(len(packets) // 4, max(1, len(packets)))])


def late(packets: Packets, rng: Random) -> list[Packet]:
    """The capture begins somewhere: connections have lost their first packets, at any byte."""
    return list(packets[rng.randrange(1, max(2, 3 * len(packets) // 4)) :])


def late_at_request(packets: Packets, rng: Random) -> list[Packet]:
    """Each connection is captured from the beginning of one of its requests on."""
    ends = clients(packets)
    starts = _frame_starts(packets, ends)
    kept_from: dict[object, int] = {}
    for connection, indices in starts.items():
        kept_from[connection] = rng.choice(indices)
    return [packet for index, packet in enumerate(packets) if index >= kept_from.get(packet.connection, 0)]


def _frame_starts(packets: Packets, ends: dict[object, tuple[str, int]]) -> dict[object, list[int]]:
    """Indices of the packets that begin with a request. Streams have to be in order."""
    starts: dict[object, list[int]] = defaultdict(list)
    held: dict[object, bytes] = defaultdict(bytes)
    skip: dict[object, int] = defaultdict(int)
    for index, packet in enumerate(packets):
        key = packet.connection
        if packet.flags & SYN:
            held[key], skip[key] = b"", 0
        if not packet.payload or (packet.src, packet.sport) != ends[key]:
            continue
        if not held[key] and not skip[key]:
            starts[key].append(index)
        data = held[key] + packet.payload
        while data:
            if skip[key] >= len(data):
                skip[key] -= len(data)
                data = b""
                break
            data, skip[key] = data[skip[key] :], 0
            if len(data) < 4:
                break
            skip[key] = 4 + int.from_bytes(data[:4])
        held[key] = data
    return starts


def lossy(packets: Packets, rng: Random, share: float = 0.05) -> list[Packet]:
    """The capture missed packets of any kind; the peers did not, and acknowledge them."""
    return [packet for packet in packets if rng.random() >= share]


def lossy_in_runs(packets: Packets, rng: Random) -> list[Packet]:
    """The capture missed packets one after the other, as a full buffer makes it."""
    result: list[Packet] = []
    skip = 0
    for packet in packets:
        if skip:
            skip -= 1
        elif rng.random() < 0.03:
            skip = rng.randrange(1, 12)
        else:
            result.append(packet)
    return result


def unacknowledged(packets: Packets, rng: Random) -> list[Packet]:
    """One segment of each stream never arrived: the peer acknowledges nothing after it, but more is sent."""
    holes = {stream: rng.choice(candidates) for stream, candidates in carriers(packets).items()}
    result: list[Packet] = []
    for packet in packets:
        if holes.get(packet.stream) is packet:
            continue
        src, sport, dst, dport = packet.stream
        hole = holes.get((dst, dport, src, sport))
        if hole is not None and packet.flags & ACK and ahead(packet.ack, hole.seq) > 0:
            packet = packet.but(ack=hole.seq)  # noqa: PLW2901
        result.append(packet)
    return result


def snapped(packets: Packets, rng: Random) -> list[Packet]:
    limit = rng.choice((40, 100, 300))
    return [
        packet.but(payload=packet.payload[:limit], cut=packet.cut + len(packet.payload) - limit)
        if len(packet.payload) > limit
        else packet
        for packet in packets
    ]


def composed(*steps: Callable[[Packets, Random], list[Packet]]) -> Callable[[Packets, Random], list[Packet]]:
    def together(packets: Packets, rng: Random) -> list[Packet]:
        for step in steps:
            packets = step(packets, rng)
        return list(packets)

    return together
