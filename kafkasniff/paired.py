"""Messages of connections in step, with their exchanges: as entries that are told one by one, and as columns.

What is told of them here has both messages in one batch of packets; the others are events (`in_step.InStep.edges`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection
from kafkasniff.in_step import EVENTS, Messages
from kafkasniff.kafka.ahead import Ahead, BodyMaker
from kafkasniff.kafka.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.waits import Turns
from kafkasniff.model import Message
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, TAGS, VERSIONS
from kafkasniff.repeats import Repeats
from kafkasniff.streams import NO_TIME
from kafkasniff.versions import Version, distinct, version_of

__all__ = ["ColumnTurns", "Open", "PairColumns", "PairFinder", "Paired", "PairedEntry", "entries"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_NOTHING: Final = np.zeros(0, np.int64)

PairedEntry = tuple[
    int,
    int,
    int,
    InspectedConnection,
    "Paired",
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    "Version | None",
    int,
    int,
    int,
    int,
    int,
    int,
]
"""Order, place of the connection and place within it, as the inspector sorts; connection; where the exchange is noted
(`Paired.open`), at what index; its ordinal within the connection; the message's start, its size, the length of the
client id; correlation id; packet, time_ns; the API's version, None for a response; latency of a response; its duration;
the lowest and the highest of the message's packets; the index of the message; of a response, the retransmissions since
the exchange before."""


class Paired:
    """What messages of one batch have in common: `buffer` with their bytes, and their exchanges."""

    __slots__ = ("ahead", "buffer", "context", "open", "repeats")

    def __init__(
        self, buffer: bytes, exchanges: list[Open | None], options: DecodeOptions, repeats: Repeats | None = None
    ) -> None:
        self.buffer = buffer
        self.ahead: Ahead | None = None
        """Bodies, by the index of the message."""
        self.repeats = repeats
        """Bodies that may be those of several messages."""
        if repeats is not None:
            repeats.use(options)
        self.context = DecodeContext(options)
        """Of all messages in which there is nothing to note (`message.decode_body`)."""
        self.open = exchanges
        """What a request leaves for its response, at the exchange's index; for whoever tells the messages."""


Open = tuple[int, "Version", str | bytes | None, object, Message | None]
"""What is known of an exchange whose request was told: its number, the API's version, client id, what the response is
read by, and the request, where an `Exchange` is to be told."""


class PairColumns(NamedTuple):
    """Exchanges as columns of one length."""

    owners: list[InspectedConnection | None]
    """By the index of a connection."""
    asked: NDArray[np.void]
    """The requests (`native.feed.MESSAGE`)."""
    answered: NDArray[np.void]
    """The responses."""
    names: list[str]
    client_id: Ints
    """Index in `names`, `NONE` where there is none."""
    facts: Any = None
    """What bodies say, for whoever takes these; None: only headers were read."""
    throttle_ns: Ints = _NOTHING
    """This and the next ones are there with `facts`: the throttle time that the response tells, and whether brokers
    answer at once and keep silent then."""
    at_once: Bools = _NOTHING.astype(bool)
    behind_ns: Ints = _NOTHING
    """For the inspector to fill: as `model.Exchange` has them."""
    muted_ns: Ints = _NOTHING


def entries(
    messages: Messages,
    options: DecodeOptions,
    repeats: Repeats | None = None,
    maker: BodyMaker | None = None,
    chosen: Bools | None = None,
) -> list[PairedEntry]:
    """The messages of exchanges that are whole, or those chosen of them, in their order.

    `repeats`: bodies that messages may share; `maker`: makes bodies, some at a time.
    """
    rows = messages.rows
    whole = rows["pair"] != NONE
    index = np.flatnonzero(whole if chosen is None else whole & chosen)
    if not len(index):
        return []
    rows = rows[index]
    is_request, in_arena = (rows["flags"] & REQUEST) > 0, (rows["flags"] & ARENA) > 0
    exchange = np.where(is_request, index, rows["pair"])
    open_: list[Open | None] = [None] * len(messages.rows)
    kinds = [Paired(messages.buffer, open_, options, repeats)]
    if in_arena.any():
        kinds.append(Paired(messages.arena, open_, options, repeats))
    if maker is not None and maker.use(options):
        for paired, mine in zip(kinds, (~in_arena, in_arena), strict=False):
            if mine.any():
                paired.ahead = _ahead(maker, messages.rows, index[mine], paired.buffer)
    places = [0 if owner is None else owner.place for owner in messages.owners]
    connection = rows["connection"].tolist()
    versions: dict[int, Version | None] = {-1: None}
    for code in distinct(rows["code"].astype(np.int64)):
        versions[code] = version_of(code)
    columns: list[list[Any]] = [
        exchange.tolist(),
        *(rows[name].tolist() for name in ("ordinal", "start", "size")),
        np.where(is_request, rows["client_id"], 0).tolist(),
        *(rows[name].tolist() for name in ("correlation", "packet", "time")),
        [versions[code] for code in np.where(is_request, rows["code"].astype(np.int64), -1).tolist()],
        *(rows[name].tolist() for name in ("latency", "duration", "first_packet", "last_packet")),
        index.tolist(),
        rows["retransmits"].tolist(),
    ]
    return list(
        zip(
            rows["order"].tolist(),
            map(places.__getitem__, connection),
            (rows["step"] * EVENTS).tolist(),
            map(messages.owners.__getitem__, connection),
            map(kinds.__getitem__, in_arena.tolist()) if len(kinds) > 1 else repeat(kinds[0]),
            *columns,
            strict=False,  # `repeat` has no end
        )
    )


