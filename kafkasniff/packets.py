"""Packets as columns over one buffer, passed from capture to the engine, and the endpoints of connections.

Endpoints are keys, indices of dicts, or hashes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.model import NO_TIME, BrokerTimes, Problem

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
PSH: Final = 0x08
ACK: Final = 0x10


PACKET_BYTES: Final = 128
"""Bytes that a packet takes besides its payload, about."""


class Note(msgspec.Struct, frozen=True):
    """Something in a capture that is not a TCP packet, with its place in capture order."""

    order: int
    """It precedes the first packet whose `order` is not lower."""
    value: Problem | tuple[str, str] | bytes | BrokerTimes
    """A `Problem` of the capture; an (address, name) pair of a name record; a block of decryption secrets; what a
    request log says of times."""


COLUMNS: Final = {
    "order": np.int64,
    "capture": np.int32,
    "number": np.int64,
    "time_ns": np.int64,
    "src_hi": np.uint64,
    "src_lo": np.uint64,
    "dst_hi": np.uint64,
    "dst_lo": np.uint64,
    "src_port": np.uint16,
    "dst_port": np.uint16,
    "seq": np.uint32,
    "ack": np.uint32,
    "flags": np.uint8,
    "window": np.uint16,
    "offset": np.int64,
    "length": np.int32,
    "wire_length": np.int32,
    "ident": np.uint32,
}


class PacketBatch:
    """TCP packets in capture order, one row each; packets of other protocols are only counted.

    Columns (NumPy arrays of one length):

    - `order`: ordinal in capture order over all packets of the run, TCP or not; strictly increasing over all batches
    - `capture`: index into the run's list of captures; `number`: 1-based packet number in that capture
    - `time_ns`: nanoseconds since the epoch, or NO_TIME
    - `src_hi`, `src_lo`, `dst_hi`, `dst_lo`: addresses as two big-endian 64-bit halves, IPv4 in its IPv4-mapped
      IPv6 form (hi 0, lo 0x0000ffff_aabbccdd); `src_port`, `dst_port`
    - `seq`, `ack`, `flags` (low eight TCP flags), `window` (as on the wire, not scaled)
    - `offset`, `length`: the captured payload is `buffer[offset:offset + length]`
    - `wire_length`: payload bytes on the wire; larger than `length` if the snap length truncated the packet
    - `ident`: (IPv4 identification, else low bits of the IPv6 flow label) << 16 | TCP checksum: distinguishes a packet
      that was captured twice from a retransmission
    """

    __slots__ = (*COLUMNS, "buffer", "captures", "clock", "end_clock", "end_order", "notes", "packets", "ticks")

    order: NDArray[np.int64]
    capture: NDArray[np.int32]
    number: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    src_hi: NDArray[np.uint64]
    src_lo: NDArray[np.uint64]
    dst_hi: NDArray[np.uint64]
    dst_lo: NDArray[np.uint64]
    src_port: NDArray[np.uint16]
    dst_port: NDArray[np.uint16]
    seq: NDArray[np.uint32]
    ack: NDArray[np.uint32]
    flags: NDArray[np.uint8]
    window: NDArray[np.uint16]
    offset: NDArray[np.int64]
    length: NDArray[np.int32]
    wire_length: NDArray[np.int32]
    ident: NDArray[np.uint32]
    buffer: bytes
    captures: tuple[str, ...]
    """Names of the run's captures, by index."""
    clock: NDArray[np.int64] | None
    """The packet clock at each row, which is the highest time so far of any packet of the run; None: computed from the
    times of these packets."""
    end_clock: int
    """The packet clock after the last packet that this batch covers; NO_TIME: that of its last row."""
    end_order: int
    """One past the order of the last packet that this batch covers (TCP or not)."""
    packets: int
    """Packets that this batch covers, TCP or not."""
    notes: list[Note]
    ticks: tuple[NDArray[np.int64], NDArray[np.int64]] | None
    """If the batch is a share of another (shards.py): order and packet clock of all rows of that one. Silent
    connections end at the first packet of any connection, so every share needs these."""

    def __init__(
        self,
        columns: dict[str, NDArray[Any]],
        buffer: bytes,
        *,
        captures: tuple[str, ...] = (),
        clock: NDArray[np.int64] | None = None,
        end_clock: int = NO_TIME,
        end_order: int,
        packets: int,
        notes: list[Note] | None = None,
        ticks: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        for name, dtype in COLUMNS.items():
            setattr(self, name, np.ascontiguousarray(columns[name], dtype=dtype))
        self.buffer = buffer
        self.captures = captures
        self.clock = clock
        self.end_clock = end_clock
        self.end_order = end_order
        self.packets = packets
        self.notes = notes if notes is not None else []
        self.ticks = ticks

    def __len__(self) -> int:
        return len(self.order)

    @property
    def nbytes(self) -> int:
        """Approximate bytes in memory."""
        return len(self.buffer) + PACKET_BYTES * len(self)

    def parts(self, bounds: Iterator[tuple[int, float]]) -> Iterator[Self]:
        """The batch in parts of at least one packet; `bounds`: of each part, packets and payload bytes.

        A part ends with the packet that reaches the bytes.
        """
        rest = self
        while len(rest) > 1:
            most_rows, most_bytes = next(bounds)
            sizes = np.cumsum(rest.length[:most_rows], dtype=np.int64)
            rows = min(int(np.searchsorted(sizes, most_bytes)) + 1, most_rows)
            if rows >= len(rest):
                break
            part, rest = rest.split(rows)
            yield part
        yield rest

    @classmethod
    def joined(cls, batches: Sequence[Self]) -> Self:
        """Batches one after the other as one: shares of the same shard, and those with packets have clocks."""
        if len(batches) == 1:
            return batches[0]
        columns = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in COLUMNS}
        begins = np.cumsum([0, *(len(batch.buffer) for batch in batches[:-1])])
        columns["offset"] = np.concatenate([batch.offset + begin for batch, begin in zip(batches, begins, strict=True)])
        ticks = [batch.ticks for batch in batches if batch.ticks is not None]
        last = batches[-1]
        return cls(
            columns,
            b"".join(batch.buffer for batch in batches),
            captures=last.captures,
            clock=np.concatenate(
                [np.empty(0, np.int64), *(batch.clock for batch in batches if batch.clock is not None)]
            ),
            end_clock=max(batch.end_clock for batch in batches),
            end_order=last.end_order,
            packets=sum(batch.packets for batch in batches),
            notes=[note for batch in batches for note in batch.notes],
            ticks=(np.concatenate([tick[0] for tick in ticks]), np.concatenate([tick[1] for tick in ticks]))
            if ticks
            else None,
        )

    def share(self, rows: NDArray[np.bool_], *, packets: int, notes: list[Note]) -> Self:
        """Some rows, with these counts and notes."""
        return type(self)(
            {name: getattr(self, name)[rows] for name in COLUMNS},
            self.buffer,
            captures=self.captures,
            clock=None if self.clock is None else self.clock[rows],
            end_clock=self.end_clock,
            end_order=self.end_order,
            packets=packets,
            notes=notes,
            # Silence ends at the first packet of any connection.
            ticks=self.ticks or (self.order, self.time_ns if self.clock is None else self.clock),
        )

    def split(self, row: int) -> tuple[Self, Self]:
        """Cut in two before `row`: [0, row) and [row, len); notes and counts are assigned by their order."""
        if row < len(self):
            border = int(self.order[row])
        else:
            border = self.end_order
        ticks = self.ticks
        tick = 0 if ticks is None else int(np.searchsorted(ticks[0], border))
        head = type(self)(
            {name: getattr(self, name)[:row] for name in COLUMNS},
            self.buffer,
            captures=self.captures,
            clock=None if self.clock is None else self.clock[:row],
            end_order=border,
            packets=row,
            notes=[note for note in self.notes if note.order < border],
            ticks=None if ticks is None else (ticks[0][:tick], ticks[1][:tick]),
        )
        tail = type(self)(
            {name: getattr(self, name)[row:] for name in COLUMNS},
            self.buffer,
            captures=self.captures,
            clock=None if self.clock is None else self.clock[row:],
            end_clock=self.end_clock,
            end_order=self.end_order,
            packets=self.packets - row,
            notes=[note for note in self.notes if note.order >= border],
            ticks=None if ticks is None else (ticks[0][tick:], ticks[1][tick:]),
        )
        return head, tail


