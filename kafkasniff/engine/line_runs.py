"""Messages of a batch whose lines the kernel writes, between events that are reported one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner, OpenExchange
from kafkasniff.engine.line_makers import Ends, LineMaker, MakeLines
from kafkasniff.engine.paired import Open, Paired, PairedEntry, until
from kafkasniff.engine.regular_messages import EVENTS, HEADER, Edges, Messages
from kafkasniff.engine.selected_messages import SELECTED, SelectedMessages, SelectsLines
from kafkasniff.engine.versions import ApiVersion, distinct, version_of
from kafkasniff.kafka.connection.detail import Detail
from kafkasniff.model import Lines, Problem
from kafkasniff.native.feed import ARENA, KEYS, NONE, REQUEST, VERSIONS
from kafkasniff.native.lines import EARLIER, LineBatch
from kafkasniff.tcp.segments import PACKET_NUMBER

__all__ = ["KeepsRequests", "LineRun", "RunWriter"]

KeepsRequests = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
"""Keeps the requests whose exchange ends later, with their numbers; returns which of them still wait."""


class RunWriter:
    """A line maker and the run whose lines it writes; for one thread. `capture`: name of a capture by its index."""

    def __init__(self, make: MakeLines, capture: Callable[[int], str | None], *, ahead: bool = False) -> None:
        self._run: LineRun | None = None
        self._gone: deque[tuple[int, list[int]]] = deque()
        self.lines = make(self._ends, capture, ahead=ahead)

    def forget(self, run: int, connections: list[int]) -> None:
        """From this run on, by its number, these connection indices are reused."""
        self._gone.append((run, connections))

    def begin(self, run: LineRun) -> None:
        """Write lines of this run from now on; runs come in order."""
        if run is self._run:
            return
        self._run = run
        while self._gone and self._gone[0][0] <= run.number_of_run:
            self.lines.forget(self._gone.popleft()[1])
        self.lines.use(run.detail)
        self.lines.bind(run.bound)

    def _ends(self, index: int) -> Ends:
        """The number of a connection, its client and its broker."""
        assert self._run is not None
        owner = self._run.owners[index]
        assert owner is not None
        return owner.number, owner.client, owner.broker


class LineRun:
    """The messages of a batch, in order."""

    def __init__(  # noqa: PLR0917 - once for each batch
        self,
        messages: Messages,
        edges: Edges,
        keep: KeepsRequests,
        lines: LineMaker,
        detail: Detail,
        number: int,
        selects: SelectsLines | None = None,
    ) -> None:
        """`messages`, `edges`: as `StreamMessages.lines` returns them.

        `lines`: decides which messages have lines; `number`: of the run; `selects`: decides which messages are shown;
        with it, `select` has to be called before lines are requested.
        """
        rows = messages.rows
        self._messages = messages
        self.number_of_run = number
        self._orders: list[int] = rows["order"].tolist()
        self._is_request: NDArray[np.bool_] = (rows["flags"] & REQUEST) > 0
        self._is_event: NDArray[np.bool_] = (rows["pair"] == NONE) & ~edges.is_edge
        self.numbers: NDArray[np.int64] = np.zeros(len(rows), np.int64)
        """Exchange numbers by message, as far as assigned."""
        self._open: list[Open | None] = [None] * len(rows)
        self._kinds = [Paired(data, self._open, detail.decode) for data in (messages.buffer, messages.arena)]
        self._edges = edges
        self._keep = keep
        self._selects = selects
        self.pinned: set[int] = set()
        """Exchanges that began here, are decided, and end in Python."""
        self._selected: SelectedMessages | None = None
        buffer, arena = (np.frombuffer(data, np.uint8) for data in (messages.buffer, messages.arena))
        self.bound = LineBatch(rows, self.numbers, buffer, arena, self._earlier(arena.ctypes.data))
        lines.use(detail)
        self._pythons: list[int] = np.flatnonzero(~self._native(lines)).tolist()
        """Messages whose kind has no lines."""
        self._lacking: NDArray[np.int64] | None = self._lack(detail)
        """Number of problems inherent to the kinds of all messages before each one."""
        self.detail = detail

    def select(self, capture: Callable[[int], str | None]) -> list[int]:
        """Decide which messages are shown; all exchanges must have their numbers.

        Returns the numbers of connections with messages that are selected already.
        """
        assert self._selects is not None
        native = np.ones(len(self), bool)
        native[self._pythons] = False
        selected = self._selected = SelectedMessages(
            self._selects, self._messages, self._edges, self.numbers, native, capture
        )
        self.bound = selected.bind(self.bound)
        owners = [self.owners[index] for index in selected.connections()]
        return [owner.number for owner in owners if owner is not None]

    def answer(self, index: int) -> bool | None:
        """Whether a message is selected, if decided."""
        return None if self._selected is None else self._selected.answer(index)

    def _native(self, lines: LineMaker) -> NDArray[np.bool_]:
        """Which messages have a kind with lines."""
        codes = self._messages.rows["code"].astype(np.int64)
        found = np.zeros((2, KEYS * VERSIONS), bool)
        for code in distinct(codes) if len(codes) else ():
            key, version = divmod(code, VERSIONS)
            found[:, code] = lines.takes(key, version, is_request=False), lines.takes(key, version, is_request=True)
        native: NDArray[np.bool_] = found[self._is_request.astype(np.int64), codes]
        if self._selects is not None:
            # Problems are also counted for messages that are not shown.
            native &= ~np.isin(codes, _unknown(codes))
        return native

    def _lack(self, detail: Detail) -> NDArray[np.int64] | None:
        """Count what is omitted from messages; returns the number of problems before each one, and of all."""
        codes = self._messages.rows["code"].astype(np.int64)
        unknown = _unknown(codes) if self._selects is None else []
        if not (detail.level or unknown):
            return None
        lacks = np.zeros(len(codes) + 1, np.int64)
        if unknown and not detail.decode.headers and detail.decode.bodies:
            lacks[1:][np.isin(codes, unknown)] = 1
        for is_request in (False, True) if detail.level else ():
            mine = (self._is_request == is_request) & ~self._is_event
            for code in distinct(codes[mine]) if mine.any() else ():
                problems = detail.lack(code // VERSIONS, is_request=is_request)
                if problems:
                    found = mine & (codes == code)
                    detail.count(problems, int(np.count_nonzero(found)))
                    lacks[1:][found] += 1
        return np.cumsum(lacks)

    def lacking(self, first: int, last: int) -> int:
        """Number of problems of these messages that are inherent to their kinds."""
        return 0 if self._lacking is None else int(self._lacking[last] - self._lacking[first])

    def problems(self, index: int) -> tuple[Problem, ...]:
        """The problems that report what was omitted from a message."""
        if not self.lacking(index, index + 1):
            return ()
        return self.detail.lack(int(self._messages.rows["code"][index]) // VERSIONS, is_request=self.is_request(index))

    def _earlier(self, arena: int) -> NDArray[np.void]:
        """Client ids and numbers of exchanges that began earlier; `arena`: the address of their bytes."""
        edges = self._edges
        self.numbers[edges.answers] = edges.answered["number"]
        made = np.zeros(len(edges.answers), EARLIER)
        made["message"], made["size"] = edges.answers, edges.answered["client_id"]
        made["text"] = edges.answered["start"] + np.uint64(arena + HEADER)
        return made

    def _version(self, index: int) -> ApiVersion:
        return version_of(int(self._messages.rows["code"][index]))

    def __len__(self) -> int:
        return len(self._orders)

    def until(self, order: int, place: int, within: int, first: int) -> int:
        """The first message from `first` on that does not precede an event, by the inspector's sort key."""
        return until(self._messages.rows, self._orders, self._messages.owners, (order, place, within), first)

    def between(self, stops: Sequence[int]) -> list[tuple[int, int]]:
        """The ranges of messages before the first event, between each two, and after the last.

        `stops`: for each event, the first message that follows it or belongs to it.
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
        """Number the exchanges that begin, from above `number`; returns the numbers of those that events begin.

        `begun`: for each event that begins an exchange, the first message after it; ascending.
        """
        asked = np.flatnonzero(self._is_request & ~self._is_event)
        self.begun = len(asked)
        """Exchanges that begin with messages that are not events."""
        between = np.searchsorted(np.array(begun, np.int64), asked, side="right")
        self.numbers[asked] = number + 1 + np.arange(len(asked)) + between
        rows, owners = self._messages.rows, self._messages.owners
        answers = np.flatnonzero(~self._is_request & (rows["pair"] != NONE))
        self.numbers[answers] = self.numbers[rows["pair"][answers]]
        begins = self._edges.begun
        waits = self._keep(self.numbers[begins]) if len(begins) else np.ones(0, np.bool_)
        # The exchanges of the others ended with an event.
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
        """The number of requests among these messages."""
        return int(np.count_nonzero(self._is_request[first:last]))

    @property
    def owners(self) -> Sequence[MessageOwner | None]:
        """By the index of a connection."""
        return self._messages.owners

    def weights(self, message: int) -> NDArray[np.int64]:
        """Cumulative bytes of the messages; each counts `message` bytes in addition to its own."""
        found: NDArray[np.int64] = np.cumsum(self._messages.rows["size"].astype(np.int64) + message)
        return found

    def is_request(self, index: int) -> bool:
        """Whether a message is a request."""
        return bool(self._is_request[index])

    def time_of(self, index: int) -> int:
        """time_ns of a message."""
        return int(self._messages.rows["time"][index])

    def write(self, first: int, last: int, writer: RunWriter) -> Iterator[Lines | int]:
        """The lines of these messages; the index of a message that Python has to process."""
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

    def write_selected(self, first: int, last: int, writer: RunWriter) -> Iterator[Lines | int | list[int]]:
        """`write` for messages that are selected by a filter; see `SelectedMessages.write`."""
        assert self._selected is not None
        writer.begin(self)
        yield from self._selected.write(first, last, writer.lines.take)

    def entry(self, index: int) -> PairedEntry:
        """The entry of a message whose exchange has a number."""
        messages = self._messages
        row: tuple[Any, ...] = messages.rows[index].item()
        order, start, first_packet, last_packet, packet, _, time_ns, latency, duration, ordinal = row[:10]
        connection, size, pair, correlation, _, code, client_id, step, flags, _, retransmits = row[10:21]
        behind, muted = row[23:]
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
            int(self.numbers[index]),
            behind,
            muted,
        )

    def _client_id(self, index: int, pair: int) -> str | bytes | None:
        """The client id of the request of a response; `pair`: the request's index if it is in this run."""
        if pair != NONE:
            return self._messages.client_id(pair)
        place = int(np.searchsorted(self._edges.answers, index))
        return self._messages.client_id_of(self._edges.answered[place])


def _unknown(codes: NDArray[np.int64]) -> list[int]:
    """Codes of versions without a definition."""
    return [code for code in distinct(codes) if not version_of(code).request.known_version] if len(codes) else []
