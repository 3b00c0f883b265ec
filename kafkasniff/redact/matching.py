"""The second reading of captures, which writes the packets of selected connections.

A connection is identified in every run by its `connection_id`. All packets that the stream engine assigns to it belong
to it, from its first to the first one of the next connection between the same endpoints: handshake, acknowledgements,
copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.pcap import RawPackets
from kafkasniff.capture.write.capture_writer import CaptureWriter
from kafkasniff.capture.write.output_files import PatchedFile
from kafkasniff.engine.connection_stats import connection_id
from kafkasniff.kafka.connection.events import MAX_FRAME
from kafkasniff.native.blanking import PLACE
from kafkasniff.native.library import kernel
from kafkasniff.native.streams import UNKNOWN_POSITION, EngineRows, RowKind
from kafkasniff.packets import (
    SYN,
    Key,
    PacketBatch,
    connection_hash,
    endpoint_hash,
    endpoints_of,
    index_of,
    indexed_key,
)
from kafkasniff.redact.message import Blanker
from kafkasniff.redact.stream_reading import NO_STREAM, Places, StreamReading, longer
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY

_TCP: Final = 6
_SIZES: Final = range(20, 64, 4)
"""Maximum size of a TCP header in bytes."""


def header_starts(batch: PacketBatch, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets in the buffer of the TCP headers of these rows, all of which have captured payload; -1: not found.

    A header contains its length, which counts back from the payload; its other fields must match the row.
    """
    found = np.full(len(rows), -1, np.int64)
    buffer = np.frombuffer(batch.buffer, np.uint8)
    offset = batch.offset[rows]
    wanted = np.zeros(len(rows), [("src", ">u2"), ("dst", ">u2"), ("seq", ">u4"), ("ack", ">u4")])
    wanted["src"], wanted["dst"] = batch.src_port[rows], batch.dst_port[rows]
    wanted["seq"], wanted["ack"] = batch.seq[rows], batch.ack[rows]
    heads = wanted.view(np.uint8).reshape(len(rows), wanted.itemsize)
    for size in _SIZES:
        at = offset - size
        likely = np.flatnonzero((at >= 0) & (found < 0))
        likely = likely[buffer[at[likely] + 12] >> 4 == size // 4]
        if len(likely):
            there = buffer[at[likely][:, None] + np.arange(wanted.itemsize)]
            likely = likely[(there == heads[likely]).all(axis=1)]
            found[likely] = at[likely]
    return found


def pseudo_sums(batch: PacketBatch, rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of what the checksums of these rows cover besides header and payload; `sizes`: bytes of both on the wire.

    An IPv4 address follows 0xffff here, which makes no difference to a sum modulo 65,535.
    """
    total = sizes % 65_536 + (sizes >> 16) + _TCP
    for column in (batch.src_hi, batch.src_lo, batch.dst_hi, batch.dst_lo):
        value = column[rows]
        for shift in (0, 16, 32, 48):
            total = total + ((value >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64)
    return total


MAX_BUFFERED: Final = 1 << 30
"""Maximum size in bytes of incomplete messages and streams being searched, over all connections; beyond it, those with
the most are treated as ended, and what they hold stays blank. A smaller memory budget applies instead: the first
reading is over by then and holds nothing.
"""
LOOK_BYTES: Final = 64 << 20
"""Bytes of payload between two checks of that, or an eighth of the budget."""
ENDED_AT_ONCE: Final = 4_096
"""Connections that end in one call at the end of the captures."""


class WantedConnections:
    """The connections whose packets are to be written."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        """Their endpoints (`packets.index_of`)."""
        self.ids: set[int] = set()
        """Their `connection_id`."""

    def add(self, key: Key, identity: int) -> None:
        """Add one; the lower endpoint comes first in its key."""
        self.keys.add(index_of(key))
        self.ids.add(identity)


class Written(msgspec.Struct):
    """A summary of what was written."""

    packets: int = 0
    connections: int = 0
    missing: int = 0
    """Connections that were not found again: a capture has changed, or the first reading ended some early."""
    fragments: int = 0
    """Segments in IP fragments, which cannot be blanked and were skipped."""
    encrypted: int = 0
    """Connections with TLS, which are not changed."""
    given_up: int = 0
    """Connections with more blanks than necessary, since they took too much memory."""


class Matching:
    """Writes the packets of connections to a file, in capture order.

    - `blanker`: decides what may be shown; None: packets are written unchanged
    - `own_topics`: ids of the brokers' own topics, as far as they are known
    - `ports`, `max_frame`: as for `Inspector`
    - `memory`: the budget in bytes

    Raises OutputError if the file cannot be written, or cannot hold the packets.
    """

    def __init__(
        self,
        file: PatchedFile,
        writer: CaptureWriter,
        wanted: WantedConnections,
        *,
        blanker: Blanker | None,
        own_topics: Sequence[str] = (),
        ports: Iterable[int] = (),
        max_frame: int = MAX_FRAME,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        native = kernel()
        self._file = file
        self._writer = writer
        self._wanted = wanted
        self._blanks = blanker is not None
        self._hashes = _hashes(map(indexed_key, wanted.keys))
        self._reading = StreamReading(
            native, blanker, own_topics=own_topics, ports=frozenset(ports), max_frame=max_frame
        )
        self._places = Places(native, file)
        self._selected = np.zeros(0, np.int64)
        """For each connection of the engine, by number: 1 if its packets are written."""
        self._let_go: set[bytes] = set()
        """Endpoints of connections that continue under another number."""
        self._ends: dict[int, bytes] = {}
        """Endpoints of the selected connections."""
        self._most = min(MAX_BUFFERED, memory)
        self._look = min(LOOK_BYTES, memory // 8)
        self._unlooked = 0
        self.written = Written()

    def feed(self, batch: PacketBatch, packets: RawPackets, first_order: int, fragments: NDArray[np.int64]) -> None:
        """Take the next packets in capture order.

        `packets` are all packets of the capture in this range, the first of which has the order `first_order`;
        `fragments`: rows of those that are IP fragments.
        """
        between = np.isin(connection_hash(batch), self._hashes)
        mine = batch.share(between, packets=batch.packets, notes=[])
        taken = self._reading.engine.take(mine, locates=True)
        self._open(taken)
        chosen = self._choose(mine, taken)
        if not self._blanks:
            first = batch.end_order - batch.packets - first_order
            # A fragment may belong to any connection. Fragments are rare, so all are written.
            pieces = fragments[(fragments >= first) & (fragments < first + batch.packets)]
            rows = np.union1d(mine.order[chosen] - first_order, pieces)
            for note in batch.notes:
                if isinstance(note.value, bytes):
                    # Before the packets around it, since a key applies to the packets that follow it.
                    self._writer.write_secrets(note.value)
            self._writer.write(_pick(packets, rows))
            self.written.packets += len(rows)
            self._reading.read(taken, mine.buffer)
        else:
            places = mine.order - first_order
            is_whole = ~np.isin(places[chosen], fragments)
            self.written.fragments += int((~is_whole).sum())
            fresh = self._write(mine, packets, places, chosen[is_whole], taken)
            self._show(fresh, taken, mine.buffer)
        self._reading.engine.release()
        self._file.settle()
        self._unlooked += int(mine.length.sum())
        if self._unlooked >= self._look:
            self._unlooked = 0
            self._relieve()

    def close(self) -> Written:
        """There are no more packets: the file is whole."""
        engine, left = self._reading.engine, True
        while left:
            self._show(np.zeros(0, PLACE), engine.finish(ENDED_AT_ONCE), b"")
            left = len(engine) > 0
        engine.free()
        self.written.encrypted = len(self._reading.encrypted)
        self.written.missing = max(len(self._wanted.ids) - self.written.connections, 0)
        self._writer.close()
        self._file.commit()
        return self.written

    # -- connections --------------------------------------------------------------------------------------------------

    def _open(self, taken: EngineRows) -> None:
        """Select the connections that begin in this call of the engine, and forget those that are over."""
        rows = taken.rows
        for row in np.flatnonzero(rows["kind"] == RowKind.OPENED).tolist():
            number, opened = int(rows["connection"][row]), taken.opened[int(rows["a"][row])]
            high, low, port = (opened[name].tolist() for name in ("high", "low", "port"))
            key = (high[0], low[0], port[0]), (high[1], low[1], port[1])
            index = index_of(key)
            continues = index in self._let_go
            self._let_go.discard(index)
            is_found = connection_id(key, int(opened["first_time"])) in self._wanted.ids
            self.written.connections += is_found
            self._selected = longer(self._selected, number, 0)
            if is_found or continues:
                self._selected[number] = 1
                self._ends[number] = index
                self._reading.follow(number, int(opened["place"]))
        for number in rows["connection"][rows["kind"] == RowKind.FORGOTTEN].tolist():
            self._ends.pop(number, None)

    def _choose(self, mine: PacketBatch, taken: EngineRows) -> NDArray[np.intp]:
        """The rows of packets of selected connections.

        A SYN on an open connection counts as that one's until it is answered, but it may be the first packet of a
        selected one.
        """
        assert taken.owners is not None
        if not len(mine):
            return np.zeros(0, np.intp)
        chosen = self._selected[taken.owners] > 0
        for row in np.flatnonzero((mine.flags & SYN > 0) & ~chosen).tolist():
            ((key,), _) = endpoints_of(mine, np.array([row]))
            chosen[row] = connection_id(key, int(mine.time_ns[row])) in self._wanted.ids
        return np.flatnonzero(chosen)

    def _relieve(self) -> None:
        """End the connections that hold most if all together hold too much."""
        held = self._reading.engine.holdings()
        total, order = int(held["waiting"].sum()), np.argsort(held["waiting"], kind="stable")
        gone: list[int] = []
        while total > self._most:
            largest = held[order[-1 - len(gone)]]
            total -= int(largest["waiting"])
            gone.append(int(largest["connection"]))
        if not gone:
            return
        continued = [self._ends[number] for number in gone if number in self._ends]
        self.written.given_up += len(continued)
        self._let_go.update(continued)
        self._show(np.zeros(0, PLACE), self._reading.engine.let_go(gone), b"")

    # -- packets ------------------------------------------------------------------------------------------------------

    def _write(
        self,
        mine: PacketBatch,
        packets: RawPackets,
        places: NDArray[np.int64],
        chosen: NDArray[np.intp],
        taken: EngineRows,
    ) -> NDArray[np.void]:
        """Write the chosen packets, which are at these places among all; returns their payloads, to be blank."""
        assert taken.owners is not None
        assert taken.positions is not None
        header = mine.offset[chosen]
        loaded = mine.length[chosen] > 0
        header[loaded] = header_starts(mine, chosen[loaded])
        usable = header >= 0
        self.written.fragments += int((~usable).sum())
        rows, header = chosen[usable], header[usable]
        if not len(rows):
            return np.zeros(0, PLACE)
        picked = _pick(packets, places[rows])
        self.written.packets += len(rows)
        shift = self._writer.write(picked) - picked.start
        offset, size = mine.offset[rows], mine.length[rows].astype(np.int64)
        fresh = np.zeros(len(rows), PLACE)
        fresh["at"], fresh["header"] = offset + shift, header + shift
        # Padding of a frame after its segment.
        fresh["padding"] = np.maximum(picked.start + picked.captured - offset - size, 0)
        fresh["pseudo"] = pseudo_sums(mine, rows, offset - header + mine.wire_length[rows])
        position, owner = taken.positions[rows], taken.owners[rows].astype(np.int64)
        known = (size > 0) & (position != UNKNOWN_POSITION) & (self._selected[owner] > 0)
        fresh["stream"] = np.where(known, 2 * owner + _directions(mine, rows), NO_STREAM)
        fresh["position"] = np.where(known, position, 0)
        fresh["end"], fresh["fresh"] = fresh["position"] + size, 1
        return fresh.compress((size > 0) | (fresh["padding"] > 0))

    def _show(self, fresh: NDArray[np.void], taken: EngineRows, buffer: bytes) -> None:
        """Write the bytes that a call of the engine made known; `fresh`: packets that were written with it."""
        if not self._blanks:
            return
        places, reading = self._places, self._reading
        places.show(fresh, reading.read(taken, buffer))
        numbers = places.connections
        places.settle(numbers, reading.needed(numbers))


def _directions(mine: PacketBatch, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """1 for packets that are sent by the higher endpoint."""
    higher = np.zeros(len(rows), np.bool_)
    equal = np.ones(len(rows), np.bool_)
    for src, dst in ((mine.src_hi, mine.dst_hi), (mine.src_lo, mine.dst_lo), (mine.src_port, mine.dst_port)):
        higher |= equal & (src[rows] > dst[rows])
        equal &= src[rows] == dst[rows]
    return higher.astype(np.int64)


def _hashes(keys: Iterable[Key]) -> NDArray[np.uint64]:
    """`connection_hash` of connections, by their endpoints."""
    every = list(keys)
    found = np.zeros(len(every), np.uint64)
    for end in (0, 1):
        high = np.array([key[end][0] for key in every], np.uint64)
        low = np.array([key[end][1] for key in every], np.uint64)
        found += endpoint_hash(high, low, np.array([key[end][2] for key in every], np.uint16))
    return found


def _pick(packets: RawPackets, rows: NDArray[np.int64]) -> RawPackets:
    columns: list[Any] = [column[rows] for column in packets[1:]]
    return RawPackets(packets.buffer, *columns)
