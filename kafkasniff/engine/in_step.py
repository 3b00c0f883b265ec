"""Connections in step: requests and their responses in turn and nothing else, which the native kernel processes.

Python reassembles and pairs (`tcp/`, `kafka/connection/connection.py`), and hands a connection over when its packets
only have to be cut into frames and paired (`InStep.adopt`). At the packet at which anything else happens, Python gets
the connection back in the state that it would have reached itself. How messages are decoded is decided later, one by
one.

Requests that are answered in a later batch of packets, and responses to requests of an earlier one, become events as in
Python (`edges`), so that the state of an open exchange is always in one place. If exchanges become lines or columns,
they wait as columns (`plain_edges`, `whole`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import InspectedConnection, OpenExchange, forced_client
from kafkasniff.engine.outstanding import HIDDEN, ROW, BegunRequests, Outstanding, keys_of
from kafkasniff.engine.versions import client_id_text, distinct, version_of
from kafkasniff.kafka.apis.named_apis import PRODUCE
from kafkasniff.kafka.apis.weight import REQUEST_BYTES
from kafkasniff.kafka.connection.connection import ConnectionOptions, InTurn
from kafkasniff.kafka.connection.dialogue import Turn
from kafkasniff.kafka.connection.events import Event, ExchangeEvent, MessageEvent, VerdictEvent
from kafkasniff.kafka.connection.exchange import Pending
from kafkasniff.kafka.connection.framing import Frame, Piece
from kafkasniff.kafka.connection.opening import GREETING
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.messages.plausibility import begins_with_request
from kafkasniff.native.feed import (
    ARENA,
    CONNECTION,
    ENDED,
    HELD,
    JUDGED,
    KEYS,
    MAX_FRAME,
    NONE,
    RECENT,
    REQUEST,
    SILENT,
    VERSIONS,
    WAITING,
    Fed,
    Feed,
    packing,
)
from kafkasniff.native.library import Kernel
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.packets import ACK, COLUMNS, FIN, RST, SYN, PacketBatch
from kafkasniff.tcp.plan import Key, endpoints_of
from kafkasniff.tcp.segments import NO_TIME, PACKET_SHIFT, Item, Started
from kafkasniff.tcp.stream import MASK, Held, Packet, Stream
from kafkasniff.tls.keylog import KeyLog

__all__ = ["EVENTS", "HEADER", "Edges", "InStep", "Messages", "kind_of", "left_rows"]

HEADER: Final = 10
"""Bytes of a request's header before its client id; the last two are the client id's length."""
EVENTS: Final = 4
"""Largest number of events of one message, for numbering their places."""

MAX_BEGUN: Final = 16 << 10
MAX_BEGUN_BYTES: Final = 16 << 20
"""Bytes of a request that waits as a column with its body, and of all of them; larger ones are events."""

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
_ACKS_FIRST, _ACKS_BEHIND_STRING, _ACKS_BEHIND_COMPACT = 1, 2, 3


def kind_of(code: int) -> int:
    """The kernel's description of a version of an API: `feed.Kind`."""
    key, version = divmod(code, VERSIONS)
    plan = request_plan(key, version)
    # Messages that describe the connection have to be read before those that follow, even in the same batch.
    greets = key == GREETING
    if plan.asks_connection or (plan.needed and not greets) or not 0 < plan.header < 3:
        return 0
    # For an unknown version only the header is read, which does not show whether a response is expected.
    if not plan.known_version and key == PRODUCE:
        return 0
    acks = 0
    if key == PRODUCE:
        acks = _ACKS_BEHIND_COMPACT if version >= 9 else _ACKS_BEHIND_STRING if version >= 3 else _ACKS_FIRST
    return plan.header | acks << 2 | (response_plan(key, version).header > 0) << 4 | greets << 5


class Messages(NamedTuple):
    """Results of a batch: messages of all connections in step, in packet order."""

    rows: NDArray[np.void]
    """`native.feed.MESSAGE`."""
    buffer: bytes
    arena: bytes
    owners: list[InspectedConnection | None]
    """By connection index, at the end of the batch."""

    def client_id(self, index: int) -> str | bytes | None:
        """The client id of a request; bytes if it is not UTF-8."""
        row = self.rows[index]
        size = int(row["client_id"])
        if size < 0:
            return None
        start = int(row["start"]) + HEADER
        return client_id_text((self.arena if row["flags"] & ARENA else self.buffer)[start : start + size])


