"""Messages of a batch whose lines the kernel writes, between events that are reported one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import MessageOwner
from kafkasniff.engine.line_makers import Ends, LineMaker, MakeLines
from kafkasniff.engine.message_table import Messages
from kafkasniff.engine.row_messages import RowMessages
from kafkasniff.engine.selected_messages import SelectedMessages, SelectsLines
from kafkasniff.engine.versions import distinct, version_of
from kafkasniff.kafka.connection.events import Detail
from kafkasniff.model import DecidedRequest, Lines, Problem
from kafkasniff.native.feed import KEYS, REQUEST, VERSIONS
from kafkasniff.native.lines import LineBatch


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
        messages: Messages,
        lines: LineMaker,
        detail: Detail,
        number: int,
        selects: SelectsLines | None = None,
    ) -> None:
        """`messages`: as `StreamMessages.lines` returns them; all exchanges have their numbers.

        `lines`: decides which messages have lines; `number`: of the run; `selects`: decides which messages are shown;
        with it, `select` has to be called before lines are requested.
        """
        self._messages = messages
        rows = self._rows = messages.rows[: messages.here]
        self.number_of_run = number
        self._is_request: NDArray[np.bool_] = (rows["flags"] & REQUEST) > 0
        self.objects = RowMessages(messages, detail.decode)
        """Messages that have no line."""
        self._selects = selects
        self._selected: SelectedMessages | None = None
        buffer, arena = (np.frombuffer(data, np.uint8) for data in (messages.buffer, messages.arena))
        self.bound = LineBatch(messages.rows, messages.here, buffer, arena)
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
        selected = self._selected = SelectedMessages(self._selects, self._messages, native, capture)
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


def _unknown(codes: NDArray[np.int64]) -> list[int]:
    """Codes of versions without a definition."""
    return [code for code in distinct(codes) if not version_of(code).request.known_version] if len(codes) else []
