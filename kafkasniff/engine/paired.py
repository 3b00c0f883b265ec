"""Messages of connections in step, with their exchanges: as entries that are emitted one by one, and as columns.

These exchanges have both messages in one batch of packets; the others are events (`in_step.InStep.edges`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import Account, InspectedConnection
from kafkasniff.engine.in_step_messages import EVENTS, Messages
from kafkasniff.engine.versions import ApiVersion, distinct, version_of
from kafkasniff.kafka.connection.waits import Turns
from kafkasniff.kafka.messages.ahead import Ahead, BodyMaker
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import Message
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, TAGS, VERSIONS
from kafkasniff.tcp.segments import NO_TIME, PACKET_NUMBER

__all__ = [
    "AccountTurns",
    "ColumnTurns",
    "Open",
    "PairColumns",
    "PairFinder",
    "Paired",
    "PairedEntry",
    "PairedRun",
    "until",
]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_NOTHING: Final = np.zeros(0, np.int64)
ENTRIES_AT_ONCE: Final = 1024
"""Number of entries whose columns are converted to lists at a time."""

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
    "ApiVersion | None",
    int,
    int,
    int,
    int,
    int,
    int,
]
"""Order, place of the connection and place within it (the inspector's sort key); connection; list of open exchanges
(`Paired.open`) and the index there; ordinal within the connection; the message's start, its size, length of the client
id; correlation id; packet, time_ns; the API's version, None for a response; latency of a response; its duration; lowest
and highest number of the message's packets; index of the message; for a response, the retransmissions since the
previous exchange."""


class Paired:
    """Shared data of the messages of a batch: `buffer` with their bytes, and their exchanges."""

    __slots__ = ("ahead", "bodies", "buffer", "context", "open")

    def __init__(self, buffer: bytes, exchanges: list[Open | None], options: DecodeOptions) -> None:
        self.buffer = buffer
        self.ahead: Ahead | None = None
        """Bodies, by message index."""
        self.context = DecodeContext(options)
        """Shared by all messages without anything to note (`message.decode_body`)."""
        self.bodies = options.bodies
        self.open = exchanges
        """Facts of a request that its response needs, at the exchange's index; set by the code that emits messages."""


Open = tuple[int, "ApiVersion", str | bytes | None, object, Message | None]
"""An exchange whose request was emitted: its number, the API's version, client id, the context for decoding the
response, and the request if an `Exchange` is to be emitted."""


class PairColumns(NamedTuple):
    """Exchanges as columns of one length."""

    owners: list[InspectedConnection | None]
    """By connection index."""
    asked: NDArray[np.void]
    """The requests (`native.feed.MESSAGE`)."""
    answered: NDArray[np.void]
    """The responses."""
    ends: Any
    """Facts about each owner, for the consumer of the columns."""
    names: list[str]
    client_id: Ints
    """Index in `names`, `NONE` if there is none."""
    facts: Any = None
    """Facts from the bodies, for the consumer of the columns; None: only headers were read."""
    throttle_ns: Ints = _NOTHING
    """This and the following columns are set with `facts`: the throttle time in the response, and whether the broker
    sends a throttled response at once and mutes the connection afterwards."""
    at_once: Bools = _NOTHING.astype(bool)
    behind_ns: Ints = _NOTHING
    """Filled by the inspector, with the meaning in `model.Exchange`."""
    muted_ns: Ints = _NOTHING
    selected: bool = True
    """Whether a filter keeps them."""


class PairedRun:
    """The messages of whole exchanges, or some of them, in order.

    Entries are created a few at a time: an entry takes many times the memory of a row, and Python's cycle collector
    traverses all existing entries.

    `maker`: decodes bodies, a few at a time.
    """

    def __init__(
        self,
        messages: Messages,
        options: DecodeOptions,
        maker: BodyMaker | None = None,
        chosen: Bools | None = None,
    ) -> None:
        whole = messages.rows["pair"] != NONE
        index = np.flatnonzero(whole if chosen is None else whole & chosen)
        order = messages.rows["order"][index]
        if (order[1:] < order[:-1]).any():
            # Requests of earlier batches are last (`InStep.whole`).
            index = index[np.lexsort((messages.rows["step"][index], order))]
        self._index = index
        self._rows = rows = messages.rows[index]
        self._owners = messages.owners
        self._places = [0 if owner is None else owner.place for owner in messages.owners]
        self._orders: list[int] = rows["order"].tolist()
        in_arena = (rows["flags"] & ARENA) > 0
        open_: list[Open | None] = [None] * len(messages.rows)
        self._kinds = [Paired(messages.buffer, open_, options)]
        if in_arena.any():
            self._kinds.append(Paired(messages.arena, open_, options))
        if maker is not None and maker.use(options):
            for paired, mine in zip(self._kinds, (~in_arena, in_arena), strict=False):
                if mine.any():
                    paired.ahead = _ahead(maker, messages.rows, index[mine], paired.buffer)
        self._versions: dict[int, ApiVersion | None] = {-1: None}
        for code in distinct(rows["code"].astype(np.int64)) if len(rows) else ():
            self._versions[code] = version_of(code)

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def places(self) -> set[int]:
        """The places of the messages' connections."""
        return {self._places[index] for index in distinct(self._rows["connection"].astype(np.int64))}

    def entries(self) -> Iterator[PairedEntry]:
        """All entries, each created when requested."""
        for first in range(0, len(self._orders), ENTRIES_AT_ONCE):
            yield from self._some(slice(first, first + ENTRIES_AT_ONCE))

    def _some(self, part: slice) -> Iterator[PairedEntry]:
        rows, index, kinds = self._rows[part], self._index[part], self._kinds
        is_request = (rows["flags"] & REQUEST) > 0
        connection = rows["connection"].tolist()
        columns: list[list[Any]] = [
            np.where(is_request, index, rows["pair"]).tolist(),
            *(rows[name].tolist() for name in ("ordinal", "start", "size")),
            np.where(is_request, rows["client_id"], 0).tolist(),
            *(rows[name].tolist() for name in ("correlation", "packet", "time")),
            [self._versions[code] for code in np.where(is_request, rows["code"].astype(np.int64), -1).tolist()],
            *(rows[name].tolist() for name in ("latency", "duration")),
            *((rows[name] & PACKET_NUMBER).tolist() for name in ("first_packet", "last_packet")),
            index.tolist(),
            rows["retransmits"].tolist(),
        ]
        in_arena = (rows["flags"] & ARENA) > 0
        return zip(
            self._orders[part],
            map(self._places.__getitem__, connection),
            (rows["step"] * EVENTS).tolist(),
            map(self._owners.__getitem__, connection),
            map(kinds.__getitem__, in_arena.tolist()) if len(kinds) > 1 else repeat(kinds[0]),
            *columns,
            strict=False,  # `repeat` has no end
        )

    def among(self, events: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """All entries, merged with these sorted events."""
        entries, at = self.entries(), 0
        for event in events:
            order, place, within = event[:3]
            stop = until(self._rows, self._orders, self._owners, (order, place, within), at)
            yield from islice(entries, stop - at)
            yield event
            at = stop
        yield from entries


def until(
    rows: NDArray[np.void],
    orders: Sequence[int],
    owners: Sequence[InspectedConnection | None],
    event: tuple[int, int, int],
    first: int,
) -> int:
    """The first message from `first` on that does not precede an event, by the inspector's sort key."""
    order, place, within = event
    low = bisect_left(orders, order, first)
    high = bisect_right(orders, order, low)
    if low == high:
        return low
    # All messages of a packet belong to one connection.
    of_rows = _owner(owners, int(rows["connection"][low])).place
    if of_rows != place:
        return high if of_rows < place else low
    steps: list[int] = (rows["step"][low:high] * EVENTS).tolist()
    return low + bisect_left(steps, within)


def _ahead(maker: BodyMaker, rows: NDArray[np.void], index: Ints, buffer: bytes) -> Ahead:
    """The bodies of these messages, which are emitted in this order."""
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
    """Finds exchanges that become columns."""

    def may_take(self, code: int, options: DecodeOptions) -> bool:
        """Whether regular exchanges of a version of an API, by its code, can be columns."""

    def find(
        self, messages: Messages, options: DecodeOptions, capture: Callable[[int], str | None]
    ) -> tuple[list[PairColumns], Bools]:
        """Exchanges as columns, and a mask of the other messages of whole exchanges.

        `capture`: the name of a capture by its index.
        """


class ColumnTurns:
    """The turns of requests (`connection.waits.Turns`) whose exchanges are columns, among those emitted one by one.

    Fills `behind_ns` and `muted_ns` of the columns of `batch`. `emitted`: places of the connections with exchanges
    that are emitted one by one; `accounts`: advanced together with this.
    """

    def __init__(
        self, batch: Sequence[PairColumns], emitted: Container[int], accounts: AccountTurns | None = None
    ) -> None:
        self._accounts = accounts
        self._columns = [found for found in batch if found.facts is not None]
        self._turns: dict[int, Turns] = {}
        """By place of the connection."""
        self._waiting: dict[int, deque[int]] = {}
        """Exchanges, by their index in the concatenated columns."""
        self._rows: dict[int, tuple[int, ...]] = {}
        """Rows of the waiting exchanges."""
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
        # A request that arrives when all before it are answered does not wait.
        kept = (asked[by_connection] < before) | (done[by_connection] < before) | (throttle[by_connection] > 0)
        odd = np.logical_or.reduceat(kept, starts).tolist()
        stops = np.append(starts[1:], len(connection))
        last = done[by_connection[stops - 1]].tolist()
        for owner, start, stop, is_odd, at in zip(firsts, starts.tolist(), stops.tolist(), odd, last, strict=True):
            if not is_odd and owner.turns.muted_until is None and owner.place not in emitted:
                owner.turns.answered = at
            else:
                self._waiting[owner.place] = deque(by_connection[start:stop].tolist())
                self._turns[owner.place] = owner.turns
        if not self._waiting:
            return
        latency = self._all(found.answered["latency"] for found in self._columns)
        at_once = self._all(found.at_once for found in self._columns)
        columns = order, step * EVENTS, asked, done, latency, throttle, at_once
        waits = [index for waiting in self._waiting.values() for index in waiting]
        rows = zip(*(column[waits].tolist() for column in columns), strict=True)
        self._rows = dict(zip(waits, rows, strict=True))

    @staticmethod
    def _all(parts: Iterable[NDArray[Any]]) -> Ints:
        return np.concatenate([part.astype(np.int64) for part in parts])

    def until(self, place: int, order: int, within: int) -> None:
        """Process those of the connection at this place that precede what is emitted now."""
        if self._accounts is not None:
            self._accounts.until(place, order, within)
        waiting = self._waiting.get(place)
        while waiting and self._rows[waiting[0]][:2] < (order, within):
            self._take(place, waiting.popleft())

    def finish(self) -> None:
        """Process the rest: nothing else is emitted."""
        if self._accounts is not None:
            self._accounts.finish()
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


class AccountTurns:
    """Adds exchanges that are columns to the statistics of their connections, among what is emitted one by one.

    Some facts depend on the order: which client id came first, and whether an exchange was complete before the client
    sent its software. `emitted`: places of the connections with anything that is emitted one by one.
    """

    def __init__(self, batch: Sequence[PairColumns], emitted: Container[int]) -> None:
        self._waiting: dict[int, tuple[Account, deque[tuple[int, int, str | None]]]] = {}
        """By place of the connection, with order and place in the packet: client ids; None: an exchange is complete."""
        if not batch:
            return
        asked = np.concatenate([found.asked for found in batch])
        answered = np.concatenate([found.answered for found in batch])
        client_ids, ids = _client_ids(batch)
        connection = asked["connection"].astype(np.int64)
        by_connection = np.lexsort((asked["step"], asked["order"], connection))
        connection, ids = connection[by_connection], ids[by_connection]
        starts = np.flatnonzero(np.append(True, connection[1:] != connection[:-1]))
        stops = np.append(starts[1:], len(connection))
        # Nearly all connections have a single client id.
        varies = np.logical_or.reduceat(ids != np.repeat(ids[starts], stops - starts), starts)
        owners = batch[0].owners
        columns = connection[starts], starts, stops, ids[starts], varies
        for number, start, stop, first, is_varied in zip(*(column.tolist() for column in columns), strict=True):
            owner = owners[number]
            assert owner is not None
            account = owner.account
            if account is None:
                continue
            account.requests += stop - start
            account.responses += stop - start
            if owner.place not in emitted:
                if is_varied or client_ids[first] not in account.client_ids:
                    for index in dict.fromkeys(ids[start:stop].tolist()):
                        if (client_id := client_ids[index]) is not None:
                            account.name(client_id)
                if not account.before_software:
                    account.over()
                continue
            own = by_connection[start:stop]
            over = answered[own][np.lexsort((answered["step"][own], answered["order"][own]))[:1]]
            names = [client_ids[index] for index in ids[start:stop].tolist()]
            named = zip(asked["order"][own].tolist(), (asked["step"][own] * EVENTS).tolist(), names, strict=True)
            turns = [turn for turn in named if turn[2] is not None]
            turns += zip(over["order"].tolist(), (over["step"] * EVENTS).tolist(), (None,), strict=True)
            self._waiting[owner.place] = account, deque(sorted(turns, key=itemgetter(0, 1)))

    def until(self, place: int, order: int, within: int) -> None:
        """Process those of the connection at this place that precede what is emitted now."""
        found = self._waiting.get(place)
        if found is None:
            return
        account, waiting = found
        while waiting and waiting[0][:2] < (order, within):
            _take_turn(account, waiting.popleft()[2])

    def finish(self) -> None:
        """Process the rest: nothing else is emitted."""
        for account, waiting in self._waiting.values():
            for _, _, client_id in waiting:
                _take_turn(account, client_id)
        self._waiting.clear()


def _client_ids(batch: Sequence[PairColumns]) -> tuple[list[str | None], Ints]:
    """Client ids, and their indices by exchange; the last id is that of exchanges without one."""
    places: dict[str, int] = {}
    parts: list[Ints] = []
    for found in batch:
        own = [places.setdefault(name, len(places)) for name in found.names]
        parts.append(np.array([*own, -1], np.int64)[np.minimum(found.client_id, len(own))])
    return [*places, None], np.concatenate(parts)


def _take_turn(account: Account, client_id: str | None) -> None:
    if client_id is None:
        account.over()
    else:
        account.name(client_id)


def _owner(owners: Sequence[InspectedConnection | None], number: int) -> InspectedConnection:
    owner = owners[number]
    assert owner is not None
    return owner
