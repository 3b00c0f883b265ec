"""The timing of each exchange of captures, from an inspector's events and the packets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kafkasniff.engine.inspector import Output
from kafkasniff.kafka.apis.entities import mentions
from kafkasniff.kafka.connection.waits import Turns, Wait, answers_at_once, throttle_ns, wait_of, wait_plan
from kafkasniff.model import Connection, Exchange, Message, SaslToken
from kafkasniff.tcp.packets import PacketBatch
from kafkasniff.timing.link import Link
from kafkasniff.timing.phases import Marks, TimeParts, split
from kafkasniff.timing.trouble import Trouble
from kafkasniff.timing.watch import LinkWatch

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
    link: Link | None = None
    """Its connection according to the packets; None: it is not remembered."""
    client_trouble: Trouble = Trouble()
    """Problems of the client's packets, from the first byte of the request to the last one of the response."""
    broker_trouble: Trouble = Trouble()


class _Before:
    """The state of a connection before its next exchange."""

    __slots__ = ("quiet_since", "turns")

    def __init__(self) -> None:
        self.quiet_since: int | None = None
        self.turns = Turns()


class ExchangeTimes:
    """Give it each batch (`packets`), then the inspector's events of it (`events`), which must have `exchanges`.

    If the inspector yields `connections`, these end what is remembered of each.
    """

    def __init__(self, watch: LinkWatch | None = None) -> None:
        self.watch = LinkWatch() if watch is None else watch
        self._before: dict[int, _Before] = {}

    def packets(self, batch: PacketBatch) -> None:
        """Take the next packets."""
        self.watch.feed(batch)

    def events(self, events: Iterable[Output]) -> Iterator[Timed]:
        """Each exchange among the next events of the inspector, in order."""
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
            return Timed(exchange, None, TimeParts(), link=self._link(request or response))
        link = self._link(request)
        marks = _marks(exchange, request, response, before, link)
        if marks is None:
            return Timed(exchange, None, TimeParts(), link=link)
        throttle = throttle_ns(response)
        at_once = answers_at_once(request.api_key, request.api_version)
        wait = _wait(request, response)
        network = None if link is None else link.to_broker(marks.response_done)
        parts = split(marks, network=network, wait=wait, throttle_ns=throttle, at_once=at_once)
        before.turns.take(request, response, exchange.latency_ns, answerable=False)
        before.quiet_since = max(before.quiet_since or 0, marks.response_done)
        trouble = (Trouble(), Trouble())
        if link is not None:
            span = marks.request_first, marks.response_done
            trouble = (link.client.trouble.between(*span), link.broker.trouble.between(*span))
        return Timed(exchange, marks, parts, wait, throttle // 1_000_000, link, *trouble)

    def _link(self, message: Message | None) -> Link | None:
        if message is None or message.client is None or message.broker is None or message.time_ns is None:
            return None
        return self.watch.find(message.client, message.broker, message.time_ns)


def _marks(exchange: Exchange, request: Message, response: Message, before: _Before, link: Link | None) -> Marks | None:
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
        None if link is None else link.client.trouble.retransmitted_at(asked, response_first),
        before.turns.muted_until,
    )


def _wait(request: Message, response: Message) -> Wait | None:
    fetched = 0
    plan = wait_plan(request.api_key)
    if plan is not None and plan.reason == "data":
        facts = mentions(request, response).partitions.values()
        fetched = sum(one.bytes or 0 for one in facts)
    return wait_of(request.api_key, request.body, response.body, fetched, len(response.errors))
