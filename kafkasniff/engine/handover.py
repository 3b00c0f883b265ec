"""Handing a connection in step to the kernel, and taking it back in the state that Python would have reached."""

from __future__ import annotations

from typing import Any, Final

from kafkasniff.engine.connection_stats import InspectedConnection, OpenExchange
from kafkasniff.engine.edge_messages import EdgeMessages
from kafkasniff.engine.in_step_messages import Messages
from kafkasniff.engine.kernel_connections import KernelConnections
from kafkasniff.engine.outstanding import HIDDEN
from kafkasniff.engine.versions import version_of
from kafkasniff.kafka.connection.dialogue import Turn
from kafkasniff.kafka.connection.exchange import Pending
from kafkasniff.kafka.connection.framing import Frame, Piece
from kafkasniff.kafka.connection.in_turn import InTurn
from kafkasniff.native.feed import (
    CONNECTION,
    HELD,
    JUDGED,
    KEYS,
    MAX_FRAME,
    NONE,
    RECENT,
    VERSIONS,
    WAITING,
    packing,
)
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.segments import NO_TIME
from kafkasniff.tcp.stream import MASK, Held, Stream

__all__ = ["Handover"]

_ROW: Final = packing(CONNECTION)
_WAITING_ROW: Final = packing(WAITING)
_CLIENT, _BEGUN = 7, 10
_CONNECTION_FIELDS: Final = 42
_STREAM_FIELDS: Final = 14 + 3 * RECENT + 8
_HELD_ROW: Final = packing(HELD)
_SIGN: Final = 1 << 31
_SYN, _ANSWERED, _OPEN = 1, 2, 3
"""State of a connection that began in the kernel and is not yet `JUDGED` (`feed.Begun`)."""
_OPENED: Final = 2
"""The last answered request was no longer part of the handshake (`feed.Dialogue.has_last_answer`)."""


