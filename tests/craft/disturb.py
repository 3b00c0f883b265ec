"""Disturbances that lose no byte: what the network and the capturing do to packets. The messages stay the same. Each
takes packets in capture order and a seeded `random.Random`, and returns new packets in capture order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from tests.craft.packet import ACK, FIN, PSH, RST, SEQUENCE, SYN, Packet, Stream, ahead, carriers, retimed

Packets = Sequence[Packet]

BARRIER = SYN | FIN | RST
"""Packets with these flags keep their place: what moves across them would belong to another connection."""

REACH_NS = 100_000_000
"""How much later a packet may arrive than in its turn: what comes after that is a retransmission."""

MAX_MERGED = 60_000
"""Payload bytes of a merged segment: IPv4 has room for 65,535 bytes in all."""


def new_ident(packet: Packet, rng: Random) -> int:
    """Another IP identification, as a retransmission has."""
    return (packet.ident + rng.randrange(1, 0xFFFF)) & 0xFFFF


def _permuted(packets: Packets, slots: Sequence[int], reach: int, rng: Random, result: list[Packet]) -> None:
    """Spread the packets at `slots` over the same slots, none further than `reach` slots from its own."""
    order = sorted(range(len(slots)), key=lambda place: place + rng.random() * reach)
    for slot, place in zip(slots, order, strict=True):
        result[slot] = packets[slots[place]]


def reordered(packets: Packets, rng: Random, reach: int = 4) -> list[Packet]:
    """Segments overtake each other within their stream, but not what the peer has sent in answer to them."""
    result = list(packets)
    bursts: dict[Stream, list[int]] = defaultdict(list)
    for index, packet in enumerate(packets):
        src, sport, dst, dport = packet.stream
        answered, own = bursts[dst, dport, src, sport], bursts[packet.stream]
        if packet.flags & BARRIER or packet.payload:
            _permuted(packets, answered, reach, rng, result)
            answered.clear()
        if packet.flags & BARRIER or (own and packet.time_ns - packets[own[0]].time_ns > REACH_NS):
            _permuted(packets, own, reach, rng, result)
            own.clear()
        if packet.payload and not packet.flags & BARRIER:
            own.append(index)
    for slots in bursts.values():
        _permuted(packets, slots, reach, rng, result)
    return retimed(result)


def skewed(packets: Packets, rng: Random, reach: int = 3) -> list[Packet]:
    """Packets of a connection overtake each other whatever their direction: acknowledgements stand before the data
    that they acknowledge, responses before their requests. Two taps that are not in step make such captures."""
    result = list(packets)
    slots: dict[object, list[int]] = defaultdict(list)
    for index, packet in enumerate(packets):
        own = slots[packet.connection]
        if packet.flags & BARRIER or (own and packet.time_ns - packets[own[0]].time_ns > REACH_NS):
            _permuted(packets, own, reach, rng, result)
            own.clear()
        if not packet.flags & BARRIER:
            own.append(index)
    for rest in slots.values():
        _permuted(packets, rest, reach, rng, result)
    return retimed(result)


def duplicated(packets: Packets, rng: Random, share: float = 0.5) -> list[Packet]:
    """The same packet twice in the capture, as with the interface `any` or two taps."""
    result: list[Packet] = []
    for packet in packets:
        result.append(packet)
        if rng.random() < share:
            result.append(packet)
    return result


def retransmitted(packets: Packets, rng: Random, share: float = 0.2, distance: int = 6) -> list[Packet]:
    """Data sent again up to `distance` packets of the connection later, whole, in part, or two segments as one."""
    waiting: dict[object, list[tuple[int, Packet]]] = defaultdict(list)
    before: dict[object, Packet] = {}
    result: list[Packet] = []
    for packet in packets:
        mine = waiting[packet.connection]
        if packet.flags & BARRIER:
            # A new connection with the same ends must not get bytes of the old one.
            result += [again for _, again in mine]
            mine.clear()
            before.pop(packet.stream, None)
        result.append(packet)
        result += [again for left, again in mine if left == 0]
        mine[:] = [(left - 1, again) for left, again in mine if left > 0]
        if not packet.payload or packet.flags & BARRIER:
            continue
        if rng.random() < share:
            again = packet.but(ident=new_ident(packet, rng))
            form = rng.choice(["whole", "front", "back", "joined"])
            middle = rng.randrange(len(packet.payload))
            previous = before.get(packet.stream)
            if form == "front":
                again = again.but(payload=packet.payload[: middle + 1])
            elif form == "back":
                again = again.but(seq=(packet.seq + middle) % SEQUENCE, payload=packet.payload[middle:])
            elif form == "joined" and previous is not None and previous.end == packet.seq:
                both = previous.payload + packet.payload
                if len(both) <= MAX_MERGED:
                    again = again.but(seq=previous.seq, payload=both)
            mine.append((rng.randrange(distance), again))
        before[packet.stream] = packet
    for mine in waiting.values():
        result += [again for _, again in mine]
    return retimed(result)


def resegmented(
    packets: Packets, rng: Random, sizes: Sequence[int] = (1, 2, 3, 5, 8, 100, 700), budget: int = 4_000
) -> list[Packet]:
    """Data in segments of `sizes`, chosen at random; at most `budget` packets more, then segments of 1,448 bytes."""
    result: list[Packet] = []
    extra = 0
    for packet in packets:
        if packet.cut or len(packet.payload) <= 1:
            result.append(packet)
            continue
        position = 0
        while position < len(packet.payload):
            size = rng.choice(sizes) if extra < budget else 1448
            piece = packet.payload[position : position + size]
            flags = packet.flags
            if position:
                flags &= ~SYN
            if position + len(piece) < len(packet.payload):
                flags &= ~(FIN | PSH)
            # A SYN takes the number in front of the first byte.
            seq = packet.seq + position + (1 if position and packet.flags & SYN else 0)
            result.append(
                packet.but(seq=seq % SEQUENCE, flags=flags, payload=piece, ident=(packet.ident + extra) & 0xFFFF)
            )
            position += len(piece)
            extra += 1
    return result


def single_bytes(packets: Packets, rng: Random, budget: int = 6_000) -> list[Packet]:
    return resegmented(packets, rng, (1,), budget)


def merged(packets: Packets, rng: Random) -> list[Packet]:
    """Segments of a stream joined until the peer sends data, as offload does in the receiving card."""
    del rng
    result: list[Packet | None] = []
    last: dict[Stream, int] = {}
    for packet in packets:
        src, sport, dst, dport = packet.stream
        if packet.flags & BARRIER or packet.cut:
            last.pop(packet.stream, None)
            last.pop((dst, dport, src, sport), None)
        elif packet.payload:
            last.pop((dst, dport, src, sport), None)
            at = last.get(packet.stream)
            previous = None if at is None else result[at]
            follows = previous is not None and previous.end == packet.seq
            if follows and len(previous.payload) + len(packet.payload) <= MAX_MERGED:
                result[at] = None
                packet = packet.but(seq=previous.seq, payload=previous.payload + packet.payload)  # noqa: PLW2901
            last[packet.stream] = len(result)
        result.append(packet)
    return [packet for packet in result if packet is not None]


def overlapped(packets: Packets, rng: Random, share: float = 0.4) -> list[Packet]:
    """Segments that begin with bytes that were sent already, up to all of the one before."""
    result: list[Packet] = []
    before: dict[Stream, Packet] = {}
    for packet in packets:
        previous = before.get(packet.stream)
        changed = packet
        if packet.payload and not packet.flags & SYN and previous is not None and previous.end == packet.seq:
            back = rng.randint(1, len(previous.payload))
            if rng.random() < share and len(packet.payload) + back <= MAX_MERGED:
                changed = packet.but(
                    seq=(packet.seq - back) % SEQUENCE, payload=previous.payload[-back:] + packet.payload
                )
        if packet.flags & BARRIER:
            before.pop(packet.stream, None)
        elif packet.payload and not packet.cut:
            before[packet.stream] = packet
        result.append(changed)
    return result


def wrapped(packets: Packets, rng: Random) -> list[Packet]:
    """Other initial sequence numbers: in each stream they pass 2³² inside the payload of some segment."""
    shifts: dict[Stream, int] = {}
    for stream, candidates in carriers(packets).items():
        chosen = rng.choice(candidates)
        shifts[stream] = -(chosen.seq + rng.randint(0, len(chosen.payload) - 1)) % SEQUENCE
    return _shifted(packets, shifts)


def _shifted(packets: Packets, shifts: dict[Stream, int]) -> list[Packet]:
    result = []
    for packet in packets:
        src, sport, dst, dport = packet.stream
        seq = (packet.seq + shifts.get(packet.stream, 0)) % SEQUENCE
        peer = shifts.get((dst, dport, src, sport), 0)
        result.append(packet.but(seq=seq, ack=(packet.ack + peer) % SEQUENCE if packet.flags & ACK else packet.ack))
    return result


def kept_alive(packets: Packets, rng: Random, share: float = 0.2) -> list[Packet]:
    """Keep-alives with and without a byte of garbage, and zero-window probes with the first byte of what comes next."""
    result: list[Packet] = []
    following: dict[Stream, int] = {}
    for packet in packets:
        src, sport, dst, dport = packet.stream
        peer_stream = (dst, dport, src, sport)
        known = following.get(packet.stream) == packet.seq and peer_stream in following and packet.flags & ACK
        if known and not packet.flags & BARRIER and rng.random() < share:
            numbers = following[peer_stream], packet.seq, ACK
            answer = Packet(packet.time_ns, *peer_stream, *numbers, ident=rng.randrange(65536))
            probe = packet.but(flags=ACK, payload=b"", ident=new_ident(packet, rng))
            kind = rng.choice(["bare", "garbage", "window"])
            if kind == "window" and packet.payload:
                # The receiver has no room: the byte is on the wire, but not accepted, and is retransmitted.
                result += [answer.but(window=0), probe.but(payload=packet.payload[:1]), answer.but(window=0), answer]
            else:
                garbage = b"\xee" if kind == "garbage" else b""
                result += [probe.but(seq=(packet.seq - 1) % SEQUENCE, payload=garbage), answer]
        result.append(packet)
        if packet.flags & (RST | FIN):
            following.pop(packet.stream, None)
        elif packet.stream not in following or packet.flags & SYN or ahead(packet.end, following[packet.stream]) > 0:
            following[packet.stream] = packet.end
    return result


def reused(packets: Packets, rng: Random) -> list[Packet]:
    """The capture, and a minute later all its connections again: same endpoints, other sequence numbers.

    For captures whose connections begin with a SYN; otherwise, nothing shows that the second is another connection.
    """
    shifts = {packet.stream: rng.randrange(SEQUENCE) for packet in packets}
    later = packets[-1].time_ns - packets[0].time_ns + 60_000_000_000
    return [*packets, *(packet.but(time_ns=packet.time_ns + later) for packet in _shifted(packets, shifts))]


def without_handshake(packets: Packets, rng: Random) -> list[Packet]:
    """The capture began right after the connections were made."""
    del rng
    return [packet for packet in packets if not packet.flags & SYN]
