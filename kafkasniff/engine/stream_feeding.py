"""Feeding by the stream engine: packets to the events of their connections, in place of `feeding`.

The engine follows all connections. Each message is an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.memory_budget import LEAST_HELD, MemoryBudget
from kafkasniff.engine.ordered_events import Collected, Keyed
from kafkasniff.engine.stream_events import StreamEvents
from kafkasniff.engine.stream_questions import StreamQuestions
from kafkasniff.model import Problem
from kafkasniff.native.library import Kernel
from kafkasniff.native.streams import Taken
from kafkasniff.runtime.memory_limits import size_text
from kafkasniff.tcp.packets import NO_TIME, PacketBatch

__all__ = ["StreamFeeder"]

_SUMS: Final = (
    *(("decoded", "bytes_decoded"), ("lost", "bytes_lost"), ("repeated", "bytes_repeated")),
    *(("ignored", "bytes_ignored"), ("pending", "bytes_pending"), ("undecided", "undecided")),
)
"""Sums of the engine, and their names in the summary."""


class StreamFeeder:
    """Passes packets to the stream engine, and collects the events."""

    def __init__(self, state: InspectorState, memory: MemoryBudget, kernel: Kernel) -> None:
        self._state = state
        self._memory = memory
        size = state.options.max_frame
        self._questions = StreamQuestions(kernel, lambda: state.keys, max_frame=size, ports=state.ports)
        self._engine = self._questions.engine
        self._events = StreamEvents(state, self._questions, max_frame=size)
        self._clock = NO_TIME
        self._before: dict[str, int] = {}
        """The engine's sums after the last call."""
        memory.in_step = self

    @property
    def memory(self) -> int:
        """Approximate bytes of memory of all connections."""
        return self._engine.memory + self._questions.memory

    def parts(self, batch: PacketBatch) -> Iterator[PacketBatch]:
        """A batch in parts that fit into the memory budget."""
        return batch.parts(self._bounds())

    def _bounds(self) -> Iterator[tuple[int, int]]:
        while True:
            yield self._memory.rows_at_once, self._memory.bytes_at_once

    def collect(self, batch: PacketBatch) -> Collected:
        """The results of the next packets."""
        state = self._state
        state.use_captures(batch)
        state.detail.ahead = 0
        state.summary.packets += batch.packets
        state.summary.tcp_packets += len(batch)
        keyed: list[Keyed] = []
        # Secrets are known from their packet on; those of a batch precede its packets.
        names = self._take_notes(batch, keyed)
        for name in names:
            state.add_name(*name)
        clock, ticks = self._clocks(batch)
        keyed += self._taken(self._engine.take(batch, clock, ticks), batch.buffer)
        lost = self._memory.take_loss()
        if lost is not None:
            keyed.append((batch.end_order, -1, -3, None, Problem("memory-bound", lost)))
        self._relieve(batch, keyed)
        return Collected(keyed)

    def _clocks(self, batch: PacketBatch) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The packet clock at each row; order and packet clock of all packets."""
        if batch.ticks is None:
            orders, times = batch.order, batch.time_ns if batch.clock is None else batch.clock
        else:
            orders, times = batch.ticks
        clocks = np.ascontiguousarray(np.maximum.accumulate(np.maximum(times, self._clock)))
        orders = np.ascontiguousarray(orders)
        if len(clocks):
            self._clock = int(clocks[-1])
        rows = clocks if len(orders) == len(batch) else clocks[np.searchsorted(orders, batch.order)]
        return np.ascontiguousarray(rows), (orders, clocks)

    def _taken(self, taken: Taken, buffer: bytes) -> list[Keyed]:
        """The events of a call of the engine, whose sums are counted."""
        keyed = self._events.take(taken, buffer)
        summary, before, now = self._state.summary, self._before, taken.totals
        for ours, theirs in _SUMS:
            setattr(summary, theirs, getattr(summary, theirs) + now[ours] - before.get(ours, 0))
        summary.bytes_stream += sum(now[name] - before.get(name, 0) for name in ("seen", "lost"))
        summary.bytes_skipped = summary.bytes_stream - summary.bytes_lost - summary.bytes_decoded
        self._before = now
        return keyed

    def _take_notes(self, batch: PacketBatch, keyed: list[Keyed]) -> list[tuple[str, str]]:
        """Take the problems and secrets of a batch; returns the names of addresses."""
        names: list[tuple[str, str]] = []
        # Before notes, whose lines are reported separately: a batch may end between the two.
        self._report_key_log(batch.end_order - batch.packets, -1, keyed)
        for index, note in enumerate(batch.notes):
            if isinstance(note.value, Problem):
                keyed.append((note.order, -1, index, None, note.value))
            elif isinstance(note.value, bytes):
                self._state.keys.add_captured(note.value, note.order)
                self._report_key_log(note.order, index, keyed)
            else:
                names.append(note.value)
        return names

    def _report_key_log(self, order: int, index: int, keyed: list[Keyed]) -> None:
        """Report the problems of a key log's lines."""
        flaws = self._state.keys.take_flaws()
        if flaws:
            keyed.append((order, -1, index, None, Problem("tls-key-log", "; ".join(flaws))))

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> Collected:
        """End the capture; the results for what was still open."""
        return Collected(self._taken(self._engine.finish(), b""))

    def close_each(self) -> Iterator[Collected]:
        """The same, one connection after the other."""
        keyed = self._taken(self._engine.finish(), b"")
        first = 0
        for index in range(1, len(keyed) + 1):
            if index == len(keyed) or keyed[index][1] != keyed[first][1]:
                yield Collected(keyed[first:index])
                first = index

    def settle(self) -> Collected:
        """Nothing waits here."""
        return Collected([])

    # -- memory -------------------------------------------------------------------------------------------------------

    def _relieve(self, batch: PacketBatch, keyed: list[Keyed]) -> None:
        """End connections if all of them together use too much memory."""
        budget = self._memory
        budget.count_connections(len(self._engine))
        if budget.used <= budget.limit:
            return
        left, target = budget.used, budget.target
        found = [
            (memory, order, bool(closed), clock, index) for index, closed, memory, clock, order in self._holdings()
        ]
        found.sort(key=itemgetter(0, 1), reverse=True)
        most = 0
        while most < len(found) and left > target and found[most][0] >= LEAST_HELD:
            left -= found[most][0]
            most += 1
        rest = sorted(found[most:], key=lambda one: (not one[2], one[3], one[1]))
        silent = 0
        while silent < len(rest) and left > target:
            left -= rest[silent][0]
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
        keyed += self._taken(self._engine.let_go(dropped), b"")
        budget.count_connections(len(self._engine))

    def _holdings(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Index, whether it is over, bytes, clock and first order of each connection."""
        for row in self._engine.holdings().tolist():
            index, closed, memory, clock, order = row
            connection = self._events.connections[index]
            kept = sum(exchange.weight for exchange in connection.exchanges.values())
            yield index, closed, memory + kept, clock, order
