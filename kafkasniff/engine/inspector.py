"""The inspector: packets in, decoded messages out. Composes the stages and assigns numbers; does no I/O.

The stages of a connection produce its events. The inspector merges the events of all connections into capture order (by
the packet at which each became known, then by connection). It adds what only the merge can provide: connection and
exchange numbers, and reports on connections that are not Kafka although their endpoint spoke Kafka before.

Packets become ordered events in `stream_feeding`, and those become outputs in `emitting`, or lines (`LineWindows`).
What all of them share between two batches is an `InspectorState`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import FollowedConnection, MessageOwner
from kafkasniff.engine.emitting import Emitter, LineWindows
from kafkasniff.engine.inspector_state import Beside, InspectorState, MemoryBudget, message_limits
from kafkasniff.engine.lines import MakeLines, SelectsLines
from kafkasniff.engine.lines_ahead import LineOutput, LinesAhead
from kafkasniff.engine.message_table import Output, PairColumns, PairFinder, Shown
from kafkasniff.engine.stream_feeding import StreamFeeder
from kafkasniff.kafka.connection.events import MAX_FRAME, Detail, LeftOut, Level
from kafkasniff.kafka.messages.rendered import PackedBodies
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Endpoint, Problem, Summary
from kafkasniff.native.library import kernel
from kafkasniff.native.streams import Follows, Links, Networks
from kafkasniff.packets import Key, PacketBatch, connection_hash, endpoint_hash
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.tls.keylog import KeyLog

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.rendered import BodyMaker, Renderer


class Inspector:
    """Packets in, `Message`, `SaslToken`, `Exchange` and `Problem` out, in order of completion.

    - `ports`: treat these ports as Kafka, and no others; empty: detect Kafka by content on any port
    - `records`: "full" decodes records, "batches" only batch headers, "metadata" those and the records of KRaft's
      metadata log, "columns" is like "metadata" but also keeps the bytes of other records, "skip" decodes none
    - `show_secrets`: do not redact tokens, passwords and the like
    - `max_frame`: largest frame accepted, in bytes
    - `exchanges`: also yield `Exchange` objects (they keep the request until the response arrives)
    - `connections`: also yield a `Connection` at the end of each connection with data, and add the client's software
      to exchanges
    - `headers`: read only those bodies that later messages need, or that decide whether a response is expected
    - `keys`: secrets that decrypt TLS, in addition to those in the captures
    - `renderer`: renders bodies that only a JSON sink needs; None: all bodies are dicts
    - `frames`: also keep the bytes of each message, as `Message.frame`
    - `network`: also follow the network of connections: "links" for `take_links`, "exchanges" for `networks` as well
    - `memory`: budget in bytes for everything kept between two batches (`MemoryBudget`); None: 1 GiB

    Raises UsageError if `memory` is less than 128 MiB.
    """

    def __init__(
        self,
        *,
        ports: Iterable[int] = (),
        records: Literal["full", "columns", "metadata", "batches", "skip"] = "full",
        show_secrets: bool = False,
        max_frame: int = MAX_FRAME,
        exchanges: bool = True,
        connections: bool = False,
        headers: bool = False,
        keys: KeyLog | None = None,
        renderer: Renderer | None = None,
        frames: bool = False,
        network: Literal["nothing", "links", "exchanges"] = "nothing",
        memory: int | None = None,
    ) -> None:
        decode = DecodeOptions(records, show_secrets, bodies=not headers, headers=headers)
        self._state = InspectorState(
            Detail(decode, renderer),
            max_frame=max_frame,
            ports=frozenset(ports),
            show_secrets=show_secrets,
            want_exchanges=exchanges,
            want_connections=connections,
            keys=KeyLog() if keys is None else keys,
            follows=Follows[network.upper()],
        )
        maker: BodyMaker | None = renderer
        if renderer is None and not headers:
            maker = PackedBodies(kernel())
        self._memory = MemoryBudget(checked_memory(memory))
        self._emitter = Emitter(self._state, self._memory, renderer, maker, frames=frames)
        self._windows: LineWindows | None = None
        """Set if lines are written."""
        self._feeder: StreamFeeder
        self.begin_following()
        self.limit_messages(self._memory.limit)

    def begin_following(self) -> None:
        """Follow connections from now on: those of a loaded state, and new ones.

        Raises ValueError if the engine does not know the state of one.
        """
        state = self._state
        self._feeder = StreamFeeder(state, self._memory, kernel(), frames=self._emitter.frames)
        self._feeder.load(state.followed, state.clocks)
        state.followed = []

    @property
    def followed(self) -> list[FollowedConnection]:
        """The connections that the stream engine follows, with its state of them."""
        return self._feeder.saved()

    @property
    def clocks(self) -> tuple[int, int, int]:
        """The clocks of the stream engine (`StreamEngine.clocks`)."""
        return self._feeder.clocks

    def write_lines(
        self, make: MakeLines, selects: SelectsLines | None = None, *, ahead: LinesAhead | None = None
    ) -> bool:
        """Let `feed_lines` yield `Lines` instead of messages; returns False if no lines can be written.

        - `make`: returns a line writer, given the ends of a connection and the name of a capture by their indices
        - `selects`: decides which messages have lines. Other exchanges yield nothing if the decision needs no decoding
        - `ahead`: threads that read packets ahead and, without `selects`, write lines. The results of a batch are then
          yielded some batches later. For runs whose level of detail does not change
        """
        state, feeder = self._state, self._feeder
        # Connections, and all exchanges, need messages.
        if self._emitter.frames or state.want_connections or state.want_exchanges != (selects is not None):
            return False
        lines = feeder.lines = LineOutput(make, state.capture_at, selects, ahead)
        self._windows = LineWindows(state, self._memory, feeder, self._emitter, lines)
        if selects is not None:
            feeder.decide_by(selects.pin)
        return True

    def report_selected(self, selected: Callable[[int], None]) -> None:
        """Call `selected` with the number of each connection with lines that a filter selects; after `write_lines`."""
        assert self._windows is not None
        self._windows.report_selected(selected)

    def report_ends(self, ended: Callable[[MessageOwner, int], None]) -> None:
        """Call `ended` with each connection at its end, and how many of its bytes are messages or tokens.

        In contrast to `Connection` objects, this works with lines.
        """
        self._feeder.report_ends(ended)

    def feed(self, batch: PacketBatch) -> list[Output]:
        """Process the next packets, in capture order."""
        return self._emitter.all(self._feeder.collect(batch))

    def feed_slices(self, batch: PacketBatch) -> Iterator[list[Output]]:
        """`feed` in slices. All of them have to be consumed before the next batch.

        A body is decoded when its slice is created, unless later messages depend on it. A slice ends with the message
        that reaches the size limit. A caller that finishes each slice before the next one has few messages in memory,
        and those are in the processor's caches.
        """
        for part in self._feeder.parts(batch):
            yield from self._emitter.slices(self._feeder.collect(part))

    def feed_lines(self, batch: PacketBatch) -> Iterator[Sequence[Shown]]:
        """`feed_slices`, with lines instead of messages where lines can be written without decoding messages."""
        yield from self.feed_slices(batch) if self._windows is None else self._windows.feed(batch)

    def close_lines(self) -> Iterator[Sequence[Shown]]:
        """`close_slices` after `feed_lines`."""
        if self._windows is not None:
            yield from self._windows.finish()
        yield from self.close_slices()

    def close_slices(self) -> Iterator[list[Output]]:
        """`close` in slices, as in `feed_slices`, one connection after the other.

        Everything reported here becomes known at the end of the capture, so events are in order of connections.
        """
        self._emitter.slice_bytes = 0
        for collected in self._feeder.close_each():
            yield from self._emitter.slices(collected)

    def feed_columns(
        self, batch: PacketBatch, finder: PairFinder | None = None
    ) -> Iterator[tuple[list[Output], list[PairColumns]]]:
        """`feed_slices`, with the exchanges that `finder` finds as separate columns.

        Large batches are processed in parts; after the slices of each come its columns, with no events. All have to be
        consumed before the next batch.
        """
        options = self._state.detail.decode
        for part in self._feeder.parts(batch):
            columns: list[PairColumns] = []
            others: NDArray[np.bool_] | None = None
            takes = None if finder is None else lambda code: finder.may_take(code, options)
            collected = self._feeder.collect(part, takes)
            if finder is not None and collected.messages is not None:
                columns, others = finder.find(collected.messages, options, self._state.capture_at)
                for column in columns:
                    self._emitter.count_columns(column)
            for events in self._emitter.slices(collected, others):
                if events:
                    yield events, []
                del events
            self._emitter.slice_bytes = 0
            yield [], columns

    def close(self) -> list[Output]:
        """End the capture; returns the results for what was still open."""
        return self._emitter.all(self._feeder.close())

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def summary(self) -> Summary:
        """Counts of everything so far."""
        return self._state.summary

    @property
    def names(self) -> dict[str, str]:
        """Address → name, from the captures' name records."""
        return self._state.names

    @property
    def keys(self) -> KeyLog:
        """Secrets that decrypt TLS."""
        return self._state.keys

    @property
    def judged(self) -> set[bytes] | None:
        """Connections recognized as Kafka (`plan.index_of`), until the reader clears it; None if there is no reader."""
        return self._state.judged

    @judged.setter
    def judged(self, judged: set[bytes] | None) -> None:
        self._state.judged = judged

    @property
    def slice_bytes(self) -> int:
        """Approximate bytes of memory of the messages of the last slice."""
        return self._emitter.slice_bytes

    def follow_key_log(self, keys: KeyLog, *, reports: bool = True) -> None:
        """Also use secrets from this key log; `reports`: whether problems of its lines are reported here."""
        keys.absorb(self.keys)
        if not reports:
            keys.take_flaws()
        self._state.keys = keys

    @property
    def memory(self) -> int:
        """The memory budget in bytes."""
        return self._memory.limit

    def limit_memory(self, size: int) -> None:
        """Change the memory budget, for runs that share one or resume from a state."""
        self._memory.limit = size

    @property
    def decode_options(self) -> DecodeOptions:
        """Options for decoding messages at full detail."""
        return self._state.detail.full

    @property
    def options_now(self) -> DecodeOptions:
        """Options for decoding messages at the current `level`."""
        return self._state.detail.decode

    def limit_messages(self, memory: int) -> None:
        """Bound each message as in a run with a budget of `memory` bytes (`MemoryBudget`)."""
        self._state.detail.limit(*message_limits(memory))

    def limit_records(self, most: int) -> None:
        """Decode at most this many records of each message, from the next one on; `limit_memory` may allow fewer."""
        full = self._state.detail.full
        self._state.detail.limit(full.max_decompressed, min(full.max_records, most))

    def count_beside(self, beside: Beside) -> None:
        """Count this towards the budget, too, and report what its bounds dropped."""
        self._memory.beside = beside

    @property
    def level(self) -> Level:
        """How much detail is omitted because decoding cannot keep up with capturing; may be set."""
        return self._state.detail.level

    @level.setter
    def level(self, level: Level) -> None:
        self._state.detail.set(level)

    @property
    def state(self) -> InspectorState:
        """The state."""
        return self._state

    @property
    def settings(self) -> tuple[object, ...]:
        """The options of this inspector: equal for inspectors that yield the same for the same packets."""
        state = self._state
        wants = state.want_exchanges, state.want_connections, state.follows
        return state.ports, state.show_secrets, state.detail.full, state.max_frame, *wants

    @property
    def reads_records(self) -> bool:
        """Whether records of all topics are decoded, or kept as columns, at full detail."""
        return self._state.detail.has_records

    @property
    def left_out(self) -> LeftOut:
        """What was omitted from messages so far because of `level`."""
        return self._state.detail.left_out

    def verdict(self, key: Key) -> Literal["kafka", "not-kafka", "undecided", "over"]:
        """The verdict on the connection between these endpoints; over: it ended undecided."""
        followed = self._feeder.connection(key)
        if followed is None:
            return "undecided"
        if self._state.ports and not followed.forced:
            return "not-kafka"
        return "over" if followed.verdict == "undecided" and followed.ended else followed.verdict

    # -- the network of connections -----------------------------------------------------------------------------------

    def take_links(self) -> Links:
        """The network of the connections that are over since the last call."""
        return self._feeder.take_links()

    def open_links(self) -> Links:
        """The network of all other connections, so far. Only between two batches."""
        return self._feeder.open_links()

    def networks(self) -> Networks:
        """What the network was like during the exchanges of the last batch, or of the last slice of `close_slices`."""
        return self._feeder.networks()

    # -- several inspectors, each with a share of the connections ----------------------------------------------------

    def begin_summary(self) -> Summary:
        """Start counting from zero in a run that resumes from another's state; returns the new summary.

        What was pending at the end of the other run counts here as well, since it may be decoded here.
        """
        summary = self._state.summary = Summary()
        summary.bytes_stream = summary.bytes_skipped = self._feeder.waiting
        return summary

    @property
    def open_numbers(self) -> frozenset[int]:
        """The numbers of open connections."""
        return frozenset(followed_connection.number for followed_connection in self.followed)

    @property
    def highest_number(self) -> int:
        """The highest number of a connection or exchange so far."""
        return max(self._state.connections, self._state.exchanges)

    def number_from(self, number: int) -> None:
        """Assign only numbers above this one to further connections and exchanges."""
        self._state.connections = self._state.exchanges = number

    def absorb(self, others: Sequence[Inspector], wanted: Callable[[Sequence[Key]], list[bool]]) -> None:
        """Take over the open state of others, and drop connections that are not wanted, by their endpoints."""
        self._feeder.absorb([other._feeder for other in others], wanted)
        for other in others:
            self._state.known_brokers |= other._state.known_brokers
            self.names.update(other.names)
            self.keys.absorb(other.keys)


