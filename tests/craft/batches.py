"""Packets as a `PacketBatch`, without a file in between: what a reader would make of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from kafkasniff.packets import COLUMNS, PacketBatch
from tests.craft.packet import Packet, ip_bytes, packed


@functools.cache
def _halves(address: str) -> tuple[int, int]:
    data = packed(address)
    value = int.from_bytes(data) | (0xFFFF << 32 if len(data) == 4 else 0)
    return value >> 64, value & 0xFFFF_FFFF_FFFF_FFFF


def batch(packets: Sequence[Packet], orders: Sequence[int] | None = None) -> PacketBatch:
    """One batch of all packets; `orders`: their places in the capture, for a selection of its packets."""
    places = list(range(len(packets))) if orders is None else list(orders)
    rows: dict[str, list[int]] = {name: [] for name in COLUMNS}
    position = 0
    for place, packet in zip(places, packets, strict=True):
        (src_hi, src_lo), (dst_hi, dst_lo) = _halves(packet.src), _halves(packet.dst)
        datagram = ip_bytes(packet)
        tcp_checksum = int.from_bytes(datagram[56:58] if packet.is_ipv6 else datagram[36:38])
        values = (
            place, 0, place + 1, packet.time_ns, src_hi, src_lo, dst_hi, dst_lo, packet.sport, packet.dport, packet.seq,
            packet.ack, packet.flags, packet.window, position, len(packet.payload), len(packet.payload) + packet.cut,
            (packet.ident & 0xFFFF) << 16 | tcp_checksum,
        )  # fmt: skip
        for column, value in zip(rows.values(), values, strict=True):
            column.append(value)
        position += len(packet.payload)
    return PacketBatch(
        {name: np.array(rows[name], dtype=dtype) for name, dtype in COLUMNS.items()},
        b"".join(packet.payload for packet in packets),
        captures=("crafted",),
        end_order=places[-1] + 1 if places else 0,
        packets=len(packets),
    )
