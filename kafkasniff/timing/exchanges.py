"""The timing of exchanges of captures, from what an inspector emits: one by one, and as columns.

It includes what the network was like during an exchange, and where the capture was made, judged by its handshakes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Literal, NamedTuple, Self, get_args

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.engine.inspector import Inspector
from kafkasniff.engine.message_table import Output, PairColumns
from kafkasniff.kafka.connection.waits import Wait
from kafkasniff.model import NO_TIME, Exchange
from kafkasniff.native.streams import UNKNOWN, Network, Networks
from kafkasniff.timing.phases import (
    SUBJECTS,
    Bools,
    EmittedExchange,
    Ints,
    Marks,
    PartColumns,
    SeenExchanges,
    TimeParts,
    Waits,
    of_columns,
    of_emitted,
    seen_exchange,
    split,
)

FAR: Final = 4
"""One path counts as the longer one from this ratio on."""
NOWHERE_NS: Final = 100_000
"""Shorter round trips do not show where the capture was made: one machine, or one switch."""

Vantage = Literal["client", "broker", "between", "anywhere"]
"""Where packets were captured: near the client, near the broker, in between; anywhere: both are so near that it makes
no difference.
"""


class Trouble(NamedTuple):
    """Problems of one sender's packets in a time span."""

    again: int = 0
    """Retransmitted segments: lost after the capture point, or acknowledged too late."""
    late: int = 0
    """Segments that followed later ones: lost or reordered before the capture point."""
    late_ns: int = 0
    """For how long they were missing in total."""
    closed: int = 0
    """Windows of size 0: this end could accept no more data."""
    closed_ns: int = 0
    """How long they lasted within the span."""


class ExchangeNetwork(NamedTuple):
    """The network of an exchange; durations in nanoseconds, None if unknown."""

    handshake: tuple[int | None, int | None]
    """From the capture point to the broker and back, and to the client and back, by the handshake."""
    to_broker: int | None
    """The lowest round trip from the capture point to the broker until the response was complete."""
    to_client: int | None
    """The same to the client."""
    resent_at: int | None
    """Data that the request needed was lost after the capture point, and last retransmitted at this time."""
    client_trouble: Trouble
    """Problems of the client's packets, from the first byte of the request to the last one of the response."""
    broker_trouble: Trouble

    @classmethod
    def of(cls, network: Network) -> Self:
        """The network as the engine has it."""
        handshake, trips = (tuple(_known(one) for one in pair) for pair in (network.handshake, network.round_trips))
        columns = network.again, network.late, network.late_ns, network.closed, network.closed_ns
        troubles = [Trouble(*values) for values in zip(*columns, strict=True)]
        resent_at = None if network.resent_at == NO_TIME else network.resent_at
        return cls((handshake[0], handshake[1]), trips[0], trips[1], resent_at, *troubles)

    @property
    def vantage(self) -> Vantage | None:
        """Where the capture was made, by the handshake; None: it was not captured completely."""
        broker, client = self.handshake
        if broker is None or client is None:
            return None
        if max(broker, client) < NOWHERE_NS:
            return "anywhere"
        if broker >= FAR * client:
            return "client"
        return "broker" if client >= FAR * broker else "between"


def _known(nanoseconds: int) -> int | None:
    return None if nanoseconds == UNKNOWN else nanoseconds


class Times(NamedTuple):
    """Times of one exchange's bytes, in nanoseconds since the epoch."""

    request_first: int
    request_done: int
    response_first: int
    response_done: int

    @property
    def duration(self) -> int:
        """From the first byte of the request to the last one of the response."""
        return self.response_done - self.request_first

    @property
    def latency(self) -> int:
        """From the last byte of the request to the first one of the response."""
        return self.response_first - self.request_done


class Timed(msgspec.Struct, frozen=True):
    """One exchange and its timing. Its messages lack their bodies."""

    exchange: Exchange
    marks: Times | None
    """None: a message or a time is missing."""
    parts: TimeParts
    wait: Wait | None = None
    throttle_ms: int = 0
    network: ExchangeNetwork | None = None
    """None: its packets have no times."""

    @property
    def slowness(self) -> int:
        """Its duration without the wait that it asked for, in nanoseconds; 0 if that is unknown."""
        known = self.marks is not None and self.parts.broker is not None
        return self.marks.duration - (self.parts.wait or 0) if known and self.marks is not None else 0

    @property
    def client_trouble(self) -> Trouble:
        """Problems of the client's packets, from the first byte of the request to the last one of the response."""
        return Trouble() if self.network is None else self.network.client_trouble

    @property
    def broker_trouble(self) -> Trouble:
        """The same of the broker's packets."""
        return Trouble() if self.network is None else self.network.broker_trouble


