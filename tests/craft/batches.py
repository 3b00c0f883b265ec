"""Packets as a `PacketBatch`, without a file in between: what a reader would make of them."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from kafkasniff.packets import COLUMNS, PacketBatch
from tests.craft.packet import Packet, packed


@functools.cache
def _halves(address: str) -> tuple[int, int]:
    data = packed(address)
    value = int.from_bytes(data) | (0xFFFF << 32 if len(data) == 4 else 0)
    return value >> 64, value & 0xFFFF_FFFF_FFFF_FFFF


def _ident(packet: Packet) -> int:
    """The identification and, in place of the TCP checksum, another one of the same fields: equal for equal packets."""
    fields = f"{packet.stream}{packet.seq} {packet.ack} {packet.flags} {packet.window}".encode()
    return (packet.ident & 0xFFFF) << 16 | zlib.crc32(packet.payload, zlib.crc32(fields)) & 0xFFFF


def uneven(count: int) -> Iterator[int]:
    """Where to cut this many packets into batches of 1, 2, 3 and 5 in turn: the cost of a batch arises a third as
    often as with one for each packet."""
    ends = itertools.accumulate(itertools.cycle((1, 2, 3, 5)))
    return itertools.takewhile(lambda end: end < count, ends)


def batch(packets: Sequence[Packet], orders: Sequence[int] | None = None) -> PacketBatch:
    """One batch of all packets; `orders`: their places in the capture, for a selection of its packets."""
    places = list(range(len(packets))) if orders is None else list(orders)
    ends = [(_halves(packet.src), _halves(packet.dst)) for packet in packets]
    lengths = [len(packet.payload) for packet in packets]
    same = {name: name for name in ("time_ns", "seq", "ack", "flags", "window")}
    same |= {"src_port": "sport", "dst_port": "dport"}
    halves = [(at, end, half) for at, end in enumerate(("src", "dst")) for half in ("hi", "lo")]
    rows: dict[str, list[int]] = {
        "order": places,
        "capture": [0] * len(places),
        "number": [place + 1 for place in places],
        **{column: [getattr(packet, name) for packet in packets] for column, name in same.items()},
        **{f"{end}_{half}": [both[at][half == "lo"] for both in ends] for at, end, half in halves},
        "offset": list(itertools.accumulate(lengths, initial=0))[:-1],
        "length": lengths,
        "wire_length": [len(packet.payload) + packet.cut for packet in packets],
        "ident": [_ident(packet) for packet in packets],
    }
    return PacketBatch(
        {name: np.array(rows[name], dtype=dtype) for name, dtype in COLUMNS.items()},
        b"".join(packet.payload for packet in packets),
        captures=("crafted",),
        end_order=places[-1] + 1 if places else 0,
        packets=len(packets),
    )