def _ahead(maker: BodyMaker, rows: NDArray[np.void], index: Ints, buffer: bytes) -> Ahead:
    """The bodies of these messages, which are told in this order."""
    programs = np.zeros((2, KEYS * VERSIONS), np.uint64)
    for code in distinct(rows["code"][index].astype(np.int64)):
        key, version = divmod(code, VERSIONS)
        for row, direction in enumerate(("response", "request")):
            program = maker.program(key, version, direction)  # type: ignore[arg-type]
            programs[row, code] = 0 if program is None else program.address
    flags = rows["flags"]
    chosen = np.where(flags & TAGS, 0, programs[flags & REQUEST, rows["code"]]).astype(np.uint64)
    start = rows["start"].astype(np.int64)
    return Ahead(maker, buffer, chosen, start, start + rows["body"], start + rows["size"], index)


class PairFinder(Protocol):
    """Finds exchanges that are told as columns."""

    def find(self, messages: Messages, options: DecodeOptions) -> tuple[list[PairColumns], Bools]:
        """Exchanges as columns, and which of all messages of whole exchanges are not among them."""


class ColumnTurns:
    """The turns of requests (`kafka.waits.Turns`) whose exchanges are columns, between those that are told one by one.

    The columns of `batch` get their `behind_ns` and `muted_ns`; `told`: places of the connections with
    exchanges that are told one by one.
    """

    def __init__(self, batch: Sequence[PairColumns], told: Container[int]) -> None:
        self._columns = [found for found in batch if found.facts is not None]
        self._turns: dict[int, Turns] = {}
        """By the place of a connection."""
        self._waiting: dict[int, deque[int]] = {}
        """Exchanges, by their index in all columns together."""
        if not self._columns:
            return
        connection = self._all(found.asked["connection"] for found in self._columns)
        asked = self._all(found.asked["time"] for found in self._columns)
        done = self._all(found.answered["time"] for found in self._columns)
        throttle = self._all(found.throttle_ns for found in self._columns)
        self._behind, self._muted = np.zeros_like(asked), np.zeros_like(asked)
        order = self._all(found.answered["order"] for found in self._columns)
        step = self._all(found.answered["step"] for found in self._columns)
        by_connection = np.lexsort((step, order, connection))
        connection = connection[by_connection]
        starts = np.flatnonzero(np.append(True, connection[1:] != connection[:-1]))
        owners = self._columns[0].owners
        firsts = [_owner(owners, number) for number in connection[starts].tolist()]
        before = np.append(0, done[by_connection][:-1])
        before[starts] = [NO_TIME if (answered := owner.turns.answered) is None else answered for owner in firsts]
        # Nothing keeps a request back that comes when all before it are answered.
        kept = (asked[by_connection] < before) | (done[by_connection] < before) | (throttle[by_connection] > 0)
        odd = np.logical_or.reduceat(kept, starts).tolist()
        stops = np.append(starts[1:], len(connection))
        last = done[by_connection[stops - 1]].tolist()
        for owner, start, stop, is_odd, at in zip(firsts, starts.tolist(), stops.tolist(), odd, last, strict=True):
            if not is_odd and owner.turns.muted_until is None and owner.place not in told:
                owner.turns.answered = at
            else:
                self._waiting[owner.place] = deque(by_connection[start:stop].tolist())
                self._turns[owner.place] = owner.turns
        latency = self._all(found.answered["latency"] for found in self._columns)
        at_once = self._all(found.at_once for found in self._columns)
        columns = order, step * EVENTS, asked, done, latency, throttle, at_once
        self._rows = list(zip(*(column.tolist() for column in columns), strict=True))

    @staticmethod
    def _all(parts: Iterable[NDArray[Any]]) -> Ints:
        return np.concatenate([part.astype(np.int64) for part in parts])

    def until(self, place: int, order: int, within: int) -> None:
        """Take those of the connection at this place that come before what is told now."""
        waiting = self._waiting.get(place)
        while waiting and self._rows[waiting[0]][:2] < (order, within):
            self._take(place, waiting.popleft())

    def finish(self) -> None:
        """Take all others: nothing else is told."""
        for place, waiting in self._waiting.items():
            for index in waiting:
                self._take(place, index)
        self._waiting.clear()
        first = 0
        for found in self._columns:
            last = first + len(found.asked)
            found.behind_ns[:], found.muted_ns[:] = self._behind[first:last], self._muted[first:last]
            first = last

    def _take(self, place: int, index: int) -> None:
        _, _, asked, done, latency, throttle, at_once = self._rows[index]
        behind, muted = self._turns[place].answer(asked, done, latency, throttle, at_once=bool(at_once))
        if behind or muted:
            self._behind[index], self._muted[index] = behind, muted


def _owner(owners: Sequence[InspectedConnection | None], number: int) -> InspectedConnection:
    owner = owners[number]
    assert owner is not None
    return owner
