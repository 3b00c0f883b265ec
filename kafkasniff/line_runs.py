"""Messages of a batch whose lines the kernel writes, between events that are told one by one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection, OpenExchange
from kafkasniff.in_step import EVENTS, Edges, Messages
from kafkasniff.kafka.detail import Detail
from kafkasniff.model import Endpoint, Lines, Problem
from kafkasniff.native.calls import address_of
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, VERSIONS
from kafkasniff.native.lines import EARLIER
from kafkasniff.outstanding import Outstanding, keys_of
from kafkasniff.paired import Open, Paired, PairedEntry
from kafkasniff.repeats import Repeats
from kafkasniff.versions import Version, client_id_text, distinct, version_of

__all__ = ["Ends", "FactsAhead", "LineMaker", "LineRun", "LineWriter", "MakeLines"]


class Facts(Protocol):
    """What an enricher adds to bodies (`sinks.native_names.AddedNames`)."""

    @property
    def told(self) -> int:
        """Rises with every topic that is learnt."""

    def session(self, index: int, first: int, second: int, /) -> object:
        """Take a Fetch message; see `native.names.NameFacts`."""


class FactsAhead(Facts, Protocol):
    """The same in a thread of its own, which changes nothing (`sinks.native_names.NamesAhead`)."""

    requests: set[int]
    """Messages that were left because they may go by a session."""
    responses: dict[int, tuple[int, int]]
    """Error codes and sessions of responses, by message."""


class LineMaker(Protocol):
    """Writes lines (`sinks.native_lines.NativeLines`, `sinks.native_text.NativeText`).

    The enricher and the sink must have everything that comes before lines when these are taken, unless they are made
    ahead.
    """

    only_asked: bool
    """Messages behind those that are taken are not going to be; may be set."""

    @property
    def facts(self) -> Facts:
        """What is added to bodies; where lines are made ahead a `sinks.native_names.NamesAhead`."""

    def use(self, detail: Detail) -> None:
        """Write at the current level of `detail` from here on."""

    def takes(self, key: int, version: int, *, is_request: bool) -> bool:
        """Whether messages of a version of an API have lines, unless there is anything odd in them."""

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices."""

    def bind(
        self,
        messages: NDArray[np.void],
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


class MakeLines(Protocol):
    """Makes what writes lines."""

    def __call__(
        self, ends: Callable[[int], Ends], capture: Callable[[int], str | None], /, *, ahead: bool = False
    ) -> LineMaker:
        """Given the ends of a connection and the name of a capture by their indices.

        `ahead`: for a thread of its own, and before it is the lines' turn (`LineMaker.facts`).
        """


class LineWriter:
    """A maker of lines, and the run whose lines it makes; for one thread. `capture`: the name of one by its index."""

    def __init__(self, make: MakeLines, capture: Callable[[int], str | None], *, ahead: bool = False) -> None:
        self._run: LineRun | None = None
        self._gone: deque[tuple[int, list[int]]] = deque()
        self.lines = make(self._ends, capture, ahead=ahead)

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
        self.lines.use(run.detail)
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
        edges: Edges,
        outstanding: Outstanding,
        lines: LineMaker,
        detail: Detail,
        repeats: Repeats | None,
        number: int,
    ) -> None:
        """`messages`, `edges`: as `InStep.plain_edges` returns them; `repeats`: bodies that messages may share.

        `lines`: says which of the messages have lines; `number`: of the run.
        """
        rows = messages.rows
        self._messages = messages
        self.number_of_run = number
        self._orders: list[int] = rows["order"].tolist()
        self._is_request: NDArray[np.bool_] = (rows["flags"] & REQUEST) > 0
        self._is_event: NDArray[np.bool_] = (rows["pair"] == NONE) & ~edges.is_edge
        self.numbers: NDArray[np.int64] = np.zeros(len(rows), np.int64)
        """Of exchanges, by message, as far as they were given."""
        self._open: list[Open | None] = [None] * len(rows)
        self._kinds = [Paired(data, self._open, detail.decode, repeats) for data in (messages.buffer, messages.arena)]
        self._edges = edges
        self._outstanding = outstanding
        self._client_ids = outstanding.client_ids
        """As they are now: the kernel has their addresses."""
        self._texts: list[bytes] = []
        self.bound = (
            rows,
            self.numbers,
            np.frombuffer(messages.buffer, np.uint8),
            np.frombuffer(messages.arena, np.uint8),
            self._earlier(),
        )
        """The arguments of `LineMaker.bind`."""
        lines.use(detail)
        self._pythons: list[int] = np.flatnonzero(~self._native(lines)).tolist()
        """Messages of kinds that have no lines."""
        self._lacking: NDArray[np.int64] | None = self._lack(detail) if detail.level else None
        """At a level that leaves something out: how many messages in front of each one lack something."""
        self.detail = detail

    def _native(self, lines: LineMaker) -> NDArray[np.bool_]:
        """Which of the messages are of a kind that has lines."""
        codes = self._messages.rows["code"].astype(np.int64)
        found = np.zeros((2, KEYS * VERSIONS), bool)
        for code in distinct(codes) if len(codes) else ():
            key, version = divmod(code, VERSIONS)
            found[:, code] = lines.takes(key, version, is_request=False), lines.takes(key, version, is_request=True)
        native: NDArray[np.bool_] = found[self._is_request.astype(np.int64), codes]
        return native

    def _lack(self, detail: Detail) -> NDArray[np.int64]:
        """Count what messages lack; returns how many of those in front of each one lack anything, and of all."""
        codes = self._messages.rows["code"].astype(np.int64)
        lacks = np.zeros(len(codes) + 1, np.int64)
        for is_request in (False, True):
            mine = (self._is_request == is_request) & ~self._is_event
            for code in distinct(codes[mine]) if mine.any() else ():
                problems = detail.lack(code // VERSIONS, is_request=is_request)
                if problems:
                    found = mine & (codes == code)
                    detail.count(problems, int(np.count_nonzero(found)))
                    lacks[1:][found] = 1
        return np.cumsum(lacks)

    def lacking(self, first: int, last: int) -> int:
        """How many of these messages have something left out."""
        return 0 if self._lacking is None else int(self._lacking[last] - self._lacking[first])

    def problems(self, index: int) -> tuple[Problem, ...]:
        """What is to be told with a message of what was left out of it."""
        if not self.lacking(index, index + 1):
            return ()
        return self.detail.lack(int(self._messages.rows["code"][index]) // VERSIONS, is_request=self.is_request(index))

    def _earlier(self) -> NDArray[np.void]:
        """Client ids and numbers of exchanges that began earlier."""
        edges, owners = self._edges, self._messages.owners
        self.numbers[edges.answers] = edges.answered["number"]
        made = np.zeros(len(edges.answers), EARLIER)
        made["message"] = edges.answers
        made["size"], made["text"] = self._outstanding.texts(edges.answered)
        if not edges.others:
            return made
        ids: list[tuple[int, int, int]] = []
        for index, pending in edges.others:
            owner = owners[int(self._messages.rows["connection"][index])]
            assert owner is not None
            number = owner.exchanges.pop(pending.ordinal).number
            self.numbers[index] = number
            client_id = pending.client_id
            self._open[index] = number, self._version(index), client_id, pending.carry, None
            if client_id is None:
                ids.append((index, -1, 0))
            elif isinstance(client_id, str):
                text = client_id.encode()
                ids.append((index, len(text), address_of(text, self._texts)))
        made = np.concatenate((made, np.array(ids, EARLIER)))
        return made[np.argsort(made["message"])]

    def _version(self, index: int) -> Version:
        return version_of(int(self._messages.rows["code"][index]))

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
        begins = self._edges.begun
        waits = self._outstanding.number(keys_of(rows[begins]), self.numbers[begins])
        # The connections of the others have fallen out of step meanwhile.
        for index in begins[~waits].tolist():
            owner = owners[int(rows["connection"][index])]
            assert owner is not None
            exchange = owner.exchanges[int(rows["ordinal"][index])] = OpenExchange(int(self.numbers[index]))
            version = self._version(index)
            exchange.api, exchange.api_version = version.api, version.version
            exchange.correlation_id = int(rows["correlation"][index])
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
            self._open[exchange] = int(self.numbers[index]), version, self._client_id(index, pair), None, None
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
            0,
        )

    def _client_id(self, index: int, pair: int) -> str | bytes | None:
        """The client id of the request that a response answers, whose index is `pair` where it is one of these."""
        if pair != NONE:
            return self._messages.client_id(pair)
        place = int(np.searchsorted(self._edges.answers, index))
        client_id = int(self._edges.answered["client_id"][place])
        return None if client_id < 0 else client_id_text(self._client_ids[client_id])
