"""The second reading of captures, which writes the packets of selected connections.

A connection is identified in every run by its `connection_id`. All packets between its endpoints belong to it, from its
first to the first one of the next connection between them: handshake, acknowledgements, copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.formats.raw import RawPackets
from kafkasniff.capture.write.capture_writer import CaptureWriter
from kafkasniff.capture.write.patched_file import PatchedFile
from kafkasniff.engine.connection_stats import connection_id, forced_client
from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.kafka.connection.framing import MAX_FRAME
from kafkasniff.kafka.connection.recognition import ConnectionOptions
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.redact.checksums import CHECKSUM_AT, checksums, header_starts, pseudo_sums
from kafkasniff.redact.copied import BLANK
from kafkasniff.redact.message import Blanker
from kafkasniff.redact.stream_bytes import PayloadPlace
from kafkasniff.redact.streams import BlankedConnection
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.packets import SYN, PacketBatch
from kafkasniff.tcp.plan import Key, connection_hash, endpoint_hash, endpoints_of, index_of, indexed_key
from kafkasniff.tcp.reassembly import Delta, Reassembler
from kafkasniff.tcp.segments import PACKET_SHIFT

__all__ = ["MAX_BUFFERED", "Matching", "WantedConnections", "Written"]

MAX_BUFFERED: Final = 1 << 30
"""Maximum size in bytes of buffered streams, over all connections; beyond it, those of the connection with the most are
dropped and stay blank. A smaller memory budget applies instead: the first reading is over by then and holds nothing.
"""
LOOK_BYTES: Final = 64 << 20
"""Bytes of payload between two checks of that, or an eighth of the budget."""

_BLANK: Final = bytes([BLANK])


class WantedConnections:
    """The connections whose packets are to be written."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        """Their endpoints (`plan.index_of`)."""
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


class _Lifetime(NamedTuple):
    """A connection between two endpoints."""

    tcp: TcpConnection
    blanked: BlankedConnection | None
    wanted: bool


class _Chosen(NamedTuple):
    """Packets that are written, one row each."""

    rows: NDArray[np.int64]
    """Rows of the batch."""
    direction: NDArray[np.bool_]
    """It is sent by the higher endpoint."""
    which: NDArray[np.int64]
    """Index of its connection in `lifetimes`."""
    lifetimes: list[_Lifetime]


class Matching:
    """Writes the packets of connections to a file, in capture order.

    - `blanker`: decides what may be shown; None: packets are written unchanged
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
        ports: Iterable[int] = (),
        max_frame: int = MAX_FRAME,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._file = file
        self._writer = writer
        self._wanted = wanted
        self._blanker = blanker
        self._ports = frozenset(ports)
        options = DecodeOptions() if blanker is None else blanker.options
        self._options = ConnectionOptions(Detail(options), max_frame, every_end=False)
        self._hashes = _hashes(map(indexed_key, wanted.keys))
        self._reassembler = Reassembler()
        self._lifetimes: dict[bytes, list[_Lifetime]] = {}
        """By pair of endpoints, the connections of this batch, and the previous one."""
        self._patched: set[PayloadPlace] = set()
        """Packets whose checksums have to be computed."""
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
        deltas = self._reassembler.feed(mine)
        self._open()
        chosen = self._choose(mine)
        if self._blanker is None:
            first = batch.end_order - batch.packets - first_order
            # A fragment may belong to any connection. Fragments are rare, so all are written.
            pieces = fragments[(fragments >= first) & (fragments < first + batch.packets)]
            rows = np.union1d(mine.order[chosen.rows] - first_order, pieces)
            for note in batch.notes:
                if isinstance(note.value, bytes):
                    # Before the packets around it, since a key applies to the packets that follow it.
                    self._writer.write_secrets(note.value)
            self._writer.write(_pick(packets, rows))
            self.written.packets += len(rows)
        else:
            self._write(mine, packets, first_order, chosen, fragments)
        self._read(deltas)
        self._file.settle()
        self._unlooked += int(mine.length.sum())
        if self._unlooked >= self._look:
            self._unlooked = 0
            self._relieve()

    def close(self) -> Written:
        """There are no more packets: the file is whole."""
        self._read(self._reassembler.close())
        self.written.missing = max(len(self._wanted.ids) - self.written.connections, 0)
        self._writer.close()
        self._file.commit()
        return self.written

    # -- connections --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        for index, known in self._lifetimes.items():
            if len(known) > 1:
                self._lifetimes[index] = known[-1:]
        for tcp in sorted(self._reassembler.opened, key=lambda one: one.first_order):
            index = index_of(tcp.endpoints)
            if index not in self._wanted.keys:
                continue
            wanted = connection_id(tcp.endpoints, tcp.first_time) in self._wanted.ids
            blanked = None
            if wanted:
                self.written.connections += 1
                if self._blanker is not None:
                    forced = forced_client(tcp.endpoints, self._ports)
                    blanked = BlankedConnection(tcp, self._options, forced, self._blanker, self._patch)
            tcp.owner = blanked
            self._lifetimes.setdefault(index, []).append(_Lifetime(tcp, blanked, wanted))

    def _choose(self, mine: PacketBatch) -> _Chosen:
        """The packets of selected connections."""
        which, direction = np.full(len(mine), -1, np.int64), np.zeros(len(mine), bool)
        lifetimes: list[_Lifetime] = []
        for key, rows, higher in _by_key(mine):
            direction[rows] = higher
            known = self._lifetimes.get(index_of(key), [])
            if len(known) == 1 and known[0].tcp.pending_syn is None:
                if known[0].wanted:
                    which[rows] = len(lifetimes)
                    lifetimes += known
                continue
            place = len(lifetimes)
            lifetimes += known
            for row in rows.tolist():
                index = _lifetime_of(known, mine, row)
                if index is not None:
                    which[row] = place + index
        taken = np.flatnonzero(which >= 0)
        return _Chosen(taken, direction[taken], which[taken], lifetimes)

    def _read(self, deltas: list[Delta]) -> None:
        for tcp, items in deltas:
            if isinstance(tcp.owner, BlankedConnection):
                self.written.encrypted += tcp.owner.feed(items)
        self._sum_up()

    def _relieve(self) -> None:
        """Drop the buffered data of the largest connections if the total is too large."""
        kept = [tcp.owner for tcp in self._reassembler if isinstance(tcp.owner, BlankedConnection)]
        total = sum(one.buffered for one in kept)
        kept.sort(key=lambda one: one.buffered)
        while total > self._most:
            largest = kept.pop()
            total -= largest.buffered
            largest.give_up()
            self.written.given_up += 1

    # -- packets ------------------------------------------------------------------------------------------------------

    def _write(
        self,
        mine: PacketBatch,
        packets: RawPackets,
        first_order: int,
        chosen: _Chosen,
        fragments: NDArray[np.int64],
    ) -> None:
        """Write packets with blank payloads, and pass their positions to their connections."""
        usable = ~np.isin(mine.order[chosen.rows] - first_order, fragments)
        header = mine.offset[chosen.rows]
        loaded = usable & (mine.length[chosen.rows] > 0)
        header[loaded] = header_starts(mine, chosen.rows[loaded])
        usable &= header >= 0
        self.written.fragments += int((~usable).sum())
        rows, header = chosen.rows[usable], header[usable]
        if not len(rows):
            return
        picked = _pick(packets, mine.order[rows] - first_order)
        self.written.packets += len(rows)
        shift = self._writer.write(picked) - picked.start
        offset, size = mine.offset[rows], mine.length[rows].astype(np.int64)
        pseudo = pseudo_sums(mine, rows, offset - header + mine.wire_length[rows])
        # On a SYN, data starts one sequence number later (RFC 7413).
        seq = mine.seq[rows] + (mine.flags[rows] & SYN != 0).astype(np.uint32)
        trailing = picked.start + picked.captured - offset - size
        columns = (
            offset + shift,
            header + shift,
            size,
            trailing,
            pseudo,
            seq,
            chosen.direction[usable].astype(np.int64),
        )
        lists = [column.tolist() for column in (*columns, chosen.which[usable])]
        for at, begin, length, more, summed, number, direction, which in zip(*lists, strict=True):
            if more > 0:
                # Padding of a frame after its segment.
                self._file.patch(at + length, bytes(more))
            if not length:
                continue
            self._file.patch(at, _BLANK * length)
            blanked = chosen.lifetimes[which].blanked
            position = 0 if blanked is None else blanked.position(direction, number)
            place = PayloadPlace(position, position + length, at, begin, summed)
            self._patched.add(place)
            if blanked is not None:
                blanked.written(direction, place)

    def _patch(self, place: PayloadPlace, at: int, data: bytes) -> None:
        self._file.patch(place.at + at, data)
        self._patched.add(place)

    def _sum_up(self) -> None:
        """Compute the checksums of packets written since the last call."""
        settled = self._file.settled
        recent = [place for place in self._patched if place.header >= settled]
        groups = [recent] if recent else []
        groups += [[place] for place in self._patched if place.header < settled]
        self._patched.clear()
        for group in groups:
            start = np.array([place.header for place in group], np.int64)
            end = np.array([place.at + place.end - place.position for place in group], np.int64)
            first = int(start.min())
            data = self._file.read(first, int(end.max()) - first)
            found = checksums(data, start - first, end - first, np.array([place.pseudo for place in group], np.int64))
            for place, checksum in zip(group, found.tolist(), strict=True):
                self._file.patch(place.header + CHECKSUM_AT, checksum.to_bytes(2, "big"))


