"""The stream engine of the kernel: packets in, rows out, questions in between (`kernel/streams.zig`).

This module handles memory and knows nothing of Kafka; `engine/stream_questions.py` answers.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.model import NO_TIME
from kafkasniff.native.feed import MESSAGE, copied, unfilled
from kafkasniff.native.library import Kernel
from kafkasniff.packets import PacketBatch

# -- networks of connections (`kernel/link.zig`) -----------------------------------------------------------------------


UNKNOWN: Final = -1
"""Stands for a duration that is unknown."""
ORDINAL_BITS: Final = 40
"""More exchanges than a connection has."""
OPENINGS: Final = (None, "answered", "refused", "unanswered")
"""Outcomes of a handshake (`stream_types.Opening`); None: its beginning was not captured."""


class Follows(IntEnum):
    """What is noted of the network of connections (`streams.Follows`)."""

    NOTHING, LINKS, EXCHANGES = range(3)


class Links(msgspec.Struct, frozen=True):
    """The network of connections that are over, or of open ones so far."""

    rows: NDArray[np.void]
    """`stream_types.LinkRow`."""
    stalls: NDArray[np.void]
    """`stream_types.LinkStall`: those of each row in a row, from its `stalls` on."""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def none(cls) -> Links:
        """No connections."""
        return cls(np.empty(0, np.void), np.empty(0, np.void))

    @classmethod
    def together(cls, every: Sequence[Links]) -> Links:
        """All of several, in order."""
        if len(every) <= 1:
            return every[0] if every else cls.none()
        rows, stalls = (
            np.concatenate([links.rows for links in every]),
            np.concatenate([links.stalls for links in every]),
        )
        before = np.cumsum([0, *(len(links.stalls) for links in every[:-1])])
        rows["stalls"] += np.repeat(before, [len(links) for links in every]).astype(np.uint32)
        return cls(rows, stalls)


class Network(NamedTuple):
    """What the network was like during an exchange (`stream_types.Network`). The first of two numbers is the client's.

    Times and durations are in nanoseconds.
    """

    handshake: list[int]
    """Round trips to the broker and to the client by the handshake, or `UNKNOWN`."""
    round_trips: list[int]
    """The lowest until the response was complete, likewise."""
    resent_at: int
    """NO_TIME: nothing that the request needed was lost."""
    before_done: int
    """End of the latest earlier response of the connection; NO_TIME: there was none."""
    quiet_since: int
    """The same of its latest earlier message or token."""
    muted_until: int
    """Time until which an earlier response of the connection asked the client to send nothing; NO_TIME: none did."""
    again: list[int]
    late: list[int]
    late_ns: list[int]
    closed: list[int]
    closed_ns: list[int]


class Networks(NamedTuple):
    """What the network was like during exchanges, in the order in which those of a connection ended."""

    connections: NDArray[np.int64]
    """Numbers of the connections."""
    rows: NDArray[np.void]
    """`stream_types.Network`."""

    def places(self, connections: NDArray[np.int64], ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these exchanges, by the number of the connection and the ordinal; `UNKNOWN`: no row."""
        if not len(self.rows):
            return np.full(len(connections), UNKNOWN, np.int64)
        keys = _keys(self.connections, self.rows["ordinal"])
        order = np.argsort(keys)
        keys, wanted = keys[order], _keys(connections, ordinals)
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[found] == wanted, order[found], UNKNOWN)

    def one(self, place: int) -> Network:
        """A row."""
        return Network(*(self.rows[name][place].tolist() for name in Network._fields))