# -- shards of connections ---------------------------------------------------------------------------------------------
#
# A hash of the two endpoints decides which of several processes handles a connection (`packets.connection_hash`), the
# same for both directions, in every process and every run. The output of a connection depends only on its own packets,
# so it does not matter who handles it.


NUMBERS: Final = 1 << 40
"""Each shard numbers connections and exchanges from a multiple of this, so that numbers are unique."""
_MAPPED: Final = 0xFFFF_0000_0000
"""Low half of an IPv4-mapped address (RFC 4291, section 2.5.5.2)."""


def packed(endpoint: Endpoint) -> tuple[int, int, int]:
    """One end of a `Key`: address, as two halves of 64 bits, and port."""
    address = ipaddress.ip_address(endpoint.address)
    if address.version == 4:
        return 0, _MAPPED | int(address), endpoint.port
    return int(address) >> 64, int(address) & (1 << 64) - 1, endpoint.port


def shard_of_rows(batch: PacketBatch, shards: int) -> NDArray[np.int64]:
    """The shard of each packet of a batch."""
    return (connection_hash(batch) % np.uint64(shards)).astype(np.int64)


def shard_of_keys(keys: Sequence[Key], shards: int) -> list[int]:
    """The shard of each connection, by its endpoints."""
    hashes = np.zeros(len(keys), np.uint64)
    for end in (0, 1):
        high = np.array([key[end][0] for key in keys], np.uint64)
        low = np.array([key[end][1] for key in keys], np.uint64)
        port = np.array([key[end][2] for key in keys], np.uint16)
        hashes += endpoint_hash(high, low, port)
    found: list[int] = (hashes % np.uint64(shards)).tolist()
    return found


