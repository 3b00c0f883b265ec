"""The bytes of streams that may be shown, as the stream engine finds their messages.

Bytes are located by their position in the stream, that is by sequence numbers. The kernel blanks regular messages that
need no judgement, `redact.message` all others. Bytes that were not understood are in no piece, so that they stay blank.
"""

from __future__ import annotations

import ctypes
import functools
import heapq
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.capture.write.output_files import PatchedFile
from kafkasniff.engine.roles import client_id_text
from kafkasniff.engine.stream_messages import answers_alone
from kafkasniff.engine.stream_questions import GAP, SEGMENT, StreamQuestions
from kafkasniff.kafka.apis.entities import METADATA_TOPIC_ID
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import request_plan, response_plan
from kafkasniff.kafka.messages.plausibility import is_gssapi_token
from kafkasniff.kafka.messages.rendered import MAX_INFLATED, Inflate, program_for
from kafkasniff.kafka.schema.codes import uuid_bytes
from kafkasniff.kafka.schema.context import ConnectionMemory
from kafkasniff.kafka.schema.definition import program_of
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS
from kafkasniff.native.blanking import PIECE, PLACE, PREFIX, MessageBlanks, StreamPieces, patch
from kafkasniff.native.caller import Program
from kafkasniff.native.feed import ARENA, ENDED, KEYS, MAX_FRAME, MESSAGE, REQUEST, VERSIONS, joined
from kafkasniff.native.library import Kernel
from kafkasniff.native.streams import EngineRows, RowKind
from kafkasniff.redact.message import BLANK, Blanker
from kafkasniff.tls.keylog import KeyLog

NO_STREAM: Final = (1 << 64) - 1
"""The stream of packets whose bytes stay blank."""
REPEATED: Final = 128 << 10
"""Bytes of a stream that are remembered for packets that are captured again (`stream_delivery.REPEATED`): an answer to
the same packet within the last 16 is one.
"""
MAX_PLACES: Final = 262_144
"""Maximum number of packets of a stream with unknown bytes; beyond it the first stay blank. 16 MiB after a hole need
this many if each holds 64 bytes; more are forgeries.
"""
MAX_CHUNKS: Final = 16
"""Groups of packets whose bytes are known, before they become one."""
MAX_KNOWN: Final = 1 << 21
"""Packets whose bytes are known, of all streams, of 64 bytes each; beyond it the older half is forgotten."""


