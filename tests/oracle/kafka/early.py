"""Responses that arrived before their requests.

A response waits if its request may still arrive: two capture points disagree about the order; the client's stream has a
hole, and the following segments are held back until it is filled or declared a gap; or its frames are being searched
for. It waits until

- its request arrives;
- two requests with its id have arrived that it does not answer;
- a later response has found its own: brokers answer in order, so its request was in missing bytes;
- EARLY_FRAMES more frames of the connection have arrived. Frames do not count while requests are delayed;
- the bound is reached.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from typing import Final

from kafkasniff.kafka.connection.framing import Frame

__all__ = ["EARLY_FRAMES", "MAX_EARLY", "MAX_EARLY_BYTES", "EarlyResponses"]

EARLY_FRAMES: Final = 4
"""Number of later frames of its connection for which a response waits for its request."""
MAX_EARLY: Final = 16_384
"""Responses kept per connection: one for each segment that may be held back after a hole (MAX_HELD_SEGMENTS)."""
MAX_EARLY_BYTES: Final = 16 << 20
"""Bytes of them: as much as is held back after a hole (MAX_HELD_BYTES)."""


class EarlyResponses:
    """The responses of one connection that wait for their requests, oldest first.

    Each has a number in the order of their arrival.
    """

    __slots__ = ("_by_id", "_bytes", "_clock", "_next", "_refused", "_waiting")

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, tuple[int, int, Frame]] = OrderedDict()
        """By number: the clock at which the wait ends, the correlation id, and the frame."""
        self._refused: set[int] = set()
        """Numbers of those that do not answer a request with their id."""
        self._by_id: dict[int, deque[int]] = {}
        self._bytes = 0
        self._clock = 0
        """Frames that counted."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, correlation_id: int, frame: Frame) -> list[Frame]:
        """Keep a response. Returns those that are evicted at the bound, oldest first (it may be among them)."""
        size = frame.end - frame.start
        if size < len(frame.data):
            # Copied, so that the whole batch of packets is not kept alive.
            frame = frame._replace(data=frame.data[frame.start : frame.end], start=0, end=size)
        number = self._next
        self._next += 1
        self._waiting[number] = (self._clock + EARLY_FRAMES + 1, correlation_id, frame)
        waiting = self._by_id.get(correlation_id)
        if waiting is None:
            self._by_id[correlation_id] = deque((number,))
        else:
            waiting.append(number)
        self._bytes += size
        removed = []
        while len(self._waiting) > MAX_EARLY or self._bytes > MAX_EARLY_BYTES:
            removed.append(self._remove(next(iter(self._waiting))))
        return removed

    def find(self, correlation_id: int, time_ns: int, *, may_precede: bool) -> tuple[int, Frame] | None:
        """Find the response to a request that was complete at `time_ns`: its number and its frame. It still waits.

        Among several with this id it is the first that began after the request; if all began before it, the first, or
        none unless `may_precede`.
        """
        numbers = self._by_id.get(correlation_id)
        if numbers is None:
            return None
        if self._waiting[numbers[-1]][2].first_time >= time_ns:
            # The skipped ones are removed with `before`, so that each is checked only once.
            number = next(number for number in numbers if self._waiting[number][2].first_time >= time_ns)
        elif may_precede:
            number = numbers[0]
        else:
            return None
        return number, self._waiting[number][2]

    def remove(self, number: int) -> None:
        """Remove the one of this number."""
        self._remove(number)

    def refuse(self, number: int) -> list[Frame]:
        """Record that the response of this number, which `find` returned, does not answer the request.

        It may answer a later one, so it keeps its place; the second time it is removed. Ids restart once, after
        authentication, and the work for a response must not grow with the number of requests that have its id.
        Responses with this id that began before the request are removed as well: they answer no later one either.
        """
        numbers = self._by_id[self._waiting[number][1]]
        removed = [self._remove(earlier) for earlier in [*itertools.takewhile(lambda other: other < number, numbers)]]
        if number in self._refused:
            removed.append(self._remove(number))
        else:
            self._refused.add(number)
        return removed

    def before(self, number: int) -> list[Frame]:
        """Remove those that arrived before the one of this number."""
        removed = []
        while self._waiting and next(iter(self._waiting)) < number:
            removed.append(self._remove(next(iter(self._waiting))))
        return removed

    def drain(self) -> list[Frame]:
        """Remove all."""
        return self.before(self._next)

    def tick(self) -> list[Frame]:
        """Another frame has arrived. Removes those that have waited long enough."""
        self._clock += 1
        removed = []
        while self._waiting:
            number, (due, _, _) = next(iter(self._waiting.items()))
            if due > self._clock:
                break
            removed.append(self._remove(number))
        return removed

    def _remove(self, number: int) -> Frame:
        _, correlation_id, frame = self._waiting.pop(number)
        self._refused.discard(number)
        self._bytes -= frame.end - frame.start
        numbers = self._by_id[correlation_id]
        if len(numbers) == 1:
            del self._by_id[correlation_id]
        else:
            numbers.remove(number)
        return frame