def in_shard(shard: int, shards: int) -> Callable[[Sequence[Key]], list[bool]]:
    """Which connections belong to a shard, by their endpoints."""
    return lambda keys: [number == shard for number in shard_of_keys(keys, shards)]


def share(batch: PacketBatch, shard: int, shards: int) -> PacketBatch:
    """The packets of a batch for a shard; notes that concern no connection go to the first shard."""
    if shards == 1:
        return batch
    keep, first = shard_of_rows(batch, shards) == shard, shard == 0
    # Names and secrets go to all.
    notes = batch.notes if first else [note for note in batch.notes if not isinstance(note.value, Problem)]
    return batch.share(keep, packets=batch.packets if first else 0, notes=notes)


def number_from(inspector: Inspector, shard: int) -> None:
    """Make a fresh inspector number connections and exchanges as this shard."""
    inspector.number_from(shard * NUMBERS)


def reshard(inspectors: Sequence[Inspector], shard: int, shards: int) -> Inspector:
    """The inspector of one of `shards` shards, from the inspectors of another number of shards.

    It is made from the given inspectors, which cannot be used any more: each shard needs its own copies.
    """
    first, *others = inspectors
    highest = max(inspector.highest_number for inspector in inspectors)
    first.absorb(others, in_shard(shard, shards))
    first.number_from((highest // NUMBERS + 1 + shard) * NUMBERS)
    return first
