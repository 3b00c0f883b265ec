"""Emitting: ordered events to the inspector's outputs, with numbers, and counted in the summary and accounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.engine.connection_stats import MessageOwner, OpenExchange
from kafkasniff.engine.event_problems import exchange_problem, stream_problem, verdict_problem
from kafkasniff.engine.followed import FollowedConnection, FollowedEnd
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.memory_budget import MemoryBudget
from kafkasniff.engine.ordered_events import EVENT, Collected, Keyed, Output, Outputs
from kafkasniff.engine.paired import Open, PairedEntry
from kafkasniff.engine.paired_messages import decoded_message, request_message, response_message
from kafkasniff.kafka.apis.weight import BODY_RATIO, likely_bytes
from kafkasniff.kafka.connection.events import (
    Event,
    ExchangeEvent,
    MessageEvent,
    ProblemEvent,
    TokenEvent,
    VerdictEvent,
)
from kafkasniff.kafka.connection.waits import delays_without
from kafkasniff.model import Direction, Exchange, Problem, SaslToken
from kafkasniff.tcp.plan import end_index
from kafkasniff.tcp.segments import NO_TIME, PACKET_NUMBER

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.rendered import Renderer

__all__ = ["Emitter"]

SLICE: Final = 64
"""Largest number of events that are emitted at a time."""
SLICE_BYTES: Final = 8 << 20
"""Approximate bytes of memory of the messages that are emitted at a time; later ones are not yet decoded."""
_UNANSWERED: Final = ("unanswered", "open")
"""Statuses of exchanges whose response is missing, as far as the capture shows."""


class Emitter:
    """Emits the events of all connections; `renderer`: renders bodies that only a JSON sink needs.

    `frames`: keep the bytes of messages.
    """

    def __init__(
        self, state: InspectorState, memory: MemoryBudget, renderer: Renderer | None, *, frames: bool = False
    ) -> None:
        self._state = state
        self._memory = memory
        self._renderer = renderer
        self.frames = frames
        self.slice_bytes = 0
        """Approximate bytes of memory of the messages of the last slice."""

    def all(self, collected: Collected) -> list[Output]:
        """The outputs of all events."""
        out: list[Output] = []
        for entry in collected.in_order():
            if len(entry) > EVENT:
                self.emit_paired(entry, out)
            else:
                self.emit(entry[3], entry[4], out)
        return out

    def slices(self, collected: Collected) -> Iterator[list[Output]]:
        """`all`, a few outputs at a time."""
        entries = collected.in_order()
        for entry in entries:
            out: list[Output] = []
            self.slice_bytes = 0
            self._fill(chain((entry,), islice(entries, SLICE - 1)), out)
            yield out
            del out

    def _fill(self, entries: Iterable[Keyed], out: Outputs) -> None:
        """Emit entries until those of this slice are large. Hot: called once for each message."""
        for entry in entries:
            if len(entry) > EVENT:
                self.emit_paired(entry, out)
            else:
                self.emit(entry[3], entry[4], out)
            if self.slice_bytes > SLICE_BYTES:
                return

    def is_full(self, out: Outputs) -> bool:
        """Whether this slice is as large as they may be."""
        return len(out) >= SLICE or self.slice_bytes > SLICE_BYTES

    def emit(
        self,
        connection: MessageOwner | None,
        event: Event | Problem | FollowedEnd,
        out: Outputs,
        begun: OpenExchange | None = None,
    ) -> None:
        """Emit an event; `begun`: the exchange that begins with it, if known. Hot: called once for each event."""
        if connection is None:
            assert isinstance(event, Problem)
            self.emit_problem(event, out)
        elif isinstance(event, MessageEvent):
            self.emit_message(connection, event, out, begun)
        elif isinstance(event, ExchangeEvent):
            self._emit_exchange(connection, event, out)
        elif isinstance(event, ProblemEvent):
            if connection.account is not None:
                connection.account.problems += 1
            self.emit_problem(stream_problem(connection, event, self._state.capture_of(event.packet)), out)
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

    def emit_paired(
        self,
        entry: PairedEntry,
        out: Outputs,
        problems: tuple[Problem, ...] = (),
        *,
        ends: bool = True,
    ) -> None:
        """Emit a message whose exchange is whole. Hot.

        `problems`: reported with the message; `ends`: also emit an `Exchange`, if they are wanted.
        """
        connection, paired, index, version = entry[3], entry[4], entry[5], entry[13]
        state = self._state
        account, wants, summary = connection.account, state.want_exchanges and ends, state.summary
        capture = state.only_capture or state.capture_of(entry[11])
        opened: Open | None = None
        if version is not None:
            number = entry[20] or state.next_exchange()
            message, carry = request_message(entry, number, capture)
            plan = version.request
        else:
            opened = paired.open[index]
            assert opened is not None
            paired.open[index] = None
            message = response_message(entry, opened, capture)
            plan = opened[1].response
        if problems:
            message = msgspec.structs.replace(message, problems=(*problems, *message.problems))
        if message.problems:
            summary.problems += len(message.problems)
            if account is not None:
                account.problems += len(message.problems)
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
            assert version is not None
            paired.open[index] = number, version, message.client_id, carry, message if wants else None
            summary.requests += 1
            return
        summary.responses += 1
        if wants:
            number, _, _, _, request = opened
            software, its_version = (None, None) if account is None else account.software
            out.append(
                Exchange(
                    number,
                    connection.number,
                    "answered",
                    request,
                    message,
                    entry[14],
                    entry[15],
                    (),
                    connection.id or connection.identify(),
                    entry[6],
                    entry[19],
                    None,
                    software,
                    its_version,
                    entry[21],
                    entry[22],
                )
            )

    def emit_message(
        self, connection: MessageOwner, event: MessageEvent, out: Outputs, exchange: OpenExchange | None
    ) -> None:
        """Emit a message; `exchange`: begins with it, if known. Hot: called once for each message."""
        state = self._state
        frame, decoded = event.frame, event.read(self._renderer)
        if exchange is None:
            exchange = connection.exchanges.get(event.ordinal)
        if exchange is None:
            exchange = connection.exchanges[event.ordinal] = OpenExchange(state.next_exchange())
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
            request, behind, muted = exchange.request, event.behind_ns, event.muted_ns
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
            self.emit_problem(exchange_problem(connection, exchange, event, problem, capture), out)

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
            self.emit_problem(verdict_problem(connection, event, state.capture_of(event.packet)), out)
