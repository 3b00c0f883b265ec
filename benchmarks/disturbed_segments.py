"""Form Bx: a capture in which some segments are out of order, duplicated, or delayed. No byte is lost.

Nothing moves past the peer's next data, so no acknowledgement or response precedes its data or request:
that is what a capture beside the receiver shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

from tests.craft.disturb import BARRIER, new_ident
from tests.craft.packet import Packet, Stream, retimed

SHARE: Final = 0.015
"""Share of the segments with data."""

FORMS: Final = ("reordered", "duplicated", "delayed")
REORDERED: Final = 2
"""Segments of its stream that may overtake a reordered segment."""
DELAYED: Final = 30
"""The same for a delayed segment: more than a receiver waits for before it requests a retransmission."""


def disturbed(packets: Sequence[Packet], rng: Random, share: float = SHARE) -> tuple[list[Packet], Counter[str]]:
    """The packets, `share` of the segments with data disturbed, and how many in which form.

    A segment that nothing of its stream follows before the peer sends comes twice, whatever was meant for it.
    """
    behind = _followers(packets)
    # New positions: a moved packet follows the packet at its new place; moved packets keep their order.
    order: list[tuple[int, int, Packet]] = []
    counts: Counter[str] = Counter()
    for place, packet in enumerate(packets):
        moved = place
        if packet.payload and not packet.flags & BARRIER and not packet.cut and rng.random() < share:
            form = rng.choice(FORMS)
            after = behind[place]
            if not after:
                form = "duplicated"
            counts[form] += 1
            if form == "duplicated":
                again = packet.but(ident=new_ident(packet, rng))
                order.append((rng.choice([place, *after[:DELAYED]]), place, again))
            elif form == "reordered":
                moved = after[min(len(after), rng.randint(1, REORDERED)) - 1]
            else:
                moved = after[min(len(after), rng.randint(REORDERED + 1, DELAYED)) - 1]
        order.append((moved, place if moved != place else -1, packet))
    # -1: a packet that stays comes before those that were moved to its place.
    order.sort(key=lambda entry: entry[:2])
    return retimed(packet for _, _, packet in order), counts


def _followers(packets: Sequence[Packet]) -> list[Sequence[int]]:
    """For each place, those of the next data segments of its stream, up to DELAYED, before the peer sends anything."""
    found: list[Sequence[int]] = [()] * len(packets)
    following: dict[Stream, list[int]] = {}
    for place in range(len(packets) - 1, -1, -1):
        packet = packets[place]
        src, sport, dst, dport = packet.stream
        following.pop((dst, dport, src, sport), None)
        if packet.flags & BARRIER:
            following.pop(packet.stream, None)
        elif packet.payload:
            after = following.get(packet.stream, [])
            found[place] = after
            following[packet.stream] = [place, *after[: DELAYED - 1]]
    return found
