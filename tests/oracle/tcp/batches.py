"""Packet batches made by hand, without a capture file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkasniff.packets import COLUMNS, PacketBatch

MAPPED = 0xFFFF << 32


class Raw(NamedTuple):
    """One TCP packet; `sender` 0 is 10.0.0.1:1000 (+ conversation), 1 is 10.0.0.2:9092."""

    sender: int
    seq: int
    payload: bytes = b""
    flags: int = 0x10
    ack: int = 0
    time_ns: int = 0
    ident: int = 0
    wire: int | None = None
    conversation: int = 0


def batch(packets: list[Raw], start: int = 0) -> PacketBatch:
    """Packets as one batch whose first has order `start`."""
    columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
    buffer = bytearray()
    for index, packet in enumerate(packets):
        ends = (0x0A000001 | MAPPED, 1000 + packet.conversation), (0x0A000002 | MAPPED, 9092)
        source, target = ends if packet.sender == 0 else ends[::-1]
        row = {
            "order": start + index,
            "capture": 0,
            "number": start + index + 1,
            "time_ns": packet.time_ns or (start + index + 1) * 1000,
            "src_hi": 0,
            "src_lo": source[0],
            "dst_hi": 0,
            "dst_lo": target[0],
            "src_port": source[1],
            "dst_port": target[1],
            "seq": packet.seq & 0xFFFFFFFF,
            "ack": packet.ack & 0xFFFFFFFF,
            "flags": packet.flags,
            "window": 65535,
            "offset": len(buffer),
            "length": len(packet.payload),
            "wire_length": len(packet.payload) if packet.wire is None else packet.wire,
            "ident": packet.ident or start + index + 1,
        }
        buffer += packet.payload
        for name, value in row.items():
            columns[name].append(value)
    arrays = {name: np.array(columns[name], dtype=dtype) for name, dtype in COLUMNS.items()}
    return PacketBatch(arrays, bytes(buffer), captures=("made",), end_order=start + len(packets), packets=len(packets))
