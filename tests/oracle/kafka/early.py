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

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkasniff.kafka.connection.events import Frame

EARLY_FRAMES: Final = 4
"""Number of later frames of its connection for which a response waits for its request."""
MAX_EARLY: Final = 16_384
"""Responses kept per connection: one for each segment that may be held back after a hole (MAX_HELD_SEGMENTS)."""
MAX_EARLY_BYTES: Final = 16 << 20
"""Bytes of them: as much as is held back after a hole (MAX_HELD_BYTES)."""


class _Waiting(NamedTuple):
    """A response that waits; `number` counts them, `due` is the clock at which the wait ends."""

    number: int
    due: int
    correlation_id: int
    frame: Frame


class EarlyResponses:
    """The responses of one connection that wait for their requests, oldest first."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._refused: set[int] = set()
        """Numbers of those that do not answer a request with their id."""
        self._clock = 0
        """Frames that counted."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, correlation_id: int, frame: Frame) -> list[Frame]:
        """Keep a response. Returns those that are evicted at the bound, oldest first (it may be among them)."""
        self._waiting.append(_Waiting(self._next, self._clock + EARLY_FRAMES + 1, correlation_id, frame))
        self._next += 1
        count, size = 0, sum(one.frame.end - one.frame.start for one in self._waiting)
        while len(self._waiting) - count > MAX_EARLY or size > MAX_EARLY_BYTES:
            evicted = self._waiting[count].frame
            size -= evicted.end - evicted.start
            count += 1
        return self._remove(self._waiting[:count])

    def find(self, correlation_id: int, time_ns: int, *, may_precede: bool) -> tuple[int, Frame] | None:
        """Find the response to a request that was complete at `time_ns`: its number and its frame. It still waits.

        Among several with this id it is the first that began after the request; if all began before it, the first, or
        none unless `may_precede`.
        """
        same = self._of_id(correlation_id)
        if not same:
            return None
        if same[-1].frame.first_time >= time_ns:
            found = next(one for one in same if one.frame.first_time >= time_ns)
        elif may_precede:
            found = same[0]
        else:
            return None
        return found.number, found.frame

    def remove(self, number: int) -> None:
        """Remove the one of this number."""
        self._remove([one for one in self._waiting if one.number == number])

    def refuse(self, number: int) -> list[Frame]:
        """Record that the response of this number, which `find` returned, does not answer the request.

        It may answer a later one, so it keeps its place; the second time it is removed. Ids restart once, after
        authentication, and the work for a response must not grow with the number of requests that have its id.
        Responses with this id that began before the request are removed as well: they answer no later one either.
        """
        (refused,) = (one for one in self._waiting if one.number == number)
        removed = [one for one in self._of_id(refused.correlation_id) if one.number < number]
        if number in self._refused:
            removed.append(refused)
        else:
            self._refused.add(number)
        return self._remove(removed)

    def before(self, number: int) -> list[Frame]:
        """Remove those that arrived before the one of this number."""
        return self._remove([one for one in self._waiting if one.number < number])

    def drain(self) -> list[Frame]:
        """Remove all."""
        return self.before(self._next)

    def tick(self) -> list[Frame]:
        """Another frame has arrived. Removes those that have waited long enough."""
        self._clock += 1
        return self._remove([one for one in self._waiting if one.due <= self._clock])

    def _of_id(self, correlation_id: int) -> list[_Waiting]:
        return [one for one in self._waiting if one.correlation_id == correlation_id]

    def _remove(self, some: Sequence[_Waiting]) -> list[Frame]:
        gone = {one.number for one in some}
        self._waiting = [one for one in self._waiting if one.number not in gone]
        self._refused -= gone
        return [one.frame for one in some]
