"""Pairing of responses with requests of a connection.

A broker answers the requests of a connection in order, each with the request's correlation id, so the next response
nearly always answers the oldest outstanding request. Everything else is reported: ids that repeat, wrap or restart pair
with the oldest of their kind; a response without a request waits for one that may arrive later (early.py), then it is
an orphan; requests with acks 0 have no response, and are kept for a while for brokers that answer them anyway.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_OUTSTANDING: Final = 65_536
"""Outstanding requests per connection; clients send 5 to 1,000 ahead by default."""
MAX_SILENT: Final = 64
"""Requests with acks 0 per connection that may still get a response."""


class Pending(msgspec.Struct, eq=False):
    """A request whose response is outstanding."""

    ordinal: int
    """Ordinal of the exchange within its connection."""
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | bytes | None
    first_time: int
    """time_ns of the packet with the request's first byte."""
    time_ns: int
    """time_ns of the packet that completed the request."""
    silent: bool = False
    """Produce with acks 0: no response is expected."""
    mechanism: str | None = None
    """For a SaslHandshake v0: the requested mechanism, empty if its bytes are truncated."""
    carry: object = None
    """Data from the request for decoding its response."""
    hidden: bool = False
    """The request is counted but not reported, and neither will be its response."""
    lost: bool = False
    """A gap in the broker's stream may have contained the response."""
    passed: bool = False
    """The response to a later request arrived before its own, and that was reported."""


class Ledger:
    """The outstanding requests of one connection, oldest first."""

    def __init__(self) -> None:
        self._waiting: list[Pending] = []
        self._silent: list[Pending] = []
        self._most = 1
        """Highest number of outstanding requests so far, while answers arrived in order."""
        self.responses_behind = False
        """A part of the broker's stream is not available: requests may have been answered without showing it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, correlation_id: object) -> bool:
        """Whether a request with this correlation id is outstanding."""
        return any(pending.correlation_id == correlation_id for pending in self._waiting)

    @property
    def first(self) -> Pending | None:
        """The oldest outstanding request."""
        return next(iter(self._waiting), None)

    def oldest(self, correlation_id: int) -> Pending | None:
        """The oldest outstanding request with this correlation id."""
        return next(iter(self._of_id(correlation_id)), None)

    def add(self, pending: Pending) -> Pending | None:
        """Add a request. Returns the evicted one if the bound (or that of silent ones) is reached."""
        requests, most = (self._silent, MAX_SILENT) if pending.silent else (self._waiting, MAX_OUTSTANDING)
        requests.append(pending)
        return requests.pop(0) if len(requests) > most else None

    def answer(self, correlation_id: int) -> tuple[Pending, bool] | None:
        """Remove the request that a response with this id answers; also returns whether older ones are still open."""
        pending = self.oldest(correlation_id)
        if pending is None:
            return None
        in_order = [one for one in self._waiting if not one.passed]
        passes = not pending.passed and in_order[0] is not pending
        if not (passes or self.responses_behind):
            self._most = max(self._most, len(in_order))
        self._waiting.remove(pending)
        return pending, passes

    def answer_silent(self, correlation_id: int) -> Pending | None:
        """The same among the requests that expect no response."""
        found = next((pending for pending in self._silent if pending.correlation_id == correlation_id), None)
        if found is not None:
            self._silent.remove(found)
        return found

    def older_lost(self, ordinal: int) -> list[Pending]:
        """Remove the requests older than this one whose response may have been in a gap: now it certainly was."""
        return self._remove([pending for pending in self._waiting if pending.lost and pending.ordinal < ordinal])

    def pass_over(self, ordinal: int) -> bool:
        """Mark requests older than an answered one; returns whether any of them was not marked before."""
        fresh = [pending for pending in self._waiting if pending.ordinal < ordinal and not pending.passed]
        for pending in fresh:
            pending.passed = True
        return bool(fresh)

    def silent_before(self, ordinal: int) -> list[Pending]:
        """Remove the requests without a response that are older than this one: they will no longer be answered."""
        done = [pending for pending in self._silent if pending.ordinal < ordinal]
        del self._silent[: len(done)]
        return done

    def has_same_id(self, correlation_id: int) -> bool:
        """Whether several outstanding requests have this correlation id."""
        return len(self._of_id(correlation_id)) > 1

    def gap(self, resumed_ns: int, *, has_head: bool) -> list[Pending]:
        """Bytes of the broker's stream are missing: any response outstanding by then may have been in them.

        `resumed_ns`: time_ns of the packet after them. A request that was sent later has its response after them, too.
        `has_head`: they contain the beginning of the next response.
        Removes the requests whose response was certainly in them, even if repeating ids do not show it: the oldest, if
        its head is; and if more requests wait than this client ever had in flight, the oldest of those.
        """
        touched = set()
        for pending in self._waiting:
            if not pending.lost and pending.time_ns <= resumed_ns:
                pending.lost = True
                touched.add(pending.correlation_id)
        oldest = next((pending for pending in self._waiting if not pending.passed), None)
        head = None
        if has_head and oldest is not None and self.oldest(oldest.correlation_id) is oldest:
            head = oldest.correlation_id
            touched.add(head)
        # Only if requests were lost now can there be more than were ever in flight.
        removed: list[Pending] = []
        for correlation_id in touched:
            lost = [pending for pending in self._of_id(correlation_id) if pending.lost]
            if self.has_same_id(correlation_id):
                removed += lost[: max(len(lost) - self._most, int(correlation_id == head))]
        return self._remove(sorted(removed, key=lambda pending: pending.ordinal))

    def drain(self) -> list[Pending]:
        """Remove all, in the order of their requests."""
        rest = sorted([*self._waiting, *self._silent], key=lambda pending: pending.ordinal)
        self._waiting.clear()
        self._silent.clear()
        return rest

    def _of_id(self, correlation_id: int) -> list[Pending]:
        return [pending for pending in self._waiting if pending.correlation_id == correlation_id]

    def _remove(self, requests: list[Pending]) -> list[Pending]:
        for pending in requests:
            self._waiting.remove(pending)
        return requests
