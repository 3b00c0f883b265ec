"""The native kernel's share of feeding: which packets it gets, and what its results mean to the inspector.

The kernel processes connections in step (`in_step.InStep`). Python processes the packets that it leaves (`feeding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import InspectedConnection
from kafkasniff.engine.in_step import Begins, InStep
from kafkasniff.engine.in_step_messages import Messages, left_rows
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.line_output import LineOutput
from kafkasniff.engine.line_runs import LineRun
from kafkasniff.engine.lines_ahead import LinesAhead
from kafkasniff.engine.memory_budget import MemoryBudget
from kafkasniff.engine.ordered_events import VERDICT, Keyed, placed
from kafkasniff.engine.paired import PairColumns, PairedRun, PairFinder
from kafkasniff.kafka.connection.events import Event, VerdictEvent
from kafkasniff.native.feed_calls import Fed
from kafkasniff.native.library import Kernel
from kafkasniff.runtime.threads import Task
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.packets import PacketBatch
from kafkasniff.tcp.plan import end_index
from kafkasniff.tcp.reassembly import Delta

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.ahead import BodyMaker

__all__ = ["Feeding", "KernelFeeder", "Taken"]


class Feeding(msgspec.Struct, frozen=True):
    """Packets passed to the kernel."""

    in_step: InStep
    clock: NDArray[np.int64]
    """The packet clock at each row."""
    begins: Begins | None
    task: Task[Fed]


class Taken(msgspec.Struct, frozen=True):
    """The kernel's results for a batch."""

    left: PacketBatch
    back: list[TcpConnection]
    """Connections that left the kernel because they fell out of step."""
    begun: list[TcpConnection]
    """Connections that began in the kernel."""
    events: list[tuple[int, int, InspectedConnection, Event]]
    """Their verdicts, with order and place in the packet."""
    messages: Messages
    run: LineRun | None
    """The messages that can have lines, if lines are written."""


