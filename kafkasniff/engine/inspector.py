"""The inspector: packets in, decoded messages out. Composes the stages and assigns numbers; does no I/O.

The stages of a connection produce its events. The inspector merges the events of all connections into capture order (by
the packet at which each became known, then by connection). It adds what only the merge can provide: connection and
exchange numbers, and reports on connections that are not Kafka although their endpoint spoke Kafka before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import Account, ConnectionEnd, InspectedConnection, OpenExchange, endpoint
from kafkasniff.engine.in_step import Begins, Edges, InStep, Messages, left_rows
from kafkasniff.engine.line_runs import LineRun, MakeLines, RunWriter, SelectsLines
from kafkasniff.engine.lines_ahead import LinesAhead, Window
from kafkasniff.engine.memory_budget import MAX_ENDPOINTS, MAX_NAMES, Beside, MemoryBudget, message_limits
from kafkasniff.engine.outstanding import Outstanding
from kafkasniff.engine.paired import AccountTurns, ColumnTurns, Open, PairColumns, PairedEntry, PairedRun, PairFinder
from kafkasniff.engine.paired_messages import tell_request, tell_response
from kafkasniff.kafka.apis.weight import BODY_RATIO, likely_bytes
from kafkasniff.kafka.connection.connection import ConnectionOptions
from kafkasniff.kafka.connection.detail import Detail, LeftOut, Level
from kafkasniff.kafka.connection.events import (
    Event,
    ExchangeEvent,
    MessageEvent,
    ProblemEvent,
    TokenEvent,
    VerdictEvent,
)
from kafkasniff.kafka.connection.framing import MAX_FRAME
from kafkasniff.kafka.messages.packed_bodies import PackedBodies
from kafkasniff.kafka.schema.context import DecodeOptions
from kafkasniff.model import Connection, Direction, Exchange, Lines, Message, Problem, SaslToken, Summary
from kafkasniff.native.feed import Fed
from kafkasniff.native.library import kernel
from kafkasniff.runtime.memory_limits import checked_memory
from kafkasniff.runtime.threads import Task
from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.packets import PacketBatch
from kafkasniff.tcp.plan import Key
from kafkasniff.tcp.reassembly import Delta, Reassembler
from kafkasniff.tcp.segments import NO_TIME, PACKET_NUMBER, PACKET_SHIFT, Closed, Item
from kafkasniff.tls.keylog import KeyLog

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.ahead import BodyMaker
    from kafkasniff.kafka.messages.rendered import Renderer

__all__ = ["Inspector", "Output", "Shown"]

_UNANSWERED: Final = ("unanswered", "open")
"""Statuses of exchanges whose response is missing, as far as the capture shows."""
FEW_ROWS: Final = 512
"""Rows processed at a time while many connections wait to be handed to the kernel."""
SLICE: Final = 64
"""Largest number of events that `feed_slices` yields at a time."""
SLICE_BYTES: Final = 8 << 20
"""Approximate bytes of memory of the messages that `feed_slices` yields at a time; later ones are not yet decoded."""

Output = Message | SaslToken | Exchange | Problem | Connection
Shown = Output | Lines


class _Taken(NamedTuple):
    """The kernel's results for a batch."""

    left: PacketBatch
    back: list[TcpConnection]
    """Connections that left the kernel because they fell out of step."""
    begun: list[TcpConnection]
    """Connections that began in the kernel."""
    events: list[tuple[int, int, InspectedConnection, Event]]
    """Their verdicts, with order and place in the packet."""
    messages: Messages