class TimedColumns(msgspec.Struct, frozen=True):
    """Exchanges and their timing, in columns."""

    subjects: pa.RecordBatch
    """`SUBJECTS`, or some of their columns."""
    numbers: Ints
    connections: Ints
    """Numbers of the connections."""
    timed: Bools
    """Exchanges with both messages and all times."""
    marks: Marks
    parts: PartColumns
    waits: Waits
    throttle_ns: Ints
    networks: Networks
    places: Ints
    """The row of each exchange in `networks`; `UNKNOWN`: its packets have no times."""
    _exchange: Callable[[int], Exchange]

    def __len__(self) -> int:
        return len(self.numbers)

    def only(self, numbers: Collection[int]) -> TimedColumns:
        """Those with these numbers."""
        rows = np.flatnonzero(np.isin(self.numbers, list(numbers)))
        made = self._exchange
        return TimedColumns(
            self.subjects.take(pa.array(rows)),
            self.numbers[rows],
            self.connections[rows],
            self.timed[rows],
            Marks._make(column[rows] for column in self.marks),
            PartColumns._make(column[rows] for column in self.parts),
            Waits._make(column[rows] for column in self.waits),
            self.throttle_ns[rows],
            self.networks,
            self.places[rows],
            lambda row: made(int(rows[row])),
        )

    def of_network(self, name: str, side: int, unknown: int) -> Ints:
        """A number of the network of each exchange, on the client's (0) or the broker's side (1)."""
        return _of_rows(self.networks, self.places, name, unknown, side)

    def one(self, row: int) -> Timed:
        """One exchange."""
        place = int(self.places[row])
        network = None if place == UNKNOWN else ExchangeNetwork.of(self.networks.one(place))
        exchange = self._exchange(row)
        if not self.timed[row]:
            return Timed(exchange, None, TimeParts(), network=network)
        times = Times(*(int(column[row]) for column in self.marks[:4]))
        wait = self.waits.one(row)
        throttle = int(self.throttle_ns[row]) // 1_000_000
        return Timed(exchange, times, self.parts.one(row, wait), wait, throttle, network)


MAX_WAITING: Final = 1 << 12
"""Exchanges that wait after the end of their connections: each group has a fixed cost."""


class ExchangeTimes:
    """Give it what an inspector emits that has `exchanges` and follows the network of these; `finish` each batch.

    `columns`: those of `SUBJECTS` that are needed beside the retransmissions.
    """

    def __init__(self, inspector: Inspector, columns: Collection[str] = SUBJECTS.names) -> None:
        self._inspector = inspector
        self._subjects = pa.schema([field for field in SUBJECTS if field.name in {*columns, "retransmits"}])
        self._emitted: list[EmittedExchange] = []
        self._networks: Networks | None = None
        """Those of the exchanges that wait."""

    @property
    def is_full(self) -> bool:
        """Whether to finish before more is taken: many wait, or the engine has left their connections."""
        left = self._networks is not None and self._networks is not self._inspector.networks()
        return left or len(self._emitted) >= MAX_WAITING

    def take(self, events: Iterable[Output]) -> None:
        """Take the latest events."""
        exchanges = [event for event in events if isinstance(event, Exchange)]
        if not exchanges:
            return
        self._networks = self._inspector.networks()
        topics = "topics" in self._subjects.names
        self._emitted += [seen_exchange(exchange, topics=topics) for exchange in exchanges]

    def finish(self, columns: Sequence[PairColumns] = ()) -> TimedColumns | None:
        """The exchanges since the last call, and those in `columns`, before the next batch of packets; None: none."""
        emitted, self._emitted = self._emitted, []
        networks, self._networks = self._networks or self._inspector.networks(), None
        seen = [of_columns(column, self._subjects) for column in columns]
        if emitted:
            seen.append(of_emitted(emitted, self._subjects))
        return self._timed(seen, networks) if seen else None

    def _timed(self, seen: Sequence[SeenExchanges], networks: Networks) -> TimedColumns:
        numbers, connections, ordinals, throttle, at_once = (
            np.concatenate([getattr(seen_exchanges, name) for seen_exchanges in seen])
            for name in ("numbers", "connections", "ordinals", "throttle_ns", "at_once")
        )
        first, done, answered_first, answered = map(
            np.concatenate, zip(*(seen_exchanges.times for seen_exchanges in seen), strict=True)
        )
        waits = Waits._make(map(np.concatenate, zip(*(seen_exchanges.waits for seen_exchanges in seen), strict=True)))
        timed = first != NO_TIME
        places = networks.places(connections, ordinals)
        before, quiet, resent, muted = (
            _of_rows(networks, places, name, NO_TIME)
            for name in ("before_done", "quiet_since", "resent_at", "muted_until")
        )
        muted = np.where(timed, muted, NO_TIME)
        marks = Marks(first, done, answered_first, answered, before, quiet, resent, muted)
        starts = np.cumsum([0, *(len(seen_exchanges.numbers) for seen_exchanges in seen)])

        def exchange(row: int) -> Exchange:
            which = int(np.searchsorted(starts, row, side="right")) - 1
            return seen[which].exchange(row - int(starts[which]))

        return TimedColumns(
            pa.Table.from_batches([seen_exchanges.subjects for seen_exchanges in seen])
            .combine_chunks()
            .to_batches()[0],
            numbers,
            connections,
            timed,
            marks,
            split(
                marks,
                network=_of_rows(networks, places, "round_trips", UNKNOWN),
                waits=waits,
                throttle_ns=throttle,
                at_once=at_once,
                timed=timed,
            ),
            waits,
            throttle,
            networks,
            places,
            exchange,
        )