class KernelFeeder:
    """Hands connections in step to the kernel and takes its results; without a kernel it has none.

    `maker`: decodes bodies ahead of the messages that need them.
    """

    def __init__(self, state: InspectorState, memory: MemoryBudget, maker: BodyMaker | None) -> None:
        self._state = state
        self._memory = memory
        self._maker = maker
        self.in_step: InStep | None = None
        self.lines: LineOutput | None = None
        """Set if lines are written."""

    def start(self, native: Kernel) -> None:
        """Let the kernel process connections in step from now on."""
        state = self._state
        self.in_step = InStep(native, state.options, idle=state.reassembler.idle)
        state.reassembler.elsewhere = self._memory.in_step = self.in_step

    def stop(self) -> None:
        """There are no more packets, and all connections were taken back: give its memory back."""
        self.in_step = self._state.reassembler.elsewhere = self._memory.in_step = None

    @property
    def may_adopt(self) -> bool:
        """Whether connections in step can omit what the current level of detail omits."""
        detail = self._state.detail
        writes_all = self.lines is not None and self.lines.selects is None
        return writes_all or detail.hides or not detail.level

    # -- packets ------------------------------------------------------------------------------------------------------

    def begin(self, batch: PacketBatch, ahead: LinesAhead | None = None) -> Feeding | None:
        """Pass the packets of connections in step, and of new ones, to the kernel; None if there are none.

        `ahead`: another thread does so, until `take` is called with the result. Until then the kernel's memory belongs
        to that thread. Python's own state of connections only changes in `take`.
        """
        in_step, state = self.in_step, self._state
        if in_step is None or not len(batch):
            return None
        begins = in_step.begins(batch, state.reassembler.connection, state.ports) if self.may_adopt else None
        if begins is None and not len(in_step):
            return None
        clock = state.reassembler.clock_at(batch)

        def feed(_: int) -> Fed:
            return in_step.feed(batch, clock, begins)

        return Feeding(in_step, clock, begins, Task(feed) if ahead is None else ahead.feed(feed))

    def take(self, feeding: Feeding, batch: PacketBatch, finder: PairFinder | None, *, lines: bool) -> Taken:
        """Collect the kernel's results for a batch."""
        in_step, clock, state = feeding.in_step, feeding.clock, self._state
        fed = feeding.task.result()
        begun = in_step.enter(batch, clock, feeding.begins, fed)
        for connection in begun:
            state.own(connection)
            in_step.own(connection)
            state.reassembler.enter(connection, connection.clock)
        events = list(self._judge(in_step.judged(batch, fed)))
        messages = in_step.messages(batch, fed)
        state.summary.bytes_stream += fed.bytes
        state.summary.bytes_decoded += fed.framed
        state.summary.bytes_repeated += fed.repeated
        plain: NDArray[np.bool_] | None = None
        run: LineRun | None = None
        if lines and len(messages.rows):
            assert self.lines is not None
            selects = self.lines.selects
            selected = None if selects is None else selects.requests(messages, state.capture_at)
            messages, edges = in_step.plain_edges(messages, selected)
            plain = edges.is_edge
            if len(messages.rows):
                run = self.lines.run_of(messages, edges, in_step.outstanding, state.detail)
        elif finder is not None and not state.detail.hides:
            options = state.detail.decode
            messages, plain = in_step.whole(messages, lambda code: finder.may_take(code, options))
        events += in_step.edges(messages, plain)
        back = in_step.take_back(fed.back)
        left = batch if len(fed.left) == len(batch) else left_rows(batch, fed.left, clock)
        return Taken(left, back, begun, events, messages, run)

    def _judge(
        self, judged: Iterable[tuple[InspectedConnection, VerdictEvent]]
    ) -> Iterator[tuple[int, int, InspectedConnection, Event]]:
        """Record the verdicts of the kernel's connections; those that others of the batch may depend on are events."""
        announced: set[bytes] = set()
        for connection, verdict in judged:
            assert verdict.client is not None
            self._memory.note(connection)
            broker = end_index(connection.endpoints[1 - verdict.client])
            if broker in self._state.known_brokers or broker in announced:
                self._state.note_kafka(connection, verdict)
                continue
            announced.add(broker)
            # Lines of the batch may be written before the event is reported.
            connection.assign(verdict.client)
            yield verdict.order, VERDICT, connection, verdict

    def take_pairs(
        self, messages: Messages, columns: list[PairColumns] | None, finder: PairFinder | None
    ) -> PairedRun | None:
        """The messages of whole exchanges that are emitted one by one, if no lines are written.

        `columns`: receives the exchanges that `finder` finds.
        """
        detail, options = self._state.detail, self._state.detail.decode
        if not len(messages.rows):
            return None
        others: NDArray[np.bool_] | None = None
        if finder is not None and columns is not None and not detail.hides:
            found, others = finder.find(messages, options, self._state.capture_at)
            columns += found
            for one in found:
                self._count_columns(one)
        if detail.hides:
            assert self.in_step is not None
            self.in_step.count_hidden_pairs(messages)
            return None
        if others is None or others.any():
            return PairedRun(messages, options, self._maker, others)
        return None

    def _count_columns(self, found: PairColumns) -> None:
        """Count exchanges that are columns in the summary."""
        self._state.summary.requests += len(found.asked)
        self._state.summary.responses += len(found.asked)

    # -- connections --------------------------------------------------------------------------------------------------

    def adopt(self, deltas: list[Delta], back: list[TcpConnection]) -> int:
        """Hand connections that are in step now to the kernel; returns their number."""
        in_step = self.in_step
        if in_step is None:
            return 0
        adopted = 0
        for tcp in {id(tcp): tcp for tcp in (*(tcp for tcp, _ in deltas), *back)}.values():
            if tcp.closed:
                self.forget(tcp)
            elif self.may_adopt and in_step.adopt(tcp):
                owner = tcp.owner
                assert isinstance(owner, InspectedConnection)
                if owner.client is None and owner.kafka.client is not None:
                    # The verdict may be reported after lines are written.
                    owner.assign(owner.kafka.client)
                self._memory.note(owner, tcp)
                adopted += 1
        return adopted

    def forget(self, tcp: TcpConnection) -> None:
        """A connection is over."""
        if self.in_step is None:
            return
        place = self.in_step.forget(tcp)
        if self.lines is not None:
            self.lines.forget(place)

    def forget_all(self) -> None:
        """Reset the kernel's side; all connections were taken back."""
        if self.in_step is not None:
            for tcp in self._state.reassembler:
                self.in_step.forget(tcp)

    def recall(self, keyed: list[Keyed] | None = None) -> None:
        """Take all connections back from the kernel; `keyed`: receives the events that result."""
        if self.in_step is None:
            return
        for tcp in self.in_step.recall_all():
            assert isinstance(tcp.owner, InspectedConnection)
            self._memory.note(tcp.owner, tcp)
        late = self.late()
        assert keyed is not None or not late, "see `Inspector.settle`"
        if keyed is not None:
            keyed += placed(late)

    def late(self) -> list[tuple[int, int, InspectedConnection, Event]]:
        """Events of requests whose connections were taken back since."""
        return [] if self.in_step is None else self.in_step.late()
