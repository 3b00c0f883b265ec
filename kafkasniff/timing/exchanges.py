"""The timing of exchanges of captures, from what an inspector emits: one by one, and as columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from kafkasniff.engine.inspector import Inspector, Output
from kafkasniff.engine.pair_columns import PairColumns
from kafkasniff.kafka.connection.waits import Wait
from kafkasniff.model import NO_TIME, Exchange
from kafkasniff.native.links import UNKNOWN, Networks
from kafkasniff.timing.network import ExchangeNetwork, Trouble
from kafkasniff.timing.phases import Bools, Ints, Marks, PartColumns, TimeParts, Waits, split
from kafkasniff.timing.seen import EmittedExchange, SeenExchanges, of_columns, of_emitted, seen_exchange

__all__ = ["ExchangeTimes", "Timed", "TimedColumns", "Times"]


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
    """`SUBJECTS`."""
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


class ExchangeTimes:
    """Give it what an inspector emits that has `exchanges` and follows the network of these; `finish` each batch.

    `topics`: exchanges need their names.
    """

    def __init__(self, inspector: Inspector, *, topics: bool = False) -> None:
        self._inspector = inspector
        self._topics = topics
        self._emitted: list[EmittedExchange] = []

    def take(self, events: Iterable[Output]) -> None:
        """Take the latest events."""
        found = (event for event in events if isinstance(event, Exchange))
        self._emitted += [seen_exchange(exchange, topics=self._topics) for exchange in found]

    def finish(self, columns: Sequence[PairColumns] = ()) -> TimedColumns | None:
        """The exchanges since the last call, and those in `columns`, before the next batch of packets; None: none."""
        emitted, self._emitted = self._emitted, []
        seen = [of_columns(found, topics=self._topics) for found in columns]
        if emitted:
            seen.append(of_emitted(emitted))
        return self._timed(seen) if seen else None

    def _timed(self, seen: Sequence[SeenExchanges]) -> TimedColumns:
        numbers, connections, ordinals, throttle, at_once = (
            np.concatenate([getattr(one, name) for one in seen])
            for name in ("numbers", "connections", "ordinals", "throttle_ns", "at_once")
        )
        first, done, answered_first, answered = map(np.concatenate, zip(*(one.times for one in seen), strict=True))
        waits = Waits._make(map(np.concatenate, zip(*(one.waits for one in seen), strict=True)))
        timed = first != NO_TIME
        networks = self._inspector.networks()
        places = networks.places(connections, ordinals)
        before, quiet, resent, muted = (
            _of_rows(networks, places, name, NO_TIME)
            for name in ("before_done", "quiet_since", "resent_at", "muted_until")
        )
        muted = np.where(timed, muted, NO_TIME)
        marks = Marks(first, done, answered_first, answered, before, quiet, resent, muted)
        starts = np.cumsum([0, *(len(one.numbers) for one in seen)])

        def exchange(row: int) -> Exchange:
            which = int(np.searchsorted(starts, row, side="right")) - 1
            return seen[which].exchange(row - int(starts[which]))

        return TimedColumns(
            pa.Table.from_batches([one.subjects for one in seen]).combine_chunks().to_batches()[0],
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
