"""Messages of a batch whose lines the kernel writes, between events that are told one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection, OpenExchange
from kafkasniff.in_step import EVENTS, Edges, Messages
from kafkasniff.kafka.detail import Detail
from kafkasniff.model import Endpoint, Lines, Problem
from kafkasniff.native.calls import address_of
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, VERSIONS
from kafkasniff.native.lines import EARLIER, LEFT, READ, WRITTEN
from kafkasniff.outstanding import Outstanding, keys_of
from kafkasniff.paired import Open, Paired, PairedEntry, until
from kafkasniff.streams import PACKET_NUMBER
from kafkasniff.versions import Version, client_id_text, distinct, version_of

__all__ = [
    "DEFERRED",
    "REJECTED",
    "SELECTED",
    "UNDECIDED",
    "Ends",
    "FactsAhead",
    "LineMaker",
    "LineRun",
    "LineWriter",
    "MakeLines",
    "SelectsLines",
]

REJECTED, SELECTED, DEFERRED, UNDECIDED = range(4)
"""What is known of an exchange that is filtered. Deferred: it is selected, and its request is shown with the response,
which decided. Undecided: Python has to look at its messages."""


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

    def bind(  # noqa: PLR0917 - once for each batch
        self,
        messages: NDArray[np.void],
        numbers: NDArray[np.int64],
        buffer: NDArray[np.uint8],
        arena: NDArray[np.uint8],
        earlier: NDArray[np.void] | None = None,
        shown: NDArray[np.uint8] | None = None,
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


class SelectsLines(Protocol):
    """Says which exchanges a filter selects (`selection.Selection`). Messages are given by their indices in a batch."""

    def requests(self, messages: Messages, capture: Callable[[int], str | None]) -> NDArray[np.uint8]:
        """For each message what is known of it; all but requests whose response comes later are `UNDECIDED`."""

    def exchanges(
        self,
        messages: Messages,
        answers: NDArray[np.intp],
        numbers: NDArray[np.int64],
        capture: Callable[[int], str | None],
    ) -> NDArray[np.uint8]:
        """What is known of the exchanges of these responses; `numbers`: of exchanges, by message."""

    def can_move(self, code: int) -> bool:
        """Whether requests of a version of an API may have their lines later than it is their turn."""

    def pin(self, exchange: int, answer: bool) -> None:
        """An exchange was settled, whose messages will be Python's."""

    def unpin(self, exchange: int) -> None:
        """Its messages were taken."""


_Bound = tuple[
    NDArray[np.void],
    NDArray[np.int64],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.void],
    NDArray[np.uint8] | None,
]


class _Order(NamedTuple):
    """The messages that lines are made of: those of the batch, and in front of some responses their requests again."""

    source: NDArray[np.intp]
    """Of each its index in the batch."""
    begin: NDArray[np.intp]
    """Of each message of the batch, and of their end, where what is shown at its place begins."""
    place: NDArray[np.intp]
    """Of each message of the batch where it is itself."""

    @classmethod
    def of(cls, count: int, moved: NDArray[np.intp], answers: NDArray[np.intp]) -> _Order:
        """That of so many messages; `moved`: requests that are put in front of their responses, too."""
        source = np.insert(np.arange(count), answers, moved)
        more = np.zeros(count + 1, np.intp)
        more[answers] = 1
        behind = np.cumsum(more)
        begin = np.arange(count + 1) + behind - more
        return cls(source, begin, (begin + more)[:count])


_AGAIN: Final = -1
"""`LineRun.write_selected` yields this less the index of a request that was taken before."""


