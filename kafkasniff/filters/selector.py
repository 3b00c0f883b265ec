"""Applies a predicate to the events of an inspector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.filters.candidate import Candidate
from kafkasniff.filters.closures import compiled
from kafkasniff.filters.fields import LATE, unknown_fields
from kafkasniff.filters.tree import Predicate
from kafkasniff.model import NO_TIME, DecidedRequest, Exchange, Lines, Message, Problem, SaslToken

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MAX_DECIDED", "HeldRequest", "Selector"]

MAX_DECIDED: Final = 1 << 20
"""Exchanges whose result is remembered until they end; the inspector's own bounds allow far fewer open ones."""


class HeldRequest(msgspec.Struct, frozen=True, gc=False):
    """A request on which the filter cannot decide yet; `DecidedRequest` follows."""

    request: Message


Event = Message | Lines | SaslToken | Exchange | Problem | DecidedRequest


class Selector:
    """Passes on the events that a predicate selects: both messages of an exchange or none.

    Feed it all events of an inspector, including `Exchange` events, which end undecided exchanges. Tokens pass if the
    predicate is true of them. Problems of an exchange pass with it; other problems pass unless a known fact rules them
    out, since they report what may be missing.

    `holds`: the request of an undecided exchange is returned as `HeldRequest`, and `DecidedRequest` when the exchange
    ends. Otherwise the request is returned only then.
    """

    def __init__(self, predicate: Predicate | None, *, holds: bool = False) -> None:
        self.predicate = predicate
        self._test = None if predicate is None else compiled(predicate)
        self.holds = holds
        self._decided: dict[int, bool] = {}
        self._last: tuple[int, bool] | None = None
        """The exchange that ended last and its result: its problems follow immediately."""
        self.start_ns: int | None = None
        """Time of the run's first packet, for relative times."""

    def begins(self, time_ns: NDArray[np.int64]) -> None:
        """Note the first time of packets that are about to be decoded."""
        if self.start_ns is None:
            times = time_ns[time_ns != NO_TIME]
            self.start_ns = int(times[0]) if len(times) else None

    def feed(self, events: Iterable[Event]) -> list[Event | HeldRequest | DecidedRequest]:
        """The selected events, in order; those of an undecided exchange are returned when it ends."""
        if self._test is None:
            return list(events)
        out: list[Event | HeldRequest | DecidedRequest] = []
        for event in events:
            if isinstance(event, Message):
                self._message(event, out)
            elif isinstance(event, Lines | DecidedRequest):
                out.append(event)  # decided before
            elif isinstance(event, Exchange):
                self._exchange(event, out)
            elif isinstance(event, Problem) and self._last is not None and event.exchange == self._last[0]:
                if self._last[1]:
                    out.append(event)
            else:
                unknown = unknown_fields(event) if isinstance(event, Problem) else frozenset()
                answer = self._test(Candidate(other=event, unknown=unknown, start_ns=self.start_ns))
                if answer or (answer is None and unknown):
                    out.append(event)
        return out

    def pin(self, exchange: int, answer: bool) -> None:
        """An exchange is selected, or not, until it ends or is unpinned."""
        if len(self._decided) >= MAX_DECIDED:
            del self._decided[next(iter(self._decided))]
        self._decided[exchange] = answer

    def unpin(self, exchange: int) -> None:
        """No more of its messages follow."""
        self._decided.pop(exchange, None)

    def _message(self, message: Message, out: list[Event | HeldRequest | DecidedRequest]) -> None:
        assert self._test is not None
        number = message.exchange
        if number is not None and number in self._decided:
            if self._decided[number]:
                out.append(message)
        elif message.type == "request" and number is not None:
            answer = self._test(Candidate(request=message, unknown=LATE, start_ns=self.start_ns))
            if answer is not None:
                self.pin(number, answer)
                if answer:
                    out.append(message)
            elif self.holds:
                out.append(HeldRequest(message))

    def _exchange(self, exchange: Exchange, out: list[Event | HeldRequest | DecidedRequest]) -> None:
        assert self._test is not None
        answer = self._decided.pop(exchange.exchange, None)
        if answer is None:
            candidate = Candidate(
                request=exchange.request, response=exchange.response, ended=exchange, start_ns=self.start_ns
            )
            answer = self._test(candidate) is True
            request, response = exchange.request, exchange.response
            if request is not None and self.holds:
                out.append(DecidedRequest(exchange.exchange, exchange.connection, answer))
            elif request is not None and answer:
                out.append(request)
            if response is not None and answer:
                out.append(response)
        self._last = (exchange.exchange, answer)
        if answer:
            out.append(exchange)
