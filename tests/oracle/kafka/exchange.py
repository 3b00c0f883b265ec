"""Pairing of responses with requests of a connection.

A broker answers the requests of a connection in order, each with the request's correlation id, so the next response
nearly always answers the oldest outstanding request. Everything else is reported: ids that repeat, wrap or restart pair
with the oldest of their kind; a response without a request waits for one that may arrive later (early.py), then it is
an orphan; requests with acks 0 have no response, and are kept for a while for brokers that answer them anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final

__all__ = ["MAX_OUTSTANDING", "Ledger", "Pending"]

MAX_OUTSTANDING: Final = 65_536
"""Outstanding requests per connection; clients send 5 to 1,000 ahead by default."""
MAX_SILENT: Final = 64
"""Requests with acks 0 per connection that may still get a response."""
_SLACK: Final = 64
"""Stale heap entries are removed when they are more than half of the heap and at least this many."""


class Pending:
    """A request whose response is outstanding."""

    __slots__ = (
        "api_key",
        "api_version",
        "carry",
        "client_id",
        "correlation_id",
        "first_time",
        "hidden",
        "lost",
        "mechanism",
        "ordinal",
        "passed",
        "silent",
        "time_ns",
    )

    def __init__(  # noqa: PLR0917 (made in the hot path, where keywords cost)
        self,
        ordinal: int,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | bytes | None,
        first_time: int,
        time_ns: int,
        *,
        silent: bool = False,
        mechanism: str | None = None,
        carry: object = None,
        hidden: bool = False,
    ) -> None:
        self.ordinal = ordinal
        """Ordinal of the exchange within its connection."""
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.first_time = first_time
        """time_ns of the packet with the request's first byte."""
        self.time_ns = time_ns
        """time_ns of the packet that completed the request."""
        self.silent = silent
        """Produce with acks 0: no response is expected."""
        self.mechanism = mechanism
        """For a SaslHandshake v0: the requested mechanism, empty if its bytes are truncated."""
        self.carry = carry
        """Data from the request for decoding its response."""
        self.hidden = hidden
        """The request is counted but not reported, and neither will be its response."""
        self.lost = False
        """A gap in the broker's stream may have contained the response."""
        self.passed = False
        """The response to a later request arrived before its own, and that was reported."""


class _LostOfId:
    """The outstanding requests of one correlation id whose response may have been in a gap."""

    __slots__ = ("count", "ordinals")

    def __init__(self) -> None:
        self.count = 0
        self.ordinals: list[int] = []
        """A heap of their ordinals, which may include some that are no longer outstanding."""


