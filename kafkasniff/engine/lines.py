"""Messages of a batch whose lines the kernel writes, between events that are reported one by one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.message_table import Collected, Messages
from kafkasniff.engine.roles import distinct, version_of
from kafkasniff.engine.stream_messages import HELD, RowMessages
from kafkasniff.enrich import Enricher
from kafkasniff.kafka.connection.events import Detail
from kafkasniff.model import DecidedRequest, Endpoint, HeldLines, Lines, Problem
from kafkasniff.native.feed import KEYS, NONE, REQUEST, VERSIONS, joined
from kafkasniff.native.lines import AGAIN, LEFT, READ, WRITTEN, LineBatch
from kafkasniff.native.names import Session

# -- writers -----------------------------------------------------------------------------------------------------------


class Facts(Protocol):
    """The names that an enricher adds to bodies (`sinks.native_lines.AddedNames`)."""

    @property
    def enricher(self) -> Enricher:
        """Knows the names."""

    @property
    def learned(self) -> int:
        """Incremented for every topic learned."""


class LineMaker(Protocol):
    """Writes lines (`sinks.native_lines.NativeLines`, `sinks.native_text.NativeText`).

    The enricher and the sink must have everything that comes before lines when these are taken, unless they are made
    ahead.
    """

    only_asked: bool
    """No messages after the requested ones will be requested; may be set."""

    @property
    def facts(self) -> Facts:
        """The names added to bodies."""

    @property
    def session_text(self) -> Callable[[int, int | None], bytes]:
        """What bodies show of a fetch session: partitions, and `unnamed` of `SessionContent`."""

    def use(self, detail: Detail) -> None:
        """Use the current level of `detail` from now on."""

    def takes(self, key: int, version: int, *, is_request: bool) -> bool:
        """Whether regular messages of a version of an API have lines."""

    def forget(self, connections: list[int]) -> None:
        """These connection indices were reused."""

    def bind(self, batch: LineBatch) -> None:
        """Set the batch whose lines are requested from now on."""

    def take(self, first: int, last: int) -> Iterator[Lines | int]:
        """The lines of these messages, one or more at a time; the index of a message that Python has to process."""


Ends = tuple[int, Endpoint | None, Endpoint | None]
"""The number of a connection, its client and its broker."""


class MakeLines(Protocol):
    """Creates line writers."""

    def __call__(
        self, ends: Callable[[int], Ends], capture: Callable[[int], str | None], /, *, ahead: bool = False
    ) -> LineMaker:
        """Create a writer, given the ends of a connection and the name of a capture by their indices.

        `ahead`: for a separate thread that runs before the lines are due (`LineMaker.facts`).
        """


# -- messages that a filter selects ------------------------------------------------------------------------------------


REJECTED, SELECTED, DEFERRED, UNDECIDED = range(4)
"""The filter's decision on an exchange. Deferred: it is selected, and its request is shown with the response, which
decided. Undecided: Python has to look at its messages. `HELD`: its response is not there yet and will decide; its
request has its line by then."""


class SelectsLines(Protocol):
    """Decides which exchanges a filter selects (`selection.Selection`). Messages are indices into a batch."""

    def requests(self, messages: Messages, capture: Callable[[int], str | None]) -> NDArray[np.uint8]:
        """The decision on each message; all but requests that are answered later are `UNDECIDED`.

        Those that are `UNDECIDED` need Python, with their responses.
        """

    def exchanges(
        self,
        collected: Collected,
        answers: NDArray[np.intp],
        capture: Callable[[int], str | None],
    ) -> NDArray[np.uint8]:
        """The decisions on the exchanges of these responses, which have their numbers."""

    def can_move(self, code: int) -> bool:
        """Whether lines of requests of a version of an API may be written later than in order."""

    def pin(self, exchange: int, answer: bool) -> None:
        """Store the decision on an exchange whose messages Python will process."""

    def unpin(self, exchange: int) -> None:
        """Drop the decision: the messages were processed."""


class _Order(msgspec.Struct, frozen=True):
    """The messages to write: those of the batch, with the requests of some responses repeated before them."""

    source: NDArray[np.intp]
    """The index in the batch of each."""
    begin: NDArray[np.intp]
    """For each message of the batch, and for their end, where its output begins."""
    place: NDArray[np.intp]
    """For each message of the batch, its own position."""

    @classmethod
    def of(cls, count: int, moved: NDArray[np.intp], answers: NDArray[np.intp]) -> _Order:
        """The order for `count` messages; `moved`: requests that are also placed before their responses."""
        source = np.insert(np.arange(count), answers, moved)
        more = np.zeros(count + 1, np.intp)
        more[answers] = 1
        behind = np.cumsum(more)
        begin = np.arange(count + 1) + behind - more
        return cls(source, begin, (begin + more)[:count])


_AGAIN: Final = -1
"""`SelectedMessages.write` yields this minus the index of a request that was processed before."""


class SelectedMessages:
    """Decides which messages of a batch are shown, and has the lines of these written.

    - `collected`: the messages, and events between them
    - `native`: which messages have lines if they are selected
    - `capture`: the name of a capture by its index
    """

    def __init__(
        self,
        selects: SelectsLines,
        collected: Collected,
        native: NDArray[np.bool_],
        capture: Callable[[int], str | None],
    ) -> None:
        messages = collected.messages
        assert messages is not None
        assert messages.lines is not None
        rows = self._rows = messages.rows[: messages.here]
        self._requests = messages.rows[messages.here :]
        is_request = self._is_request = (rows["flags"] & REQUEST) > 0
        known = self._answers = np.full(len(rows), UNDECIDED, np.uint8)
        known[messages.lines.places] = messages.lines.selected
        of_earlier = np.flatnonzero((rows["pair"] != NONE) & (rows["pair"] >= messages.here))
        marks = messages.rows["mark"][rows["pair"][of_earlier]]
        known[of_earlier] = marks & SELECTED
        held = of_earlier[(marks & HELD) > 0]
        answers = np.flatnonzero(~is_request & (rows["pair"] < messages.here))
        if len(held):
            answers = np.sort(np.concatenate([answers, held]))
        found = selects.exchanges(collected, answers, capture)
        asked = rows["pair"][answers].astype(np.intp)
        deferred = np.flatnonzero(found == DEFERRED)
        codes = rows["code"][asked[deferred]].astype(np.int64)
        can_move = np.zeros(KEYS * VERSIONS, bool)
        for code in distinct(codes) if len(codes) else ():
            can_move[code] = selects.can_move(code)
        found[deferred[~(can_move[codes] & native[asked[deferred]])]] = UNDECIDED
        known[answers] = found
        here = asked < messages.here
        known[asked[here]] = found[here]
        decided = held[known[held] != UNDECIDED]
        self._decided: list[int] = decided.tolist()
        """Responses that decide on requests of earlier batches."""
        self._decisions = [
            DecidedRequest(number, messages.owner(row).number, answer)
            for number, row, answer in zip(
                rows["number"][decided].tolist(), rows.take(decided), (known[decided] == SELECTED).tolist(), strict=True
            )
        ]
        """What each of them decides."""
        deferred = np.flatnonzero(found == DEFERRED)
        order = self._order = _Order.of(len(rows), asked[deferred], answers[deferred])
        is_selected = (known == SELECTED) | (known == HELD) | ((known == DEFERRED) & ~is_request)
        state = np.where(known == UNDECIDED, LEFT, np.where(is_selected, WRITTEN, READ)).astype(np.uint8)
        shown = self._shown = state[order.source]
        self._is_copy = np.ones(len(shown), bool)
        self._is_copy[order.place] = False
        shown[self._is_copy] = AGAIN
        is_native = (native & (state != LEFT))[order.source]
        waiting = np.flatnonzero(known == HELD)
        self._waiting: list[int] = order.place[waiting].tolist()
        """The places of requests on which a later response decides, in order."""
        self._exchanges: list[int] = rows["number"][waiting].tolist()
        """The numbers of their exchanges."""
        turns = np.ones(len(shown) + 1, bool)
        turns[1:-1] = is_native[1:] != is_native[:-1]
        self._turns: list[int] = np.flatnonzero(turns).tolist()
        """Where the output is written otherwise than before."""
        self._is_native: list[bool] = is_native.tolist()

    def bind(self, batch: LineBatch) -> LineBatch:
        """All messages of the batch in the order of their lines."""
        order, rows = self._order, self._rows
        if len(order.source) == len(rows):
            return batch._replace(shown=self._shown)
        moved = rows.take(order.source)
        here, count = moved["pair"] < batch.here, len(moved)
        of_earlier = ~here & (moved["pair"] != NONE)
        moved["pair"][here] = order.place[moved["pair"][here]]
        moved["pair"][of_earlier] += count - batch.here
        places = None if batch.places is None else batch.places[order.source]
        messages = joined((moved, self._requests))
        return batch._replace(messages=messages, here=count, shown=self._shown, places=places)

    def connections(self) -> list[int]:
        """Indices of the connections with messages that are selected by now."""
        selected = (self._answers == SELECTED) | (self._answers == DEFERRED)
        found: list[int] = np.unique(self._rows["connection"][selected]).tolist()
        return found

    def answer(self, index: int) -> bool | None:
        """Whether a message is selected, if decided."""
        return None if self._answers[index] in {UNDECIDED, HELD} else bool(self._answers[index] != REJECTED)

    def decided(self, first: int, last: int) -> list[DecidedRequest]:
        """The decisions of these responses on requests of earlier batches."""
        return self._decisions[bisect_left(self._decided, first) : bisect_left(self._decided, last)]

    def write(
        self, first: int, last: int, take: Callable[[int, int], Iterator[Lines | int]]
    ) -> Iterator[Lines | int | list[int]]:
        """The lines of these messages; the index of a message that Python has to process.

        Yields a list of indices for several undecided messages, and `-1 - index` for a request that was processed
        before and is shown only now. `take`: that of the line maker.
        """
        order, native, shown = self._order, self._is_native, self._shown
        at, last = int(order.begin[first]), int(order.begin[last])
        while at < last:
            stop = min(last, self._turns[bisect_right(self._turns, at)])
            if not native[at]:
                others = order.source[at:stop][~self._is_copy[at:stop]]
                if (self._answers[others] == UNDECIDED).all():
                    yield others.tolist()
                else:
                    yield from others.tolist()
                at = stop
                continue
            for piece in take(at, stop):
                if isinstance(piece, Lines):
                    begin, at = at, at + piece.count
                    held = self._held(begin, at, piece.ends)
                    count = int(np.count_nonzero(shown[begin:at] & WRITTEN)) - len(held)
                    time = int(self._rows["time"][order.source[at - 1]])
                    yield Lines(piece.data, count, time, piece.problems, held=held)
                else:
                    at = piece + 1
                    index = int(order.source[piece])
                    if self._is_copy[piece]:
                        yield _AGAIN - index
                    else:
                        self._undecide(index)
                        yield index
                    # Fewer messages may be native now.
                    break

    def _held(self, first: int, last: int, ends: NDArray[np.uint64] | None) -> list[HeldLines]:
        """The requests in this part of the order that wait for a decision, where its lines have these `ends`."""
        assert ends is not None
        begin, end = bisect_left(self._waiting, first), bisect_left(self._waiting, last)
        places = [place - first for place in self._waiting[begin:end]]
        return [
            (number, int(ends[place - 1]) if place else 0, int(ends[place]))
            for number, place in zip(self._exchanges[begin:end], places, strict=True)
        ]

    def _undecide(self, index: int) -> None:
        """Leave a request that is shown with its response, and the response, to Python."""
        if self._answers[index] != DEFERRED or not self._is_request[index]:
            return
        answer = int(self._rows["pair"][index])
        self._answers[[index, answer]] = UNDECIDED
        begin, end = int(self._order.begin[answer]), int(self._order.place[answer]) + 1
        insort(self._turns, begin)
        insort(self._turns, end)
        for place in range(begin, end):
            self._is_native[place] = False


# -- runs of messages --------------------------------------------------------------------------------------------------


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

    def __init__(
        self,
        collected: Collected,
        lines: LineMaker,
        detail: Detail,
        number: int,
        selects: SelectsLines | None = None,
    ) -> None:
        """`collected`: messages as `StreamMessages.lines` returns them, with numbers of exchanges and fetch sessions.

        `lines`: decides which messages have lines; `number`: of the run; `selects`: decides which messages are shown;
        with it, `select` has to be called before lines are requested.
        """
        messages, sessions = collected.messages, collected.sessions
        assert messages is not None
        assert sessions is not None
        self._collected = collected
        self._messages = messages
        rows = self._rows = messages.rows[: messages.here]
        self.number_of_run = number
        self._is_request: NDArray[np.bool_] = (rows["flags"] & REQUEST) > 0
        self.objects = RowMessages(messages, detail.decode)
        """Messages that have no line."""
        self._selects = selects
        self._selected: SelectedMessages | None = None
        buffer, arena = (np.frombuffer(data, np.uint8) for data in (messages.buffer, messages.arena))
        shown = [
            Session(session_content.partitions, lines.session_text(session_content.partitions, session_content.unnamed))
            for session_content in sessions.contents
        ]
        self.bound = LineBatch(messages.rows, messages.here, buffer, arena, None, sessions.places, shown)
        lines.use(detail)
        self._pythons: list[int] = np.flatnonzero(~self._native(lines)).tolist()
        """Messages whose kind has no lines."""
        self._lacking: NDArray[np.int64] | None = self._lack(detail)
        """Number of problems inherent to the kinds of all messages before each one."""
        self.detail = detail

    def select(self, capture: Callable[[int], str | None]) -> list[int]:
        """Decide which messages are shown.

        Returns the numbers of connections with messages that are selected already.
        """
        assert self._selects is not None
        native = np.ones(len(self), bool)
        native[self._pythons] = False
        selected = self._selected = SelectedMessages(self._selects, self._collected, native, capture)
        self.bound = selected.bind(self.bound)
        owners = [self.owners[index] for index in selected.connections()]
        return [owner.number for owner in owners if owner is not None]

    def decided(self, first: int, last: int) -> list[DecidedRequest]:
        """The decisions of these messages on requests of earlier batches."""
        return [] if self._selected is None else self._selected.decided(first, last)

    def answer(self, index: int) -> bool | None:
        """Whether a message is selected, if decided."""
        return None if self._selected is None else self._selected.answer(index)

    def _native(self, lines: LineMaker) -> NDArray[np.bool_]:
        """Which messages have a kind with lines."""
        codes = self._rows["code"].astype(np.int64)
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
        codes = self._rows["code"].astype(np.int64)
        unknown = _unknown(codes) if self._selects is None else []
        if not (detail.level or unknown):
            return None
        lacks = np.zeros(len(codes) + 1, np.int64)
        if unknown and not detail.decode.headers and detail.decode.bodies:
            lacks[1:][np.isin(codes, unknown)] = 1
        for is_request in (False, True) if detail.level else ():
            mine = self._is_request == is_request
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
        return self.detail.lack(int(self._rows["code"][index]) // VERSIONS, is_request=self.is_request(index))

    def __len__(self) -> int:
        return len(self._is_request)

    def requests(self, first: int, last: int) -> int:
        """The number of requests among these messages."""
        return int(np.count_nonzero(self._is_request[first:last]))

    @property
    def owners(self) -> Sequence[MessageOwner | None]:
        """By the index of a connection."""
        return self._messages.owners

    def weights(self, message: int) -> NDArray[np.int64]:
        """Cumulative bytes of the messages; each counts `message` bytes in addition to its own."""
        found: NDArray[np.int64] = np.cumsum(self._rows["size"].astype(np.int64) + message)
        return found

    def is_request(self, index: int) -> bool:
        """Whether a message is a request."""
        return bool(self._is_request[index])

    def number_of(self, index: int) -> int:
        """The number of a message's exchange."""
        return int(self._rows["number"][index])

    def time_of(self, index: int) -> int:
        """time_ns of a message."""
        return int(self._rows["time"][index])

    def write(self, first: int, last: int, writer: RunWriter) -> Iterator[Lines | int]:
        """The lines of these messages; the index of a message that Python has to process."""
        writer.begin(self)
        index = bisect_left(self._pythons, first)
        while first < last:
            stop = min(self._pythons[index], last) if index < len(self._pythons) else last
            if stop > first:
                yield from writer.lines.take(first, stop)
            if stop < last:
                yield stop
            index += 1
            first = stop + 1

    def write_selected(self, first: int, last: int, writer: RunWriter) -> Iterator[Lines | int | list[int]]:
        """`write` for messages that are selected by a filter; see `SelectedMessages.write`."""
        assert self._selected is not None
        writer.begin(self)
        yield from self._selected.write(first, last, writer.lines.take)


def _unknown(codes: NDArray[np.int64]) -> list[int]:
    """Codes of versions without a definition."""
    return [code for code in distinct(codes) if not version_of(code).request.known_version] if len(codes) else []
