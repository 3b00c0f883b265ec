"""Connections in step: nothing but requests and the responses to them in turn, which the native kernel takes.

Whoever reassembles and pairs in Python (`tcp/`, `kafka/connection.py`) hands a connection over when all that is left to
do with its packets is to cut frames and to pair them (`InStep.adopt`), and gets it back at the packet at which anything
else happens, in the state that it would be in. What the messages are read as is decided later, one by one.

Requests that are answered in a later batch of packets, and the responses to requests of an earlier one, become events
as in Python (`edges`), so that what is known of an open exchange is always in one place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection, OpenExchange
from kafkasniff.kafka.connection import ConnectionOptions, InTurn
from kafkasniff.kafka.dialogue import Turn
from kafkasniff.kafka.events import Event, ExchangeEvent, MessageEvent
from kafkasniff.kafka.exchange import Pending
from kafkasniff.kafka.framing import Frame, Piece
from kafkasniff.kafka.message import decode_request, decode_response
from kafkasniff.kafka.message_plan import request_plan, response_plan
from kafkasniff.kafka.named_apis import PRODUCE
from kafkasniff.kafka.weight import REQUEST_BYTES
from kafkasniff.native.feed import (
    ARENA,
    CONNECTION,
    HELD,
    KEYS,
    MAX_FRAME,
    NONE,
    RECENT,
    REQUEST,
    VERSIONS,
    WAITING,
    Fed,
    Feed,
    packing,
)
from kafkasniff.native.library import Kernel
from kafkasniff.outstanding import HIDDEN, ROW, Outstanding, keys_of
from kafkasniff.packets import COLUMNS, PacketBatch
from kafkasniff.streams import NO_TIME
from kafkasniff.tcp import TcpConnection
from kafkasniff.tcp.stream import MASK, Held, Stream
from kafkasniff.versions import client_id_text, distinct, version_of

__all__ = ["EVENTS", "HEADER", "Edges", "InStep", "Messages", "kind_of", "left_rows"]

HEADER: Final = 10
"""Bytes of a request's header up to its client id, whose length is the last two."""
EVENTS: Final = 4
"""Events that one message yields at most, for their place behind each other."""

_ROW: Final = packing(CONNECTION)
_WAITING_ROW: Final = packing(WAITING)
_CONNECTION_FIELDS: Final = 31
_STREAM_FIELDS: Final = 14 + 3 * RECENT + 8
_HELD_ROW: Final = packing(HELD)
_ACKS_FIRST, _ACKS_BEHIND_STRING, _ACKS_BEHIND_COMPACT = 1, 2, 3


def kind_of(code: int) -> int:
    """What the kernel knows of a version of an API: `feed.Kind`."""
    key, version = divmod(code, VERSIONS)
    plan = request_plan(key, version)
    # What is said of a connection has to be read before what comes behind it, also of the same batch.
    if not plan.known_version or plan.asks_connection or plan.needed or not 0 < plan.header < 3:
        return 0
    acks = 0
    if key == PRODUCE:
        acks = _ACKS_BEHIND_COMPACT if version >= 9 else _ACKS_BEHIND_STRING if version >= 3 else _ACKS_FIRST
    return plan.header | acks << 2 | (response_plan(key, version).header > 0) << 4


class Messages(NamedTuple):
    """What came of a batch: messages of all connections in step, in the order of packets."""

    rows: NDArray[np.void]
    """`native.feed.MESSAGE`."""
    buffer: bytes
    arena: bytes
    owners: list[InspectedConnection | None]
    """By the index of a connection, at the end of the batch."""

    def client_id(self, index: int) -> str | bytes | None:
        """The client id of a request; bytes where it is not UTF-8."""
        row = self.rows[index]
        size = int(row["client_id"])
        if size < 0:
            return None
        start = int(row["start"]) + HEADER
        return client_id_text((self.arena if row["flags"] & ARENA else self.buffer)[start : start + size])