def _lifetime_of(known: list[_Lifetime], mine: PacketBatch, row: int) -> int | None:
    """Index of the selected connection among those between its endpoints that a packet belongs to; otherwise None.

    The SYN of a connection that replaces another one counts as the other's until it is answered. So it is written while
    that is undecided.
    """
    if mine.flags[row] & SYN:
        packet = int(mine.capture[row]) << PACKET_SHIFT | int(mine.number[row])
        for index, one in enumerate(known):
            if one.tcp.first_packet == packet:
                return index if one.wanted else None
            if one.tcp.pending_syn is not None and one.tcp.pending_syn.packet == packet:
                return index
    order = int(mine.order[row])
    found = [index for index, one in enumerate(known) if one.tcp.first_order <= order]
    return found[-1] if found and known[found[-1]].wanted else None


_Rows = tuple[Key, NDArray[np.int64], NDArray[np.bool_]]


def _by_key(mine: PacketBatch) -> Iterator[_Rows]:
    """The rows of each pair of endpoints, ascending, and whether the higher one is their sender."""
    hashes = connection_hash(mine)
    order = np.argsort(hashes, kind="stable")
    borders = np.flatnonzero(np.diff(hashes[order])) + 1
    columns = (mine.src_hi, mine.src_lo, mine.src_port, mine.dst_hi, mine.dst_lo, mine.dst_port)
    for rows in np.split(order, borders):
        if not len(rows):
            continue
        ((key,), _) = endpoints_of(mine, rows[:1])
        ahead = _same(columns, rows, (*key[0], *key[1]))
        if (ahead | _same(columns, rows, (*key[1], *key[0]))).all():
            yield key, rows, ~ahead
        else:
            yield from _by_exact_key(mine, rows)


def _by_exact_key(mine: PacketBatch, rows: NDArray[np.int64]) -> Iterator[_Rows]:
    """The same for rows whose hashes collide."""
    found: dict[bytes, tuple[Key, list[int], list[bool]]] = {}
    for row, key, is_higher in zip(rows.tolist(), *endpoints_of(mine, rows), strict=True):
        _, own, higher = found.setdefault(index_of(key), (key, [], []))
        own.append(row)
        higher.append(is_higher)
    for key, own, higher in found.values():
        yield key, np.array(own, np.int64), np.array(higher, bool)


def _same(columns: tuple[NDArray[Any], ...], rows: NDArray[np.int64], values: tuple[int, ...]) -> NDArray[np.bool_]:
    same = np.ones(len(rows), bool)
    for column, value in zip(columns, values, strict=True):
        same &= column[rows] == value
    return same


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
