"""Messages of a batch whose lines the kernel writes, between events that are told one by one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkasniff.accounts import InspectedConnection
from kafkasniff.in_step import EVENTS, Messages
from kafkasniff.kafka.context import DecodeOptions
from kafkasniff.model import Endpoint
from kafkasniff.native.feed import ARENA, NONE, REQUEST
from kafkasniff.paired import HEADER, Open, Paired, PairedEntry
from kafkasniff.versions import client_id_text, version_of

__all__ = ["Ends", "LineMaker", "LineRun", "MakeLines"]


class LineMaker(Protocol):
    """Writes lines (`sinks.native_lines.NativeLines`)."""

    def use(self, options: DecodeOptions) -> None:
        """From here on write as these options say."""

    def forget(self, connections: list[int]) -> None:
        """The feed has other connections at these indices."""

    def bind(
        self,
        messages: int,
        count: int,
        numbers: NDArray[np.int64],
        buffer: NDArray[np.uint8],
        arena: NDArray[np.uint8],
    ) -> None:
        """The batch whose lines are taken from here on."""

    def take(self, first: int, last: int) -> Iterator[bytes | int]:
        """The lines of these messages in pieces of one or more; for one that is Python's its index."""


Ends = tuple[int, Endpoint | None, Endpoint | None]
"""The number of a connection, its client and its broker."""


MakeLines = Callable[[Callable[[int], Ends], Callable[[int], str | None]], LineMaker]
"""Makes what writes lines, given the ends of a connection and the name of a capture by their indices."""


class LineRun:
    """The messages of a batch, in their order."""

    def __init__(self, messages: Messages, lines: LineMaker, options: DecodeOptions) -> None:
        rows = messages.rows
        self._messages = messages
        self._lines = lines
        self._orders: list[int] = rows["order"].tolist()
        self._is_request: NDArray[np.bool_] = (rows["flags"] & REQUEST) > 0
        self._is_event: NDArray[np.bool_] = rows["pair"] == NONE
        self.numbers: NDArray[np.int64] = np.zeros(len(rows), np.int64)
        """Of exchanges, by message, as far as they were given."""
        self._open: list[Open | None] = [None] * len(rows)
        self._kinds = [Paired(data, self._open, options) for data in (messages.buffer, messages.arena)]
        lines.use(options)
        lines.bind(
            rows.ctypes.data,
            len(rows),
            self.numbers,
            np.frombuffer(messages.buffer, np.uint8),
            np.frombuffer(messages.arena, np.uint8),
        )

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

    def after_events(self, first: int) -> int:
        """The first message from `first` on that is none of the events."""
        while first < len(self._orders) and self._is_event[first]:
            first += 1
        return first

    def number(self, number: int, begun: Sequence[int]) -> None:
        """Give the exchanges that begin with messages numbers above `number`.

        `begun`: for each event with which an exchange begins the first message after it, rising.
        """
        asked = np.flatnonzero(self._is_request & ~self._is_event)
        between = np.searchsorted(np.array(begun, np.int64), asked, side="right")
        self.numbers[asked] = number + 1 + np.arange(len(asked)) + between
        answers = np.flatnonzero(~self._is_request & ~self._is_event)
        self.numbers[answers] = self.numbers[self._messages.rows["pair"][answers]]

    def requests(self, first: int, last: int) -> int:
        """How many of these messages are requests."""
        return int(np.count_nonzero(self._is_request[first:last]))

    @property
    def owners(self) -> list[InspectedConnection | None]:
        """By the index of a connection."""
        return self._messages.owners

    def is_request(self, index: int) -> bool:
        """Whether a message is a request."""
        return bool(self._is_request[index])

    def take(self, first: int, last: int) -> Iterator[bytes | int]:
        """The lines of these messages in pieces; for one that is Python's its index."""
        return self._lines.take(first, last)

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
        exchange = index if is_request else pair
        if not is_request and self._open[pair] is None:
            self._open[pair] = int(self.numbers[pair]), version, self._client_id(pair), None, None
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

    def _client_id(self, index: int) -> str | bytes | None:
        """The client id of a request."""
        row = self._messages.rows[index]
        size = int(row["client_id"])
        if size < 0:
            return None
        data = self._messages.arena if row["flags"] & ARENA else self._messages.buffer
        start = int(row["start"]) + HEADER
        return client_id_text(data[start : start + size])
