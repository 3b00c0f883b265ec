"""A shard: the connections whose hash is its own, decoded, and rendered when their numbers and names are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import numpy as np

from kafkasniff.accounts import InspectedConnection, endpoint
from kafkasniff.bulk import BulkEntry
from kafkasniff.bulk_messages import read_request, read_response
from kafkasniff.enrich.apart import ApartEnricher, Teller, session_step
from kafkasniff.enrich.catalog import Catalog
from kafkasniff.enrich.sessions import FETCH
from kafkasniff.filters import Selector
from kafkasniff.inspector import Inspector, Output
from kafkasniff.kafka.events import ExchangeEvent, MessageEvent, VerdictEvent
from kafkasniff.kafka.framing import Frame
from kafkasniff.model import Direction, Message, Summary
from kafkasniff.packets import PacketBatch
from kafkasniff.parallel.window import BrokerEndpoint, Found, Given, Told
from kafkasniff.relief import MAX_ENDPOINTS
from kafkasniff.shards import share

__all__ = ["NumberedInspector", "Rendered", "Shard"]

Entry = tuple[int, int, int, InspectedConnection | None, Any]
"""As `Inspector` sorts them: order, place, index, connection, event."""

_EVENT: Final = 5
"""Length of an `Entry`; others are messages in bulk."""

_Line = TypeVar("_Line")

Rendered = tuple[int, bool, _Line]
"""Index of the event, whether it is a message's, and the line."""


class NumberedInspector(Inspector):
    """An inspector in two steps, whose numbers come from elsewhere between them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._numbers: Iterator[int] = iter(())

    def collect(self, batch: PacketBatch | None) -> tuple[list[Entry], list[tuple[int, InspectedConnection]]]:
        """What the next packets yield, in order, and the connections that begin, with the packets' order.

        None: there are no more.
        """
        entries = self._collect_end() if batch is None else self._collect(batch)
        entries.sort()
        # What messages say of topics has to be known in the first step: they are decoded here.
        decoded: list[Entry] = []
        for entry in entries:
            if len(entry) > _EVENT:
                decoded += self._decoded(entry)
            else:
                decoded.append(entry)
        opened = [(tcp.first_order, tcp.owner) for tcp in self._reassembler.opened]
        return decoded, opened  # type: ignore[return-value]  # the owner of a connection is always one of ours

    def _decoded(self, entry: BulkEntry) -> Iterator[Entry]:
        """A message that was taken in bulk as the event that it would be otherwise, and the end of its exchange."""
        order, place, within, connection, bulk, index, ordinal, start, size, length, correlation_id = entry[:11]
        packet, time_ns, version, latency = entry[11:]
        kafka, is_request = connection.kafka, version is not None
        assert kafka.client is not None
        seen = packet, packet, time_ns, time_ns, packet
        direction = kafka.client if is_request else 1 - kafka.client
        frame = Frame(order, direction, bulk.buffer, start, start + size, size, *seen)
        if version is not None:
            decoded = read_request(bulk, version, start, size, length, correlation_id, kafka.memory)
            bulk.open[index] = 0, version, decoded.client_id, decoded.carry, None
            event = MessageEvent(order, ordinal, frame, True, decoded, decoded.client_id)
            yield order, place, within, connection, event
            return
        opened = bulk.open[index]
        assert opened is not None
        bulk.open[index] = None
        _, version, client_id, carry, _ = opened
        decoded = read_response(bulk, version, start, size, correlation_id, kafka.memory, carry)
        event = MessageEvent(order, ordinal, frame, False, decoded, client_id, (), latency, latency)
        yield order, place, within, connection, event
        if self._want_exchanges:
            end = ExchangeEvent(order, ordinal, "answered", time_ns, packet, latency, latency)
            yield order, place, within + 1, connection, end

    def number(self, exchanges: Iterable[int]) -> None:
        """Give the exchanges that begin these numbers."""
        self._numbers = iter(exchanges)

    def _next_exchange(self) -> int:
        return next(self._numbers)

    def knows_broker(self, broker: BrokerEndpoint) -> None:
        """Another shard's connection to this endpoint turned out to be Kafka."""
        if len(self._known_brokers) < MAX_ENDPOINTS:
            self._known_brokers.add(broker)

    def tell(self, entry: Entry) -> list[Output]:
        """What one event is to be told as; in their order."""
        out: list[Output] = []
        self._tell(entry[3], entry[4], out)
        return out


class _Window:
    """What was collected and is not rendered yet."""

    __slots__ = ("entries", "opened", "start_ns")

    def __init__(
        self, entries: list[Entry], opened: list[tuple[int, InspectedConnection]], start_ns: int | None
    ) -> None:
        self.entries = entries
        self.opened = opened
        self.start_ns = start_ns