class Edges(NamedTuple):
    """Messages whose exchange began earlier or ends later, and of which nothing else has to be known."""

    is_edge: NDArray[np.bool_]
    """Which of all messages."""
    begun: NDArray[np.intp]
    """Requests whose exchange ends later."""
    answers: NDArray[np.intp]
    """Responses to requests of earlier batches, and these (`outstanding.ROW`)."""
    answered: NDArray[np.void]
    others: list[tuple[int, Pending]]
    """Further responses, with their requests."""


class InStep:
    """Connections that the kernel has. `idle`: nanoseconds of silence after which a connection is over."""

    def __init__(self, kernel: Kernel, options: ConnectionOptions, *, idle: int) -> None:
        self._options = options
        self._feed = Feed(kernel, kind_of, idle=idle, max_frame=options.max_frame, every_end=options.every_end)
        self._connections: list[TcpConnection | None] = []
        """By index."""
        self._here = 0
        self._waiting: dict[tuple[int, int], Pending] = {}
        """Requests of earlier batches without a response, by the index of the connection and their ordinal: those that
        were events, or came with the connection."""
        self._owners: list[InspectedConnection | None] = []
        """By index."""
        self.outstanding = Outstanding()
        """The others."""
        self._kept = 0
        """Bytes of unfinished frames and of segments behind holes."""

    def __len__(self) -> int:
        """Connections in step."""
        return self._here

    @property
    def memory(self) -> int:
        """Bytes of memory of the requests and the unfinished frames of all connections here, about."""
        return len(self._waiting) * REQUEST_BYTES + self.outstanding.memory + self._kept

    # -- packets ------------------------------------------------------------------------------------------------------

    def feed(self, batch: PacketBatch, clock: NDArray[np.int64]) -> tuple[Messages, Fed]:
        """Take the packets of connections in step; `clock`: the packet clock at each row.

        Those that fall out of step are back in the state before the first of their rows that was left.
        """
        fed = self._feed.feed(batch, clock)
        self._kept = fed.kept
        messages = Messages(fed.messages, batch.buffer, fed.arena, self._owners.copy())
        return messages, fed

    def edges(
        self, messages: Messages, without: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[int, int, int, InspectedConnection, Event]]:
        """The events of exchanges that began earlier or end later, with what the inspector sorts by.

        All of them have to be taken before connections are taken back: then it is known what waits. `without`: messages
        that are no events (`plain_edges`).
        """
        chosen = messages.rows["pair"] == NONE
        if without is not None:
            chosen &= ~without
        for index in np.flatnonzero(chosen).tolist():
            yield from self._edge(messages, index)

    def plain_edges(self, messages: Messages) -> tuple[Messages, Edges]:
        """The messages that have the other one of their exchange elsewhere, and need not be events.

        So it is with versions of APIs whose responses are read by nothing but their bytes. At a level that hides
        exchanges, and where they were hidden, they are counted and left out of the messages that are returned.
        """
        rows, hides = messages.rows, self._options.detail.hides
        codes = rows["code"].astype(np.int64)
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        known = np.zeros(KEYS * VERSIONS, bool)
        known[[code for code in distinct(codes[alone]) if _answers_alone(code)]] = True
        plain = alone & known[codes]
        hidden = ~alone if hides else np.zeros(len(rows), bool)
        answers = np.flatnonzero(plain & ~is_request)
        found, answered = self.outstanding.take(keys_of(rows[answers]))
        hidden[answers[found][answered["number"] == HIDDEN]] = True
        others: list[tuple[int, Pending]] = []
        for index in answers[~found].tolist():
            pending = self._waiting.pop((int(rows["connection"][index]), int(rows["ordinal"][index])))
            others.append((index, pending))
            hidden[index] = pending.hidden
        begun = np.flatnonzero(plain & is_request)
        self._begin(messages, begun)
        if hides:
            hidden[begun] = True
        answers = answers[found]
        if hidden.any():
            self._count_hidden(is_request[hidden])
            shown = ~hidden
            place = np.cumsum(shown) - 1
            answered, answers = answered[shown[answers]], place[answers[shown[answers]]]
            others = [(int(place[index]), pending) for index, pending in others if shown[index]]
            begun, plain, rows = place[begun[shown[begun]]], plain[shown], rows[shown]
            whole = rows["pair"] != NONE
            rows["pair"][whole] = place[rows["pair"][whole]]
        return messages._replace(rows=rows), Edges(plain, begun, answers, answered, others)

    def _begin(self, messages: Messages, begun: NDArray[np.intp]) -> None:
        """These requests wait for their responses from here on."""
        if not len(begun):
            return
        rows = messages.rows[begun]
        buffer, arena = messages.buffer, messages.arena
        starts = (rows["start"] + np.uint64(HEADER)).tolist()
        columns = (starts, rows["client_id"].tolist(), (rows["flags"] & ARENA).tolist())
        ids = [
            None if size < 0 else (arena if place else buffer)[start : start + size]
            for start, size, place in zip(*columns, strict=True)
        ]
        made = np.zeros(len(rows), ROW)
        for name in ("first_time", "time", "ordinal", "correlation", "code"):
            made[name] = rows[name]
        made["client_id"] = self.outstanding.indices(ids)
        made["number"] = HIDDEN if self._options.detail.hides else 0
        self.outstanding.add(keys_of(rows), made)

    def count_hidden_pairs(self, messages: Messages) -> None:
        """Count the messages of exchanges that are whole and not shown."""
        rows = messages.rows
        self._count_hidden((rows["flags"][rows["pair"] != NONE] & REQUEST) > 0)

    def _count_hidden(self, is_request: NDArray[np.bool_]) -> None:
        left_out, requests = self._options.detail.left_out, int(np.count_nonzero(is_request))
        left_out.requests += requests
        left_out.responses += len(is_request) - requests

    def take_back(self, fallen: list[int]) -> list[TcpConnection]:
        """The connections that fell out of step, by their indices."""
        return [self._take_back(index) for index in fallen]

    def _edge(self, messages: Messages, index: int) -> Iterator[tuple[int, int, int, InspectedConnection, Event]]:
        (
            order,
            start,
            first_packet,
            last_packet,
            packet,
            first_time,
            time_ns,
            latency,
            duration,
            ordinal,
            connection,
            size,
            _,
            correlation_id,
            _,
            code,
            _,
            step,
            flags,
            _,
            retransmits,
        ) = messages.rows[index].item()
        owner = messages.owners[connection]
        assert owner is not None
        kafka = owner.kafka
        client = kafka.client
        assert client is not None
        data = messages.arena if flags & ARENA else messages.buffer
        is_request = bool(flags & REQUEST)
        end = start + size
        frame = Frame(
            order,
            client if is_request else 1 - client,
            data,
            start,
            end,
            size,
            first_packet,
            last_packet,
            first_time,
            time_ns,
            packet,
        )
        detail, memory = kafka.detail, kafka.memory
        options = detail.decode
        place = step * EVENTS
        if is_request:
            decoded = decode_request(data, start, end, options, memory=memory, later=True)
            key, version = divmod(code, VERSIONS)
            self._waiting[connection, ordinal] = Pending(
                ordinal,
                key,
                version,
                correlation_id,
                decoded.client_id,
                first_time,
                time_ns,
                carry=decoded.carry,
                hidden=detail.hides,
            )
            if detail.hides:
                detail.left_out.requests += 1
                return
            problems = detail.told(key, is_request=True, has_body=decoded.body is not None) if detail.level else ()
            event = MessageEvent(order, ordinal, frame, True, decoded, decoded.client_id, problems)
            yield order, owner.place, place, owner, event
            return
        pending = self._waiting.pop((connection, ordinal))
        if pending.hidden:
            detail.left_out.responses += 1
            return
        decoded = decode_response(
            data,
            start,
            end,
            pending.api_key,
            pending.api_version,
            options,
            memory=memory,
            request=pending.carry,
            later=True,
        )
        problems = ()
        if detail.level:
            problems = detail.told(pending.api_key, is_request=False, has_body=decoded.body is not None)
        event = MessageEvent(order, ordinal, frame, False, decoded, pending.client_id, problems, latency, duration)
        yield order, owner.place, place, owner, event
        if self._options.every_end:
            end_ = ExchangeEvent(
                order, ordinal, "answered", time_ns, packet, latency, duration, retransmits=retransmits
            )
            yield order, owner.place, place + 1, owner, end_

    # -- handing over -------------------------------------------------------------------------------------------------

    def adopt(self, tcp: TcpConnection) -> bool:
        """Take a connection over, if it is in step; it must not be here. Hot: once for each connection and batch."""
        owner = tcp.owner
        assert isinstance(owner, InspectedConnection)
        one, other = tcp.streams
        if (
            tcp.closed
            or tcp.pending_syn is not None
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
            and self._feed.kind(key * VERSIONS + version) != 0
        )

    def _write(self, tcp: TcpConnection, owner: InspectedConnection, state: InTurn) -> None:
        feed = self._feed
        index = tcp.place
        if index < 0:
            index = tcp.place = feed.add(tcp.endpoints)
            self._connections += [None] * (index + 1 - len(self._connections))
            self._owners += [None] * (index + 1 - len(self._owners))
            self._connections[index], self._owners[index] = tcp, owner
        first = last = NONE
        for pending in state.waiting:
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
            if last == NONE:
                first = entry
            else:
                feed.waiting["next"][last] = entry
            last = entry
            self._waiting[index, pending.ordinal] = pending
        turn = state.turn
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
            first,
            last,
            len(state.waiting),
            turn.retransmits,
            *state.place,
            *streams,
        )
        feed.activate(index)
        self._here += 1

    def _stream(self, stream: Stream, piece: Piece) -> list[int]:
        """What the row of a connection has of a stream."""
        recent = stream.take_recent()
        assert stream.next is not None
        assert stream.ack is not None
        at = self._feed.put(piece.data) if piece.data else 0
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
            stream.next - stream.begin,
            0,
            NONE,
            NONE,
            0,
            0,
            stream.opened_count,
            NO_TIME if stream.acked < 0 else stream.acked - stream.next,
        ]

    def _take_back(self, index: int) -> TcpConnection:
        """A connection fell out of step: all that is known of it goes back."""
        tcp = self._connections[index]
        assert tcp is not None
        owner = tcp.owner
        assert isinstance(owner, InspectedConnection)
        row: tuple[Any, ...] = _ROW.unpack_from(self._feed.memory, index * _ROW.size)
        repeats, tcp.clock, tcp.last_packet, tcp.last_time, packets, tcp.packets = row[10:16]
        tcp.seen += packets
        ordinal, last_id, last_answer, has_id, has_answer, vary, rise, most, first, _, count, again, *place = row[16:31]
        waiting: list[Pending] = []
        entry = first
        held = {int(one["ordinal"]): one for one in self.outstanding.take_connection(index)} if count else {}
        for _ in range(count):
            asked = int(self._feed.waiting["ordinal"][entry])
            found = held.get(asked)
            waiting.append(self._waiting.pop((index, asked)) if found is None else self._pending(found, owner))
            entry, before = int(self._feed.waiting["next"][entry]), entry
            self._feed.wait_no_more(before)
        pieces: list[Piece] = []
        seen: list[int] = []
        framed: list[int] = []
        for direction, stream in enumerate(tcp.streams):
            begin = _CONNECTION_FIELDS + direction * _STREAM_FIELDS
            _, ack, size, cut, at, have, _, need, sized, *packets_and_times, data_packets = row[begin : begin + 14]
            data = self._feed.arena[at : at + have]
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
            stream.recent = [
                recent[3 * (number % RECENT) : 3 * (number % RECENT) + 3]
                for number in range(max(data_packets - RECENT, 0), data_packets)
            ]
        turn = Turn(
            ordinal,
            last_id if has_id else None,
            bool(vary),
            bool(rise),
            last_answer if has_answer else None,
            again,
        )
        state = InTurn(turn, waiting, most, (pieces[0], pieces[1]), (place[0], place[1], place[2]))
        holes = bool(tcp.streams[0].held), bool(tcp.streams[1].held)
        owner.kafka.take_back(state, (seen[0], seen[1]), (framed[0], framed[1]), repeats, holes)
        self._here -= 1
        return tcp

    def _pending(self, row: Any, owner: InspectedConnection) -> Pending:
        """A request that waits, as Python has it; what is known of its exchange goes where Python has that."""
        number, first_time, time_ns, ordinal, correlation, _, code = row.item()
        version = version_of(code)
        if number > 0:
            exchange = owner.exchanges[ordinal] = OpenExchange(number)
            exchange.api, exchange.api_version, exchange.correlation_id = version.api, version.version, correlation
        return Pending(
            ordinal,
            version.key,
            version.version,
            correlation,
            self.outstanding.client_id(row),
            first_time,
            time_ns,
            hidden=number == HIDDEN,
        )

    def _held(self, stream: Stream, first: int, count: int) -> list[Held]:
        """Segments behind a hole, as a stream has them."""
        found: list[Held] = []
        for _ in range(count):
            at, packet, time_ns, when, clock, seq, size, following, _ = _HELD_ROW.unpack_from(
                self._feed.held_memory, first * _HELD_ROW.size
            )
            data = self._feed.arena[at : at + size]
            found.append(Held(stream.position(seq), data, size, packet, time_ns, when, clock))
            self._feed.hold_no_more(first)
            first = following
        return found

    def clock(self, tcp: TcpConnection) -> int:
        """The packet clock at the last packet of a connection."""
        row = self._feed.connections[tcp.place]
        return int(row["clock"]) if row["here"] else tcp.clock

    def recall(self, tcp: TcpConnection) -> None:
        """Take a connection back between two batches, if it is here."""
        if tcp.place >= 0 and self._feed.connections["here"][tcp.place]:
            self._feed.connections["here"][tcp.place] = 0
            self._take_back(tcp.place)

    def recall_all(self) -> list[TcpConnection]:
        """Take all connections back; returns them."""
        here = np.flatnonzero(self._feed.connections["here"]).tolist() if self._here else []
        self._feed.connections["here"] = 0
        return [self._take_back(index) for index in here]

    def forget(self, tcp: TcpConnection) -> int:
        """Know a connection no more; returns the index that it had, which others may have from now on, or -1."""
        place = tcp.place
        if place >= 0:
            self.recall(tcp)
            self._feed.remove(place)
            self._connections[place] = self._owners[place] = None
            tcp.place = -1
        return place