def _of_rows(networks: Networks, places: Ints, name: str, unknown: int, side: int = 0) -> Ints:
    """A number of the network of each exchange; `side`: which one, if there are two."""
    if not len(networks.rows):
        return np.full(len(places), unknown, np.int64)
    values = networks.rows[name]
    found = (values if values.ndim == 1 else values[:, side])[places]
    return np.where(places == UNKNOWN, unknown, found)


MAX_SEEN: Final = 1 << 20
"""Maximum number of connections that are remembered as counted."""

Unknown = Literal["response", "round-trip", "delayed-acks", "vantage", "client-side", "wait", "beyond-least"]
"""response: no response, or no times, so nothing can be split; round-trip: the path to the broker, which is included in
its time; delayed-acks: it is known only from acknowledgements, which may be late; vantage: where the capture was
made; client-side: the path between the client and the capture point, by which the client waited longer; wait:
whether the broker waited as requested; beyond-least: whether this exchange's path to the broker took longer than the
minimum, which would be in the broker's time.
"""


def unknown_of(timed: Timed) -> tuple[Unknown, ...]:
    """Unknowns about the timing of an exchange."""
    network = timed.network
    if timed.marks is None or timed.parts.broker is None:
        return ("response",)
    found: list[Unknown] = []
    if network is None or network.to_broker is None:
        found.append("round-trip")
    else:
        if network.handshake[0] is None:
            found.append("delayed-acks")
        found.append("beyond-least")
    vantage = None if network is None else network.vantage
    if vantage is None:
        found.append("vantage")
    elif vantage in ("broker", "between"):
        found.append("client-side")
    if timed.parts.may_wait:
        found.append("wait")
    return tuple(found)


class DurationRange(msgspec.Struct):
    """The lowest and the highest of some durations, in nanoseconds."""

    low: int
    high: int


class Vantages:
    """How many connections were captured where, and how far away the ends were, by the handshakes."""

    def __init__(self) -> None:
        self.counts: dict[Vantage, int] = {}
        self.unknown = 0
        """Connections whose handshake is not in the capture."""
        self.to_broker: DurationRange | None = None
        self.to_client: DurationRange | None = None
        self._seen: set[int] = set()

    def take(self, timed: TimedColumns) -> None:
        """Count the connections of exchanges, each once, by the first exchange that ended."""
        order = np.argsort(timed.places, kind="stable")
        connections, firsts = np.unique(timed.connections[order], return_index=True)
        for connection, place in zip(connections.tolist(), timed.places[order[firsts]].tolist(), strict=True):
            if connection in self._seen or len(self._seen) >= MAX_SEEN:
                continue
            self._seen.add(connection)
            network = None if place == UNKNOWN else ExchangeNetwork.of(timed.networks.one(place))
            self._count(network)
        # The same in any batches.
        self.counts = {name: self.counts[name] for name in get_args(Vantage) if name in self.counts}

    def _count(self, network: ExchangeNetwork | None) -> None:
        vantage = None if network is None else network.vantage
        if network is None or vantage is None:
            self.unknown += 1
            return
        self.counts[vantage] = self.counts.get(vantage, 0) + 1
        broker, client = network.handshake
        self.to_broker = _wider(self.to_broker, broker)
        self.to_client = _wider(self.to_client, client)

    @property
    def connections(self) -> int:
        """Number of counted connections."""
        return self.unknown + sum(self.counts.values())


def _wider(span: DurationRange | None, value: int | None) -> DurationRange | None:
    if value is None:
        return span
    return DurationRange(value, value) if span is None else DurationRange(min(span.low, value), max(span.high, value))
