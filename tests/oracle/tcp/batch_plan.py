"""The plan of a batch: its rows by connection, direction and capture order, and which are plain. All vectorised."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.tcp.packets import ACK, FIN, RST, SYN, PacketBatch
from kafkasniff.tcp.plan import Key, endpoint_hash, endpoints_of
from kafkasniff.tcp.segments import PACKET_SHIFT
from tests.oracle.tcp.stream import Packet

__all__ = ["BatchPlan", "DataRows"]


class DataRows(msgspec.Struct, frozen=True):
    """Columns of the data rows of a plan."""

    offset: NDArray[np.int64]
    length: NDArray[np.int32]
    end_at: NDArray[np.int64]
    packet: NDArray[np.int64]
    time: NDArray[np.int64]
    order: NDArray[np.int64]


class BatchPlan:
    """Groups the rows of a batch by connection.

    A *group* is the rows of one 4-tuple; lists indexed by group:

    - `key`: the 4-tuple; `start`, `end`: the group's rows in the sorted order; `exceptions`: how many are not plain
    - `first`, `last`: the first and last row in capture order
    - `halves`: the data rows of direction 0 (from the lower endpoint) and 1, as ranges of the data lists
    - `last_ack`: acknowledgement number of the last row of direction 0 and of direction 1; -1 if it has none

    Lists indexed by data row (rows with payload that was captured whole, by group, direction and capture order):
    `offset`, `length`, `end_at` (running sum of the lengths), `packet`, `time`, `order`, `seq`, `ident`; `rows` has
    most of them as arrays.

    A row is *plain* if it has ACK, neither SYN, FIN nor RST, was captured whole, and its data, if any, continue the
    previous plain data row of its stream. The caller compares the first data row of each stream with the stream's
    state.
    """

    __slots__ = (
        "_bad",
        "_direction",
        "_packet",
        "_rows",
        "batch",
        "clock",
        "end",
        "end_at",
        "exceptions",
        "first",
        "halves",
        "ident",
        "key",
        "last",
        "last_ack",
        "length",
        "offset",
        "order",
        "packet",
        "rows",
        "seq",
        "start",
        "time",
    )

    def __init__(self, batch: PacketBatch, clock: NDArray[np.int64]) -> None:
        self.batch = batch
        self.clock = clock
        self._rows: NDArray[np.int64]
        self._direction: NDArray[np.bool_]
        self._packet = (batch.capture.astype(np.int64) << PACKET_SHIFT) | batch.number
        starts = self._sort()
        rows = self._rows
        borders = np.append(starts, len(rows))
        self.start: list[int] = borders[:-1].tolist()
        self.end: list[int] = borders[1:].tolist()
        first = np.minimum.reduceat(rows, starts)
        last = np.maximum.reduceat(rows, starts)
        self.first: list[int] = first.tolist()
        self.last: list[int] = last.tolist()
        self.key, flip = self._keys(rows[starts], self._direction[starts])
        # So far the larger hash determined the direction; from here on it is the lower endpoint.
        self._direction = self._direction ^ np.repeat(flip, np.diff(borders))
        self._columns(borders, flip)

    # -- grouping ---------------------------------------------------------------------------------------------------

    def _sort(self) -> NDArray[np.int64]:
        """Sort the rows by (hash of the 4-tuple, direction, capture order); returns where each 4-tuple starts."""
        batch = self.batch
        source = endpoint_hash(batch.src_hi, batch.src_lo, batch.src_port)
        target = endpoint_hash(batch.dst_hi, batch.dst_lo, batch.dst_port)
        direction = source > target
        bits = np.uint64(len(batch).bit_length())
        above = bits + np.uint64(1)
        # One integer per row, so that a single plain sort does it: high bits of the hash, the direction, the row.
        key = (((source + target) >> above) << above) | (direction.astype(np.uint64) << bits)
        key |= np.arange(len(batch), dtype=np.uint64)
        key.sort()
        self._rows = (key & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
        self._direction = direction[self._rows]
        group = key >> above
        starts = np.concatenate(([0], np.flatnonzero(group[1:] != group[:-1]) + 1))
        return self._sort_exactly() if self._collides(starts) else starts

    def _collides(self, starts: NDArray[np.int64]) -> bool:
        """Whether different 4-tuples share a group: the sort key has only a part of a hash."""
        batch, rows = self.batch, self._rows
        counts = np.diff(np.append(starts, len(rows)))
        first = np.repeat(rows[starts], counts)
        same = self._direction == np.repeat(self._direction[starts], counts)
        for source, target in (
            (batch.src_port, batch.dst_port),
            (batch.src_lo, batch.dst_lo),
            (batch.src_hi, batch.dst_hi),
        ):
            if not np.array_equal(source[rows], np.where(same, source[first], target[first])):
                return True
            if not np.array_equal(target[rows], np.where(same, target[first], source[first])):
                return True
        return False

    def _sort_exactly(self) -> NDArray[np.int64]:
        """The same by the 4-tuples themselves, row by row: for batches whose hashes collide."""
        every = np.arange(len(self.batch))
        keys, higher = self._keys(every, np.zeros(len(self.batch), dtype=bool))
        flips: list[bool] = higher.tolist()
        order = sorted(range(len(keys)), key=lambda row: (keys[row], flips[row], row))
        self._rows = np.array(order, dtype=np.int64)
        self._direction = higher[self._rows]
        return np.array(
            [i for i in range(len(order)) if i == 0 or keys[order[i]] != keys[order[i - 1]]], dtype=np.int64
        )

    def _keys(self, rows: NDArray[np.int64], direction: NDArray[np.bool_]) -> tuple[list[Key], NDArray[np.bool_]]:
        """The 4-tuples of some rows; and where `direction` differs from "sent by the higher endpoint"."""
        keys, higher = endpoints_of(self.batch, rows)
        return keys, np.array(higher, dtype=bool) ^ direction

    # -- columns ----------------------------------------------------------------------------------------------------

    def _columns(self, borders: NDArray[np.int64], flip: NDArray[np.bool_]) -> None:
        batch, rows = self.batch, self._rows
        seq, wire = batch.seq[rows], batch.wire_length[rows]
        whole = wire == batch.length[rows]
        bad = (batch.flags[rows] & (SYN | FIN | RST | ACK) != ACK) | ~whole
        stream = np.zeros(len(rows), dtype=np.int64)
        stream[borders[1:-1]] = 1
        stream = (np.cumsum(stream) << 1) | self._direction
        plain = np.flatnonzero((wire > 0) & ~bad)
        if len(plain) > 1:
            expected = seq[plain[:-1]] + wire[plain[:-1]].astype(np.uint32)
            broken = (seq[plain[1:]] != expected) & (stream[plain[1:]] == stream[plain[:-1]])
            bad[plain[1:][broken]] = True
        self._bad = bad
        self.exceptions: list[int] = np.add.reduceat(bad, borders[:-1], dtype=np.int64).tolist()

        has_data = (wire > 0) & whole
        data_before = np.concatenate(([0], np.cumsum(has_data)))
        # Within a group the rows of one direction come first; where the other begins:
        sent_by_higher = np.concatenate(([0], np.cumsum(self._direction)))
        highs = sent_by_higher[borders[1:]] - sent_by_higher[borders[:-1]]
        middle = np.where(flip, borders[:-1] + highs, borders[1:] - highs)
        ends = np.where(flip, borders[1:], borders[1:] - highs), np.where(flip, borders[:-1] + highs, borders[1:])
        last_ack = [batch.ack[rows[end - 1]].astype(np.int64) for end in ends]
        last_ack[0][highs == borders[1:] - borders[:-1]] = -1
        last_ack[1][highs == 0] = -1
        self.last_ack: list[tuple[int, int]] = list(zip(*(one.tolist() for one in last_ack), strict=True))
        begin, border, finish = data_before[borders[:-1]], data_before[middle], data_before[borders[1:]]
        low = zip(np.where(flip, border, begin).tolist(), np.where(flip, finish, border).tolist(), strict=True)
        high = zip(np.where(flip, begin, border).tolist(), np.where(flip, border, finish).tolist(), strict=True)
        self.halves: list[tuple[tuple[int, int], tuple[int, int]]] = list(zip(low, high, strict=True))

        chosen = rows[has_data]
        lengths = batch.length[chosen]
        self.rows = DataRows(
            batch.offset[chosen],
            lengths,
            np.cumsum(lengths, dtype=np.int64),
            self._packet[chosen],
            batch.time_ns[chosen],
            batch.order[chosen],
        )
        self.offset: list[int] = self.rows.offset.tolist()
        self.length: list[int] = lengths.tolist()
        self.end_at: list[int] = self.rows.end_at.tolist()
        self.packet: list[int] = self.rows.packet.tolist()
        self.time: list[int] = self.rows.time.tolist()
        self.order: list[int] = self.rows.order.tolist()
        self.seq: list[int] = batch.seq[chosen].tolist()
        self.ident: list[int] = batch.ident[chosen].tolist()

    def last_seen(self, group: int) -> tuple[int, int, int]:
        """The group's last packet in capture order: packet clock, packet, time_ns."""
        row = self.last[group]
        return int(self.clock[row]), int(self._packet[row]), int(self.batch.time_ns[row])

    def acks(self, group: int) -> NDArray[np.uint32]:
        """Acknowledgement numbers of a group's rows, in capture order; for groups of one direction."""
        acks: NDArray[np.uint32] = self.batch.ack[self._rows[self.start[group] : self.end[group]]]
        return acks

    def packets(self, group: int) -> tuple[list[Packet], list[int]]:
        """All packets of a group in capture order, and the indices of those that are not plain."""
        batch = self.batch
        share = slice(self.start[group], self.end[group])
        arrival = np.argsort(self._rows[share])
        rows = self._rows[share][arrival]
        columns: list[list[Any]] = [
            self._direction[share][arrival].astype(np.int64).tolist(),
            batch.order[rows].tolist(),
            self._packet[rows].tolist(),
            batch.time_ns[rows].tolist(),
            self.clock[rows].tolist(),
            batch.seq[rows].tolist(),
            batch.ack[rows].tolist(),
            batch.flags[rows].tolist(),
            batch.offset[rows].tolist(),
            batch.length[rows].tolist(),
            batch.wire_length[rows].tolist(),
            batch.ident[rows].tolist(),
        ]
        bad = np.flatnonzero(self._bad[share][arrival])
        return list(map(Packet._make, zip(*columns, strict=True))), bad.tolist()