@functools.cache  # as many as there are codes
def _answers_alone(code: int) -> bool:
    """Whether responses are read by nothing but their bytes."""
    key, version = divmod(code, VERSIONS)
    request, response = request_plan(key, version), response_plan(key, version)
    return all(plan.alone and (plan.interpret is None or plan.reads_records) for plan in (request, response))


def left_rows(batch: PacketBatch, left: NDArray[np.uint32], clock: NDArray[np.int64]) -> PacketBatch:
    """The rows of a batch that were left, as a share of it; `clock`: the packet clock at each row of the batch."""
    return PacketBatch(
        {name: getattr(batch, name)[left] for name in COLUMNS},
        batch.buffer,
        captures=batch.captures,
        end_clock=batch.end_clock,
        end_order=batch.end_order,
        packets=batch.packets,
        notes=batch.notes,
        ticks=(batch.order, clock) if batch.ticks is None else batch.ticks,
    )


def _is_plain(stream: Stream) -> bool:
    """Whether the next byte is the only one that is waited for."""
    return stream.clean and stream.heard and stream.ack is not None and not stream.missing


def _may_go_on(piece: Piece) -> bool:
    """Whether the kernel may complete a frame."""
    return not piece.data or (piece.need <= MAX_FRAME and NO_TIME not in (piece.first_time, piece.last_time))
