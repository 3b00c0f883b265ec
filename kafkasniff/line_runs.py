"""Messages of a batch whose lines the kernel writes, between events that are told one by one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection, OpenExchange
from kafkasniff.in_step import EVENTS, Messages
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.kafka.exchange import Pending
from kafkasniff.model import Endpoint, Lines
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, VERSIONS
from kafkasniff.native.lines import EARLIER, address_of
from kafkasniff.paired import Open, Paired, PairedEntry
from kafkasniff.repeats import Repeats
from kafkasniff.versions import distinct, version_of

__all__ = ["Ends", "LineMaker", "LineRun", "LineWriter", "MakeLines"]


class LineMaker(Protocol):
    """Writes lines (`sinks.native_lines.NativeLines`, `sinks.native_text.NativeText`)."""

    at_once: bool
    """Lines are in the sink when they are taken: what comes before them has to be there already."""

    def use(self, options: DecodeOptions) -> None:
        """From here on write as these options say."""

    def takes(self, key: int, version: int, *, is_request: bool) -> bool:
        """Whether messages of a version of an API have lines, unless there is anything odd in them."""

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices."""

    def bind(  # noqa: PLR0917 - what a batch is
        self,
        messages: int,
        count: int,
        numbers: NDArray[np.int64],
        buffer: NDArray[np.uint8],
        arena: NDArray[np.uint8],
        earlier: NDArray[np.void] | None = None,
    ) -> None:
        """The batch whose lines are taken from here on."""

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """The lines of these messages, of one or more at a time; for one that is Python's its index."""


Ends = tuple[int, Endpoint | None, Endpoint | None]
"""The number of a connection, its client and its broker."""


MakeLines = Callable[[Callable[[int], Ends], Callable[[int], str | None]], LineMaker]
"""Makes what writes lines, given the ends of a connection and the name of a capture by their indices."""


class LineWriter:
    """A maker of lines, and the run whose lines it makes; for one thread. `capture`: the name of one by its index."""

    def __init__(self, make: MakeLines, capture: Callable[[int], str | None]) -> None:
        self._run: LineRun | None = None
        self._gone: deque[tuple[int, list[int]]] = deque()
        self.lines = make(self._ends, capture)

    def forget(self, run: int, connections: list[int]) -> None:
        """From this run on, by its number, the feed has other connections at these indices."""
        self._gone.append((run, connections))

    def begin(self, run: LineRun) -> None:
        """Make lines of this run from here on; runs come in their order."""
        if run is self._run:
            return
        self._run = run
        while self._gone and self._gone[0][0] <= run.number_of_run:
            self.lines.forget(self._gone.popleft()[1])
        self.lines.use(run.options)
        self.lines.bind(*run.bound)

    def _ends(self, index: int) -> Ends:
        """The number of a connection, its client and its broker."""
        assert self._run is not None
        owner = self._run.owners[index]
        assert owner is not None
        return owner.number, owner.client, owner.broker


