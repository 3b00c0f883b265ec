"""Link layers, IP, tunnels and fragments: packets of any link type in a row.

The first byte of an input chooses the link type; then packets follow, each an int16 of captured bytes, a byte of those
that were cut off, and the packet. One batch of all and one batch for each give the same rows, and what is delivered of
a packet lies within it.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from scapy.all import fragment, fragment6

from kafkasniff.capture.decode import PacketDecoder
from kafkasniff.capture.links import LINKS
from kafkasniff.capture.raw import UNDESCRIBED_LINK, Interface, RawPackets
from tests.capture.test_fragments import datagram, whole6
from tests.capture.test_links import CASES
from tests.craft.read import raw_packets
from tests.fuzz.captures import together
from tests.fuzz.corpus import capture_files
from tests.fuzz.intake import Intake

MAX_LENGTH = 3000
MEGABYTES = 128
WORDS = tuple(
    bytes.fromhex(text)
    for text in (
        *("0800", "86dd", "8100", "88a8", "8847", "8864", "6558", "88be", "22eb", "aaaa03000000"),
        *("45000028", "60000000", "12b5", "17c1", "2118", "c204", "2c", "2f", "33", "06", "11", "29", "04"),
    )
)

_KINDS: Final = (*sorted(LINKS), 147, UNDESCRIBED_LINK)
"""Link types; 147 is nobody's."""
MOST_PACKETS: Final = 20
FEW: Final = 5
"""Packets that are decoded one by one; each batch costs as much as many packets."""
_SECOND: Final = 1_000_000_000


def _packets(intake: Intake, link: int) -> RawPackets:
    buffer = bytearray()
    rows: list[tuple[int, int, int]] = []
    while len(intake) and len(rows) < MOST_PACKETS:
        size, cut = intake.number(2), intake.number()
        packet = intake.take(size)
        rows.append((len(buffer), len(packet), len(packet) + cut))
        buffer += packet
    start, captured, wire = np.array(rows or np.empty((0, 3)), np.int64).T
    times = _SECOND * np.arange(len(rows), dtype=np.int64)
    return RawPackets.build(bytes(buffer), start, captured, wire, times, link=link, capture=0, first_number=1)


def _decoder(link: int) -> PacketDecoder:
    return PacketDecoder(("made",), lambda capture, index: Interface(link, index))


def one_input(data: bytes) -> None:
    intake = Intake(data)
    link = _KINDS[intake.number() % len(_KINDS)]
    raw = _packets(intake, link)
    count = len(raw.start)
    decoder = _decoder(link)
    batch = decoder.decode(raw, 0, [])
    assert batch.packets == count
    if not decoder.fragment_rows:
        first = raw.start[batch.order]
        assert (batch.offset >= first).all()
        assert (batch.offset + batch.length <= first + raw.captured[batch.order]).all()
    ended = (decoder.finish(0), decoder.close())

    parts = _decoder(link)
    # A packet at a time where that is soon done.
    step = 1 if count <= FEW else 1 + count // 3
    batches = [parts.decode(raw.slice(at, min(at + step, count)), at, []) for at in range(0, count, step)]
    assert together(batches) == together([batch]), "another result in other batches"
    assert (parts.finish(0), parts.close()) == ended


def _seed(link: int, packets: list[bytes]) -> bytes:
    framed = b"".join(struct.pack(">HB", len(packet), 0) + packet for packet in packets)
    return bytes((_KINDS.index(link),)) + framed


def seeds() -> list[bytes]:
    found = [_seed(link, [bytes(packet)[:300]] * 2) for link, packet in CASES.values() if link in _KINDS]
    found.append(_seed(101, [bytes(part) for part in fragment(datagram(), fragsize=400)]))
    found.append(_seed(101, [bytes(part) for part in fragment6(whole6(), 600)]))
    for path in capture_files()[::8]:
        packets = [(link, data) for _, link, data, _ in list(raw_packets(path.read_bytes()))[:8]]
        if packets[0][0] in _KINDS:
            found.append(_seed(packets[0][0], [data[:200] for _, data in packets]))
    return found