class Handover:
    """Writes connections to the kernel's memory and reads them from it."""

    def __init__(self, kernel: KernelConnections, edges: EdgeMessages) -> None:
        self._kernel = kernel
        self._edges = edges

    def adopt(self, tcp: TcpConnection) -> bool:
        """Hand a connection to the kernel if it is in step. Hot: called once for each connection and batch."""
        owner = tcp.owner
        assert isinstance(owner, InspectedConnection)
        one, other = tcp.streams
        if (
            tcp.closed
            or tcp.pending_syn is not None
            or not owner.has_begun
            or owner.tls is not None
            or tcp.clock == NO_TIME
            or not (_is_plain(one) and _is_plain(other))
            or not owner.kafka.is_plain()
            or tcp.endpoints[0] == tcp.endpoints[1]
        ):
            return False
        state = owner.kafka.hand_over()
        if not all(map(self._is_known, state.waiting)) or not all(map(_may_go_on, state.pieces)):
            owner.kafka.take_back(state)
            return False
        self._write(tcp, owner, state)
        return True

    def _is_known(self, pending: Pending) -> bool:
        key, version = pending.api_key, pending.api_version
        return (
            0 <= key < KEYS
            and 0 <= version < VERSIONS
            and pending.mechanism is None
            and NO_TIME not in (pending.first_time, pending.time_ns)
            and self._kernel.feed.kind(key * VERSIONS + version) != 0
        )

    def _write(self, tcp: TcpConnection, owner: InspectedConnection, state: InTurn) -> None:
        feed = self._kernel.feed
        index = tcp.place
        if index < 0:
            index = tcp.place = feed.add(tcp.endpoints)
            self._kernel.enter(tcp)
        # Requests that wait, and those that expect no response.
        first, last = [NONE, NONE], [NONE, NONE]
        for pending in state.waiting:
            silent = pending.silent
            entry = feed.wait()
            _WAITING_ROW.pack_into(
                feed.waiting_memory,
                entry * _WAITING_ROW.size,
                pending.ordinal,
                pending.first_time,
                pending.time_ns,
                pending.correlation_id,
                NONE,
                NONE,
                pending.api_key * VERSIONS + pending.api_version,
                0,
            )
            if last[silent] == NONE:
                first[silent] = entry
            else:
                feed.waiting["next"][last[silent]] = entry
            last[silent] = entry
            self._kernel.waiting[index, pending.ordinal] = pending
        turn, silent_count = state.turn, sum(pending.silent for pending in state.waiting)
        streams: list[int] = []
        for stream, piece in zip(tcp.streams, state.pieces, strict=True):
            streams += self._stream(stream, piece)
        _ROW.pack_into(
            feed.memory,
            index * _ROW.size,
            *(end[0] for end in tcp.endpoints),
            *(end[1] for end in tcp.endpoints),
            *(end[2] for end in tcp.endpoints),
            1,
            owner.kafka.client,
            feed.connections["active"][index],
            state.loss,
            0,
            0,
            tcp.clock,
            tcp.last_packet,
            tcp.last_time,
            0,
            tcp.packets,
            turn.ordinal,
            0 if turn.last_id is None else turn.last_id,
            0 if turn.last_answer is None else turn.last_answer,
            turn.last_id is not None,
            turn.last_answer is not None,
            turn.ids_vary,
            turn.ids_rise,
            state.most,
            first[False],
            last[False],
            len(state.waiting) - silent_count,
            turn.retransmits,
            NONE,
            NONE,
            0,
            0,
            0,
            first[True],
            last[True],
            silent_count,
            first[True],
            0,
            *state.place,
            *streams,
        )
        feed.activate(index)
        self._kernel.here += 1

    def _stream(self, stream: Stream, piece: Piece) -> list[int]:
        """A stream's part of the row of a connection."""
        recent = stream.take_recent()
        assert stream.next is not None
        assert stream.ack is not None
        at = self._kernel.feed.put(piece.data) if piece.data else 0
        have = len(piece.data)
        place = piece[3:] if have else (0, 0, 0, 0)
        packed = [number for one in recent for number in one]
        return [
            stream.next & MASK,
            stream.ack,
            0,
            0,
            at,
            have,
            have,
            piece.need,
            piece.sized,
            *place,
            len(recent),
            *packed,
            *([0] * (3 * RECENT - len(packed))),
            stream.next - stream.seen_from,
            0,
            NONE,
            NONE,
            0,
            0,
            stream.opened_count,
            NO_TIME if stream.acked < 0 else stream.acked - stream.next,
        ]

    def take_back(self, index: int) -> TcpConnection:
        """Give the full state of a connection that fell out of step back to Python."""
        tcp = self._kernel.connections[index]
        assert tcp is not None
        owner = tcp.owner
        assert isinstance(owner, InspectedConnection)
        row: tuple[Any, ...] = _ROW.unpack_from(self._kernel.feed.memory, index * _ROW.size)
        if row[_BEGUN]:
            self._restart_streams(tcp, row)
            if row[_BEGUN] != JUDGED:
                self._begin_search(tcp, row)
                return tcp
        repeats, tcp.clock, tcp.last_packet, tcp.last_time, packets, tcp.packets = row[11:17]
        tcp.seen += packets
        ordinal, last_id, last_answer, has_id, has_answer, vary, rise, most, first, _, count, resent = row[17:29]
        early, _, early_count, _, ticks, silent, _, silent_count, _, _, *place = row[29:_CONNECTION_FIELDS]
        waiting: list[Pending] = []
        begun = count + silent_count
        held = {int(one["ordinal"]): one for one in self._kernel.outstanding.take_connection(index)} if begun else {}
        if count:
            asked_here = Messages(
                self._kernel.begun.take_connection(index), b"", self._kernel.begun.data, self._kernel.owners
            )
            self._kernel.late.extend(self._edges.edges(asked_here))
        for begin, number in ((first, count), (silent, silent_count)):
            entry = begin
            for _ in range(number):
                asked = int(self._kernel.feed.waiting["ordinal"][entry])
                found = held.get(asked)
                if found is None:
                    waiting.append(self._kernel.waiting.pop((index, asked)))
                else:
                    waiting.append(self._pending(found, owner, silent=len(waiting) >= count))
                entry, before = int(self._kernel.feed.waiting["next"][entry]), entry
                self._kernel.feed.wait_no_more(before)
        pieces: list[Piece] = []
        seen: list[int] = []
        framed: list[int] = []
        for direction, stream in enumerate(tcp.streams):
            begin = _CONNECTION_FIELDS + direction * _STREAM_FIELDS
            _, ack, size, cut, at, have, _, need, sized, *packets_and_times, data_packets = row[begin : begin + 14]
            data = self._kernel.feed.arena[at : at + have]
            pieces.append(Piece(data, need, bool(sized), *packets_and_times))
            seen.append(size)
            framed.append(cut)
            recent = row[begin + 14 : begin + 14 + 3 * RECENT]
            _, repeated, held_first, _, held_count, stream.held_bytes, stream.opened_count, acked = row[
                begin + 14 + 3 * RECENT : begin + _STREAM_FIELDS
            ]
            assert stream.next is not None
            stream.acked = -1 if acked == NO_TIME else max(stream.next + acked, -1)
            stream.next += size
            stream.ack = ack
            stream.repeated += repeated
            stream.held = self._held(stream, held_first, held_count)
            stream.recent = tuple(
                recent[3 * (number % RECENT) : 3 * (number % RECENT) + 3]
                for number in range(max(data_packets - RECENT, 0), data_packets)
            )
        turn = Turn(
            ordinal,
            last_id if has_id else None,
            bool(vary),
            bool(rise),
            last_answer if has_answer else None,
            resent,
            self._early(1 - row[7], early, early_count),
            ticks,
        )
        state = InTurn(
            turn,
            waiting,
            most,
            (pieces[0], pieces[1]),
            (place[0], place[1], place[2]),
            # A response without a request says nothing about the opening, as in `kafka/connection/dialogue.py`.
            opened=has_answer == _OPENED or early_count > 0,
        )
        holes = bool(tcp.streams[0].held), bool(tcp.streams[1].held)
        owner.kafka.take_back(state, (seen[0], seen[1]), (framed[0], framed[1]), repeats, holes)
        self._kernel.here -= 1
        return tcp

    def _restart_streams(self, tcp: TcpConnection, row: tuple[Any, ...]) -> None:
        """Restore the streams of a connection that began in the kernel to the state before their first bytes."""
        begun, client = row[_BEGUN], row[_CLIENT]
        self._kernel.feed.connections["begun"][tcp.place] = 0
        for direction, stream in enumerate(tcp.streams):
            # Each side has to have sent something before the next one continues.
            said, heard = (_SYN, _ANSWERED) if direction == client else (_ANSWERED, _OPEN)
            following, ack, size = row[_CONNECTION_FIELDS + direction * _STREAM_FIELDS :][:3]
            if begun >= said:
                stream.isn = (following - size - 1) & MASK
                stream.next = stream.begin = stream.isn + 1
                stream.heard = True
            if begun >= heard:
                stream.ack = ack

    def _begin_search(self, tcp: TcpConnection, row: tuple[Any, ...]) -> None:
        """Give a connection without any data back to Python; whether it is Kafka is undecided."""
        owner = tcp.owner
        assert isinstance(owner, InspectedConnection)
        tcp.clock, tcp.last_packet, tcp.last_time, packets = row[12:16]
        tcp.seen += packets
        client = row[_CLIENT]
        sides = (client,) if row[_BEGUN] == _SYN else (client, 1 - client)
        self._kernel.opening -= 1
        owner.opened(*((side, side == client) for side in sides))
        self._kernel.here -= 1

    def _pending(self, row: Any, owner: InspectedConnection, *, silent: bool) -> Pending:
        """A waiting request in Python's form; its exchange's state goes to Python's place for it."""
        number, first_time, time_ns, ordinal, correlation, _, code, selected = row.item()
        version = version_of(code)
        if number > 0:
            exchange = owner.exchanges[ordinal] = OpenExchange(number)
            exchange.api, exchange.api_version, exchange.correlation_id = version.api, version.version, correlation
            if self._kernel.pin is not None:
                self._kernel.pin(number, bool(selected))
        return Pending(
            ordinal,
            version.key,
            version.version,
            correlation,
            self._kernel.outstanding.client_id(row),
            first_time,
            time_ns,
            silent=silent,
            hidden=number == HIDDEN,
        )

    def _held(self, stream: Stream, first: int, count: int) -> list[Held]:
        """Segments after a gap, in the form of a stream."""
        found: list[Held] = []
        for _ in range(count):
            data, packet, time_ns, when, clock, _, _, _, _, seq, size, first, _ = self._take_held(first)
            found.append(Held(stream.position(seq), data, size, packet, time_ns, when, clock))
        return found

    def _early(self, direction: int, first: int, count: int) -> list[tuple[int, int, Frame]]:
        """Responses that arrived before their requests, in the form of `EarlyResponses.take_back`."""
        found: list[tuple[int, int, Frame]] = []
        for _ in range(count):
            data, packet, time_ns, _, _, order, low, high, first_time, number, size, first, due = self._take_held(first)
            frame = Frame(order, direction, data, 0, size, size, low, high, first_time, time_ns, packet)
            found.append((due, (number ^ _SIGN) - _SIGN, frame))
        return found

    def _take_held(self, entry: int) -> tuple[Any, ...]:
        """The contents of an entry, with the bytes instead of their place; frees the entry."""
        at, *rest = _HELD_ROW.unpack_from(self._kernel.feed.held_memory, entry * _HELD_ROW.size)
        self._kernel.feed.hold_no_more(entry)
        return self._kernel.feed.arena[at : at + rest[9]], *rest


def _is_plain(stream: Stream) -> bool:
    """Whether the stream waits for its next byte and nothing else."""
    return stream.clean and stream.heard and stream.ack is not None


def _may_go_on(piece: Piece) -> bool:
    """Whether the kernel may complete a frame."""
    return not piece.data or (piece.need <= MAX_FRAME and NO_TIME not in (piece.first_time, piece.last_time))
