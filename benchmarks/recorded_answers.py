"""A recording without the exchanges that librdkafka's mock cluster answers wrongly: see `mock_cluster`.

Of each connection the first exchange goes where it is ApiVersions in a version that the mock cluster refuses. The
client asks again in version 0, so that the rest stands for itself; sequence numbers close up.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from tests.craft.packet import ACK, SEQUENCE, SYN, Packet, Stream, ahead

API_VERSIONS: Final = 18
UNSUPPORTED_VERSION: Final = 35


@dataclasses.dataclass
class _Cut:
    """What goes of one stream: the payload of one packet."""

    place: int
    seq: int
    size: int

    def shift(self, sequence: int) -> int:
        """A sequence number of this stream when it is gone."""
        return (sequence - min(self.size, max(0, ahead(sequence, self.seq)))) % SEQUENCE


def without_refusals(packets: Sequence[Packet]) -> list[Packet]:
    """The packets without those of refused exchanges; for connections that are there once, from their SYN on."""
    cuts = _refused(packets)
    gone = {cut.place for cut in cuts.values()}
    kept = []
    for place, packet in enumerate(packets):
        if place in gone:
            continue
        src, sport, dst, dport = packet.stream
        own, peer = cuts.get(packet.stream), cuts.get((dst, dport, src, sport))
        if own is not None and peer is not None:
            ack = peer.shift(packet.ack) if packet.flags & ACK else packet.ack
            kept.append(packet.but(seq=own.shift(packet.seq), ack=ack))
        else:
            kept.append(packet)
    return kept


def _refused(packets: Iterable[Packet]) -> dict[Stream, _Cut]:
    """The first payload of both streams of each connection that begins with a refusal."""
    first: dict[Stream, tuple[int, Packet]] = {}
    for place, packet in enumerate(packets):
        if packet.payload and not packet.flags & SYN:
            first.setdefault(packet.stream, (place, packet))
    found = {}
    for stream, (place, request) in first.items():
        src, sport, dst, dport = stream
        answer = first.get((dst, dport, src, sport))
        if answer is not None and place < answer[0] and _is_refusal(request.payload, answer[1].payload):
            found[stream] = _Cut(place, request.seq, len(request.payload))
            found[answer[1].stream] = _Cut(answer[0], answer[1].seq, len(answer[1].payload))
    return found


def _is_refusal(request: bytes, answer: bytes) -> bool:
    """Whether these are one whole frame each, ApiVersions and error 35."""
    for message in (request, answer):
        if len(message) < 10 or struct.unpack_from(">i", message)[0] != len(message) - 4:
            return False
    if struct.unpack_from(">h", request, 4)[0] != API_VERSIONS or request[8:12] != answer[4:8]:
        return False
    return bool(struct.unpack_from(">h", answer, 8)[0] == UNSUPPORTED_VERSION)