class Places:
    """The payloads of the packets of one file."""

    def __init__(self, kernel: Kernel, file: PatchedFile) -> None:
        self._kernel = kernel
        self._file = file
        self._open = np.zeros(0, PLACE)
        """Packets with bytes that may still become known."""
        self._known: list[NDArray[np.void]] = []
        """Groups of packets whose bytes are known, for those that are captured again."""
        self._low = np.zeros(0, np.int64)
        """By stream, the position before which all bytes are known."""

    @property
    def connections(self) -> NDArray[np.int64]:
        """Numbers of connections with bytes that may become known."""
        streams = self._open["stream"]
        return np.unique(streams[streams != NO_STREAM] >> np.uint64(1)).astype(np.int64)

    def show(self, fresh: NDArray[np.void], pieces: StreamPieces) -> None:
        """Write pieces into the packets that have them; `fresh`: packets that were written since the last call."""
        before = self._open
        places = _sorted(joined((before, fresh))) if len(fresh) else before
        is_fresh = places["fresh"] > 0
        self._patch(places, pieces)
        if is_fresh.any():
            self._repeat(places, is_fresh, before)
        for name in ("known", "touched", "far"):
            places[name] = 0
        self._open = places

    def settle(self, numbers: NDArray[np.int64], low: NDArray[np.int64]) -> None:
        """Let go of packets whose bytes are known; `low`: for these connections, how far both streams are known."""
        if len(numbers):
            self._low = longer(self._low, 2 * int(numbers[-1]) + 1, 0)
            self._low[2 * numbers], self._low[2 * numbers + 1] = low[:, 0], low[:, 1]
        places = self._open.compress(self._open["stream"] != NO_STREAM)
        streams = places["stream"].astype(np.int64)
        is_open = places["end"] > self._low[streams]
        known = places.compress(~is_open & (places["end"] > self._low[streams] - REPEATED))
        if len(known):
            self._known.append(known)
            if len(self._known) > MAX_CHUNKS:
                self._known = [self._recent(joined(self._known))]
            if sum(map(len, self._known)) > MAX_KNOWN:
                self._forget_half()
        self._open = places.compress(is_open)
        if len(self._open) > MAX_PLACES:
            self._drop_most()

    def _forget_half(self) -> None:
        """Forget the older half of the packets whose bytes are known."""
        every = joined(self._known)
        self._known = [every.compress(every["at"] >= np.median(every["at"]))]

    def _recent(self, places: NDArray[np.void]) -> NDArray[np.void]:
        return places.compress(places["end"] > self._low[places["stream"].astype(np.int64)] - REPEATED)

    def _drop_most(self) -> None:
        """Drop the first half of the packets of streams that have too many."""
        _, first, counts = np.unique(self._open["stream"], return_index=True, return_counts=True)
        keeps = np.ones(len(self._open), np.bool_)
        for index in np.flatnonzero(counts > MAX_PLACES).tolist():
            keeps[first[index] : first[index] + counts[index] - MAX_PLACES // 2] = False
        self._open = self._open.compress(keeps)

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _patch(self, places: NDArray[np.void], pieces: StreamPieces) -> None:
        """Write pieces into all of these packets, wherever they are in the file."""
        file = self._file
        patch(self._kernel, places, pieces, file.tail, file.settled)
        for index in np.flatnonzero(places["far"]).tolist():
            place = places[index : index + 1].copy()
            start = int(place["header"][0])
            data = bytearray(file.read(start, int(place["at"][0] + place["end"][0] - place["position"][0]) - start))
            ends = pieces.rows["position"] + pieces.rows["size"].astype(np.int64)
            mine = (pieces.rows["stream"] == place["stream"]) & (ends > place["position"])
            mine &= pieces.rows["position"] < place["end"]
            patch(self._kernel, place, StreamPieces(pieces.rows.compress(mine), pieces.arena), data, start)
            file.patch(start, data)

    def _repeat(self, places: NDArray[np.void], is_fresh: NDArray[np.bool_], before: NDArray[np.void]) -> None:
        """Give packets that are captured again the bytes of the earlier ones."""
        missing = is_fresh & (places["known"] < places["end"] - places["position"]) & (places["stream"] != NO_STREAM)
        again = places.compress(missing)
        if not len(again):
            return
        streams, first = np.unique(again["stream"], return_index=True)
        low = again["position"][first]
        high = np.maximum.reduceat(again["end"], first)
        has = np.zeros(int(streams[-1]) + 1, np.bool_)
        has[streams.astype(np.int64)] = True
        found: list[NDArray[np.void]] = []
        for earlier in (*self._known, before):
            known = earlier.compress(has[np.minimum(earlier["stream"], len(has) - 1).astype(np.int64)])
            index = np.minimum(np.searchsorted(streams, known["stream"]), len(streams) - 1)
            within = (known["end"] > low[index]) & (known["position"] < high[index])
            found.append(known.compress(within & (streams[index] == known["stream"])))
        sources = joined(found)
        if len(sources):
            again["known"] = 0
            self._patch(again, self._pieces_of(sources))

    def _pieces_of(self, places: NDArray[np.void]) -> StreamPieces:
        """The bytes that packets have."""
        rows, arena = np.zeros(len(places), PIECE), bytearray()
        sizes = places["end"] - places["position"]
        for at, size in zip(places["at"].tolist(), sizes.tolist(), strict=True):
            arena += self._file.read(at, size)
        rows["stream"], rows["position"], rows["size"] = places["stream"], places["position"], sizes
        rows["start"] = np.cumsum(sizes) - sizes
        return StreamPieces(rows, arena)


def longer(column: NDArray[np.int64], index: int, fill: int) -> NDArray[np.int64]:
    """The same with an element at `index`, where new ones are `fill`."""
    if index < len(column):
        return column
    return np.concatenate((column, np.full(max(index + 1, 2 * len(column)) - len(column), fill)))


def _sorted(places: NDArray[np.void]) -> NDArray[np.void]:
    return places.take(np.lexsort((places["at"], places["position"], places["stream"])))


ORPHAN: Final = 2
"""Flag of a row (`stream_types.ORPHAN`)."""

_SCRAM_REQUESTS: Final = (b"n,", b"y,", b"p=", b"c=")
_SCRAM_ANSWERS: Final = (b"r=", b"v=", b"e=")
_GSSAPI_HEAD: Final = 24
"""Mark, length and mechanism of a GSSAPI token (RFC 2743, 3.1)."""
_PROXY_V1: Final = b"PROXY "
_PROXY_HEADS: Final = {0x11: 28, 0x21: 52}
"""Bytes of a binary PROXY header up to the end of its addresses, by family."""
_MESSAGES: Final = (RowKind.REQUEST, RowKind.RESPONSE)


class _Connection:
    """What earlier messages of a connection mean for later ones."""

    __slots__ = ("carries", "client", "mechanism", "memory", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.client: int | None = None
        self.memory = ConnectionMemory()
        self.carries: dict[int, object] = {}
        """What the responses to requests need of them, by ordinal."""
        self.mechanism: str | None = None
        """Mechanism of the raw tokens."""


class _Wrapped:
    """A connection that may be TLS: its bytes are shown as they are if it is."""

    __slots__ = ("at", "held")

    def __init__(self) -> None:
        self.at = [0, 0]
        """Position of the next byte in each stream."""
        self.held: list[tuple[int, int, bytes]] = []
        """Direction, position and bytes of segments."""


class StreamReading:
    """Reads the connections of an engine for their visible bytes.

    - `blanker`: decides what may be shown; None: only the connections are followed
    - `own_topics`: ids of the brokers' own topics
    - `ports`, `max_frame`: as for `Inspector`
    """

    def __init__(
        self,
        kernel: Kernel,
        blanker: Blanker | None,
        *,
        own_topics: Sequence[str],
        ports: frozenset[int],
        max_frame: int,
    ) -> None:
        keys = KeyLog()
        """None are needed: encrypted data stays so."""
        self._questions = StreamQuestions(kernel, lambda: keys, max_frame=max_frame, ports=ports)
        self._kernel = kernel
        self.engine = self._questions.engine
        self._blanker = blanker
        self._connections: dict[int, _Connection] = {}
        """Those that are read, by the engine's number."""
        self._wrapped: dict[int, _Wrapped] = {}
        self.encrypted: set[int] = set()
        """Connections that turned out to be TLS."""
        self._pieces: list[tuple[int, int, bytes]] = []
        """Stream, position and bytes."""
        self._numbers = np.zeros(0, np.int64)
        """The engine's number of each connection that is read, by slot; -1: none is."""
        self._clients = np.zeros(0, np.int64)
        self._buffer = b""
        if blanker is None:
            return
        self._questions.prologues = {}
        self._questions.items.tap = self._tap
        self._blanks = MessageBlanks(
            kernel,
            self._program,
            marks=CONNECT_KEYS,
            topics=[uuid_bytes(one) for one in {*own_topics, METADATA_TOPIC_ID}],
            inflates=self._inflate,
            secrets=blanker.secrets,
            payload=blanker.payload,
            max_records=blanker.options.max_records,
        )

    def _inflate(self, data: memoryview) -> Inflate:
        assert self._blanker is not None
        return Inflate(data, min(MAX_INFLATED, self._blanker.options.max_decompressed))

    def _program(self, code: int, is_request: bool) -> Program | None:
        assert self._blanker is not None
        key, version = divmod(code, VERSIONS)
        plan = request_plan(key, version) if is_request else response_plan(key, version)
        program: bytes | None = None
        if _is_open(code):
            # All of it is shown if it can be read to its end, whatever its embedded structures mean.
            assert plan.schema is not None
            program = program_of(plan.schema.root)
        elif answers_alone(code):
            program = program_for(plan, show_secrets=self._blanker.secrets, hides=not self._blanker.payload)
        return None if program is None else Program(self._kernel, program)

    # -- connections --------------------------------------------------------------------------------------------------

    def follow(self, number: int, slot: int) -> None:
        """Read a connection that begins in this call of the engine."""
        if self._blanker is None:
            return
        self._reserve(slot)
        self._connections[number] = _Connection(slot)
        self._numbers[slot] = number

    def _reserve(self, slot: int) -> None:
        self._numbers, self._clients = longer(self._numbers, slot, -1), longer(self._clients, slot, 0)

    def needed(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each connection, the positions in its streams before which nothing can be shown any more."""
        connections = [self._connections.get(number) for number in numbers.tolist()]
        found = np.full((len(numbers), 2), np.iinfo(np.int64).max)
        there = np.array([index for index, connection in enumerate(connections) if connection is not None], np.int64)
        slots = np.array([connection.slot for connection in connections if connection is not None], np.uint32)
        if len(slots):
            found[there] = self.engine.needed(slots)
        for number in self.encrypted.intersection(numbers.tolist()):
            if number in self._wrapped:
                found[np.flatnonzero(numbers == number)] = self._wrapped[number].at
        return found

    def _forget(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._numbers[connection.slot] = -1
        self._wrapped.pop(number, None)
        self._questions.forget(number)
        for direction in (0, 1):
            if self._questions.prologues:
                self._questions.prologues.pop((number, direction), None)

    # -- results of a call --------------------------------------------------------------------------------------------

    def read(self, taken: EngineRows, buffer: bytes) -> StreamPieces:
        """The pieces that a call of the engine made known; `buffer`: the batch's bytes."""
        rows = taken.rows
        gone = rows["connection"][rows["kind"] == RowKind.FORGOTTEN].tolist()
        pieces = StreamPieces(np.zeros(0, PIECE), bytearray())
        if self._blanker is not None:
            self._buffer = buffer
            for index in np.flatnonzero((rows["kind"] == RowKind.VERDICT) & (rows["a"] == 1)).tolist():
                connection = self._connections.get(int(rows["connection"][index]))
                if connection is not None:
                    connection.client = int(rows["direction"][index])
                    self._clients[connection.slot] = connection.client
            pieces = self._regular(taken)
            self._show_wrapped()
            pieces = self._with_others(pieces)
            self._pieces.clear()
        for number in gone:
            self._forget(number)
        self._questions.texts.clear()
        return pieces

    def _regular(self, taken: EngineRows) -> StreamPieces:
        """The pieces of regular messages; `_pieces` receives those of all others."""
        messages = taken.messages
        self._reserve(int(messages["connection"].max(initial=0)))
        numbers = self._numbers[messages["connection"]]
        wanted = (numbers >= 0) & ((messages["flags"] & ENDED) == 0) & (messages["position"] >= 0)
        rows = taken.rows
        unusual, arena_of_unusual = self._unusual(rows, len(taken.arena))
        source = taken.arena + arena_of_unusual
        mine = joined((messages.compress(wanted), unusual))
        numbers = self._numbers[mine["connection"]]
        count = len(mine) - len(unusual)
        sizes = mine["size"].astype(np.uint64) + np.uint64(PREFIX)
        starts = np.cumsum(sizes, dtype=np.uint64) - sizes
        arena = bytearray(int(sizes.sum()))
        found = np.zeros(len(mine), PIECE)
        clients = self._clients[mine["connection"]]
        directions = np.where((mine["flags"] & REQUEST) > 0, clients, 1 - clients)
        found["stream"], found["position"] = 2 * numbers + directions, mine["position"]
        found["start"], found["size"] = starts, sizes
        done = self._blanks.run(mine, self._buffer, source, starts, arena)
        left = np.flatnonzero(~done[:count])
        is_left = np.ones(len(rows), np.bool_)
        is_left[unusual["ordinal"][done[count:]]] = False
        others = self._in_order(rows.compress(is_left), self._left(mine, left, numbers, directions, source))
        for row in others:
            connection = self._connections.get(row["connection"])
            if connection is not None:
                self._take(connection, row)
        return StreamPieces(found.compress(done), arena)

    def _unusual(self, rows: NDArray[np.void], start: int) -> tuple[NDArray[np.void], bytes]:
        """Whole messages among the rows that are shown if they can be read, as regular ones, and their bytes.

        `start`: of these in the arena; `ordinal`: the index of the row.
        """
        is_message = (rows["kind"] == RowKind.REQUEST) | (
            (rows["kind"] == RowKind.RESPONSE) & (rows["flags"] & ORPHAN == 0)
        )
        is_message &= (rows["have"] == rows["size"]) & (rows["size"] <= MAX_FRAME) & (rows["position"] >= 0)
        is_message &= (rows["key"] >= 0) & (rows["key"] < KEYS) & (rows["version"] >= 0) & (rows["version"] < VERSIONS)
        found: list[tuple[Any, ...]] = []
        parts: list[bytes] = []
        for index in np.flatnonzero(is_message & (rows["body"] > 0)).tolist():
            row = rows[index]
            code = int(row["key"]) * VERSIONS + int(row["version"])
            connection = self._connections.get(int(row["connection"]))
            if connection is None or not _is_open(code):
                continue
            data, body, flags, client_id = _bytes_at(int(row["at"]), int(row["size"])), int(row["body"]), ARENA, -1
            if row["kind"] == RowKind.REQUEST:
                flags |= REQUEST
                if request_plan(int(row["key"]), int(row["version"])).header:
                    client_id = int.from_bytes(data[8:10], "big", signed=True)
            elif response_plan(int(row["key"]), int(row["version"])).header:
                if data[4:5] != b"\0":
                    continue
                body = 5
            found.append((start, index, connection.slot, len(data), body, code, client_id, flags, int(row["position"])))
            parts.append(data)
            start += len(data)
        made = np.zeros(len(found), MESSAGE)
        names = ("start", "ordinal", "connection", "size", "body", "code", "client_id", "flags", "position")
        for name, column in zip(names, zip(*found, strict=True), strict=False):
            made[name] = column
        return made, b"".join(parts)

    @staticmethod
    def _in_order(rows: NDArray[np.void], messages: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        names = rows.dtype.names or ()
        others: Iterator[dict[str, Any]] = (dict(zip(names, row, strict=True)) for row in rows.tolist())
        return heapq.merge(others, messages, key=itemgetter("step"))

    def _left(
        self,
        rows: NDArray[np.void],
        left: NDArray[np.intp],
        numbers: NDArray[np.int64],
        directions: NDArray[np.int64],
        arena: bytes,
    ) -> Iterator[dict[str, Any]]:
        """Regular messages that the kernel did not blank, in the form of rows."""
        names = MESSAGE.names or ()
        for index in left.tolist():
            row: dict[str, Any] = dict(zip(names, rows[index].item(), strict=True))
            flags, start = row["flags"], row["start"]
            source = arena if flags & ARENA else self._buffer
            row["data"] = source[start : start + row["size"]]
            row["key"], row["version"] = divmod(row["code"], VERSIONS)
            row["connection"], row["direction"] = int(numbers[index]), int(directions[index])
            row["kind"], row["flags"] = RowKind.REQUEST if flags & REQUEST else RowKind.RESPONSE, 0
            yield row

    def _with_others(self, pieces: StreamPieces) -> StreamPieces:
        """With those that were found one by one."""
        prologues = self._questions.prologues
        if prologues:
            firsts = {(int(stream), int(at)) for stream, at in pieces.rows[["stream", "position"]].tolist()}
            firsts |= {(stream, at) for stream, at, _ in self._pieces}
            for (number, direction), head in list(prologues.items()):
                if (2 * number + direction, len(head)) in firsts:
                    self._pieces.append((2 * number + direction, 0, _prologue(head)))
                    del prologues[number, direction]
        if not self._pieces:
            return pieces
        rows, arena = np.zeros(len(self._pieces), PIECE), pieces.arena
        rows["stream"] = [stream for stream, _, _ in self._pieces]
        rows["position"] = [position for _, position, _ in self._pieces]
        sizes = np.array([len(data) for _, _, data in self._pieces], np.uint64)
        rows["start"] = np.cumsum(sizes, dtype=np.uint64) - sizes + np.uint64(len(arena))
        rows["size"] = sizes
        arena += b"".join(data for _, _, data in self._pieces)
        return StreamPieces(joined((pieces.rows, rows)), arena)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _take(self, connection: _Connection, row: dict[str, Any]) -> None:
        kind = row["kind"]
        if kind in _MESSAGES:
            self._message(connection, row)
        elif kind == RowKind.TOKEN:
            self._show(row, self._token(connection, row))
        elif kind == RowKind.UNREADABLE:
            self._show(row, b"")
        elif kind == RowKind.CUT and row["b"]:
            # The length of an incomplete frame.
            self._put(row, row["size"].to_bytes(PREFIX, "big")[: row["have"]])
        elif kind == RowKind.ENDED:
            connection.carries.pop(row["ordinal"], None)
        elif kind == RowKind.SASL:
            name = client_id_text(_bytes_at(row["at"], row["size"]))
            connection.mechanism = "GSSAPI" if row["a"] else name if isinstance(name, str) and name else None

    def _message(self, connection: _Connection, row: dict[str, Any]) -> None:
        assert self._blanker is not None
        data = self._data(row)
        options, cut, is_request = self._blanker.options, len(data) != row["size"], row["kind"] == RowKind.REQUEST
        ordinal = row["ordinal"]
        if is_request:
            decoded = decode_request(data, 0, len(data), options, memory=connection.memory, cut=cut)
            if decoded.carry is not None:
                connection.carries[ordinal] = decoded.carry
        elif row["flags"] & ORPHAN:
            decoded = Decoded(correlation_id=row["correlation"])
        else:
            asked, memory = connection.carries.pop(ordinal, None), connection.memory
            key, version = row["key"], row["version"]
            decoded = decode_response(data, 0, len(data), key, version, options, memory=memory, request=asked, cut=cut)
        self._show(row, bytes(self._blanker.message(data, 0, len(data), decoded, request=is_request, cut=cut)))

    def _token(self, connection: _Connection, row: dict[str, Any]) -> bytes:
        """A raw token: the part that identifies it as one is shown."""
        assert self._blanker is not None
        token = self._data(row)
        if self._blanker.secrets:
            return token
        size = 0
        if is_gssapi_token(token, 0, len(token)):
            size = _GSSAPI_HEAD
        elif (connection.mechanism or "").startswith("SCRAM-"):
            is_request = row["direction"] == connection.client
            size = 2 * token.startswith(_SCRAM_REQUESTS if is_request else _SCRAM_ANSWERS)
        return token[:size].ljust(len(token), bytes([BLANK]))

    @staticmethod
    def _data(row: dict[str, Any]) -> bytes:
        data: bytes | None = row.get("data")
        return _bytes_at(row["at"], row["have"]) if data is None else data

    def _show(self, row: dict[str, Any], shown: bytes) -> None:
        """A frame with these bytes."""
        self._put(row, row["size"].to_bytes(PREFIX, "big") + shown)

    def _put(self, row: dict[str, Any], shown: bytes) -> None:
        if row["position"] >= 0:
            self._pieces.append((2 * row["connection"] + row["direction"], row["position"], shown))

    # -- TLS ----------------------------------------------------------------------------------------------------------

    def _tap(self, item: Any) -> None:
        """An item of a connection that may be TLS."""
        wrapped = self._wrapped.setdefault(item.connection, _Wrapped())
        if item.a == GAP:
            wrapped.at[item.direction] += item.b
        elif item.a == SEGMENT:
            data = ctypes.string_at(item.data, item.size)
            wrapped.held.append((item.direction, wrapped.at[item.direction], data))
            wrapped.at[item.direction] += len(data)

    def _show_wrapped(self) -> None:
        """Show the bytes of connections that are TLS; those of others are messages."""
        gates = self._questions.items.gates
        for number, wrapped in list(self._wrapped.items()):
            gate = gates.get(number)
            if number not in self._connections or gate is None or gate.plain:
                del self._wrapped[number]
            elif gate.encrypted:
                self.encrypted.add(number)
                self._pieces += [(2 * number + direction, at, data) for direction, at, data in wrapped.held]
                wrapped.held.clear()


@functools.cache  # bounded by the number of codes
def _is_open(code: int) -> bool:
    """Whether messages of a version of an API never hold secrets, payload or records."""
    key, version = divmod(code, VERSIONS)
    plans = request_plan(key, version), response_plan(key, version)
    return all(
        plan.schema is not None
        and not (plan.has_secrets or plan.schema.root.secrets or plan.schema.root.payload or plan.schema.root.records)
        for plan in plans
    )


def _prologue(head: bytes) -> bytes:
    """A PROXY header before a client's first frame: its addresses are shown."""
    if head.startswith(_PROXY_V1):
        return head
    shown = min(_PROXY_HEADS.get(head[13], 16), len(head))
    return head[:shown] + bytes(len(head) - shown)


def _bytes_at(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size) if size else b""