class LineRun:
    """The messages of a batch, in their order."""

    def __init__(  # noqa: PLR0917 - once for each batch
        self,
        messages: Messages,
        edges: Edges,
        outstanding: Outstanding,
        lines: LineMaker,
        detail: Detail,
        number: int,
        selects: SelectsLines | None = None,
    ) -> None:
        """`messages`, `edges`: as `InStep.plain_edges` returns them.

        `lines`: says which of the messages have lines; `number`: of the run; `selects`: what says which messages are
        shown; then `select` has to be called before lines are taken.
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
        self._kinds = [Paired(data, self._open, detail.decode) for data in (messages.buffer, messages.arena)]
        self._edges = edges
        self._outstanding = outstanding
        self._client_ids = outstanding.client_ids
        """As they are now: the kernel has their addresses."""
        self._texts: list[bytes] = []
        self._selects = selects
        self.pinned: set[int] = set()
        """Exchanges that began here and were settled, and end by Python."""
        self._answers: NDArray[np.uint8] | None = None
        """Where messages are selected, what is known of their exchanges."""
        buffer, arena = (np.frombuffer(data, np.uint8) for data in (messages.buffer, messages.arena))
        self.bound: _Bound = rows, self.numbers, buffer, arena, self._earlier(), None
        """The arguments of `LineMaker.bind`."""
        lines.use(detail)
        self._pythons: list[int] = np.flatnonzero(~self._native(lines)).tolist()
        """Messages of kinds that have no lines."""
        self._lacking: NDArray[np.int64] | None = self._lack(detail) if detail.level else None
        """At a level that leaves something out: how many messages in front of each one lack something."""
        self.detail = detail

    def select(self, capture: Callable[[int], str | None]) -> None:
        """Find out which messages are shown, all of which have the numbers of their exchanges by now."""
        selects, edges, rows = self._selects, self._edges, self._messages.rows
        assert selects is not None
        known = np.full(len(rows), UNDECIDED, np.uint8)
        known[edges.begun] = edges.selected
        known[edges.answers] = edges.answered["selected"]
        answers = np.flatnonzero(~self._is_request & (rows["pair"] != NONE))
        found = selects.exchanges(self._messages, answers, self.numbers, capture)
        asked = rows["pair"][answers].astype(np.intp)
        native = np.ones(len(rows), bool)
        native[self._pythons] = False
        deferred = np.flatnonzero(found == DEFERRED)
        codes = rows["code"][asked[deferred]].astype(np.int64)
        can_move = np.zeros(KEYS * VERSIONS, bool)
        for code in distinct(codes) if len(codes) else ():
            can_move[code] = selects.can_move(code)
        found[deferred[~(can_move[codes] & native[asked[deferred]])]] = UNDECIDED
        known[answers] = known[asked] = found
        self._answers = known
        deferred = np.flatnonzero(found == DEFERRED)
        order = self._order = _Order.of(len(rows), asked[deferred], answers[deferred])
        is_selected = (known == SELECTED) | ((known == DEFERRED) & ~self._is_request)
        state = np.where(known == UNDECIDED, LEFT, np.where(is_selected, WRITTEN, READ)).astype(np.uint8)
        shown = self._shown = state[order.source]
        self._is_copy = np.ones(len(shown), bool)
        self._is_copy[order.place] = False
        shown[self._is_copy] = WRITTEN
        self._is_native: list[bool] = (native & (state != LEFT))[order.source].tolist()
        moved = rows[order.source]
        whole = moved["pair"] != NONE
        moved["pair"][whole] = order.place[moved["pair"][whole]]
        _, numbers, buffer, arena, earlier, _ = self.bound
        earlier["message"] = order.place[earlier["message"]]
        self.bound = moved, numbers[order.source], buffer, arena, earlier, shown

    def answer(self, index: int) -> bool | None:
        """Whether a message is selected, where that is settled."""
        if self._answers is None or self._answers[index] == UNDECIDED:
            return None
        return bool(self._answers[index] != REJECTED)

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
        return until(self._messages.rows, self._orders, self._messages.owners, (order, place, within), first)

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
        others = zip(begins[~waits].tolist(), self._edges.selected[~waits].tolist(), strict=True)
        for index, selected in others:
            owner = owners[int(rows["connection"][index])]
            assert owner is not None
            exchange = owner.exchanges[int(rows["ordinal"][index])] = OpenExchange(int(self.numbers[index]))
            version = self._version(index)
            exchange.api, exchange.api_version = version.api, version.version
            exchange.correlation_id = int(rows["correlation"][index])
            if self._selects is not None:
                self._selects.pin(exchange.number, selected == SELECTED)
                self.pinned.add(exchange.number)
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

    def write_selected(self, first: int, last: int, writer: LineWriter) -> Iterator[Lines | int | list[int]]:
        """`write` where messages are selected.

        For several messages that are undecided it yields their indices, and for a request that was taken before, and
        is shown only now, `-1 - index`.
        """
        writer.begin(self)
        order, native, shown = self._order, self._is_native, self._shown
        assert self._answers is not None
        at, last = int(order.begin[first]), int(order.begin[last])
        while at < last:
            stop = at + 1
            while stop < last and native[stop] == native[at]:
                stop += 1
            if not native[at]:
                others = order.source[at:stop][~self._is_copy[at:stop]]
                if (self._answers[others] == UNDECIDED).all():
                    yield others.tolist()
                else:
                    yield from others.tolist()
                at = stop
                continue
            for piece in writer.lines.take(at, stop):
                if isinstance(piece, Lines):
                    begin, at = at, at + piece.count
                    count = int(np.count_nonzero(shown[begin:at] == WRITTEN))
                    if count:
                        yield Lines(piece.data, count, self.time_of(int(order.source[at - 1])))
                else:
                    at = piece + 1
                    index = int(order.source[piece])
                    if self._is_copy[piece]:
                        yield _AGAIN - index
                    else:
                        self._undecide(index)
                        yield index
                    # There may be less now that is native.
                    break

    def _undecide(self, index: int) -> None:
        """A request that is shown with its response is Python's: so is its response, which comes later."""
        assert self._answers is not None
        if self._answers[index] != DEFERRED or not self._is_request[index]:
            return
        answer = int(self._messages.rows["pair"][index])
        self._answers[[index, answer]] = UNDECIDED
        for place in range(int(self._order.begin[answer]), int(self._order.place[answer]) + 1):
            self._is_native[place] = False

    def entry(self, index: int) -> PairedEntry:
        """One of the messages, whose exchange has a number."""
        messages = self._messages
        row: tuple[Any, ...] = messages.rows[index].item()
        order, start, first_packet, last_packet, packet, _, time_ns, latency, duration, ordinal = row[:10]
        connection, size, pair, correlation, _, code, client_id, step, flags, _, retransmits = row[10:21]
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
            first_packet & PACKET_NUMBER,
            last_packet & PACKET_NUMBER,
            index,
            0 if is_request else retransmits,
        )

    def _client_id(self, index: int, pair: int) -> str | bytes | None:
        """The client id of the request that a response answers, whose index is `pair` where it is one of these."""
        if pair != NONE:
            return self._messages.client_id(pair)
        place = int(np.searchsorted(self._edges.answers, index))
        client_id = int(self._edges.answered["client_id"][place])
        return None if client_id < 0 else client_id_text(self._client_ids[client_id])
