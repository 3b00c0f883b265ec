"""Link layers, IP, tunnels, fragments: the same rows in any batches. The first byte of an input selects the link type;
a packet is an int16 of captured bytes, a byte of those cut off, and the bytes."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from scapy.layers.inet import fragment
from scapy.layers.inet6 import fragment6

from kafkasniff.capture.formats.pcap import UNDESCRIBED_LINK, Interface, RawPackets
from kafkasniff.capture.link.decode import PacketDecoder
from kafkasniff.capture.link.layers import LINKS
from tests.capture.link.test_decode import datagram, whole6
from tests.capture.link.test_layers import CASES
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
"""Link types; 147 is unassigned."""
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


def one_input(data: bytes) -> None:
    intake = Intake(data)
    link = _KINDS[intake.number() % len(_KINDS)]

    def decoder() -> PacketDecoder:
        return PacketDecoder(("made",), lambda capture, index: Interface(link, index))

    raw = _packets(intake, link)
    count = len(raw.start)
    whole = decoder()
    batch = whole.decode(raw, 0, [])
    assert batch.packets == count
    end = batch.offset + batch.length
    # Reassembled datagrams follow the packets.
    as_captured = end <= len(raw.buffer)
    assert whole.fragment_rows or as_captured.all()
    rows = batch.order[as_captured]
    assert (batch.offset[as_captured] >= raw.start[rows]).all()
    assert (end[as_captured] <= raw.start[rows] + raw.captured[rows]).all()
    ended = (whole.finish(0), whole.close())

    parts = decoder()
    # One packet at a time if that is fast.
    step = 1 if count <= FEW else 1 + count // (2 + count % 3)
    batches = [parts.decode(raw.slice(at, min(at + step, count)), at, []) for at in range(0, count, step)]
    assert together(batches) == together([batch]), "a different result in other batches"
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