End = tuple[int, int, int]
"""An endpoint: address high half, low half, port."""
Key = tuple[End, End]
"""Both endpoints of a connection, the lower one first."""

_END: Final = struct.Struct(">QQH")
_KEY: Final = struct.Struct(">QQHQQH")


def endpoints_of(batch: PacketBatch, rows: NDArray[np.int64]) -> tuple[list[Key], list[bool]]:
    """The 4-tuples of some rows, and whether the higher endpoint sent them."""
    sources = zip(batch.src_hi[rows].tolist(), batch.src_lo[rows].tolist(), batch.src_port[rows].tolist(), strict=True)
    targets = zip(batch.dst_hi[rows].tolist(), batch.dst_lo[rows].tolist(), batch.dst_port[rows].tolist(), strict=True)
    keys: list[Key] = []
    higher: list[bool] = []
    for source, target in zip(sources, targets, strict=True):
        higher.append(source > target)
        keys.append((target, source) if source > target else (source, target))
    return keys, higher


def index_of(key: Key) -> bytes:
    """Both endpoints as an index of dicts and sets, in the order of keys.

    The hash of bytes depends on a secret of the process. That of integers does not, so that chosen addresses could all
    have the same one.
    """
    return _KEY.pack(*key[0], *key[1])


def end_index(end: End) -> bytes:
    """The same for one endpoint."""
    return _END.pack(*end)


def indexed_key(index: bytes) -> Key:
    """The endpoints that `index_of` was given."""
    numbers = _KEY.unpack(index)
    return numbers[:3], numbers[3:]


def indexed_end(index: bytes) -> End:
    """The endpoint that `end_index` was given."""
    high, low, port = _END.unpack(index)
    return high, low, port


def connection_hash(batch: PacketBatch) -> NDArray[np.uint64]:
    """A hash of each row's 4-tuple that is the same for both directions, in every run and on every machine."""
    source = endpoint_hash(batch.src_hi, batch.src_lo, batch.src_port)
    together: NDArray[np.uint64] = source + endpoint_hash(batch.dst_hi, batch.dst_lo, batch.dst_port)
    return together


def endpoint_hash(high: NDArray[np.uint64], low: NDArray[np.uint64], port: NDArray[np.uint16]) -> NDArray[np.uint64]:
    """Hash of endpoints. Products wrap; the factors are odd, without pattern; the shifts bring high bits down."""
    value: NDArray[np.uint64] = (high ^ (low * np.uint64(0x9E3779B97F4A7C15))) + port.astype(np.uint64)
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    value ^= value >> np.uint64(32)
    return value