class Begins(NamedTuple):
    """SYNs of a batch without a known connection, by row."""

    rows: NDArray[np.uint32]
    """Rising."""
    keys: dict[int, Key]


class Begun(NamedTuple):
    """Changes of connections that began in the kernel, in one batch."""

    connections: list[TcpConnection]
    """Connections that began; they have no owner yet."""
    judged: list[tuple[int, int]]
    """Index and row of the first request of connections that are Kafka since then."""


class Edges(NamedTuple):
    """Messages whose exchange began earlier or ends later and needs no other state."""

    is_edge: NDArray[np.bool_]
    """Which of all messages these are."""
    begun: NDArray[np.intp]
    """Requests whose exchange ends later."""
    selected: NDArray[np.uint8]
    """Whether a filter selects each of them."""
    answers: NDArray[np.intp]
    """Responses to requests of earlier batches, and the requests (`outstanding.ROW`)."""
    answered: NDArray[np.void]
    others: list[tuple[int, Pending]]
    """Additional responses, with their requests."""


Entry = tuple[int, int, InspectedConnection, Event]
"""An event with the inspector's sort key."""


class InStep:
    """Connections in the kernel. `idle`: nanoseconds of silence after which a connection is over."""

    def __init__(self, kernel: Kernel, options: ConnectionOptions, *, idle: int) -> None:
        self._options = options
        judge = begins_with_request
        self._feed = Feed(kernel, kind_of, judge, idle=idle, max_frame=options.max_frame, every_end=options.every_end)
        self._connections: list[TcpConnection | None] = []
        """By index."""
        self._here = 0
        self._waiting: dict[tuple[int, int], Pending] = {}
        """Requests of earlier batches without a response, by connection index and ordinal: those that were events, or
        that were handed over with the connection."""
        self._owners: list[InspectedConnection | None] = []
        """By index."""
        self.outstanding = Outstanding()
        """The other outstanding requests: those with lines, and whole messages if exchanges become columns."""
        self._asked = BegunRequests()
        self._late: list[Entry] = []
        self.pin: Callable[[int, bool], None] | None = None
        """Receives the filter's decision on exchanges that Python reads from now on; None without a filter."""
        self._kept = 0
        """Bytes of unfinished frames, of segments after a gap, and of early responses."""

    def __len__(self) -> int:
        """Number of connections in step."""
        return self._here

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of the requests and unfinished frames of all connections in step."""
        return len(self._waiting) * REQUEST_BYTES + self.outstanding.memory + self._asked.memory + self._kept

    # -- packets ------------------------------------------------------------------------------------------------------

    def feed(self, batch: PacketBatch, clock: NDArray[np.int64], begins: Begins | None = None) -> Fed:
        """Pass packets of connections in step to the kernel; `clock`: the packet clock at each row.

        Connections that fall out of step are in the state before their first row that was not processed. Only the
        kernel's memory changes, so another thread may call this; `enter` has to follow.
        """
        return self._feed.feed(batch, clock) if begins is None else self._feed.feed(batch, clock, begins.rows)

    def enter(
        self, batch: PacketBatch, clock: NDArray[np.int64], begins: Begins | None, fed: Fed
    ) -> list[TcpConnection]:
        """Register and return the connections that began in the kernel. Their owners are set by `own`."""
        self._kept = fed.kept
        if begins is None:
            return []
        return [self._begun(batch, int(clock[row]), index, row, begins.keys[row]) for index, row in fed.begun]

    def messages(self, batch: PacketBatch, fed: Fed) -> Messages:
        """The messages of a batch; all connections have their owners.

        Handshake messages become individual events.
        """
        rows = fed.messages
        rows["pair"][rows["code"] // VERSIONS == GREETING] = NONE
        return Messages(rows, batch.buffer, fed.arena, self._owners.copy())

    def begins(self, batch: PacketBatch, known: Callable[[Key], object], ports: Container[int]) -> Begins | None:
        """The SYNs of a batch with which connections may begin in the kernel.

        `known`: returns whether there is a connection between these endpoints; `ports`: Kafka's ports; empty: any port
        may be.
        """
        rows = np.flatnonzero(batch.flags & (SYN | ACK | FIN | RST) == SYN)
        if not len(rows):
            return None
        rows = rows[(batch.wire_length[rows] == 0) & (batch.time_ns[rows] != NO_TIME)]
        found = {
            row: key
            for row, key, is_higher in zip(rows.tolist(), *endpoints_of(batch, rows), strict=True)
            if not known(key) and (not ports or forced_client(key, ports) == is_higher)
        }
        return Begins(np.array(list(found), np.uint32), found) if found else None

    def _begun(self, batch: PacketBatch, clock: int, index: int, row: int, key: Key) -> TcpConnection:
        """A connection that began in the kernel; its current state is in the kernel only."""
        packet = int(batch.capture[row]) << PACKET_SHIFT | int(batch.number[row])
        order, time_ns = int(batch.order[row]), int(batch.time_ns[row])
        tcp = TcpConnection(key, Packet(0, order, packet, time_ns, clock, 0, 0, SYN, 0, 0, 0, 0))
        tcp.place = index
        self._enter(tcp)
        self._here += 1
        return tcp

    def _enter(self, tcp: TcpConnection) -> None:
        index = tcp.place
        self._connections += [None] * (index + 1 - len(self._connections))
        self._owners += [None] * (index + 1 - len(self._owners))
        self._connections[index] = tcp
        if tcp.owner is not None:
            self.own(tcp)

    def own(self, tcp: TcpConnection) -> None:
        """Register the owner of a connection."""
        assert isinstance(tcp.owner, InspectedConnection)
        self._owners[tcp.place] = tcp.owner

    def judged(self, batch: PacketBatch, fed: Fed) -> Iterator[tuple[InspectedConnection, VerdictEvent]]:
        """The connections recognized as Kafka at a packet of the batch, in order, and when they were recognized."""
        for index, row in fed.judged:
            if self._feed.connections["begun"][index] != JUDGED:
                continue  # The kernel did not process its packet after all.
            owner, client = self._owners[index], int(self._feed.connections["client"][index])
            assert owner is not None
            owner.tls = None
            owner.kafka.begin_in_step(client)
            packet = int(batch.capture[row]) << PACKET_SHIFT | int(batch.number[row])
            yield owner, VerdictEvent(int(batch.order[row]), True, client, "", int(batch.time_ns[row]), packet)

    def edges(self, messages: Messages, without: NDArray[np.bool_] | None = None) -> Iterator[Entry]:
        """The events of exchanges that began earlier or end later, with the inspector's sort key.

        All of them have to be consumed before connections are taken back, because they set which requests wait.
        `without`: messages that are not events (`plain_edges`, `whole`).
        """
        chosen = messages.rows["pair"] == NONE
        if without is not None:
            chosen &= ~without
        for index in np.flatnonzero(chosen).tolist():
            yield from self._edge(messages, index)

    def plain_edges(self, messages: Messages, selected: NDArray[np.uint8] | None = None) -> tuple[Messages, Edges]:
        """Messages whose exchange is not whole in the batch, and that need not be events.

        That is true if responses of this version of the API depend on their bytes alone. At a level that hides
        exchanges, and where they were hidden, they are counted and removed from the returned messages.

        `selected`: whether a filter selects a request that is answered later, by message. Above 1 the decision is open:
        such requests and their responses are events, since an `Exchange` has to be emitted.
        """
        ended = messages.rows[:0]
        if selected is None:
            messages, ended = self._without_ended(messages)
        rows, hides = messages.rows, self._options.detail.hides
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        plain = _of_codes(rows, alone, _answers_alone)
        if selected is not None:
            # Exchanges without a response also need an `Exchange`.
            plain &= (~is_request | (selected <= 1)) & ((rows["flags"] & (SILENT | ENDED)) == 0)
        hidden = ~alone if hides else np.zeros(len(rows), bool)
        answers = np.flatnonzero(plain & ~is_request)
        found, answered = self.outstanding.take(keys_of(rows[answers]))
        hidden[answers[found][answered["number"] == HIDDEN]] = True
        others: list[tuple[int, Pending]] = []
        if selected is not None:
            plain[answers[~found]] = False
        for index in answers[~found].tolist() if selected is None else ():
            pending = self._waiting.pop((int(rows["connection"][index]), int(rows["ordinal"][index])))
            others.append((index, pending))
            hidden[index] = pending.hidden
        begun = np.flatnonzero(plain & is_request)
        if hides:
            hidden[begun] = True
        begun = self._end_silent(messages, begun, ended)
        own = np.zeros(len(begun), np.uint8) if selected is None else selected[begun]
        self._begin(messages, begun, own)
        answers = answers[found]
        if hidden.any():
            self._count_hidden(is_request[hidden])
        for index in np.flatnonzero(alone & ~plain).tolist():
            hidden[index] = self._hidden_edge(messages, index)
        if hidden.any():
            shown = ~hidden
            place = np.cumsum(shown) - 1
            answered, answers = answered[shown[answers]], place[answers[shown[answers]]]
            others = [(int(place[index]), pending) for index, pending in others if shown[index]]
            own, begun = own[shown[begun]], place[begun[shown[begun]]]
            plain, rows = plain[shown], rows[shown]
            whole = rows["pair"] != NONE
            rows["pair"][whole] = place[rows["pair"][whole]]
        return messages._replace(rows=rows), Edges(plain, begun, own, answers, answered, others)

    def _hidden_edge(self, messages: Messages, index: int) -> bool:
        """Whether this message belongs to an exchange that is hidden; if so, it is counted, and needs no event."""
        row = messages.rows[index]
        if row["flags"] & REQUEST and not row["flags"] & ENDED:
            hidden = self._options.detail.hides and int(row["code"]) // VERSIONS != GREETING
        else:
            pending = self._waiting.get((int(row["connection"]), int(row["ordinal"])))
            hidden = pending is not None and pending.hidden
        if hidden:
            for _ in self._edge(messages, index):
                raise AssertionError("a hidden exchange has no events")
        return hidden

    @staticmethod
    def _without_ended(messages: Messages) -> tuple[Messages, NDArray[np.void]]:
        """The messages alone, and the ends of exchanges without a response."""
        rows = messages.rows
        is_ended = (rows["flags"] & ENDED) > 0
        if not is_ended.any():
            return messages, rows[:0]
        place = np.cumsum(~is_ended) - 1
        ended, rows = rows[is_ended], rows[~is_ended]
        whole = rows["pair"] != NONE
        rows["pair"][whole] = place[rows["pair"][whole]]
        return messages._replace(rows=rows), ended

    def _end_silent(self, messages: Messages, begun: NDArray[np.intp], ended: NDArray[np.void]) -> NDArray[np.intp]:
        """Remove exchanges that had no response; returns those of `begun` that are not among them."""
        if not len(ended):
            return begun
        keys = keys_of(ended)
        found = self.outstanding.drop(keys)
        asked = keys_of(messages.rows[begun])
        for row in ended[~found & ~np.isin(keys, asked)]:
            place, ordinal = int(row["connection"]), int(row["ordinal"])
            if not self._waiting.pop((place, ordinal)).hidden:
                owner = messages.owners[place]
                assert owner is not None
                del owner.exchanges[ordinal]
        return begun[~np.isin(asked, keys)]

    def whole(self, messages: Messages, takes: Callable[[int], bool]) -> tuple[Messages, NDArray[np.bool_]]:
        """The messages, with requests of earlier batches that are answered now, and which of them wait from now on.

        Those that wait are not events. `takes`: whether exchanges of a version of an API, by its code, become columns.
        """
        rows = messages.rows
        alone, is_request = rows["pair"] == NONE, (rows["flags"] & REQUEST) > 0
        # Requests that expect no response are events, and so are their ends.
        alone &= (rows["flags"] & (SILENT | ENDED)) == 0
        answers = np.flatnonzero(alone & ~is_request)
        found, asked = self._asked.take(keys_of(rows[answers]))
        begun = alone & is_request & (rows["size"] <= MAX_BEGUN)
        begun = _of_codes(rows, begun, lambda code: _answers_alone(code) and takes(code))
        begun &= np.cumsum(np.where(begun, rows["size"], 0), dtype=np.int64) + len(self._asked.data) <= MAX_BEGUN_BYTES
        before = self._asked.data
        self._asked.add(rows[begun], messages.buffer, messages.arena)
        if not len(asked):
            return messages, begun
        answers = answers[found]
        asked["start"] += np.uint64(self._feed.put(before))
        asked["pair"] = answers
        rows["pair"][answers] = len(rows) + np.arange(len(asked))
        begun = np.append(begun, np.zeros(len(asked), np.bool_))
        return messages._replace(rows=np.concatenate((rows, asked)), arena=self._feed.arena), begun

    def late(self) -> list[Entry]:
        """Events of requests that waited as columns and whose connections were taken back since (`whole`)."""
        late, self._late = self._late, []
        return late

    def _begin(self, messages: Messages, begun: NDArray[np.intp], selected: NDArray[np.uint8]) -> None:
        """Store these requests until their responses arrive."""
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
        made["client_id"], made["selected"] = self.outstanding.indices(ids), selected
        made["number"] = HIDDEN if self._options.detail.hides else 0
        self.outstanding.add(keys_of(rows), made)

    def count_hidden_pairs(self, messages: Messages) -> None:
        """Count the messages of whole exchanges that are not shown."""
        rows = messages.rows
        self._count_hidden((rows["flags"][rows["pair"] != NONE] & REQUEST) > 0)

    def _count_hidden(self, is_request: NDArray[np.bool_]) -> None:
        left_out, requests = self._options.detail.left_out, int(np.count_nonzero(is_request))
        left_out.requests += requests
        left_out.responses += len(is_request) - requests

    def take_back(self, fallen: list[int]) -> list[TcpConnection]:
        """Take the connections that fell out of step back, by their indices."""
        return [self._take_back(index) for index in fallen]

    def _edge(self, messages: Messages, index: int) -> Iterator[Entry]:
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
        if flags & ENDED:
            if not self._waiting.pop((connection, ordinal)).hidden:
                over = ExchangeEvent(order, ordinal, "no_response", time_ns, packet, retransmits=retransmits)
                yield order, place, owner, over
            return
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
                silent=bool(flags & SILENT),
                carry=decoded.carry,
                hidden=detail.hides and key != GREETING,
            )
            if self._waiting[connection, ordinal].hidden:
                detail.left_out.requests += 1
                return
            problems = detail.told(key, is_request=True, has_body=decoded.body is not None) if detail.level else ()
            event = MessageEvent(order, ordinal, frame, True, decoded, decoded.client_id, problems)
            yield order, place, owner, event
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
        if pending.api_key == GREETING:
            kafka.greeted(pending, decoded, time_ns)
        problems = ()
        if detail.level:
            problems = detail.told(pending.api_key, is_request=False, has_body=decoded.body is not None)
        event = MessageEvent(order, ordinal, frame, False, decoded, pending.client_id, problems, latency, duration)
        yield order, place, owner, event
        if self._options.every_end:
            end_ = ExchangeEvent(
                order, ordinal, "answered", time_ns, packet, latency, duration, retransmits=retransmits
            )
            yield order, place + 1, owner, end_

    # -- handing over -------------------------------------------------------------------------------------------------

    def adopt(self, tcp: TcpConnection) -> bool:
        """Hand a connection to the kernel if it is in step. Hot: called once for each connection and batch."""
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
            self._enter(tcp)
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
            self._waiting[index, pending.ordinal] = pending
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
        self._here += 1

    def _stream(self, stream: Stream, piece: Piece) -> list[int]:
        """A stream's part of the row of a connection."""
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
            stream.next - stream.seen_from,
            0,
            NONE,
            NONE,
            0,
            0,
            stream.opened_count,
            NO_TIME if stream.acked < 0 else stream.acked - stream.next,
        ]

    def _take_back(self, index: int) -> TcpConnection:
        """Give the full state of a connection that fell out of step back to Python."""
        tcp = self._connections[index]
        assert tcp is not None
        owner = tcp.owner
        assert isinstance(owner, InspectedConnection)
        row: tuple[Any, ...] = _ROW.unpack_from(self._feed.memory, index * _ROW.size)
        if row[_BEGUN]:
            self._begin_again(tcp, row)
            if row[_BEGUN] != JUDGED:
                self._begin_search(tcp, row)
                return tcp
        repeats, tcp.clock, tcp.last_packet, tcp.last_time, packets, tcp.packets = row[11:17]
        tcp.seen += packets
        ordinal, last_id, last_answer, has_id, has_answer, vary, rise, most, first, _, count, again = row[17:29]
        early, _, early_count, _, ticks, silent, _, silent_count, _, _, *place = row[29:_CONNECTION_FIELDS]
        waiting: list[Pending] = []
        begun = count + silent_count
        held = {int(one["ordinal"]): one for one in self.outstanding.take_connection(index)} if begun else {}
        if count:
            asked_here = Messages(self._asked.take_connection(index), b"", self._asked.data, self._owners)
            self._late.extend(self.edges(asked_here))
        for begin, number in ((first, count), (silent, silent_count)):
            entry = begin
            for _ in range(number):
                asked = int(self._feed.waiting["ordinal"][entry])
                found = held.get(asked)
                if found is None:
                    waiting.append(self._waiting.pop((index, asked)))
                else:
                    waiting.append(self._pending(found, owner, silent=len(waiting) >= count))
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
            self._early(1 - row[7], early, early_count),
            ticks,
        )
        state = InTurn(
            turn, waiting, most, (pieces[0], pieces[1]), (place[0], place[1], place[2]), opened=has_answer == _OPENED
        )
        holes = bool(tcp.streams[0].held), bool(tcp.streams[1].held)
        owner.kafka.take_back(state, (seen[0], seen[1]), (framed[0], framed[1]), repeats, holes)
        self._here -= 1
        return tcp

    def _begin_again(self, tcp: TcpConnection, row: tuple[Any, ...]) -> None:
        """Restore the streams of a connection that began in the kernel to the state before their first bytes."""
        begun, client = row[_BEGUN], row[_CLIENT]
        self._feed.connections["begun"][tcp.place] = 0
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
        assert owner.tls is not None
        tcp.clock, tcp.last_packet, tcp.last_time, packets = row[12:16]
        tcp.seen += packets
        client = row[_CLIENT]
        sides = (client,) if row[_BEGUN] == _SYN else (client, 1 - client)
        started: list[Item] = [Started(tcp.first_order, side, client=side == client) for side in sides]
        owner.kafka.feed(owner.tls.feed(started, KeyLog()))
        self._here -= 1

    def _pending(self, row: Any, owner: InspectedConnection, *, silent: bool) -> Pending:
        """A waiting request in Python's form; its exchange's state goes to Python's place for it."""
        number, first_time, time_ns, ordinal, correlation, _, code, selected = row.item()
        version = version_of(code)
        if number > 0:
            exchange = owner.exchanges[ordinal] = OpenExchange(number)
            exchange.api, exchange.api_version, exchange.correlation_id = version.api, version.version, correlation
            if self.pin is not None:
                self.pin(number, bool(selected))
        return Pending(
            ordinal,
            version.key,
            version.version,
            correlation,
            self.outstanding.client_id(row),
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
        at, *rest = _HELD_ROW.unpack_from(self._feed.held_memory, entry * _HELD_ROW.size)
        self._feed.hold_no_more(entry)
        return self._feed.arena[at : at + rest[9]], *rest

    def clock(self, tcp: TcpConnection) -> int:
        """The packet clock at the last packet of a connection."""
        row = self._feed.connections[tcp.place]
        return int(row["clock"]) if row["here"] else tcp.clock

    def recall(self, tcp: TcpConnection) -> None:
        """Take a connection back between two batches, if it is in the kernel."""
        if tcp.place >= 0 and self._feed.connections["here"][tcp.place]:
            self._feed.connections["here"][tcp.place] = 0
            self._take_back(tcp.place)

    def recall_all(self) -> list[TcpConnection]:
        """Take all connections back and return them."""
        here = np.flatnonzero(self._feed.connections["here"]).tolist() if self._here else []
        self._feed.connections["here"] = 0
        return [self._take_back(index) for index in here]

    def forget(self, tcp: TcpConnection) -> int:
        """Forget a connection; returns its index, which may be reused from now on, or -1."""
        place = tcp.place
        if place >= 0:
            self.recall(tcp)
            self._feed.remove(place)
            self._connections[place] = self._owners[place] = None
            tcp.place = -1
        return place


def _of_codes(rows: NDArray[np.void], chosen: NDArray[np.bool_], wanted: Callable[[int], bool]) -> NDArray[np.bool_]:
    """Which of the chosen messages have a wanted version of an API."""
    codes = rows["code"].astype(np.int64)
    known = np.zeros(KEYS * VERSIONS, bool)
    if chosen.any():
        known[[code for code in distinct(codes[chosen]) if wanted(code)]] = True
    of: NDArray[np.bool_] = chosen & known[codes]
    return of


@functools.cache  # bounded by the number of codes
def _answers_alone(code: int) -> bool:
    """Whether decoding responses needs nothing but their bytes."""
    key, version = divmod(code, VERSIONS)
    return request_plan(key, version).alone and response_plan(key, version).alone and key != GREETING


def left_rows(batch: PacketBatch, left: NDArray[np.uint32], clock: NDArray[np.int64]) -> PacketBatch:
    """The rows of a batch that were not processed, as a batch; `clock`: the packet clock at each row."""
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
    """Whether the stream waits for its next byte and nothing else."""
    return stream.clean and stream.heard and stream.ack is not None


def _may_go_on(piece: Piece) -> bool:
    """Whether the kernel may complete a frame."""
    return not piece.data or (piece.need <= MAX_FRAME and NO_TIME not in (piece.first_time, piece.last_time))
