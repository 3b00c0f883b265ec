"""Pairing: which response answers which request of a connection.

A broker answers the requests of a connection in their order, each with the request's correlation id; so the response
that comes next answers the oldest outstanding request, nearly always. Everything else is told: ids that repeat, wrap
or restart pair with the oldest of their kind; a response without a request waits a little for one that the capture
has later (two capture points disagree about order), then it is an orphan; requests with acks 0 have no response, and
are kept for a while for brokers that answer them all the same.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from kafkasniff.model import Body

__all__ = ["EARLY_FRAMES", "MAX_OUTSTANDING", "Ledger", "Pending", "expects_no_response"]

MAX_OUTSTANDING: Final = 65_536
"""Outstanding requests per connection; clients send 5 to 1,000 ahead by default."""
MAX_SILENT: Final = 64
"""Requests with acks 0 per connection that are still open to a response."""
EARLY_FRAMES: Final = 4
"""So many later frames of its connection a response waits for its request."""


class Pending:
    """A request whose response is outstanding."""

    __slots__ = (
        "api_key",
        "api_version",
        "carry",
        "client_id",
        "correlation_id",
        "first_time",
        "lost",
        "mechanism",
        "ordinal",
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
        self.lost = False
        """A gap in the broker's stream may have swallowed the response."""


class Ledger:
    """The outstanding requests of one connection, oldest first."""

    __slots__ = ("_by_id", "_lost", "_open", "_silent")

    def __init__(self) -> None:
        self._open: OrderedDict[int, Pending] = OrderedDict()
        self._by_id: dict[int, deque[Pending]] = {}
        self._silent: OrderedDict[int, Pending] = OrderedDict()
        self._lost = 0
        """How many of the outstanding ones a gap may have swallowed the response of."""

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, correlation_id: object) -> bool:
        """Whether a request with this correlation id is outstanding."""
        return correlation_id in self._by_id

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
        return self._remove(next(iter(self._open.values()))) if len(self._open) > MAX_OUTSTANDING else None

    def answer(self, correlation_id: int) -> tuple[Pending, bool] | None:
        """The request that a response with this id answers, taken out, and whether it was the oldest one."""
        waiting = self._by_id.get(correlation_id)
        if not waiting:
            return None
        pending = waiting[0]
        in_order = next(iter(self._open)) == pending.ordinal
        return self._remove(pending), in_order

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
        for pending in self._open.values():
            if pending.ordinal >= ordinal:
                break
            if pending.lost:
                lost.append(pending)
        return [self._remove(pending) for pending in lost]

    def holds_before(self, ordinal: int) -> bool:
        """Whether a request older than this one is outstanding."""
        return bool(self._open) and next(iter(self._open)) < ordinal

    def silent_before(self, ordinal: int) -> list[Pending]:
        """Take out the requests without a response that are older than this one: they will not be answered any more."""
        done = []
        while self._silent and next(iter(self._silent)) < ordinal:
            done.append(self._silent.popitem(last=False)[1])
        return done

    def gap(self) -> None:
        """Bytes of the broker's stream are missing: any outstanding response may have been in them."""
        for pending in self._open.values():
            pending.lost = True
        self._lost = len(self._open)

    def drain(self) -> list[Pending]:
        """Take out all, in the order of their requests."""
        rest = sorted([*self._open.values(), *self._silent.values()], key=lambda pending: pending.ordinal)
        self._open.clear()
        self._silent.clear()
        self._by_id.clear()
        self._lost = 0
        return rest

    def _remove(self, pending: Pending) -> Pending:
        del self._open[pending.ordinal]
        self._lost -= pending.lost
        waiting = self._by_id[pending.correlation_id]
        if len(waiting) == 1:
            del self._by_id[pending.correlation_id]
        else:
            waiting.remove(pending)
        return pending


def expects_no_response(api_key: int, body: Body | None) -> bool:
    """Whether a request is a Produce (key 0) with acks 0."""
    return api_key == 0 and body is not None and body.get("acks") == 0