class Ledger:
    """The outstanding requests of one connection, oldest first.

    The cost of a call does not depend on the number of outstanding requests: each is processed once when a gap may have
    contained its response, and once when it leaves.
    """

    __slots__ = (
        "_by_id",
        "_judged",
        "_later",
        "_lost",
        "_lost_by_id",
        "_lost_ordinals",
        "_most",
        "_open",
        "_passed",
        "_silent",
        "responses_behind",
    )

    def __init__(self) -> None:
        self._open: OrderedDict[int, Pending] = OrderedDict()
        self._passed: OrderedDict[int, Pending] = OrderedDict()
        """Outstanding requests older than one that was answered: all of them are older than those in `_open`."""
        self._by_id: dict[int, OrderedDict[int, Pending]] = {}
        """By correlation id, then by ordinal. Ordered dictionaries, because finding the first entry of a plain dict is
        slow after many removals at its front."""
        self._silent: OrderedDict[int, Pending] = OrderedDict()
        self._lost = 0
        """Number of outstanding requests whose response may have been in a gap."""
        self._lost_ordinals: list[int] = []
        """A heap of their ordinals, which may include some that are no longer outstanding."""
        self._lost_by_id: dict[int, _LostOfId] = {}
        self._judged = -1
        """The last gap has processed requests up to this ordinal."""
        self._later: list[tuple[int, int]] = []
        """A heap: (time_ns, ordinal) of those that the gaps so far preceded, by their times."""
        self._most = 1
        """Highest number of outstanding requests so far, while answers arrived in order."""
        self.responses_behind = False
        """A part of the broker's stream is not available: requests may have been answered without showing it."""

    def __len__(self) -> int:
        return len(self._open) + len(self._passed)

    def __contains__(self, correlation_id: object) -> bool:
        """Whether a request with this correlation id is outstanding."""
        return correlation_id in self._by_id

    @property
    def first(self) -> Pending | None:
        """The oldest outstanding request."""
        return next(iter((self._passed or self._open).values()), None)

    def oldest(self, correlation_id: int) -> Pending | None:
        """The oldest outstanding request with this correlation id."""
        waiting = self._by_id.get(correlation_id)
        return next(iter(waiting.values())) if waiting else None

    def add(self, pending: Pending) -> Pending | None:
        """Add a request. Returns the evicted one if the bound (or that of silent ones) is reached."""
        if pending.silent:
            self._silent[pending.ordinal] = pending
            return self._silent.popitem(last=False)[1] if len(self._silent) > MAX_SILENT else None
        self._open[pending.ordinal] = pending
        waiting = self._by_id.get(pending.correlation_id)
        if waiting is None:
            waiting = self._by_id[pending.correlation_id] = OrderedDict()
        waiting[pending.ordinal] = pending
        if len(self) <= MAX_OUTSTANDING:
            return None
        return self._remove(next(iter((self._passed or self._open).values())))

    def answer(self, correlation_id: int) -> tuple[Pending, bool] | None:
        """Remove the request that a response with this id answers; also returns whether older ones are still open."""
        pending = self.oldest(correlation_id)
        if pending is None:
            return None
        passes = not pending.passed and next(iter(self._open)) != pending.ordinal
        if len(self._open) > self._most and not (passes or self.responses_behind):
            self._most = len(self._open)
        return self._remove(pending), passes

    def answer_silent(self, correlation_id: int) -> Pending | None:
        """The same among the requests that expect no response."""
        for pending in self._silent.values():
            if pending.correlation_id == correlation_id:
                return self._silent.pop(pending.ordinal)
        return None

    def older_lost(self, ordinal: int) -> list[Pending]:
        """Remove the requests older than this one whose response may have been in a gap: now it certainly was."""
        lost: list[Pending] = []
        while self._lost and self._lost_ordinals[0] < ordinal:
            pending = self._outstanding(heappop(self._lost_ordinals))
            if pending is not None:
                lost.append(self._remove(pending))
        return lost

    def pass_over(self, ordinal: int) -> bool:
        """Mark requests older than an answered one; returns whether any of them was not marked before."""
        fresh = False
        while self._open and next(iter(self._open)) < ordinal:
            older, pending = self._open.popitem(last=False)
            pending.passed = fresh = True
            self._passed[older] = pending
        return fresh

    def silent_before(self, ordinal: int) -> list[Pending]:
        """Remove the requests without a response that are older than this one: they will no longer be answered."""
        done = []
        while self._silent and next(iter(self._silent)) < ordinal:
            done.append(self._silent.popitem(last=False)[1])
        return done

    def has_same_id(self, correlation_id: int) -> bool:
        """Whether several outstanding requests have this correlation id."""
        return len(self._by_id.get(correlation_id, ())) > 1

    def gap(self, resumed_ns: int, *, has_head: bool) -> list[Pending]:
        """Bytes of the broker's stream are missing: any response outstanding by then may have been in them.

        `resumed_ns`: time_ns of the packet after them. A request that was sent later has its response after them, too.
        `has_head`: they contain the beginning of the next response.
        Removes the requests whose response was certainly in them, even if repeating ids do not show it: the oldest, if
        its head is; and if more requests wait than this client ever had in flight, the oldest of those.
        """
        touched = {pending.correlation_id for pending in self._lose(resumed_ns)}
        oldest = next(iter(self._open.values()), None)
        head = None
        if has_head and oldest is not None and self.oldest(oldest.correlation_id) is oldest:
            head = oldest.correlation_id
            touched.add(head)
        # Only if requests were lost now can there be more than were ever in flight.
        removed: list[Pending] = []
        for correlation_id in touched:
            lost = self._lost_by_id.get(correlation_id)
            if lost is None or len(self._by_id[correlation_id]) < 2:
                continue
            for _ in range(min(max(lost.count - self._most, int(correlation_id == head)), lost.count)):
                removed.append(self._remove_first_lost(correlation_id, lost))
        removed.sort(key=lambda pending: pending.ordinal)
        return removed

    def drain(self) -> list[Pending]:
        """Remove all, in the order of their requests."""
        rest = [*self._passed.values(), *self._open.values(), *self._silent.values()]
        rest.sort(key=lambda pending: pending.ordinal)
        self._passed.clear()
        self._open.clear()
        self._silent.clear()
        self._by_id.clear()
        self._lost = 0
        self._lost_ordinals.clear()
        self._lost_by_id.clear()
        self._later.clear()
        return rest

    def _outstanding(self, ordinal: int) -> Pending | None:
        return self._open.get(ordinal) or self._passed.get(ordinal)

    def _lose(self, resumed_ns: int) -> list[Pending]:
        """Mark requests up to this time as possibly lost responses; returns those not marked before."""
        fresh: list[Pending] = []
        for requests in (self._open, self._passed):
            for pending in reversed(requests.values()):
                if pending.ordinal <= self._judged:
                    break
                fresh.append(pending)
        if fresh:
            self._judged = max(pending.ordinal for pending in fresh)
        lost: list[Pending] = []
        for pending in fresh:
            if pending.time_ns <= resumed_ns:
                lost.append(pending)
            else:
                heappush(self._later, (pending.time_ns, pending.ordinal))
        while self._later and self._later[0][0] <= resumed_ns:
            found = self._outstanding(heappop(self._later)[1])
            if found is not None:
                lost.append(found)
        if len(self._later) > 2 * len(self) + _SLACK:
            self._later = sorted(entry for entry in self._later if self._outstanding(entry[1]) is not None)
        for pending in lost:
            pending.lost = True
            self.note_lost(pending)
        if len(self._lost_ordinals) > 2 * self._lost + _SLACK:
            self._lost_ordinals = self._still_outstanding(self._lost_ordinals)
        return lost

    def note_lost(self, pending: Pending) -> None:
        """Add an outstanding request whose response may have been in a gap."""
        self._lost += 1
        heappush(self._lost_ordinals, pending.ordinal)
        of_id = self._lost_by_id.get(pending.correlation_id)
        if of_id is None:
            of_id = self._lost_by_id[pending.correlation_id] = _LostOfId()
        of_id.count += 1
        heappush(of_id.ordinals, pending.ordinal)
        if len(of_id.ordinals) > 2 * of_id.count + _SLACK:
            of_id.ordinals = self._still_outstanding(of_id.ordinals)

    def _still_outstanding(self, ordinals: list[int]) -> list[int]:
        """A heap of those that are still outstanding: a sorted list is one."""
        return sorted(ordinal for ordinal in ordinals if self._outstanding(ordinal) is not None)

    def _remove_first_lost(self, correlation_id: int, lost: _LostOfId) -> Pending:
        waiting = self._by_id[correlation_id]
        while True:
            pending = waiting.get(heappop(lost.ordinals))
            if pending is not None:
                return self._remove(pending)

    def _remove(self, pending: Pending) -> Pending:
        del (self._passed if pending.passed else self._open)[pending.ordinal]
        waiting = self._by_id[pending.correlation_id]
        del waiting[pending.ordinal]
        if not waiting:
            del self._by_id[pending.correlation_id]
        if pending.lost:
            self._lost -= 1
            if not self._lost:
                self._lost_ordinals.clear()
            lost = self._lost_by_id[pending.correlation_id]
            lost.count -= 1
            if not lost.count:
                del self._lost_by_id[pending.correlation_id]
        return pending