class Shard(Generic[_Line]):
    """One of `shards` shards. Windows are decoded and rendered in their order; decoding may be ahead.

    `catalog` is the shard's own copy of what is known from the beginning; `render` makes the line of an event, None
    where it has none.
    """

    def __init__(  # noqa: PLR0917 - which shard, and the stages of its way
        self,
        shard: int,
        shards: int,
        inspector: NumberedInspector,
        catalog: Catalog,
        render: Callable[[Any], _Line | None],
        selector: Selector | None = None,
    ) -> None:
        self._shard = shard
        self._shards = shards
        self._inspector = inspector
        self._enricher = ApartEnricher(catalog, summary=inspector.summary)
        self._render = render
        self._selector = selector
        self._windows: deque[_Window] = deque()
        self._exchanges = 0
        # Exchanges whose request may have done something to a fetch session, while they are open: (place, ordinal)
        # → a number of the shard's own.
        self._fetches: dict[tuple[int, int], int] = {}

    # -- step 1 -------------------------------------------------------------------------------------------------------

    def decode(self, batch: PacketBatch | None, start_ns: int | None) -> Found:
        """Take the packets of the next window, of all shards; None: the captures have ended.

        `start_ns`: time of the run's first packet, as far as it is known with this window.
        """
        summary = self._inspector.reset_summary()
        packets = None if batch is None else share(batch, self._shard, self._shards)
        entries, opened = self._inspector.collect(packets)
        self._windows.append(_Window(entries, opened, start_ns))
        found = Found(
            opened=np.array([order for order, _ in opened], np.int64),
            orders=np.array([entry[0] for entry in entries], np.int64),
            places=np.array([entry[1] for entry in entries], np.int64),
            begun=np.empty(0, np.int64),
            told=[],
            brokers=[],
            steps=[],
            summary=summary,
        )
        teller = Teller(self._enricher.catalog)
        begun: list[int] = []
        for index, (_, place, _, connection, event) in enumerate(entries):
            if isinstance(event, MessageEvent):
                decoded = event.decoded
                # A response without an API is one whose request was not seen.
                if event.is_request or decoded.api_key is None:
                    begun.append(index)
                if decoded.body is not None:
                    direction: Direction = "request" if event.is_request else "response"
                    told = teller.message(decoded.api_key, decoded.api_version, direction, decoded.body)
                    found.told.extend((index, one) for one in told)
                    if decoded.api_key == FETCH:
                        self._fetch(found, index, connection, event, direction)
            elif isinstance(event, VerdictEvent):
                if event.is_kafka and connection is not None and event.client is not None:
                    found.brokers.append((index, connection.endpoints[1 - event.client]))
            elif isinstance(event, ExchangeEvent) and self._fetches:
                self._fetches.pop((place, event.ordinal), None)
        found.begun = np.array(begun, np.int64)
        return found

    def _fetch(
        self,
        found: Found,
        index: int,
        connection: InspectedConnection | None,
        event: MessageEvent,
        direction: Direction,
    ) -> None:
        assert connection is not None
        client = connection.kafka.client
        assert client is not None
        key = (connection.place, event.ordinal)
        if event.is_request:
            self._exchanges += 1
            number: int | None = self._exchanges
        else:
            number = self._fetches.pop(key, None)
        if number is None:
            return
        assert event.decoded.body is not None
        broker = endpoint(connection.endpoints[1 - client])
        step = session_step(direction, number, broker, event.decoded.body)
        if step is not None:
            found.steps.append((index, step))
            if event.is_request:
                self._fetches[key] = number

    def retell(self, told: Told, *, everything: bool) -> Told:
        """What the next window's messages tell of topics, when others tell this; the windows before are rendered.

        `everything`: what is known before, too.
        """
        teller = Teller(self._enricher.catalog, everything=everything)
        waiting = deque(told)
        found: Told = []
        for index, (_, _, _, _, event) in enumerate(self._windows[0].entries):
            while waiting and waiting[0][0] <= index:
                teller.hear(waiting.popleft()[1])
            if isinstance(event, MessageEvent):
                decoded = event.decoded
                direction: Direction = "request" if event.is_request else "response"
                for one in teller.message(decoded.api_key, decoded.api_version, direction, decoded.body):
                    found.append((index, one))
        return found

    # -- step 3 -------------------------------------------------------------------------------------------------------

    def render(self, given: Given) -> Iterator[Rendered[_Line]]:
        """The lines of the next window. Hot."""
        window = self._windows.popleft()
        inspector, enricher, selector, render = self._inspector, self._enricher, self._selector, self._render
        if selector is not None:
            selector.start_ns = window.start_ns
        for (_, connection), number in zip(window.opened, given.connections.tolist(), strict=True):
            connection.number = number
        inspector.number(given.exchanges.tolist())
        enricher.count_into(inspector.reset_summary())
        told, brokers, sessions = deque(given.told), deque(given.brokers), given.sessions
        for index, entry in enumerate(window.entries):
            while told and told[0][0] <= index:
                enricher.hear(told.popleft()[1])
            while brokers and brokers[0][0] <= index:
                inspector.knows_broker(brokers.popleft()[1])
            events = inspector.tell(entry)
            if not events:
                continue
            if sessions:
                enricher.session(sessions.get(index))
            enricher.feed(events)
            for event in events if selector is None else selector.feed(events):  # type: ignore[arg-type]
                line = render(event)
                if line is not None:
                    yield index, isinstance(event, Message), line
        for _, one in told:
            enricher.hear(one)
        for _, broker in brokers:
            inspector.knows_broker(broker)

    @property
    def summary(self) -> Summary:
        """What was counted in the window that was rendered last."""
        return self._inspector.summary