def _keys(connections: NDArray[np.int64], ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
    return (connections << ORDINAL_BITS) + ordinals


# -- structures, as the kernel describes them (`kernel/stream_types.zig`, `layout`) ------------------------------------


_CODES: Final = {
    "i1": ctypes.c_int8,
    "u1": ctypes.c_uint8,
    "i2": ctypes.c_int16,
    "u2": ctypes.c_uint16,
    "i4": ctypes.c_int32,
    "u4": ctypes.c_uint32,
    "i8": ctypes.c_int64,
    "u8": ctypes.c_uint64,
}


class _Field(NamedTuple):
    name: str
    offset: int
    length: int
    """Elements of an array; 0: no array."""
    code: str


class Layouts:
    """The structures by name, from the kernel's description of them."""

    def __init__(self, text: str) -> None:
        self._fields: dict[str, list[_Field]] = {}
        self._sizes: dict[str, int] = {}
        for entry in text.split(";"):
            name, _, parts = entry.partition("=")
            for part in parts.split(","):
                if not part:
                    continue
                field, offset, code = part.split(":")
                if field == "size" and not code:
                    self._sizes[name] = int(offset)
                    continue
                count, _, one = code.rpartition("*")
                self._fields.setdefault(name, []).append(_Field(field, int(offset), int(count or 0), one))

    def rows(self, name: str) -> np.dtype[Any]:
        """The type of the rows of an array of these."""
        fields = self._fields[name]
        formats: list[Any] = [(field.code, (field.length,)) if field.length else field.code for field in fields]
        names, offsets = [field.name for field in fields], [field.offset for field in fields]
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": self._sizes[name]})

    def structure(self, name: str) -> type[ctypes.Structure]:
        """A structure that is passed to a function."""
        found: list[tuple[str, Any]] = []
        end = 0
        for one in sorted(self._fields[name], key=lambda field: field.offset):
            if one.offset > end:
                found.append((f"padding_{end}", ctypes.c_uint8 * (one.offset - end)))
            element: Any = _CODES[one.code]
            kind = element * one.length if one.length else element
            found.append((one.name, kind))
            end = one.offset + ctypes.sizeof(kind)
        if end < self._sizes[name]:
            found.append((f"padding_{end}", ctypes.c_uint8 * (self._sizes[name] - end)))
        made: type[ctypes.Structure] = type(name, (ctypes.Structure,), {"_pack_": 1, "_fields_": found})
        assert ctypes.sizeof(made) == self._sizes[name]
        return made


# -- the engine --------------------------------------------------------------------------------------------------------


NOTHING: Final = 0
ENTER: Final = 1
PLAUSIBLE: Final = 2
"""Answers to questions (`stream_types.Answer`)."""

UNKNOWN_POSITION: Final = -(1 << 63)
"""No position in a stream (`stream_types.UNKNOWN`)."""

COLUMNS: Final = (
    *("order", "capture", "number", "time_ns", "src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port"),
    *("seq", "ack", "flags", "offset", "length", "wire_length", "ident", "window"),
)


class RowKind:
    """Kinds of rows (`stream_types.Kind`)."""

    REQUEST, RESPONSE, TOKEN, OPENED, VERDICT, ENDED, TCP, RESYNC, IMPOSSIBLE, UNREADABLE = range(10)
    TEXT, CUT, UNEXPECTED, SASL, CLIENT, CLOSED, FORGOTTEN = range(10, 17)


class QuestionKind:
    """Kinds of questions (`stream_types.Question`)."""

    FACTS, HIGHEST_VERSIONS, PROLOGUE, BEGINS_REQUEST, BEGINS_HEADER, BEGINS_RESPONSE, JUDGE_REQUEST = range(7)
    ANSWERS, AGAINST, MAY_BE_REQUEST, FITS, EXACT_RESPONSE, LIKELY_REQUEST, ITEM = range(7, 14)


class EngineRows(msgspec.Struct, frozen=True):
    """Results of a call. The arrays, and the addresses in them, are valid until the next one."""

    rows: NDArray[np.void]
    messages: NDArray[np.void]
    """Regular messages (`native.feed.MESSAGE`), which are not among the rows. A copy."""
    asked: NDArray[np.void]
    """Requests that were kept (`StreamEngine.keep`) and leave; `pair`: a regular response. In the arena; a copy."""
    arena: bytes
    """Bytes of messages with the flag `ARENA`."""
    opened: NDArray[np.void]
    endings: NDArray[np.void]
    links: Links
    """The network of connections that are over. A copy."""
    networks: NDArray[np.void]
    """What it was like during the exchanges that ended (`stream_types.Network`). A copy."""
    totals: dict[str, int]
    """Sums over all connections so far."""
    owners: NDArray[np.uint32] | None = None
    """The connection of each packet."""
    positions: NDArray[np.int64] | None = None
    """The position of each packet's payload in its stream; UNKNOWN_POSITION if far before the next expected byte."""


ALL: Final = 0xFFFF_FFFF


def _packets_of(batch: PacketBatch) -> str:
    if not len(batch):
        return "no packets"
    first, last = (batch.captures[batch.capture[at]] for at in (0, -1))
    of = "" if first == last else f" of {first}"
    return f"packets {batch.number[0]:,}{of} to {batch.number[-1]:,} of {last}"


class _Options(ctypes.Structure):
    _fields_ = (
        ("secret", ctypes.c_uint64 * 2),
        ("max_frame", ctypes.c_int64),
        ("ports", ctypes.c_void_p),
        ("ports_count", ctypes.c_uint64),
        ("remembered", ctypes.c_uint64),
        ("follows", ctypes.c_uint64),
    )


class StreamEngine:
    """All connections of a run. `answer` gets each question, a structure `Ask`, and returns the answer.

    What `answer` raises is raised by the call in which it was asked; the engine cannot be used afterwards.

    `follows`: what it notes of the network of connections; `remembered`: times of problems of packets that all of them
    together may remember for exchanges.
    """

    def __init__(
        self,
        kernel: Kernel,
        answer: Callable[[Any], int],
        *,
        max_frame: int,
        ports: Iterable[int],
        follows: Follows = Follows.NOTHING,
        remembered: int = 0,
    ) -> None:
        self._kernel = kernel
        layouts = Layouts(kernel.streams_layout().decode())
        self._row, self._opened = layouts.rows("Row"), layouts.rows("Opened")
        self._ending, self._holding = layouts.rows("Ending"), layouts.rows("Holding")
        self._link, self._stall = layouts.rows("LinkRow"), layouts.rows("LinkStall")
        self._network = layouts.rows("Network")
        self._totals = layouts.rows("Totals").names or ()
        self.ask: type[Any] = layouts.structure("Ask")
        """A question, or an item of clear streams."""
        self._batch = layouts.structure("Batch")
        self._view: Any = layouts.structure("View")()
        self._raised: BaseException | None = None
        self._clock = NO_TIME
        pointer = ctypes.POINTER(self.ask)

        def call(question: Any) -> int:
            try:
                return answer(question.contents)
            except BaseException as error:  # an exception must not pass through the kernel
                self._raised = self._raised or error
                return NOTHING

        self._callback = ctypes.CFUNCTYPE(ctypes.c_int32, pointer)(call)
        listed = np.array(sorted(ports), np.uint16)
        secret = (ctypes.c_uint64 * 2).from_buffer_copy(os.urandom(16))
        options = _Options(secret, max_frame, listed.ctypes.data, len(listed), remembered, follows)
        self._engine = kernel.streams_new(self._callback, ctypes.byref(options))
        if not self._engine:
            raise MemoryError

    def __del__(self) -> None:
        self.free()

    def free(self) -> int:
        """Give all memory back; returns the bytes that were lost, which should be 0."""
        engine, self._engine = getattr(self, "_engine", None), None
        return self._kernel.streams_free(engine) if engine else 0

    # -- packets ------------------------------------------------------------------------------------------------------

    def take(
        self,
        batch: PacketBatch,
        *,
        locates: bool = False,
    ) -> EngineRows:
        """Process the next packets in capture order; `locates`: with the place of each of them."""
        clock, (orders, clocks) = self._clocks(batch)
        call: Any = self._batch()
        call.rows = len(batch)
        for name in COLUMNS:
            setattr(call, name, getattr(batch, name).ctypes.data)
        call.clock = clock.ctypes.data
        data = np.frombuffer(batch.buffer or b"\0", np.uint8)
        call.buffer, call.buffer_size = data.ctypes.data, len(batch.buffer)
        call.end_order, call.end_clock = batch.end_order, batch.end_clock
        call.ticks, call.tick_order, call.tick_clock = len(orders), orders.ctypes.data, clocks.ctypes.data
        owners = positions = None
        if locates:
            owners, positions = np.empty(len(batch), np.uint32), np.empty(len(batch), np.int64)
            call.owners, call.positions = owners.ctypes.data, positions.ctypes.data
        self._kernel.at_hand = functools.partial(_packets_of, batch)
        self._kernel.streams_take(self._engine, ctypes.byref(call))
        self._kernel.at_hand = None
        return msgspec.structs.replace(self._results(), owners=owners, positions=positions)

    def _clocks(self, batch: PacketBatch) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The packet clock at each row; order and packet clock of all packets, those of other shards too."""
        if batch.ticks is None:
            orders, times = batch.order, batch.time_ns if batch.clock is None else batch.clock
        else:
            orders, times = batch.ticks
        clocks = np.ascontiguousarray(np.maximum.accumulate(np.maximum(times, self._clock)))
        orders = np.ascontiguousarray(orders)
        if len(clocks):
            self._clock = int(clocks[-1])
        rows = clocks if len(orders) == len(batch) else clocks[np.searchsorted(orders, batch.order)]
        return np.ascontiguousarray(rows), (orders, clocks)

    def finish(self, most: int = ALL) -> EngineRows:
        """End the capture: the first connections end, `most` of them."""
        self._kernel.streams_finish(self._engine, most)
        return self._results()

    def let_go(self, connections: Sequence[int]) -> EngineRows:
        """End these connections here; their later packets begin in mid-stream."""
        indices = np.array(connections, np.uint32)
        self._kernel.streams_let_go(self._engine, indices.ctypes.data, len(indices))
        return self._results()

    def _results(self) -> EngineRows:
        if self._raised is not None:
            raise self._raised
        self._kernel.streams_view(self._engine, ctypes.byref(self._view))
        view: Any = self._view
        arena = unfilled(view.arena_size)
        if arena:
            self._kernel.streams_gather(self._engine, arena)
        return EngineRows(
            _array(view.rows, view.rows_count, self._row),
            copied(_array(view.messages, view.messages_count, MESSAGE)),
            copied(_array(view.asked, view.asked_count, MESSAGE)),
            arena,
            _array(view.opened, view.opened_count, self._opened),
            _array(view.endings, view.endings_count, self._ending),
            self._links(),
            copied(_array(view.networks, view.networks_count, self._network)),
            dict(zip(self._totals, view.totals, strict=True)),
        )

    def _links(self) -> Links:
        view: Any = self._view
        stalls = _array(view.stalls, view.stalls_count, self._stall)
        return Links(copied(_array(view.links, view.links_count, self._link)), copied(stalls))

    def release(self) -> None:
        """Free what the results of the last call refer to."""
        self._kernel.streams_release(self._engine)
        self._kernel.streams_view(self._engine, ctypes.byref(self._view))

    def keep(self, requests: NDArray[np.void], buffer: bytes, arena: bytes, *, whole: bool) -> None:
        """Keep requests of the last call (`MESSAGE`) until they leave, as far as they are still outstanding.

        Their numbers and marks are kept, too. `buffer`, `arena`: where they are; `whole`: with their bodies.
        """
        rows = np.ascontiguousarray(requests)
        stores = (np.frombuffer(store or b"\0", np.uint8) for store in (buffer, arena))
        places = (store.ctypes.data for store in stores)
        self._kernel.streams_keep(self._engine, rows.ctypes.data, len(rows), *places, whole)

    # -- within a question --------------------------------------------------------------------------------------------

    def pass_item(self, item: Any) -> None:
        """Pass an item of the clear streams, an `Ask`, within a question about an item."""
        self._kernel.streams_item(self._engine, ctypes.byref(item))

    # -- between batches ----------------------------------------------------------------------------------------------

    @property
    def memory(self) -> int:
        """Bytes of memory that connections hold, without themselves, as of the last call."""
        used: int = self._view.memory
        return used

    @property
    def kept(self) -> int:
        """Bytes of kept requests, as of the last call."""
        size: int = self._view.kept_bytes
        return size

    def __len__(self) -> int:
        """Connections remembered, as of the last call."""
        count: int = self._view.connections
        return count

    @property
    def questions(self) -> int:
        """Questions so far, as of the last call."""
        count: int = self._view.questions
        return count

    def open_links(self) -> Links:
        """The network of all connections so far. The results of the last call become invalid."""
        self._kernel.streams_links(self._engine)
        self._kernel.streams_view(self._engine, ctypes.byref(self._view))
        return self._links()

    def holdings(self) -> NDArray[np.void]:
        """What each connection holds (`stream_types.Holding`)."""
        at = ctypes.c_uint64()
        count = self._kernel.streams_holdings(self._engine, ctypes.byref(at))
        return _array(at.value, count, self._holding).copy()

    def needed(self, slots: NDArray[np.uint32]) -> NDArray[np.int64]:
        """For connections, the position in each of both streams before which all bytes were read."""
        found = np.empty((len(slots), 2), np.int64)
        self._kernel.streams_needed(self._engine, slots.ctypes.data, len(slots), found.ctypes.data)
        return found

    def save(self, slot: int) -> bytes:
        """The state of a connection between two batches."""
        size = ctypes.c_uint64()
        at = self._kernel.streams_save(self._engine, slot, ctypes.byref(size))
        return ctypes.string_at(at, size.value)

    def load(self, state: bytes) -> tuple[int, int]:
        """Continue a connection that was saved; its number and its slot. Raises ValueError if the state is unknown."""
        slot = ctypes.c_uint32()
        index: int = self._kernel.streams_load(self._engine, state, len(state), ctypes.byref(slot))
        if index < 0:
            raise ValueError("the state of a connection is damaged, or of another version")
        return index, slot.value

    def drop(self, slot: int) -> None:
        """Forget a connection without a trace."""
        self._kernel.streams_drop(self._engine, slot)

    @property
    def clocks(self) -> tuple[int, int, int]:
        """The packet clock, that of the end of the captures, and the order after the last packet."""
        found = (ctypes.c_int64 * 3)()
        self._kernel.streams_clock(self._engine, ctypes.byref(found), False)
        return found[0], found[1], found[2]

    @clocks.setter
    def clocks(self, clocks: tuple[int, int, int]) -> None:
        self._kernel.streams_clock(self._engine, ctypes.byref((ctypes.c_int64 * 3)(*clocks)), True)
        self._clock = clocks[0]


def _array(address: int, count: int, dtype: np.dtype[Any]) -> NDArray[np.void]:
    if not count:
        return np.empty(0, dtype)
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    found: NDArray[np.void] = np.frombuffer(memory, dtype)
    return found