class LineRun:
    """The messages of a batch, in their order."""

    def __init__(  # noqa: PLR0917 - once for each batch
        self,
        messages: Messages,
        lines: LineMaker,
        options: DecodeOptions,
        plain: NDArray[np.bool_],
        answers: Sequence[tuple[int, Pending]],
        repeats: Repeats | None,
        number: int,
    ) -> None:
        """`plain`, `answers`: as `InStep.plain_edges` returns them; `repeats`: bodies that messages may share.

        `lines`: says which of the messages have lines; `number`: of the run.
        """
        rows = messages.rows
        self._messages = messages
        self.options = options
        self.number_of_run = number
        self._orders: list[int] = rows["order"].tolist()
        self._is_request: NDArray[np.bool_] = (rows["flags"] & REQUEST) > 0
        self._is_event: NDArray[np.bool_] = (rows["pair"] == NONE) & ~plain
        self.numbers: NDArray[np.int64] = np.zeros(len(rows), np.int64)
        """Of exchanges, by message, as far as they were given."""
        self._open: list[Open | None] = [None] * len(rows)
        self._kinds = [Paired(data, self._open, options, repeats) for data in (messages.buffer, messages.arena)]
        self._begun: list[int] = np.flatnonzero(plain & self._is_request).tolist()
        """Requests whose exchange ends later."""
        self._texts: list[bytes] = []
        self.bound = (
            rows.ctypes.data,
            len(rows),
            self.numbers,
            np.frombuffer(messages.buffer, np.uint8),
            np.frombuffer(messages.arena, np.uint8),
            self._earlier(answers),
        )
        """The arguments of `LineMaker.bind`."""
        lines.use(options)
        self._pythons: list[int] = np.flatnonzero(~self._native(lines)).tolist()
        """Messages of kinds that have no lines."""

    def _native(self, lines: LineMaker) -> NDArray[np.bool_]:
        """Which of the messages are of a kind that has lines."""
        codes = self._messages.rows["code"].astype(np.int64)
        found = np.zeros((2, KEYS * VERSIONS), bool)
        for code in distinct(codes) if len(codes) else ():
            key, version = divmod(code, VERSIONS)
            found[:, code] = lines.takes(key, version, is_request=False), lines.takes(key, version, is_request=True)
        native: NDArray[np.bool_] = found[self._is_request.astype(np.int64), codes]
        return native

    def _earlier(self, answers: Sequence[tuple[int, Pending]]) -> NDArray[np.void]:
        """Client ids and numbers of exchanges that began earlier."""
        ids: list[tuple[int, int, int]] = []
        places: dict[str, tuple[int, int]] = {}
        rows, owners = self._messages.rows, self._messages.owners
        which = np.array([index for index, _ in answers], np.int64)
        columns = zip(answers, rows["connection"][which].tolist(), rows["code"][which].tolist(), strict=True)
        for (index, pending), connection, code in columns:
            owner = owners[connection]
            assert owner is not None
            number = owner.exchanges.pop(pending.ordinal).number
            self.numbers[index] = number
            client_id = pending.client_id
            self._open[index] = number, version_of(code), client_id, pending.carry, None
            if client_id is None:
                ids.append((index, -1, 0))
            elif isinstance(client_id, str):
                if client_id not in places:
                    text = client_id.encode()
                    places[client_id] = len(text), address_of(text, self._texts)
                ids.append((index, *places[client_id]))
        return np.array(ids, EARLIER)

    def __len__(self) -> int:
        return len(self._orders)

    def until(self, order: int, place: int, within: int, first: int) -> int:
        """The first message from `first` on that does not come before an event, by what the inspector sorts by."""
        orders = self._orders
        low = bisect_left(orders, order, first)
        high = bisect_right(orders, order, low)
        if low == high:
            return low
        rows = self._messages.rows
        owner = self._messages.owners[int(rows["connection"][low])]
        assert owner is not None
        if owner.place != place:
            return high if owner.place < place else low
        steps: list[int] = (rows["step"][low:high] * EVENTS).tolist()
        return low + bisect_left(steps, within)

    def between(self, stops: Sequence[int]) -> list[tuple[int, int]]:
        """The ranges of messages in front of the first event, between two, and behind the last.

        `stops`: the first message after each event, or that is the event's.
        """
        count = len(self)
        places = np.arange(count + 1)
        places[:-1][self._is_event] = count
        following: list[int] = np.minimum.accumulate(places[::-1])[::-1].tolist()
        found: list[tuple[int, int]] = []
        at = following[0]
        for stop in (*stops, count):
            found.append((at, max(stop, at)))
            at = following[max(stop, at)]
        return found

    def number(self, number: int, begun: Sequence[int]) -> list[int]:
        """Give the exchanges that begin numbers above `number`; returns those of the events.

        `begun`: for each event with which an exchange begins the first message after it, rising.
        """
        asked = np.flatnonzero(self._is_request & ~self._is_event)
        self.begun = len(asked)
        """Exchanges that begin with messages that are no events."""
        between = np.searchsorted(np.array(begun, np.int64), asked, side="right")
        self.numbers[asked] = number + 1 + np.arange(len(asked)) + between
        rows, owners = self._messages.rows, self._messages.owners
        answers = np.flatnonzero(~self._is_request & (rows["pair"] != NONE))
        self.numbers[answers] = self.numbers[rows["pair"][answers]]
        begun_rows = rows[self._begun]
        columns = (begun_rows[name].tolist() for name in ("ordinal", "connection", "correlation", "code"))
        for own, ordinal, connection, correlation, code in zip(
            self.numbers[self._begun].tolist(), *columns, strict=True
        ):
            owner = owners[connection]
            assert owner is not None
            exchange = owner.exchanges[ordinal] = OpenExchange(own)
            version = version_of(code)
            exchange.api, exchange.api_version, exchange.correlation_id = version.api, version.version, correlation
        numbers: list[int] = (number + 1 + np.arange(len(begun)) + np.searchsorted(asked, begun)).tolist()
        return numbers

    def requests(self, first: int, last: int) -> int:
        """How many of these messages are requests."""
        return int(np.count_nonzero(self._is_request[first:last]))

    @property
    def owners(self) -> list[InspectedConnection | None]:
        """By the index of a connection."""
        return self._messages.owners

    def weights(self, message: int) -> NDArray[np.int64]:
        """The bytes of all messages up to each, which counts for `message` bytes besides its own."""
        found: NDArray[np.int64] = np.cumsum(self._messages.rows["size"].astype(np.int64) + message)
        return found

    def is_request(self, index: int) -> bool:
        """Whether a message is a request."""
        return bool(self._is_request[index])

    def time_of(self, index: int) -> int:
        """time_ns of a message."""
        return int(self._messages.rows["time"][index])

    def write(self, first: int, last: int, writer: LineWriter) -> Iterator[Lines | int]:
        """The lines of these messages; for one that is Python's its index."""
        writer.begin(self)
        place = bisect_left(self._pythons, first)
        while first < last:
            stop = min(self._pythons[place], last) if place < len(self._pythons) else last
            if stop > first:
                yield from writer.lines.take(first, stop)
            if stop < last:
                yield stop
            place += 1
            first = stop + 1

    def entry(self, index: int) -> PairedEntry:
        """One of the messages, whose exchange has a number."""
        messages = self._messages
        row: tuple[Any, ...] = messages.rows[index].item()
        order, start, first_packet, last_packet, packet, _, time_ns, latency, duration, ordinal = row[:10]
        connection, size, pair, correlation, _, code, client_id, step, flags = row[10:19]
        owner = messages.owners[connection]
        assert owner is not None
        version = version_of(code)
        is_request = flags & REQUEST > 0
        exchange = index if is_request or pair == NONE else pair
        if not is_request and self._open[exchange] is None:
            self._open[exchange] = int(self.numbers[index]), version, messages.client_id(pair), None, None
        return (
            order,
            owner.place,
            step * EVENTS,
            owner,
            self._kinds[flags & ARENA > 0],
            exchange,
            ordinal,
            start,
            size,
            client_id if is_request else 0,
            correlation,
            packet,
            time_ns,
            version if is_request else None,
            latency,
            duration,
            first_packet,
            last_packet,
            index,
        )
