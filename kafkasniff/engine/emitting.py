"""Emitting: ordered events to the inspector's outputs, with numbers, and counted in the summary and accounts.

Where messages have lines, the results of a part of the packets (a window) are collected first. The kernel writes the
lines where no message has to be decoded; everything else is emitted between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import FollowedConnection, FollowedEnd, MessageOwner, OpenExchange, endpoint
from kafkasniff.engine.inspector_state import InspectorState, MemoryBudget
from kafkasniff.engine.lines import LineRun
from kafkasniff.engine.lines_ahead import LineOutput, Window
from kafkasniff.engine.message_table import LOSS, Address, Collected, Output, Outputs, PairColumns, Shown, stops_of
from kafkasniff.engine.stream_feeding import StreamFeeder
from kafkasniff.engine.stream_messages import HeldExchange, MessageRow, RowMessages, decoded_message
from kafkasniff.kafka.connection.events import (
    Event,
    ExchangeEvent,
    MessageEvent,
    ProblemEvent,
    TokenEvent,
    VerdictEvent,
)
from kafkasniff.kafka.connection.waits import delays_without
from kafkasniff.kafka.messages.message_plan import likely_bytes
from kafkasniff.model import NO_TIME, PACKET_NUMBER, Direction, Exchange, Lines, Message, Problem, SaslToken
from kafkasniff.native.feed import MESSAGE, NONE
from kafkasniff.packets import PacketBatch, end_index

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.rendered import BodyMaker, Renderer


SLICE: Final = 64
"""Largest number of events that are emitted at a time."""
SLICE_BYTES: Final = 8 << 20
"""Approximate bytes of memory of the messages that are emitted at a time; later ones are not yet decoded."""
_UNANSWERED: Final = ("unanswered", "open")
"""Statuses of exchanges whose response is missing, as far as the capture shows."""


class Emitter:
    """Emits the events of all connections; `renderer`: renders bodies that only a JSON sink needs.

    `maker`: decodes bodies, a few at a time; `frames`: keep the bytes of messages.
    """

    def __init__(
        self,
        state: InspectorState,
        memory: MemoryBudget,
        renderer: Renderer | None,
        maker: BodyMaker | None,
        *,
        frames: bool = False,
    ) -> None:
        self._state = state
        self._memory = memory
        self._renderer = renderer
        self._maker = maker
        self.frames = frames
        self.slice_bytes = 0
        """Approximate bytes of memory of the messages of the last slice."""
        self._is_cut = False
        """The slice ends here."""

    def all(self, collected: Collected) -> list[Output]:
        """The outputs of all events."""
        out: list[Output] = []
        for _ in self._each(collected, None, out):
            pass
        return out

    def slices(self, collected: Collected, chosen: NDArray[np.bool_] | None = None) -> Iterator[list[Output]]:
        """`all`, a few outputs at a time; `chosen`: which of the messages are emitted."""
        out: list[Output] = []
        self.slice_bytes = count = 0
        for _ in self._each(collected, chosen, out):
            count += 1
            if count == SLICE or self.slice_bytes > SLICE_BYTES or self._is_cut:
                yield taken(out)
                self.slice_bytes = count = 0
        if count:
            yield out

    def _each(self, collected: Collected, chosen: NDArray[np.bool_] | None, out: Outputs) -> Iterator[None]:
        """Emit events, and messages of whole exchanges, in order. Hot: yields after each."""
        at, stops = 0, collected.stops
        entries: Iterator[MessageRow] = iter(())
        messages = collected.messages
        if messages is not None:
            whole = messages.rows["pair"] != NONE
            index = np.flatnonzero(whole if chosen is None else whole & chosen)
            order = messages.rows["order"][index]
            if (order[1:] < order[:-1]).any():
                # Requests of earlier batches are last.
                index = index[np.lexsort((messages.rows["step"][index], order))]
            stops = stops_of(messages.rows.take(index), messages.owners, collected.keyed)
            objects = RowMessages(messages, self._state.detail.decode, self._maker, index)
            entries = iter(objects)
        for stop, event in zip(stops, collected.keyed, strict=True):
            for entry in islice(entries, stop - at):
                self.emit_row(objects, entry, out)
                yield
            at = stop
            if isinstance(event[4], tuple):
                # What precedes a name is written without it.
                self._is_cut = True
                yield
                self._is_cut = False
            self.emit(event[3], event[4], out)
            yield
        for entry in entries:
            self.emit_row(objects, entry, out)
            yield

    def count_columns(self, pair_columns: PairColumns) -> None:
        """Count exchanges that are columns."""
        summary = self._state.summary
        summary.requests += len(pair_columns.asked)
        summary.responses += len(pair_columns.asked)
        for index in np.flatnonzero(pair_columns.problems).tolist():
            count, owner = (
                int(pair_columns.problems[index]),
                pair_columns.owners[pair_columns.asked["connection"][index]],
            )
            summary.problems += count
            if owner is not None and owner.account is not None:
                owner.account.problems += count

    def is_full(self, out: Outputs) -> bool:
        """Whether this slice is as large as they may be."""
        return len(out) >= SLICE or self.slice_bytes > SLICE_BYTES

    def emit(
        self, connection: MessageOwner | None, event: Event | Problem | FollowedEnd | Address, out: Outputs
    ) -> None:
        """Emit an event, or learn a name. Hot: called once for each event."""
        if connection is None:
            if isinstance(event, tuple):
                self._state.add_name(*event)
            else:
                assert isinstance(event, Problem)
                self.emit_problem(event, out)
        elif isinstance(event, MessageEvent):
            self.emit_message(connection, event, out)
        elif isinstance(event, ExchangeEvent):
            self._emit_exchange(connection, event, out)
        elif isinstance(event, ProblemEvent):
            if connection.account is not None:
                connection.account.problems += 1
            self.emit_problem(_stream_problem(connection, event, self._state.capture_of(event.packet)), out)
        elif isinstance(event, TokenEvent):
            self._emit_token(connection, event, out)
        elif isinstance(event, VerdictEvent):
            self._emit_verdict(connection, event, out)
        elif isinstance(event, FollowedEnd):
            assert isinstance(connection, FollowedConnection)
            out.append(connection.at_end(event, self._state.capture_of))

    def emit_problem(self, problem: Problem, out: Outputs) -> None:
        """Emit a problem."""
        self._state.summary.problems += 1
        out.append(problem)

    def emit_row(
        self,
        objects: RowMessages,
        row: MessageRow,
        out: Outputs,
        problems: tuple[Problem, ...] = (),
        *,
        ends: bool = True,
    ) -> None:
        """Emit the message of a row. Hot.

        `problems`: reported with the message; `ends`: also emit an `Exchange`, if they are wanted.
        """
        state = self._state
        connection = objects.messages.owners[row[2]]
        assert connection is not None
        account, wants, summary = connection.account, state.want_exchanges and ends, state.summary
        capture = state.only_capture or state.capture_of(row[8])
        if wants:
            objects.recall(row[1], state.capture_of)
        message, asked, weight = objects.message(row, capture, problems, keeps=wants)
        if message.problems:
            summary.problems += len(message.problems)
            if account is not None:
                account.problems += len(message.problems)
        out.append(message)
        self.slice_bytes += weight
        if asked is None:
            summary.requests += 1
            return
        summary.responses += 1
        if wants:
            ordinal, retransmits, number, behind, muted = row[3], *row[16:20]
            software = (None, None) if account is None else account.software
            out.append(
                Exchange(
                    number,
                    connection.number,
                    "answered",
                    asked.message,
                    message,
                    message.latency_ns,
                    message.duration_ns,
                    (),
                    connection.id or connection.identify(),
                    ordinal,
                    retransmits,
                    None,
                    *software,
                    behind,
                    muted,
                )
            )

    def emit_message(self, connection: MessageOwner, event: MessageEvent, out: Outputs) -> None:
        """Emit a message. Hot: called once for each message that is an event."""
        state = self._state
        frame, decoded = event.frame, event.read(self._renderer)
        exchange = connection.exchanges[event.ordinal]
        if not (event.is_request or state.want_exchanges):
            del connection.exchanges[event.ordinal]  # its end is not reported
        problems = decoded.problems if not event.problems else (*event.problems, *decoded.problems)
        place = (
            exchange.number,
            connection.number,
            state.capture_of(frame.last_seen),
            None if frame.time_ns == NO_TIME else frame.time_ns,
            connection.client,
            connection.broker,
            frame.first_packet & PACKET_NUMBER,
            frame.last_packet & PACKET_NUMBER,
            event.latency_ns,
            event.duration_ns,
        )
        kind: Direction = "request" if event.is_request else "response"
        message = decoded_message(kind, frame.size, decoded, event.client_id, problems, place)
        if self.frames:
            message = msgspec.structs.replace(message, frame=frame.data[frame.start : frame.end])
        if problems:
            state.summary.problems += len(problems)
        if connection.account is not None:
            connection.account.message(event, len(problems))
        if event.is_request:
            state.summary.requests += 1
            exchange.api = decoded.api
            exchange.api_version = decoded.api_version
            exchange.correlation_id = decoded.correlation_id
            if state.want_exchanges:
                exchange.request, problem = self._memory.keep(exchange, message)
                if problem is not None:
                    self.emit_problem(problem, out)
        else:
            state.summary.responses += 1
            if state.want_exchanges:
                exchange.response = message
        self.slice_bytes += likely_bytes(message.api_key, message.type, message.size, message.body)
        out.append(message)

    def _emit_exchange(self, connection: MessageOwner, event: ExchangeEvent, out: Outputs) -> None:
        exchange = connection.exchanges.pop(event.ordinal)
        self._memory.release(exchange)
        account = connection.account
        if account is not None:
            account.exchange(event)
        if self._state.want_exchanges:
            request = self._held_request(exchange) if isinstance(exchange, HeldExchange) else exchange.request
            behind, muted = event.behind_ns, event.muted_ns
            if event.status in _UNANSWERED:
                behind, muted, connection.open_until = delays_without(request, connection.open_until, muted)
            elif request is None or exchange.response is None:
                behind = muted = None
            out.append(
                Exchange(
                    exchange.number,
                    connection.number,
                    event.status,
                    request,
                    exchange.response,
                    event.latency_ns,
                    event.duration_ns,
                    event.problems,
                    connection.identify(),
                    event.ordinal,
                    event.retransmits,
                    None,
                    *((None, None) if account is None else account.software),
                    behind,
                    muted,
                )
            )
        for problem in event.problems:
            capture = self._state.capture_of(event.packet)
            self.emit_problem(_exchange_problem(connection, exchange, event, problem, capture), out)

    def _held_request(self, exchange: HeldExchange) -> Message:
        """A request that has its line already, for the filter."""
        alone = exchange.messages._replace(rows=np.array([exchange.row], MESSAGE), here=1)
        objects = RowMessages(alone, self._state.detail.decode)
        entry = objects.row(0)
        return objects.message(entry, self._state.capture_of(entry[8]), (), keeps=False)[0]

    def _emit_token(self, connection: MessageOwner, event: TokenEvent, out: Outputs) -> None:
        # Imported on first use: few connections have raw tokens.
        from kafkasniff.kafka.embedded.sasl_messages import describe_message  # noqa: PLC0415

        frame = event.frame
        token = frame.data[frame.start : frame.end]
        direction: Direction = "request" if event.is_request else "response"
        self._state.summary.sasl_tokens += 1
        if connection.account is not None and event.mechanism is not None:
            connection.account.mechanism = event.mechanism
        out.append(
            SaslToken(
                direction,
                frame.size,
                event.mechanism,
                token if self._state.show_secrets else None,
                connection.number,
                self._state.capture_of(frame.last_seen),
                None if frame.time_ns == NO_TIME else frame.time_ns,
                connection.client,
                connection.broker,
                frame.last_seen & PACKET_NUMBER,
                describe_message(event.mechanism, direction, token) if len(token) == frame.size else None,
            )
        )

    def _emit_verdict(self, connection: MessageOwner, event: VerdictEvent, out: Outputs) -> None:
        state = self._state
        if event.is_kafka:
            state.note_kafka(connection, event)
            assert event.client is not None
            state.note_broker(connection.endpoints[1 - event.client])
            return
        if connection.account is not None:
            connection.account.verdict = event
        state.summary.not_kafka += 1
        if (
            event.likely
            or connection.forced
            or not state.known_brokers.isdisjoint(map(end_index, connection.endpoints))
        ):
            self.emit_problem(_verdict_problem(connection, event, state.capture_of(event.packet)), out)


def taken(out: list[Any]) -> list[Any]:
    """The contents of a list, which is empty afterwards."""
    found = out[:]
    out.clear()
    return found


def _stream_problem(connection: MessageOwner, event: ProblemEvent, capture: str | None) -> Problem:
    """A problem of a stream."""
    is_request = event.is_request
    direction = None if is_request is None else "request" if is_request else "response"
    return _problem(connection, event.kind, event.detail, event, capture, direction=direction, bytes=event.bytes)


def _exchange_problem(
    connection: MessageOwner, exchange: OpenExchange, event: ExchangeEvent, problem: Problem, capture: str | None
) -> Problem:
    """A problem of an exchange that is over."""
    what = f"{exchange.api or 'request'} v{exchange.api_version} corr {exchange.correlation_id}"
    detail = f"#{exchange.number} {what}: {problem.detail}"
    number = exchange.number
    return _problem(connection, problem.kind, detail, event, capture, direction="request", exchange=number)


def _verdict_problem(connection: MessageOwner, event: VerdictEvent, capture: str | None) -> Problem:
    """A connection that is expected to be Kafka is not."""
    ends = " and ".join(str(endpoint(end)) for end in connection.endpoints)
    what = " is not Kafka" if event.kind == "not-kafka" else ""
    return _problem(connection, event.kind, f"the connection between {ends}{what}: {event.detail}", event, capture)


def _problem(
    connection: MessageOwner,
    kind: Any,
    detail: str,
    event: ProblemEvent | ExchangeEvent | VerdictEvent,
    capture: str | None,
    **more: Any,
) -> Problem:
    """A problem at the packet of an event."""
    return Problem(
        kind,
        detail,
        connection=connection.number,
        time_ns=None if event.time_ns == NO_TIME else event.time_ns,
        capture=capture,
        packet=event.packet & PACKET_NUMBER,
        connection_id=connection.identify(),
        client=connection.client,
        broker=connection.broker,
        **more,
    )


# -- windows -----------------------------------------------------------------------------------------------------------


class LineWindows:
    """Feeds packets and emits lines, a window at a time."""

    def __init__(
        self,
        state: InspectorState,
        memory: MemoryBudget,
        feeder: StreamFeeder,
        emitter: Emitter,
        lines: LineOutput,
    ) -> None:
        self._state = state
        self._memory = memory
        self._feeder = feeder
        self._emitter = emitter
        self._lines = lines
        self._selected: Callable[[int], None] | None = None

    def report_selected(self, selected: Callable[[int], None]) -> None:
        """Call `selected` with the number of each connection with lines that a filter selects."""
        self._selected = selected

    def feed(self, batch: PacketBatch) -> Iterator[Sequence[Shown]]:
        """Process the next packets. With threads that read ahead, the results are yielded some batches later."""
        ahead, selects = self._lines.ahead, self._lines.selects
        for part in self._feeder.parts(batch):
            if selects is not None and self._state.detail.level:
                # Filters also need what is omitted: at a lower level of detail, Python reads all their messages.
                yield from self._emitter.slices(self._feeder.collect(part))
                continue
            if ahead is None:
                yield from self._emit(self._window(part))
                continue
            self._feeder.follow(part, ahead.following)
            if (window := ahead.due()) is not None:
                yield from self._emit(window)
            # Requests kept for filters count towards the budget from when they are emitted.
            if selects is not None or self._memory.is_tight:
                yield from self.finish()
            ahead.add(self._window(part))

    def finish(self) -> Iterator[Sequence[Shown]]:
        """Emit all pending windows."""
        ahead = self._lines.ahead
        while ahead is not None and (window := ahead.next()) is not None:
            yield from self._emit(window)

    def _window(self, batch: PacketBatch) -> Window:
        """The results of the next packets."""
        collected = self._feeder.collect(batch, lines=True)
        # What these packets lose is reported after the next ones, as without lines.
        lost = self._memory.take_loss()
        window = self._lines.window(collected, self._state.detail)
        window.lost = lost
        if window.run is not None and self._lines.selects is not None:
            selected = window.run.select(self._state.capture_at)
            if self._selected is not None:
                for connection in selected:
                    self._selected(connection)
        return window

    def _emit(self, window: Window) -> Iterator[Sequence[Shown]]:
        """Emit the results in a window; earlier windows were emitted."""
        emitter, follower = self._emitter, self._lines.follower
        sessions = window.collected.sessions
        if sessions is not None and follower is not None:
            follower.show(sessions.by_exchange)
        emitter.slice_bytes = 0
        out: list[Shown] = []
        ranges = iter(window.ranges)
        first, last = next(ranges, (0, 0))
        if last > first:
            yield from self._lines_of(window, first, last, out)
        for _, _, _, connection, event in window.collected.keyed:
            first, last = next(ranges, (0, 0))
            if isinstance(event, tuple) and out:
                # What precedes a name is written without it.
                yield taken(out)
            if event is not LOSS:
                emitter.emit(connection, event, out)
            elif window.lost is not None:
                emitter.emit_problem(Problem("memory-bound", window.lost), out)
            if emitter.is_full(out):
                yield out
                out = []
                emitter.slice_bytes = 0
            if last > first:
                yield from self._lines_of(window, first, last, out)
        yield out
        if follower is not None:
            # Numbers of exchanges are unique in one inspector only.
            follower.show({})

    def _lines_of(self, window: Window, first: int, last: int, out: list[Shown]) -> Iterator[list[Shown]]:
        """Lines of messages, after the contents of `out`, which are consumed before the lines are written."""
        emitter, summary, writer = self._emitter, self._state.summary, self._lines.writer
        assert writer is not None
        run = window.run
        assert run is not None
        began = run.requests(first, last)
        others = 0
        out += run.decided(first, last)
        if out:
            yield taken(out)
        at = first
        selects = self._lines.selects
        pieces: Iterator[Lines | int | list[int]] = (
            window.take(first, last, writer) if selects is None else run.write_selected(first, last, writer)
        )
        for piece in pieces:
            if isinstance(piece, Lines):
                summary.problems += run.lacking(at, at + piece.count) + piece.problems
                at += piece.count
                if piece.count or piece.held:
                    yield [Lines(piece.data, piece.count, run.time_of(at - 1)) if piece.time_ns is None else piece]
            elif isinstance(piece, list):
                others += len(piece)
                began -= sum(map(run.is_request, piece))
                for index in piece:
                    emitter.emit_row(run.objects, run.objects.row(index), out)
                    if emitter.is_full(out):
                        yield taken(out)
                        emitter.slice_bytes = 0
                yield taken(out)
            else:
                counted = piece < 0
                index = -1 - piece if counted else piece
                at = index + 1
                # Natively written lines update the summary themselves.
                if counted:
                    summary.requests -= 1
                else:
                    others += 1
                    began -= run.is_request(index)
                yield from self._emit_decided(window, run, index, out)
        emitter.slice_bytes = 0
        summary.requests += began
        summary.responses += last - first - others - began

    def _emit_decided(self, window: Window, run: LineRun, index: int, out: list[Shown]) -> Iterator[list[Shown]]:
        """Emit a message that has no line; whether a filter selects it is decided."""
        number, answer = run.number_of(index), run.answer(index)
        pins = self._lines.selects if answer is not None and number not in window.collected.pinned else None
        if pins is not None:
            assert answer is not None
            pins.pin(number, answer)
        self._emitter.emit_row(run.objects, run.objects.row(index), out, run.problems(index), ends=answer is None)
        yield taken(out)
        if pins is not None:
            pins.unpin(number)
