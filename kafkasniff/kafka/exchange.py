"""Pairing: which response answers which request of a connection.

A broker answers the requests of a connection in their order, each with the request's correlation id; so the response
that comes next answers the oldest outstanding request, nearly always. Everything else is told: ids that repeat, wrap
or restart pair with the oldest of their kind; a response without a request waits for one that may come later
(early.py), then it is an orphan; requests with acks 0 have no response, and are kept for a while for brokers that
answer them all the same.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

__all__ = ["MAX_OUTSTANDING", "Ledger", "Pending"]

MAX_OUTSTANDING: Final = 65_536
"""Outstanding requests per connection; clients send 5 to 1,000 ahead by default."""
MAX_SILENT: Final = 64
"""Requests with acks 0 per connection that are still open to a response."""


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
        """Of a SaslHandshake v0: the mechanism asked for."""
        self.carry = carry
        """What the request said that its response is read by."""
        self.hidden = hidden
        """The request is counted and not told: neither will be the response."""
        self.lost = False
        """A gap in the broker's stream may have swallowed the response."""
        self.passed = False
        """The response to a later request came before its own, and that was told."""


class Ledger:
    """The outstanding requests of one connection, oldest first."""

    __slots__ = ("_by_id", "_lost", "_most", "_open", "_passed", "_silent", "responses_behind")

    def __init__(self) -> None:
        self._open: OrderedDict[int, Pending] = OrderedDict()
        self._passed: OrderedDict[int, Pending] = OrderedDict()
        """Outstanding ones that a response passed over."""
        self._by_id: dict[int, deque[Pending]] = {}
        self._silent: OrderedDict[int, Pending] = OrderedDict()
        self._lost = 0
        """How many of the outstanding ones a gap may have swallowed the response of."""
        self._most = 1
        """So many requests of this connection were outstanding at once: as far as their answers came in order."""
        self.responses_behind = False
        """Not all of the broker's stream is at hand: requests may have been answered that do not look it."""

    def __len__(self) -> int:
        return len(self._open) + len(self._passed)

    @property
    def count(self) -> int:
        """All requests that are kept, those included that expect no response."""
        return len(self._open) + len(self._passed) + len(self._silent)

    def __contains__(self, correlation_id: object) -> bool:
        """Whether a request with this correlation id is outstanding."""
        return correlation_id in self._by_id

    @property
    def first(self) -> Pending | None:
        """The oldest outstanding request."""
        return next(iter((self._passed or self._open).values()), None)

    @property
    def is_plain(self) -> bool:
        """Whether all that is outstanding waits in turn for the response that comes next."""
        return not (self._passed or self._silent or self._lost or self.responses_behind)

    @property
    def outstanding(self) -> list[Pending]:
        """All requests that were not passed over, oldest first."""
        return list(self._open.values())

    def note_most(self, count: int) -> None:
        """So many requests were outstanding at once when one was answered in turn."""
        self._most = max(self._most, count)

    def oldest(self, correlation_id: int) -> Pending | None:
        """The oldest outstanding request with this correlation id."""
        waiting = self._by_id.get(correlation_id)
        return waiting[0] if waiting else None

    def add(self, pending: Pending) -> Pending | None:
        """Enter a request. Returns the one that has to go for it, if the bound is reached (or that of silent ones)."""
        if pending.silent:
            self._silent[pending.ordinal] = pending
            return self._silent.popitem(last=False)[1] if len(self._silent) > MAX_SILENT else None
        self._open[pending.ordinal] = pending
        waiting = self._by_id.get(pending.correlation_id)
        if waiting is None:
            self._by_id[pending.correlation_id] = deque((pending,))
        else:
            waiting.append(pending)
        if len(self) <= MAX_OUTSTANDING:
            return None
        return self._remove(next(iter((self._passed or self._open).values())))

    def answer(self, correlation_id: int) -> tuple[Pending, bool] | None:
        """The request that a response with this id answers, taken out, and whether this passes over older ones."""
        waiting = self._by_id.get(correlation_id)
        if not waiting:
            return None
        pending = waiting[0]
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
        """Take out the requests older than this one whose response a gap may have swallowed: now it is clear it did."""
        lost: list[Pending] = []
        if not self._lost:
            return lost
        for requests in (self._passed, self._open):
            for pending in requests.values():
                if pending.ordinal >= ordinal:
                    break
                if pending.lost:
                    lost.append(pending)
        return [self._remove(pending) for pending in lost]

    def pass_over(self, ordinal: int) -> bool:
        """A request was answered before older ones: whether any of these was not passed over before."""
        fresh = False
        while self._open and next(iter(self._open)) < ordinal:
            older, pending = self._open.popitem(last=False)
            pending.passed = fresh = True
            self._passed[older] = pending
        return fresh

    def silent_before(self, ordinal: int) -> list[Pending]:
        """Take out the requests without a response that are older than this one: they will not be answered any more."""
        done = []
        while self._silent and next(iter(self._silent)) < ordinal:
            done.append(self._silent.popitem(last=False)[1])
        return done

    def has_same_id(self, correlation_id: int) -> bool:
        """Whether several outstanding requests have this correlation id."""
        return len(self._by_id.get(correlation_id, ())) > 1

    def gap(self, resumed_ns: int, *, has_head: bool) -> list[Pending]:
        """Bytes of the broker's stream are missing: any response outstanding by then may have been in them.

        `resumed_ns`: time_ns of the packet behind them. A request that came later has its response behind them, too.
        `has_head`: the beginning of the response that comes next is in them.
        Takes out the requests whose response was in them for sure, where ids that repeat do not tell it: the oldest, if
        its head is; and where more requests wait than this client ever had on the way, the oldest of those.
        """
        for requests in (self._passed, self._open):
            for pending in requests.values():
                if not pending.lost and pending.time_ns <= resumed_ns:
                    pending.lost = True
                    self._lost += 1
        gone: list[Pending] = []
        oldest = next(iter(self._open.values()), None)
        for waiting in self._by_id.values():
            if len(waiting) > 1:
                lost = [pending for pending in waiting if pending.lost]
                gone += lost[: max(len(lost) - self._most, int(has_head and waiting[0] is oldest))]
        gone.sort(key=lambda pending: pending.ordinal)
        return [self._remove(pending) for pending in gone]

    def drain(self) -> list[Pending]:
        """Take out all, in the order of their requests."""
        rest = [*self._passed.values(), *self._open.values(), *self._silent.values()]
        rest.sort(key=lambda pending: pending.ordinal)
        self._passed.clear()
        self._open.clear()
        self._silent.clear()
        self._by_id.clear()
        self._lost = 0
        return rest

    def _remove(self, pending: Pending) -> Pending:
        del (self._passed if pending.passed else self._open)[pending.ordinal]
        self._lost -= pending.lost
        waiting = self._by_id[pending.correlation_id]
        if len(waiting) == 1:
            del self._by_id[pending.correlation_id]
        else:
            waiting.remove(pending)
        return pending
