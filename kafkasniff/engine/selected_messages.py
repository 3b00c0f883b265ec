"""Messages of a run that a filter selects, in the order of their lines."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.message_table import Messages
from kafkasniff.engine.stream_messages import HELD
from kafkasniff.engine.versions import distinct
from kafkasniff.model import DecidedRequest, Lines
from kafkasniff.native.feed import KEYS, NONE, REQUEST, VERSIONS
from kafkasniff.native.lines import AGAIN, LEFT, READ, WRITTEN, LineBatch
from kafkasniff.native.rows import joined

__all__ = ["DEFERRED", "REJECTED", "SELECTED", "UNDECIDED", "SelectedMessages", "SelectsLines"]

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
        messages: Messages,
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

    - `native`: which messages have lines if they are selected
    - `capture`: the name of a capture by its index
    """

    def __init__(
        self,
        selects: SelectsLines,
        messages: Messages,
        native: NDArray[np.bool_],
        capture: Callable[[int], str | None],
    ) -> None:
        assert messages.lines is not None
        rows = self._rows = messages.rows[: messages.here]
        self._requests = messages.rows[messages.here :]
        self._owners = messages.owners
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
        found = selects.exchanges(messages, answers, capture)
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
        self._decided = held[known[held] != UNDECIDED].tolist()
        """Responses that decide on requests of earlier batches."""
        deferred = np.flatnonzero(found == DEFERRED)
        order = self._order = _Order.of(len(rows), asked[deferred], answers[deferred])
        is_selected = (known == SELECTED) | (known == HELD) | ((known == DEFERRED) & ~is_request)
        state = np.where(known == UNDECIDED, LEFT, np.where(is_selected, WRITTEN, READ)).astype(np.uint8)
        shown = self._shown = state[order.source]
        self._is_copy = np.ones(len(shown), bool)
        self._is_copy[order.place] = False
        shown[self._is_copy] = AGAIN
        is_native, held = (native & (state != LEFT))[order.source], np.zeros(len(shown), bool)
        held[order.place[known == HELD]] = True
        turns = np.ones(len(shown) + 1, bool)
        turns[1:-1] = (is_native[1:] != is_native[:-1]) | held[1:] | held[:-1]
        self._turns: list[int] = np.flatnonzero(turns).tolist()
        """Where the output is written otherwise than before; each held request is written alone."""
        self._is_native: list[bool] = is_native.tolist()

    def bind(self, batch: LineBatch) -> LineBatch:
        """All messages of the batch in the order of their lines."""
        order, rows = self._order, self._rows
        moved = rows.take(order.source)
        here, count = moved["pair"] < batch.here, len(moved)
        of_earlier = ~here & (moved["pair"] != NONE)
        moved["pair"][here] = order.place[moved["pair"][here]]
        moved["pair"][of_earlier] += count - batch.here
        return batch._replace(messages=joined((moved, self._requests)), here=count, shown=self._shown)

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
        begin, end = bisect_left(self._decided, first), bisect_left(self._decided, last)
        found = []
        for index in self._decided[begin:end]:
            owner = self._owners[int(self._rows["connection"][index])]
            assert owner is not None
            number, answer = int(self._rows["number"][index]), self._answers[index] == SELECTED
            found.append(DecidedRequest(number, owner.number, bool(answer)))
        return found

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
                    count = int(np.count_nonzero(shown[begin:at] & WRITTEN))
                    index = int(order.source[at - 1])
                    time = int(self._rows["time"][index])
                    number = int(self._rows["number"][index]) if self._answers[index] == HELD else None
                    yield Lines(piece.data, count, time, piece.problems, number)
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
