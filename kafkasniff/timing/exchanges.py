"""The timing of each exchange of captures, from an inspector's events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kafkasniff.engine.inspector import Inspector, Output
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.kafka.connection.waits import Turns, Wait, answers_at_once, throttle_ns, wait_of, wait_plan
from kafkasniff.model import Connection, Exchange, Message, SaslToken
from kafkasniff.timing.network import ExchangeNetwork, Trouble
from kafkasniff.timing.phases import Marks, TimeParts, split

__all__ = ["ExchangeTimes", "Timed"]

MAX_BEFORE: Final = 1 << 17
"""Maximum number of connections whose last message is remembered; those that have ended are dropped."""


class Timed(msgspec.Struct, frozen=True):
    """One exchange and its timing."""

    exchange: Exchange
    marks: Marks | None
    """None: a message or a time is missing."""
    parts: TimeParts
    wait: Wait | None = None
    throttle_ms: int = 0
    network: ExchangeNetwork | None = None
    """None: its packets have no times."""

    @property
    def client_trouble(self) -> Trouble:
        """Problems of the client's packets, from the first byte of the request to the last one of the response."""
        return Trouble() if self.network is None else self.network.client_trouble

    @property
    def broker_trouble(self) -> Trouble:
        """The same of the broker's packets."""
        return Trouble() if self.network is None else self.network.broker_trouble


class _Before:
    """The state of a connection before its next exchange."""

    __slots__ = ("quiet_since", "turns")

    def __init__(self) -> None:
        self.quiet_since: int | None = None
        self.turns = Turns()


class ExchangeTimes:
    """Give it the events of an inspector that has `exchanges` and follows the network of these.

    If the inspector yields `connections`, these end what is remembered of each.
    """

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._before: dict[int, _Before] = {}

    def events(self, events: Iterable[Output]) -> Iterator[Timed]:
        """Each exchange among the latest events of the inspector, in order."""
        for event in events:
            if isinstance(event, Exchange):
                yield self._exchange(event)
            elif isinstance(event, SaslToken):
                if event.connection is not None and event.time_ns is not None:
                    self._of(event.connection).quiet_since = event.time_ns
            elif isinstance(event, Connection):
                self._before.pop(event.connection, None)

    def _of(self, connection: int) -> _Before:
        before = self._before.get(connection)
        if before is None:
            if len(self._before) >= MAX_BEFORE:
                del self._before[next(iter(self._before))]
            before = self._before[connection] = _Before()
        return before

    def _exchange(self, exchange: Exchange) -> Timed:
        request, response = exchange.request, exchange.response
        before = self._of(exchange.connection)
        if request is None or response is None:
            # Requests end silence, too: with acks 0 nothing else follows.
            done = response or request
            if done is not None and done.time_ns is not None:
                before.quiet_since = max(before.quiet_since or 0, done.time_ns)
            return Timed(exchange, None, TimeParts(), network=self._network(exchange))
        network = self._network(exchange)
        marks = _marks(exchange, request, response, before, network)
        if marks is None:
            return Timed(exchange, None, TimeParts(), network=network)
        throttle = throttle_ns(response)
        at_once = answers_at_once(request.api_key, request.api_version)
        wait = _wait(request, response)
        path = None if network is None else network.to_broker
        parts = split(marks, network=path, wait=wait, throttle_ns=throttle, at_once=at_once)
        before.turns.take(request, response, exchange.latency_ns, answerable=False)
        before.quiet_since = max(before.quiet_since or 0, marks.response_done)
        return Timed(exchange, marks, parts, wait, throttle // 1_000_000, network)

    def _network(self, exchange: Exchange) -> ExchangeNetwork | None:
        found = self._inspector.network(exchange)
        return None if found is None else ExchangeNetwork.of(found)


def _marks(
    exchange: Exchange, request: Message, response: Message, before: _Before, network: ExchangeNetwork | None
) -> Marks | None:
    latency, duration = exchange.latency_ns, exchange.duration_ns
    asked, answered = request.time_ns, response.time_ns
    if asked is None or answered is None or latency is None or duration is None:
        return None
    response_first = asked + latency
    return Marks(
        answered - duration,
        asked,
        response_first,
        answered,
        before.turns.answered,
        before.quiet_since,
        None if network is None else network.resent_at,
        before.turns.muted_until,
    )


def _wait(request: Message, response: Message) -> Wait | None:
    fetched = 0
    plan = wait_plan(request.api_key)
    # Beside an error they show nothing.
    if plan is not None and plan.reason == "data" and not response.errors:
        facts = mentions(request, response).partitions.values()
        fetched = sum(one.bytes or 0 for one in facts)
    return wait_of(request.api_key, request.body, response.body, fetched, len(response.errors))
