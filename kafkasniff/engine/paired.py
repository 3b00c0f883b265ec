"""Messages of connections in step, with their exchanges: as entries that are emitted one by one, and as columns.

These exchanges have both messages in one batch of packets; the others are events (`stream_messages`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.regular_messages import EVENTS, Messages
from kafkasniff.engine.versions import ApiVersion, distinct, version_of
from kafkasniff.kafka.messages.ahead import Ahead, BodyMaker
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.model import Message
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, TAGS, VERSIONS
from kafkasniff.tcp.segments import PACKET_NUMBER

__all__ = [
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
    MessageOwner,
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
    int,
    int,
    int,
]
"""Order, place of the connection and place within it (the inspector's sort key); connection; list of open exchanges
(`Paired.open`) and the index there; ordinal within the connection; the message's start, its size, length of the client
id; correlation id; packet, time_ns; the API's version, None for a response; latency of a response; its duration; lowest
and highest number of the message's packets; index of the message; for a response, the retransmissions since the
previous exchange; number of the exchange, 0 if it has none yet; for a response, how long its request waited for others
and for quotas."""


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

    owners: Sequence[MessageOwner | None]
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
    selected: bool = True
    """Whether a filter keeps them."""
    problems: Ints = _NOTHING
    """Number of problems of each; empty: there are none."""


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
            # Requests of earlier batches are last (`StreamMessages.whole`).
            index = index[np.lexsort((messages.rows["step"][index], order))]
        self._index = index
        self._rows = rows = messages.rows.take(index)
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
            rows["number"].tolist(),
            rows["behind"].tolist(),
            rows["muted"].tolist(),
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
    owners: Sequence[MessageOwner | None],
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


def _owner(owners: Sequence[MessageOwner | None], number: int) -> MessageOwner:
    owner = owners[number]
    assert owner is not None
    return owner