class _Feeding(NamedTuple):
    """Packets passed to the kernel."""

    in_step: InStep
    clock: NDArray[np.int64]
    """The packet clock at each row."""
    begins: Begins | None
    task: Task[Fed]


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
    - `memory`: budget in bytes for everything kept between two batches (`memory_budget`); None: 1 GiB

    Raises UsageError if `memory` is less than 128 MiB.
    """

    _uses_kernel: ClassVar[bool] = True
    """Whether the kernel, if available, processes connections in step; the result is the same."""

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
        memory: int | None = None,
    ) -> None:
        self._ports = frozenset(ports)
        self._show_secrets = show_secrets
        options = DecodeOptions(records, show_secrets, bodies=not headers, headers=headers)
        self._detail = Detail(options, renderer)
        self._options = ConnectionOptions(
            detail=self._detail,
            max_frame=max_frame,
            every_end=exchanges,
        )
        self._want_exchanges = exchanges
        self._want_connections = connections
        self._reassembler = Reassembler()
        self._connections = 0
        self._exchanges = 0
        self._captures: tuple[str, ...] = ()
        self._only_capture: str | None = None
        """The capture's name, if there was only one so far."""
        self._known_brokers: set[tuple[int, int, int]] = set()
        self._renderer = renderer
        self._maker: BodyMaker | None = renderer
        native = kernel()
        if renderer is None and native is not None and not headers:
            self._maker = PackedBodies(native)
        self._memory = MemoryBudget(checked_memory(memory))
        self._in_step: InStep | None = None
        self._make_lines: MakeLines | None = None
        self._selects: SelectsLines | None = None
        self._writer: RunWriter | None = None
        """Created with the first message: creating it takes longer than printing the first lines."""
        self._ahead: LinesAhead | None = None
        """Threads that write lines, if any."""
        self._run: LineRun | None = None
        """Messages of the last packets whose lines are written natively."""
        self._runs = 0
        self._named: list[tuple[str, str]] = []
        """Names that arrived with the last packets."""
        self._paired: PairedRun | None = None
        """Messages of whole exchanges of the last packets that are to be emitted."""
        self._rows_at_once = FEW_ROWS
        self._gone: list[int] = []
        """Freed indices of connections in step, which may be reused; collected if lines are written."""
        self.begin_in_step()
        self.limit_messages(self._memory.limit)
        self.slice_bytes = 0
        """Approximate bytes of memory of the messages of the last slice."""
        self.summary = Summary()
        self.names: dict[str, str] = {}
        """Address → name, from the captures' name records."""
        self.keys = KeyLog() if keys is None else keys
        """Secrets that decrypt TLS. Those of a file are not part of the state: a resumed run names the file again."""
        self.judged: set[Key] | None = None
        """Endpoints of connections recognized as Kafka, until the reader clears it; None if there is no reader."""

    def begin_in_step(self) -> None:
        """Let the kernel process connections in step from now on."""
        native = kernel() if self._uses_kernel else None
        if native is not None:
            self._in_step = InStep(native, self._options, idle=self._reassembler.idle)
            self._reassembler.elsewhere = self._memory.in_step = self._in_step

    def write_lines(
        self, make: MakeLines, selects: SelectsLines | None = None, *, ahead: LinesAhead | None = None
    ) -> bool:
        """Let `feed_lines` yield `Lines` instead of messages; returns False if no lines can be written.

        - `make`: returns a line writer, given the ends of a connection and the name of a capture by their indices
        - `selects`: decides which messages have lines. Other exchanges yield nothing if the decision needs no decoding
        - `ahead`: threads that read packets ahead and, without `selects`, write lines. The results of a batch are then
          yielded some batches later. For runs whose level of detail does not change
        """
        # Connections, and all exchanges, need messages.
        if self._in_step is None or self._want_connections or self._want_exchanges != (selects is not None):
            return False
        self._make_lines, self._selects, self._ahead = make, selects, ahead
        if selects is not None:
            self._in_step.pin = selects.pin
        return True

    def feed(self, batch: PacketBatch) -> list[Output]:
        """Process the next packets, in capture order."""
        return self._merge(self._collect(batch))

    def feed_slices(self, batch: PacketBatch) -> Iterator[list[Output]]:
        """`feed` in slices. All of them have to be consumed before the next batch.

        A body is decoded when its slice is created, unless later messages depend on it. A slice ends with the message
        that reaches the size limit. A caller that finishes each slice before the next one has few messages in memory,
        and those are in the processor's caches.
        """
        for part in self._parts(batch):
            yield from self._slices(self._collect(part))

    def feed_lines(self, batch: PacketBatch) -> Iterator[Sequence[Shown]]:
        """`feed_slices`, with lines instead of messages where lines can be written without decoding messages."""
        if self._make_lines is None:
            yield from self.feed_slices(batch)
            return
        ahead = self._ahead
        for part in self._parts(batch):
            if self._selects is not None and self._detail.level:
                # Filters also need what is omitted: at a lower level of detail, Python reads all their messages.
                yield from self._slices(self._collect(part))
                continue
            if ahead is None:
                yield from self._tell_window(self._window(part, self._begin_in_step(part)))
                continue
            # The kernel reads packets while Python reports the results of earlier parts.
            fed = self._begin_in_step(part, ahead)
            if (window := ahead.due()) is not None:
                yield from self._tell_window(window)
            # Requests kept for filters count towards the budget from when they are reported.
            if self._selects is not None or self._memory.is_tight:
                yield from self._tell_windows(ahead)
            ahead.add(self._window(part, fed))

    def close_lines(self) -> Iterator[Sequence[Shown]]:
        """`close_slices` after `feed_lines`."""
        if self._ahead is not None:
            yield from self._tell_windows(self._ahead)
        yield from self.close_slices()

    def _tell_windows(self, ahead: LinesAhead) -> Iterator[Sequence[Shown]]:
        """Report all pending windows."""
        while (window := ahead.next()) is not None:
            yield from self._tell_window(window)

    def close_slices(self) -> Iterator[list[Output]]:
        """`close` in slices, as in `feed_slices`, one connection after the other.

        Everything reported here becomes known at the end of the capture, so events are in order of connections.
        """
        self.slice_bytes = 0
        yield from self.settle()
        connections = sorted(self._reassembler, key=_place)
        for delta in self._reassembler.close_each(connections):
            keyed: list[_Keyed] = []
            self._take([delta], keyed)
            del delta
            yield from self._slices(keyed)

    def _slices(self, keyed: list[_Keyed], turns: ColumnTurns | None = None) -> Iterator[list[Output]]:
        entries = self._in_order(keyed)
        for entry in entries:
            out: list[Output] = []
            self.slice_bytes = 0
            self._tell_slice(chain((entry,), islice(entries, SLICE - 1)), turns, out)
            yield out
            del out

    def _in_order(self, keyed: list[_Keyed]) -> Iterator[_Keyed]:
        """Events in order, with the messages that were collected with them."""
        # The first three differ between any two entries, so that the comparison never reaches the events.
        keyed.sort()
        run, self._paired = self._paired, None
        return iter(keyed) if run is None else run.among(keyed)

    def _window(self, batch: PacketBatch, fed: _Feeding | None) -> Window:
        """The results of the next packets, with numbers for all exchanges that begin; reported later."""
        keyed = self._collect(batch, lines=True, fed=fed)
        keyed.sort()
        run, self._run = self._run, None
        names, self._named = self._named, []
        stops: list[int] = []
        at = 0
        begun = [index for index, entry in enumerate(keyed) if _begins(entry[4])]
        if run is None:
            numbers = list(range(self._exchanges + 1, self._exchanges + 1 + len(begun)))
            self._exchanges += len(begun)
        else:
            for order, place, within, _, _ in keyed:
                at = run.until(order, place, within, at)
                stops.append(at)
            numbers = run.number(self._exchanges, [stops[index] for index in begun])
            self._exchanges += len(begun) + run.begun
            if self._selects is not None:
                run.select(self._capture_at)
        opened: dict[int, OpenExchange] = {}
        for index, number in zip(begun, numbers, strict=True):
            _, _, _, connection, event = keyed[index]
            opened[index] = connection.exchanges[event.ordinal] = OpenExchange(number)
        return Window(keyed, run, [] if run is None else run.between(stops), names, opened)

    def _tell_window(self, window: Window) -> Iterator[Sequence[Shown]]:
        """Report the results in a window; earlier windows were reported."""
        lost = self._take_loss()
        for address, name in window.names:
            if len(self.names) < MAX_NAMES:
                self.names[address] = name
        self.slice_bytes = 0
        out: list[Shown] = []
        ranges = iter(window.ranges)
        first, last = next(ranges, (0, 0))
        if last > first:
            yield from self._lines_of(window, first, last, out)
        for index, (_, _, _, connection, event) in enumerate(window.keyed):
            first, last = next(ranges, (0, 0))
            if event is not _LOSS:
                self._tell(connection, event, out, window.begun.get(index))
            elif lost is not None:
                self._problem(Problem("memory-bound", lost), out)
            if len(out) >= SLICE or self.slice_bytes > SLICE_BYTES:
                yield out
                out = []
                self.slice_bytes = 0
            if last > first:
                yield from self._lines_of(window, first, last, out)
        yield out

    def _lines_of(self, window: Window, first: int, last: int, out: list[Shown]) -> Iterator[list[Shown]]:
        """Lines of messages, after the contents of `out`, which are consumed before the lines are written."""
        assert self._writer is not None
        run = window.run
        assert run is not None
        began = run.requests(first, last)
        others = 0
        if out:
            yield out.copy()
            out.clear()
        at = first
        pieces: Iterator[Lines | int | list[int]] = (
            window.take(first, last, self._writer)
            if self._selects is None
            else run.write_selected(first, last, self._writer)
        )
        for piece in pieces:
            if isinstance(piece, Lines):
                self.summary.problems += run.lacking(at, at + piece.count)
                at += piece.count
                yield [Lines(piece.data, piece.count, run.time_of(at - 1)) if piece.time_ns is None else piece]
            elif isinstance(piece, list):
                others += len(piece)
                began -= sum(map(run.is_request, piece))
                for index in piece:
                    self._tell_paired(run.entry(index), out, int(run.numbers[index]))
                    if len(out) >= SLICE or self.slice_bytes > SLICE_BYTES:
                        yield out.copy()
                        out.clear()
                        self.slice_bytes = 0
                yield out.copy()
                out.clear()
            else:
                counted = piece < 0
                piece = -1 - piece if counted else piece  # noqa: PLW2901 - both say which message
                at = piece + 1
                number, answer = int(run.numbers[piece]), run.answer(piece)
                pins = self._selects if answer is not None and number not in run.pinned else None
                if pins is not None:
                    assert answer is not None
                    pins.pin(number, answer)
                self._tell_paired(run.entry(piece), out, number, run.problems(piece), ends=answer is None)
                # Natively written lines update the summary themselves.
                if counted:
                    self.summary.requests -= 1
                else:
                    others += 1
                    began -= run.is_request(piece)
                yield out.copy()
                out.clear()
                if pins is not None:
                    pins.unpin(number)
        self.slice_bytes = 0
        self.summary.requests += began
        self.summary.responses += last - first - others - began

    def _tell_slice(self, entries: Iterable[_Keyed], turns: ColumnTurns | None, out: _Sinking) -> None:
        """Report entries until those collected so far are large. Hot: called once for each message."""
        for entry in entries:
            if turns is not None:
                turns.until(entry[1], entry[0], entry[2])
            if len(entry) > _EVENT:
                self._tell_paired(entry, out)
            else:
                self._tell(entry[3], entry[4], out)
            if self.slice_bytes > SLICE_BYTES:
                return

    def feed_columns(
        self, batch: PacketBatch, finder: PairFinder | None
    ) -> Iterator[tuple[list[Output], list[PairColumns]]]:
        """`feed_slices`, with the exchanges that `finder` finds as separate columns.

        These exchanges have no numbers. All slices and columns have to be consumed before the next batch.
        """
        for part in self._parts(batch):
            columns: list[PairColumns] = []
            keyed = self._collect(part, columns, finder)
            emitted = {entry[1] for entry in keyed}
            if self._paired is not None:
                emitted |= self._paired.places
            accounts = AccountTurns(columns, emitted) if self._want_connections else None
            turns = ColumnTurns(columns, emitted, accounts)
            for events in self._slices(keyed, turns):
                yield events, []
                del events
            turns.finish()
            if columns:
                self.slice_bytes = 0
                yield [], columns

    def _parts(self, batch: PacketBatch) -> Iterator[PacketBatch]:
        """A batch in parts that fit into the memory budget, and after which connections can be handed to the kernel."""
        most_bytes = self._memory.bytes_at_once
        while len(batch) > 1:
            most_rows = self._memory.rows_at_once
            if self._in_step is not None:
                most_rows = min(most_rows, self._rows_at_once)
            ends = np.cumsum(batch.length[:most_rows], dtype=np.int64)
            rows = min(int(np.searchsorted(ends, most_bytes)) + 1, most_rows)
            if rows >= len(batch):
                break
            part, batch = batch.split(rows)
            yield part
        yield batch

    def _collect(
        self,
        batch: PacketBatch,
        columns: list[PairColumns] | None = None,
        finder: PairFinder | None = None,
        *,
        lines: bool = False,
        fed: _Feeding | None = None,
    ) -> list[_Keyed]:
        """The results of the next packets, unordered.

        `columns`: receives the exchanges that `finder` finds; `lines`: messages that can have lines are kept in `_run`
        and names in `_named`; `fed`: result of `_begin_in_step`.
        """
        if batch.captures:
            self._captures = batch.captures
            self._only_capture = batch.captures[0] if len(batch.captures) == 1 else None
        self._detail.ahead = 0
        self.summary.packets += batch.packets
        self.summary.tcp_packets += len(batch)
        keyed: list[_Keyed] = []
        taken: _Taken | None = None
        left = batch
        if not lines:
            fed = self._begin_in_step(batch)
        if fed is not None:
            taken = self._take_in_step(fed, batch, None if columns is None else finder, lines=lines)
            left = taken.left
        deltas = self._reassembler.feed(left)
        self._number_connections([] if taken is None else taken.begun)
        events = [] if self._in_step is None else self._in_step.late()
        if taken is not None:
            events += taken.events
            if not lines:
                self._take_pairs(taken.messages, keyed, columns, finder)
        keyed += _placed(events)
        # Before notes, whose lines are reported separately: a batch may end between the two.
        self._tell_key_log(batch.end_order - batch.packets, -1, keyed)
        for index, note in enumerate(batch.notes):
            if isinstance(note.value, Problem):
                keyed.append((note.order, -1, index, None, note.value))
            elif isinstance(note.value, bytes):
                self.keys.add_captured(note.value, note.order)
                self._tell_key_log(note.order, index, keyed)
            elif lines:
                self._named.append(note.value)
            elif len(self.names) < MAX_NAMES:
                self.names[note.value[0]] = note.value[1]
        self._take(deltas, keyed)
        if lines:
            # With lines, other consumers see messages later.
            keyed.append((batch.end_order, -1, -3, None, _LOSS))
        elif (lost := self._take_loss()) is not None:
            keyed.append((batch.end_order, -1, -3, None, Problem("memory-bound", lost)))
        self._relieve(batch, keyed)
        if self._in_step is not None:
            adopted = self._adopt(self._in_step, deltas, [] if taken is None else taken.back)
            # Use smaller parts only while that hands connections to the kernel sooner.
            is_worth = adopted and len(left) > len(batch) // 4
            self._rows_at_once = FEW_ROWS if is_worth else max(2 * len(batch), FEW_ROWS)
        return keyed

    def _number_connections(self, begun: list[TcpConnection]) -> None:
        """Number the connections of a batch; `begun`: those that began in the kernel."""
        opened = self._reassembler.opened
        for connection in opened:
            self._own(connection)
        opened += begun
        opened.sort(key=lambda connection: connection.first_order)
        for connection in opened:
            owner = connection.owner
            assert isinstance(owner, InspectedConnection)
            self._connections += 1
            owner.number = owner.place = self._connections
        self.summary.connections += len(opened)

    def _own(self, connection: TcpConnection) -> None:
        owner = connection.owner = InspectedConnection(0, connection, self._options, self._ports)
        if self._want_connections:
            owner.account = Account()

    def _begin_in_step(self, batch: PacketBatch, ahead: LinesAhead | None = None) -> _Feeding | None:
        """Pass the packets of connections in step, and of new ones, to the kernel; None if there are none.

        `ahead`: another thread does so, until `_collect` is called with the result. Until then the kernel's memory
        belongs to that thread. Python's own state of connections only changes in `_take_in_step`.
        """
        in_step = self._in_step
        if in_step is None or not len(batch):
            return None
        begins = in_step.begins(batch, self._reassembler.connection, self._ports) if self._may_be_in_step else None
        if begins is None and not len(in_step):
            return None
        clock = self._reassembler.clock_at(batch)

        def feed(_: int) -> Fed:
            return in_step.feed(batch, clock, begins)

        return _Feeding(in_step, clock, begins, Task(feed) if ahead is None else ahead.feed(feed))

    def _take_in_step(self, feeding: _Feeding, batch: PacketBatch, finder: PairFinder | None, *, lines: bool) -> _Taken:
        """Collect the kernel's results for a batch."""
        in_step, clock = feeding.in_step, feeding.clock
        fed = feeding.task.result()
        begun = in_step.enter(batch, clock, feeding.begins, fed)
        for connection in begun:
            self._own(connection)
            in_step.own(connection)
            self._reassembler.enter(connection, connection.clock)
        events = list(self._judge(in_step.judged(batch, fed)))
        messages = in_step.messages(batch, fed)
        self.summary.bytes_stream += fed.bytes
        self.summary.bytes_decoded += fed.framed
        self.summary.bytes_repeated += fed.repeated
        plain: NDArray[np.bool_] | None = None
        if lines and len(messages.rows):
            assert self._make_lines is not None
            selects = self._selects
            selected = None if selects is None else selects.requests(messages, self._capture_at)
            messages, edges = in_step.plain_edges(messages, selected)
            plain = edges.is_edge
            if len(messages.rows):
                self._run = self._new_run(messages, edges, in_step.outstanding)
        elif finder is not None and not self._detail.hides:
            options = self._detail.decode
            messages, plain = in_step.whole(messages, lambda code: finder.may_take(code, options))
        events += in_step.edges(messages, plain)
        back = in_step.take_back(fed.back)
        left = batch if len(fed.left) == len(batch) else left_rows(batch, fed.left, clock)
        return _Taken(left, back, begun, events, messages)

    def _judge(
        self, judged: Iterable[tuple[InspectedConnection, VerdictEvent]]
    ) -> Iterator[tuple[int, int, InspectedConnection, Event]]:
        """Record the verdicts of the kernel's connections; those that others of the batch may depend on are events."""
        announced: set[tuple[int, int, int]] = set()
        for connection, verdict in judged:
            assert verdict.client is not None
            broker = connection.endpoints[1 - verdict.client]
            if broker in self._known_brokers or broker in announced:
                self._note_kafka(connection, verdict)
                continue
            announced.add(broker)
            # Lines of the batch may be written before the event is reported.
            connection.assign(verdict.client)
            yield verdict.order, _VERDICT, connection, verdict

    def _take_pairs(
        self, messages: Messages, keyed: list[_Keyed], columns: list[PairColumns] | None, finder: PairFinder | None
    ) -> None:
        """Collect messages of whole exchanges if no lines are written."""
        detail, options = self._detail, self._detail.decode
        if not len(messages.rows):
            return
        others: NDArray[np.bool_] | None = None
        if finder is not None and columns is not None and not detail.hides:
            found, others = finder.find(messages, options, self._capture_at)
            columns += found
            for one in found:
                self._count_columns(one)
        if detail.hides:
            assert self._in_step is not None
            self._in_step.count_hidden_pairs(messages)
        elif others is None or others.any():
            self._paired = PairedRun(messages, options, self._maker, others)

    def _new_run(self, messages: Messages, edges: Edges, outstanding: Outstanding) -> LineRun:
        """Messages whose lines are written natively."""
        if self._writer is None:
            assert self._make_lines is not None
            self._writer = RunWriter(self._make_lines, self._capture_at)
            if self._ahead is not None:
                self._ahead.write_by(self._writer, self._make_lines, self._capture_at)
        self._runs += 1
        if self._gone:
            for writer in (self._writer, *(() if self._ahead is None else self._ahead.writers)):
                writer.forget(self._runs, self._gone)
            self._gone = []
        return LineRun(messages, edges, outstanding, self._writer.lines, self._detail, self._runs, self._selects)

    def _adopt(self, in_step: InStep, deltas: list[Delta], back: list[TcpConnection]) -> int:
        """Hand connections that are in step now to the kernel; returns their number."""
        adopted = 0
        for tcp in {id(tcp): tcp for tcp in (*(tcp for tcp, _ in deltas), *back)}.values():
            if tcp.closed:
                self._forget_connection(in_step, tcp)
            elif self._may_be_in_step and in_step.adopt(tcp):
                owner = tcp.owner
                assert isinstance(owner, InspectedConnection)
                if owner.client is None and owner.kafka.client is not None:
                    # The verdict may be reported after lines are written.
                    owner.assign(owner.kafka.client)
                self._memory.note(owner, tcp)
                adopted += 1
        return adopted

    def _forget_connection(self, in_step: InStep, tcp: TcpConnection) -> None:
        place = in_step.forget(tcp)
        if place >= 0 and self._writer is not None:
            self._gone.append(place)

    @property
    def _may_be_in_step(self) -> bool:
        """Whether connections in step can omit what the current level of detail omits."""
        lines = self._make_lines is not None and self._selects is None
        return lines or self._detail.hides or not self._detail.level

    def settle(self) -> Iterator[list[Output]]:
        """Take all connections back from the kernel; what waited there since `feed_columns` is yielded in slices.

        Callers of `feed_columns` do so before they look at the state or change the level of detail.
        """
        keyed: list[_Keyed] = []
        self._recall(keyed)
        yield from self._slices(keyed)

    def _recall(self, keyed: list[_Keyed] | None = None) -> None:
        """Take all connections back from the kernel; `keyed`: receives the events that result."""
        if self._in_step is not None:
            for tcp in self._in_step.recall_all():
                assert isinstance(tcp.owner, InspectedConnection)
                self._memory.note(tcp.owner, tcp)
            late = self._in_step.late()
            assert keyed is not None or not late, "see `settle`"
            if keyed is not None:
                keyed += _placed(late)

    def _forget(self) -> None:
        """Reset the kernel's side; all connections were taken back."""
        if self._in_step is not None:
            for tcp in self._reassembler:
                self._in_step.forget(tcp)

    def _count_columns(self, found: PairColumns) -> None:
        """Count exchanges that are columns in the summary."""
        self.summary.requests += len(found.asked)
        self.summary.responses += len(found.asked)

    def _take_loss(self) -> str | None:
        """The report on the bounds of side tables (`memory_budget.Beside`), if there is one."""
        return None if self._memory.beside is None else self._memory.beside.take_loss()

    def _relieve(self, batch: PacketBatch, keyed: list[_Keyed]) -> None:
        """End connections if all of them together use too much memory."""
        budget = self._memory
        for tcp in self._reassembler.holding:
            assert isinstance(tcp.owner, InspectedConnection)
            budget.note(tcp.owner, tcp)
        if budget.is_exceeded(self._reassembler):
            self._recall(keyed)
        gone, detail = budget.choose(self._reassembler)
        if gone:
            if self._in_step is not None:
                for tcp in gone:
                    self._forget_connection(self._in_step, tcp)
            detail += " were treated as ended; their later packets begin in mid-stream"
            keyed.append((batch.end_order, -1, -2, None, Problem("memory-bound", detail)))
            self._take(self._reassembler.let_go(gone), keyed)
            budget.choose(self._reassembler)

    def _tell_key_log(self, order: int, index: int, keyed: list[_Keyed]) -> None:
        """Report the problems of a key log's lines."""
        flaws = self.keys.take_flaws()
        if flaws:
            keyed.append((order, -1, index, None, Problem("tls-key-log", "; ".join(flaws))))

    def follow_key_log(self, keys: KeyLog, *, tells: bool = True) -> None:
        """Also use secrets from this key log; `tells`: whether problems of its lines are reported here."""
        keys.absorb(self.keys)
        if not tells:
            keys.take_flaws()
        self.keys = keys

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
        return self._detail.full

    def limit_messages(self, memory: int) -> None:
        """Bound each message as in a run with a budget of `memory` bytes (`memory_budget`)."""
        self._detail.limit(*message_limits(memory))

    def count_beside(self, beside: Beside) -> None:
        """Count this towards the budget, too, and report what its bounds dropped."""
        self._memory.beside = beside

    @property
    def level(self) -> Level:
        """How much detail is omitted because decoding cannot keep up with capturing; may be set."""
        return self._detail.level

    @level.setter
    def level(self, level: Level) -> None:
        if self._selects is not None and level != self._detail.level:
            # The state of filters for outstanding requests exists with lines only.
            self._recall()
        self._detail.set(level)
        if not self._may_be_in_step:
            self._recall()

    @property
    def reassembler(self) -> Reassembler:
        """All connections, after taking them back from the kernel."""
        self._recall()
        return self._reassembler

    @property
    def settings(self) -> tuple[object, ...]:
        """The options of this inspector: equal for inspectors that yield the same for the same packets."""
        wants = self._want_exchanges, self._want_connections
        return self._ports, self._show_secrets, self._detail.full, self._options.max_frame, *wants

    @property
    def reads_records(self) -> bool:
        """Whether records of all topics are decoded, or kept as columns, at full detail."""
        return self._detail.has_records

    @property
    def left_out(self) -> LeftOut:
        """What was omitted from messages so far because of `level`."""
        return self._detail.left_out

    def close(self) -> list[Output]:
        """End the capture; returns the results for what was still open."""
        keyed: list[_Keyed] = []
        self._recall(keyed)
        self._take(self._reassembler.close(), keyed)
        return self._merge(keyed)

    def verdict(self, key: Key) -> Literal["kafka", "not-kafka", "undecided", "over"]:
        """The verdict on the connection between these endpoints; over: it ended undecided."""
        tcp = self._reassembler.connection(key)
        if tcp is None:
            return "undecided"
        connection = tcp.owner
        assert isinstance(connection, InspectedConnection)
        if self._ports and not connection.forced:
            return "not-kafka"
        verdict = connection.kafka.verdict
        return "over" if verdict == "undecided" and tcp.closed else verdict

    # -- several inspectors, each with a share of the connections ----------------------------------------------------

    def begin_summary(self) -> Summary:
        """Start counting from zero in a run that resumes from another's state; returns the new summary.

        What was pending at the end of the other run counts here as well, since it may be decoded here.
        """
        summary = self.summary = Summary()
        self._recall()
        for tcp in self._reassembler:
            connection = tcp.owner
            assert isinstance(connection, InspectedConnection)
            summary.bytes_stream += connection.waiting
        summary.bytes_skipped = summary.bytes_stream
        return summary

    @property
    def highest_number(self) -> int:
        """The highest number of a connection or exchange so far."""
        return max(self._connections, self._exchanges)

    def number_from(self, number: int) -> None:
        """Assign only numbers above this one to further connections and exchanges."""
        self._connections = self._exchanges = number

    def absorb(self, others: Sequence[Inspector], wanted: Callable[[Sequence[Key]], list[bool]]) -> None:
        """Take over the open state of others, and drop connections that are not wanted, by their endpoints."""
        for one in (self, *others):
            one._recall()
            one._forget()
        self._reassembler.absorb([other._reassembler for other in others], wanted)
        for other in others:
            self._known_brokers |= other._known_brokers
            self.names.update(other.names)
            self.keys.absorb(other.keys)
        self._memory.recount(self._reassembler)

    # -- merging ----------------------------------------------------------------------------------------------------

    def _take(self, deltas: list[Delta], keyed: list[_Keyed]) -> None:
        """Process the results of connections."""
        summary = self.summary
        for tcp, items in deltas:
            connection = tcp.owner
            assert isinstance(connection, InspectedConnection)
            if self._ports and not connection.forced:
                self._memory.note(connection, tcp)
                continue
            kafka = connection.kafka
            seen, decoded, lost = kafka.bytes_seen, kafka.bytes_decoded, kafka.bytes_lost
            events = kafka.feed(items if connection.tls is None else self._without_tls(connection, items))
            summary.bytes_stream += kafka.bytes_seen - seen + kafka.bytes_lost - lost
            summary.bytes_decoded += kafka.bytes_decoded - decoded
            summary.bytes_lost += kafka.bytes_lost - lost
            if tcp.untold_repeated or tcp.untold_ignored:
                summary.bytes_repeated += tcp.untold_repeated
                summary.bytes_ignored += tcp.untold_ignored
                tcp.untold_repeated = tcp.untold_ignored = 0
            # What the peer sent after a RST may be reported after the end.
            last = next((item for item in reversed(items) if isinstance(item, Closed)), None) if tcp.closed else None
            if kafka.verdict == "undecided" and kafka.bytes_seen and last is not None:
                summary.undecided += 1
            place = connection.place
            keyed.extend((event.order, place, index, connection, event) for index, event in enumerate(events))
            self._memory.note(connection, tcp)
            if last is not None:
                summary.bytes_pending += sum(kafka.pending_of)
                if connection.account is not None and (kafka.bytes_seen or kafka.bytes_lost):
                    keyed.append((last.order, place, len(events), connection, ConnectionEnd(tcp, last)))
        summary.bytes_skipped = summary.bytes_stream - summary.bytes_lost - summary.bytes_decoded

    def _without_tls(self, connection: InspectedConnection, items: list[Item]) -> list[Item]:
        """`items` without those of a connection that is TLS, or whose first bytes are still missing."""
        gate = connection.tls
        assert gate is not None
        clear = gate.feed(items, self.keys, wanted=connection.kafka.verdict != "not-kafka")
        if gate.plain:
            connection.tls = None
        return clear

    def _merge(self, keyed: list[_Keyed]) -> list[Output]:
        out: list[Output] = []
        for entry in self._in_order(keyed):
            if len(entry) > _EVENT:
                self._tell_paired(entry, out)
            else:
                self._tell(entry[3], entry[4], out)
        return out

    def _tell_paired(
        self,
        entry: PairedEntry,
        out: _Sinking,
        number: int | None = None,
        problems: tuple[Problem, ...] = (),
        *,
        ends: bool = True,
    ) -> None:
        """Emit a message whose exchange is whole. Hot.

        `number`: that of the exchange, if it has one; `problems`: reported with the message; `ends`: also emit an
        `Exchange`, if they are wanted.
        """
        connection, paired, index, version = entry[3], entry[4], entry[5], entry[13]
        account, wants, summary = connection.account, self._want_exchanges and ends, self.summary
        capture = self._only_capture or self._capture(entry[11])
        opened: Open | None = None
        if version is not None:
            if number is None:
                number = self._next_exchange()
            message, carry = tell_request(entry, number, capture)
            plan = version.request
        else:
            opened = paired.open[index]
            assert opened is not None
            paired.open[index] = None
            message = tell_response(entry, opened, capture)
            plan = opened[1].response
        if problems:
            message = msgspec.structs.replace(message, problems=(*problems, *message.problems))
        if message.problems:
            summary.problems += len(message.problems)
        out.append(message)
        ahead = paired.ahead
        if ahead is None:
            size = message.size
            # Like `likely_bytes`, without a call for most messages.
            self.slice_bytes += (
                likely_bytes(message.api_key, message.type, size, message.body)
                if plan.has_records
                else size * BODY_RATIO
            )
        elif ahead.memory:
            self.slice_bytes += ahead.memory
            ahead.memory = 0
        if opened is None:
            assert number is not None
            assert version is not None
            paired.open[index] = number, version, message.client_id, carry, message if wants else None
            summary.requests += 1
            if account is not None:
                account.request(message.client_id, len(message.problems))
            return
        summary.responses += 1
        if account is not None:
            account.response(len(message.problems), ends=wants)
        if wants:
            number, _, _, _, request = opened
            latency = entry[14]
            behind, muted = connection.turns.take(request, message, latency, answerable=False)
            software, its_version = (None, None) if account is None else account.software
            out.append(
                Exchange(
                    number,
                    connection.number,
                    "answered",
                    request,
                    message,
                    latency,
                    entry[15],
                    (),
                    connection.id or connection.identify(),
                    entry[6],
                    entry[19],
                    None,
                    software,
                    its_version,
                    behind,
                    muted,
                )
            )

    def _tell(
        self,
        connection: InspectedConnection | None,
        event: Event | Problem | ConnectionEnd,
        out: _Sinking,
        begun: OpenExchange | None = None,
    ) -> None:
        """Report an event; `begun`: the exchange that begins with it, if known. Hot: called once for each event."""
        if connection is None:
            assert isinstance(event, Problem)
            self._problem(event, out)
        elif isinstance(event, MessageEvent):
            self._message(connection, event, out, begun)
        elif isinstance(event, ExchangeEvent):
            self._exchange(connection, event, out)
        elif isinstance(event, ProblemEvent):
            self._problem(self._stream_problem(connection, event), out)
        elif isinstance(event, TokenEvent):
            self._token(connection, event, out)
        elif isinstance(event, VerdictEvent):
            self._verdict(connection, event, out)
        elif isinstance(event, ConnectionEnd):
            out.append(connection.tell(event, self._capture))

    def _next_exchange(self) -> int:
        """The number for a new exchange."""
        self._exchanges += 1
        return self._exchanges

    def _problem(self, problem: Problem, out: _Sinking) -> None:
        self.summary.problems += 1
        out.append(problem)

    def _capture(self, packet: int) -> str | None:
        return self._capture_at(packet >> PACKET_SHIFT)

    def _capture_at(self, index: int) -> str | None:
        return self._captures[index] if index < len(self._captures) else None

    def _message(
        self, connection: InspectedConnection, event: MessageEvent, out: _Sinking, exchange: OpenExchange | None
    ) -> None:
        """Emit a message. Hot: called once for each message."""
        frame, decoded = event.frame, event.read(self._renderer)
        if exchange is None:
            exchange = connection.exchanges.get(event.ordinal)
        if exchange is None:
            exchange = connection.exchanges[event.ordinal] = OpenExchange(self._next_exchange())
        if not (event.is_request or self._want_exchanges):
            del connection.exchanges[event.ordinal]  # its end is not reported
        problems = decoded.problems if not event.problems else (*event.problems, *decoded.problems)
        message = Message(
            "request" if event.is_request else "response",
            frame.size,
            decoded.correlation_id,
            decoded.api_key,
            decoded.api,
            decoded.api_version,
            event.client_id,
            decoded.header,
            decoded.header_tags,
            decoded.body,
            decoded.body_version,
            decoded.raw,
            decoded.raw_redacted,
            decoded.errors,
            problems,
            exchange.number,
            connection.number,
            self._capture(frame.last_seen),
            None if frame.time_ns == NO_TIME else frame.time_ns,
            connection.client,
            connection.broker,
            frame.first_packet & PACKET_NUMBER,
            frame.last_packet & PACKET_NUMBER,
            event.latency_ns,
            event.duration_ns,
        )
        if problems:
            self.summary.problems += len(problems)
        if connection.account is not None:
            connection.account.message(event, len(problems))
        if event.is_request:
            self.summary.requests += 1
            exchange.api = decoded.api
            exchange.api_version = decoded.api_version
            exchange.correlation_id = decoded.correlation_id
            if self._want_exchanges:
                exchange.request, problem = self._memory.keep(exchange, message)
                if problem is not None:
                    self._problem(problem, out)
        else:
            self.summary.responses += 1
            if self._want_exchanges:
                exchange.response = message
        self.slice_bytes += likely_bytes(message.api_key, message.type, message.size, message.body)
        out.append(message)

    def _exchange(self, connection: InspectedConnection, event: ExchangeEvent, out: _Sinking) -> None:
        exchange = connection.exchanges.pop(event.ordinal)
        self._memory.release(exchange)
        account = connection.account
        if account is not None:
            account.exchange(event)
        if self._want_exchanges:
            request, response = exchange.request, exchange.response
            answerable = event.status in _UNANSWERED
            turns = connection.turns.take(request, response, event.latency_ns, answerable=answerable)
            out.append(
                Exchange(
                    exchange.number,
                    connection.number,
                    event.status,
                    request,
                    response,
                    event.latency_ns,
                    event.duration_ns,
                    event.problems,
                    connection.identify(),
                    event.ordinal,
                    event.retransmits,
                    None,
                    *((None, None) if account is None else account.software),
                    *turns,
                )
            )
        for problem in event.problems:
            what = f"{exchange.api or 'request'} v{exchange.api_version} corr {exchange.correlation_id}"
            reported = Problem(
                problem.kind,
                f"#{exchange.number} {what}: {problem.detail}",
                connection=connection.number,
                time_ns=None if event.time_ns == NO_TIME else event.time_ns,
                capture=self._capture(event.packet),
                packet=event.packet & PACKET_NUMBER,
                direction="request",
                exchange=exchange.number,
                connection_id=connection.identify(),
            )
            self._problem(reported, out)

    def _stream_problem(self, connection: InspectedConnection, event: ProblemEvent) -> Problem:
        if connection.account is not None:
            connection.account.problems += 1
        return Problem(
            event.kind,
            event.detail,
            connection=connection.number,
            time_ns=None if event.time_ns == NO_TIME else event.time_ns,
            capture=self._capture(event.packet),
            packet=event.packet & PACKET_NUMBER,
            direction=_direction(event.is_request),
            bytes=event.bytes,
            connection_id=connection.identify(),
        )

    def _token(self, connection: InspectedConnection, event: TokenEvent, out: _Sinking) -> None:
        # Imported on first use: few connections have raw tokens.
        from kafkasniff.kafka.embedded.sasl_messages import describe_message  # noqa: PLC0415

        frame = event.frame
        token = frame.data[frame.start : frame.end]
        direction: Direction = "request" if event.is_request else "response"
        self.summary.sasl_tokens += 1
        if connection.account is not None and event.mechanism is not None:
            connection.account.mechanism = event.mechanism
        out.append(
            SaslToken(
                direction,
                frame.size,
                event.mechanism,
                token if self._show_secrets else None,
                connection.number,
                self._capture(frame.last_seen),
                None if frame.time_ns == NO_TIME else frame.time_ns,
                connection.client,
                connection.broker,
                frame.last_seen & PACKET_NUMBER,
                describe_message(event.mechanism, direction, token) if len(token) == frame.size else None,
            )
        )

    def _note_kafka(self, connection: InspectedConnection, event: VerdictEvent) -> None:
        assert event.client is not None
        connection.assign(event.client)
        if connection.account is not None:
            connection.account.verdict = event
        if self.judged is not None:
            self.judged.add(connection.endpoints)
        self.summary.kafka_connections += 1

    def _verdict(self, connection: InspectedConnection, event: VerdictEvent, out: _Sinking) -> None:
        if event.is_kafka:
            self._note_kafka(connection, event)
            assert event.client is not None
            if len(self._known_brokers) < MAX_ENDPOINTS:
                self._known_brokers.add(connection.endpoints[1 - event.client])
            return
        if connection.account is not None:
            connection.account.verdict = event
        self.summary.not_kafka += 1
        if event.likely or connection.forced or not self._known_brokers.isdisjoint(connection.endpoints):
            ends = " and ".join(str(endpoint(end)) for end in connection.endpoints)
            what = " is not Kafka" if event.kind == "not-kafka" else ""
            problem = Problem(
                event.kind,
                f"the connection between {ends}{what}: {event.detail}",
                connection=connection.number,
                time_ns=None if event.time_ns == NO_TIME else event.time_ns,
                capture=self._capture(event.packet),
                packet=event.packet & PACKET_NUMBER,
                connection_id=connection.identify(),
            )
            self._problem(problem, out)


def _begins(event: Event | Problem | ConnectionEnd) -> bool:
    """Whether an exchange begins with this event."""
    # A response without an API has no visible request.
    return isinstance(event, MessageEvent) and (event.is_request or event.decoded.api_key is None)


_LOSS: Final = Problem("memory-bound", "")
"""The place of the problem that `_take_loss` returns."""

_Sinking = list[Any]
"""Receives outputs: a list of `Output` or of `Shown`."""
_Keyed = Any
"""Order of the packet, place of the connection (-1: none), place within the connection, and the entry: the connection
and an `Event | Problem | ConnectionEnd`, or a `PairedEntry`, which is longer."""
_EVENT: Final = 5
_VERDICT: Final = -1
"""Place of a verdict within its packet: before the message that led to it."""


def _placed(events: Iterable[tuple[int, int, InspectedConnection, Event]]) -> list[_Keyed]:
    """Events of connections that all have numbers."""
    return [(order, owner.place, within, owner, event) for order, within, owner, event in events]


def _place(tcp: TcpConnection) -> int:
    assert isinstance(tcp.owner, InspectedConnection)
    return tcp.owner.place


def _direction(is_request: bool | None) -> Direction | None:
    if is_request is None:
        return None
    return "request" if is_request else "response"
