"""Feeding the stream engine: packets to the events of their connections.

The engine follows all connections. Regular messages become lines or columns without an event for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

import numpy as np

from kafkasniff.engine.connection_stats import FollowedConnection
from kafkasniff.engine.inspector_state import FOLLOWED_BYTES, LEAST_HELD, InspectorState, MemoryBudget
from kafkasniff.engine.lines_ahead import LineOutput
from kafkasniff.engine.message_table import LOSS, Collected, Keyed, Messages
from kafkasniff.engine.stream_events import StreamEvents
from kafkasniff.engine.stream_messages import StreamMessages
from kafkasniff.engine.stream_questions import StreamQuestions
from kafkasniff.model import Problem
from kafkasniff.native.feed import joined
from kafkasniff.native.library import Kernel
from kafkasniff.native.streams import EngineRows, Follows, Links, Networks
from kafkasniff.packets import Key, PacketBatch, index_of
from kafkasniff.runtime.memory_limits import in_proportion, size_text
from kafkasniff.runtime.threads import Task, Threads

MAX_REMEMBERED: Final = 1 << 22
"""Maximum number of retransmissions, late segments and closed windows whose times all connections together remember,
some 40 bytes each. Fewer with less than 1 GiB of memory.
"""
ENDED_AT_ONCE: Final = 4_096
"""Connections that end in one call at the end of a capture: of each there are rows and events."""
_SUMS: Final = (
    *(("decoded", "bytes_decoded"), ("lost", "bytes_lost"), ("repeated", "bytes_repeated")),
    *(("ignored", "bytes_ignored"), ("pending", "bytes_pending"), ("undecided", "undecided")),
)
"""Sums of the engine, and their names in the summary."""


class StreamFeeder:
    """Passes packets to the stream engine, and collects the events. `frames`: all messages need their bytes."""

    def __init__(
        self,
        state: InspectorState,
        memory: MemoryBudget,
        kernel: Kernel,
        *,
        frames: bool = False,
    ) -> None:
        self._state = state
        self._memory = memory
        self._frames = frames
        self.lines: LineOutput | None = None
        """Set if lines are written."""
        size = state.max_frame
        self._questions = StreamQuestions(
            kernel,
            lambda: state.keys,
            max_frame=size,
            ports=state.ports,
            follows=state.follows,
            remembered=in_proportion(MAX_REMEMBERED, memory.limit) if state.follows == Follows.EXCHANGES else 0,
        )
        self._engine = self._questions.engine
        self.requests = StreamMessages(state, self._engine)
        self._events = StreamEvents(state, self._questions, self.requests, max_frame=size)
        self._links: list[Links] = []
        """The network of connections that are over, until it is taken."""
        self._networks: list[Networks] = []
        """That of the exchanges that ended since the last batch, or among the last connections that ended."""
        self._before: dict[str, int] = {}
        """The engine's sums after the last call."""
        self._ahead: tuple[list[Keyed], Task[EngineRows]] | None = None
        """The packets that another thread follows: their notes, and the results."""
        self.memory = 0
        """Approximate bytes of memory of all connections after the last call."""
        memory.streams = self

    def decide_by(self, pin: Callable[[int, bool], None]) -> None:
        """Pass a filter's decision on exchanges that Python reads from now on to `pin`."""
        self.requests.pin = pin

    def report_ends(self, ended: Callable[[FollowedConnection, int], None]) -> None:
        """Pass each connection at its end to `ended`, and how many of its bytes are messages or tokens."""
        self._events.ended = ended

    @property
    def may_adopt(self) -> bool:
        """Whether regular messages can omit what the current level of detail omits."""
        detail = self._state.detail
        writes_all = self.lines is not None and self.lines.selects is None
        if self._frames:
            return False
        return writes_all or detail.hides or not detail.level

    def parts(self, batch: PacketBatch) -> Iterator[PacketBatch]:
        """A batch in parts that fit into the memory budget."""
        return batch.parts(self._bounds())

    def _bounds(self) -> Iterator[tuple[int, int]]:
        while True:
            yield self._memory.rows_at_once, self._memory.bytes_at_once

    def follow(self, batch: PacketBatch, threads: Threads) -> None:
        """Let another thread follow the next packets; `collect` has to be called for them next."""
        keyed = self._notes(batch)
        self._ahead = keyed, threads.begin(lambda _: self._engine.take(batch))

    def _notes(self, batch: PacketBatch) -> list[Keyed]:
        """What accompanies the next packets, and precedes them."""
        self._state.use_captures(batch)
        keyed: list[Keyed] = []
        self._state.take_notes(batch, keyed)
        return keyed

    def collect(
        self, batch: PacketBatch, takes: Callable[[int], bool] | None = None, *, lines: bool = False
    ) -> Collected:
        """The results of the next packets.

        `takes`: whether exchanges of a version of an API, by its code, become columns; `lines`: messages that can have
        lines are kept apart from the events.
        """
        state = self._state
        self._networks.clear()
        state.summary.packets += batch.packets
        state.summary.tcp_packets += len(batch)
        if self._ahead is None:
            keyed = self._notes(batch)
            taken = self._engine.take(batch)
        else:
            keyed, task = self._ahead
            self._ahead = None
            taken = task.result()
        self._begin(taken, batch.buffer)
        messages = self._messages(keyed, takes, lines=lines)
        if lines:
            # With lines, other consumers see messages later.
            keyed.append((batch.end_order, -1, -3, None, LOSS))
        elif (lost := self._memory.take_loss()) is not None:
            keyed.append((batch.end_order, -1, -3, None, Problem("memory-bound", lost)))
        self._relieve(batch, keyed)
        return self.requests.numbered(Collected(keyed, messages))

    def _begin(self, taken: EngineRows, buffer: bytes) -> None:
        """Register the connections of a call, and count its sums."""
        self._weigh()
        if self.lines is not None:
            for slot in self._events.freed:
                self.lines.forget(slot)
        self._events.begin(taken, buffer)
        if len(taken.links):
            self._links.append(taken.links)
        if len(taken.networks):
            of, index = np.unique(taken.networks["connection"], return_inverse=True)
            numbers = [self._events.connections[one].number for one in of.tolist()]
            self._networks.append(Networks(np.array(numbers, np.int64)[index], taken.networks))
        summary, before, now = self._state.summary, self._before, taken.totals
        for ours, theirs in _SUMS:
            setattr(summary, theirs, getattr(summary, theirs) + now[ours] - before.get(ours, 0))
        summary.bytes_stream += sum(now[name] - before.get(name, 0) for name in ("seen", "lost"))
        summary.bytes_skipped = summary.bytes_stream - summary.bytes_lost - summary.bytes_decoded
        self._before = now

    def _messages(self, keyed: list[Keyed], takes: Callable[[int], bool] | None, *, lines: bool) -> Messages | None:
        """The regular messages that are not events; `keyed` receives the events."""
        messages = self._events.messages()
        self.requests.begin(messages)
        if not self.may_adopt or not len(messages.rows):
            keyed += self._events.events(messages, None)
            return None
        if lines:
            assert self.lines is not None
            selects = self.lines.selects
            selected = None if selects is None else selects.requests(messages, self._state.capture_at)
            shown, is_event = self.requests.lines(messages, selected)
        else:
            shown, is_event = self.requests.whole(messages, takes)
        keyed += self._events.events(messages, is_event)
        return shown if len(shown.rows) else None

    def _taken(self, taken: EngineRows, *, same_batch: bool = False) -> list[Keyed]:
        """The events of a call of the engine without packets, perhaps after one with packets."""
        self._begin(taken, b"")
        messages = self._events.messages()
        self.requests.begin(messages, same_batch=same_batch)
        return self._events.events(messages, None)

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> Collected:
        """End the capture; the results for what was still open."""
        return self.requests.numbered(Collected(self._taken(self._engine.finish())))

    def close_each(self) -> Iterator[Collected]:
        """The same, one connection after the other."""
        left = True
        while left:
            self._networks.clear()
            keyed = self._taken(self._engine.finish(ENDED_AT_ONCE))
            left = len(self._engine) > 0
            first = 0
            for index in range(1, len(keyed) + 1):
                if index == len(keyed) or keyed[index][1] != keyed[first][1]:
                    yield self.requests.numbered(Collected(keyed[first:index]))
                    first = index

    # -- the network --------------------------------------------------------------------------------------------------

    def take_links(self) -> Links:
        """The network of the connections that are over since the last call."""
        taken, self._links = self._links, []
        return Links.together(taken)

    def open_links(self) -> Links:
        """The network of all other connections, so far. Only between two batches."""
        return self._engine.open_links()

    def networks(self) -> Networks:
        """What the network was like during the exchanges that were emitted last; none for packets without times."""
        if len(self._networks) != 1:
            rows = joined([network.rows for network in self._networks]) if self._networks else np.empty(0, np.void)
            connections = [np.empty(0, np.int64), *(network.connections for network in self._networks)]
            self._networks = [Networks(np.concatenate(connections), rows)]
        return self._networks[0]

    # -- connections --------------------------------------------------------------------------------------------------

    def connection(self, key: Key) -> FollowedConnection | None:
        """The latest connection between these endpoints, as long as it is remembered."""
        return self._events.by_ends.get(index_of(key))

    @property
    def waiting(self) -> int:
        """Bytes of all streams that were counted and may still be decoded."""
        gates = self._questions.items.gates.values()
        return int(self._engine.holdings()["waiting"].sum()) + sum(gate.waiting for gate in gates)

    def saved(self) -> list[FollowedConnection]:
        """All connections, with the engine's state of them, in the order of their beginnings."""
        return sorted(
            self._events.saved(), key=lambda followed_connection: (followed_connection.place, followed_connection.index)
        )

    @property
    def clocks(self) -> tuple[int, int, int]:
        """The engine's clocks (`StreamEngine.clocks`)."""
        return self._engine.clocks

    def load(self, saved: Iterable[FollowedConnection], clocks: tuple[int, int, int]) -> None:
        """Continue connections that were saved; only for a fresh one. Raises ValueError if a state is unknown."""
        self._events.load(saved)
        self._engine.clocks = clocks
        self._weigh()
        budget = self._memory
        budget.count_connections(len(self._events.connections))
        budget.recount_exchanges(connection.exchanges for connection in self._events.connections.values())

    def absorb(self, others: Sequence[StreamFeeder], wanted: Callable[[Sequence[Key]], list[bool]]) -> None:
        """Take over the connections of others, and drop those that are not wanted, by their endpoints."""
        clocks = [stream_feeder.clocks for stream_feeder in (self, *others)]
        merged = {
            index_of(followed_connection.endpoints): followed_connection
            for other in others
            for followed_connection in other.saved()
        }
        mine = list(self._events.connections.values())
        followed_connections = [*mine, *merged.values()]
        keep = (
            wanted([followed_connection.endpoints for followed_connection in followed_connections])
            if followed_connections
            else []
        )
        for connection, kept in zip(mine, keep[: len(mine)], strict=True):
            if not kept or index_of(connection.endpoints) in merged:
                self._events.drop(connection)
        added = [
            followed_connection
            for followed_connection, kept in zip(merged.values(), keep[len(mine) :], strict=True)
            if kept
        ]
        highest = tuple(max(column) for column in zip(*clocks, strict=True))
        self.load(added, (highest[0], highest[1], highest[2]))

    # -- memory -------------------------------------------------------------------------------------------------------

    def _relieve(self, batch: PacketBatch, keyed: list[Keyed]) -> None:
        """End connections if all of them together use too much memory."""
        budget = self._memory
        self._release()
        if budget.used <= budget.limit:
            return
        left, target = budget.used, budget.target
        found = [
            (memory, order, bool(closed), clock, index) for index, closed, memory, clock, order in self._holdings()
        ]
        found.sort(key=itemgetter(0, 1), reverse=True)
        most = 0
        while most < len(found) and left > target and found[most][0] >= LEAST_HELD:
            left -= found[most][0] + FOLLOWED_BYTES
            most += 1
        rest = sorted(found[most:], key=lambda one: (not one[2], one[3], one[1]))
        silent = 0
        while silent < len(rest) and left > target:
            left -= rest[silent][0] + FOLLOWED_BYTES
            silent += 1
        dropped = [one[4] for one in (*found[:most], *rest[:silent])]
        parts = [f"{most:,} that hold most"] if most else []
        if silent:
            parts.append(f"{silent:,} that are over or silent for longest")
        detail = (
            f"more than {size_text(budget.limit)} of memory (--memory): of {len(found):,} connections "
            f"{' and '.join(parts)} were treated as ended; their later packets begin in mid-stream"
        )
        keyed.append((batch.end_order, -1, -2, None, Problem("memory-bound", detail)))
        keyed += self._taken(self._engine.let_go(dropped), same_batch=True)
        self._release()

    def _release(self) -> None:
        """Free what the results of a call refer to, and count the memory of the rest."""
        self._engine.release()
        self._weigh()
        self._memory.count_connections(len(self._engine))

    def _weigh(self) -> None:
        """Note the memory, which the engine may change later in another thread."""
        self.memory = self._engine.memory + self._questions.items.memory

    def _holdings(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Index, whether it is over, bytes, clock and first order of each connection."""
        for row in self._engine.holdings().tolist():
            index, closed, memory, clock, order = row[:5]
            connection = self._events.connections[index]
            kept = sum(exchange.weight for exchange in connection.exchanges.values())
            yield index, closed, memory + kept, clock, order
