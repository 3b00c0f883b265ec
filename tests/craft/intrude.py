"""Packets that do not belong: forged, stale or contradicting ones. They are ignored (with a problem); messages stay."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.craft.disturb import BARRIER, new_ident
from tests.craft.packet import ACK, FIN, RST, SEQUENCE, Packet

FAR = 1 << 30
"""Bytes away from the true sequence number: no window reaches that far (RFC 7323 allows 2³⁰ - 1)."""


def _inserted(packets: Sequence[Packet], rng: Random, share: float, **changes: object) -> list[Packet]:
    """After some packets with data, another one from the same side with `changes`, its sequence number far off."""
    result: list[Packet] = []
    for packet in packets:
        result.append(packet)
        if packet.payload and not packet.flags & BARRIER and rng.random() < share:
            seq = packet.end + rng.choice((-FAR, FAR)) + rng.randrange(1000)
            result.append(packet.but(seq=seq % SEQUENCE, ident=new_ident(packet, rng), **changes))
    return result


def forged_resets(packets: Sequence[Packet], rng: Random, share: float = 0.2) -> list[Packet]:
    """RST with a sequence number outside the window (RFC 5961, 3.2)."""
    return _inserted(packets, rng, share, flags=RST, payload=b"")


def forged_ends(packets: Sequence[Packet], rng: Random, share: float = 0.2) -> list[Packet]:
    """FIN with a sequence number outside the window."""
    return _inserted(packets, rng, share, flags=FIN | ACK, payload=b"")


def out_of_window(packets: Sequence[Packet], rng: Random, share: float = 0.2) -> list[Packet]:
    return _inserted(packets, rng, share, payload=b"\x00\x00\x00\x20" + b"stray data of some old connection"[:32])


def conflicting(packets: Sequence[Packet], rng: Random, share: float = 0.2) -> list[Packet]:
    """Retransmissions with other bytes: the first arrival wins."""
    result: list[Packet] = []
    for packet in packets:
        result.append(packet)
        if packet.payload and not packet.flags & BARRIER and rng.random() < share:
            other = bytes(byte ^ 0x5A for byte in packet.payload)
            result.append(packet.but(payload=other, ident=new_ident(packet, rng)))
    return result
