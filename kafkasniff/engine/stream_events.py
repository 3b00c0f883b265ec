"""Rows of the stream engine to the events of their connections."""

from __future__ import annotations

import ctypes
import heapq
import struct
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkasniff.engine.connection_stats import Asked, EarlyProblem, FollowedConnection, FollowedEnd
from kafkasniff.engine.inspector_state import InspectorState
from kafkasniff.engine.message_table import EVENTS, Keyed, Messages
from kafkasniff.engine.roles import client_id_text
from kafkasniff.engine.stream_messages import StreamMessages
from kafkasniff.engine.stream_questions import (
    LEAST,
    NO_BYTES,
    TCP_KINDS,
    TOO_SHORT,
    UNREADABLE,
    StreamQuestions,
    tcp_problem,
)
from kafkasniff.kafka.connection.events import (
    CLOSED_BEFORE,
    MAX_HELD,
    Event,
    ExchangeEvent,
    Frame,
    MessageEvent,
    ProblemEvent,
    TokenEvent,
    VerdictEvent,
    span_text,
)
from kafkasniff.kafka.messages.message import Decoded, decode_request, decode_response
from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.messages.plausibility import AUTHENTICATION, MAX_SIZE, name_answer, refusal, too_large
from kafkasniff.model import NO_TIME, PACKET_NUMBER, Problem, Status
from kafkasniff.native import feed
from kafkasniff.native.feed import ARENA, ENDED, MESSAGE, REQUEST, VERSIONS
from kafkasniff.native.streams import EngineRows, RowKind
from kafkasniff.packets import index_of

SILENT, ORPHAN, OUT_OF_ORDER, ANSWERS_SILENT, BEFORE_VERDICT, LAST, UNREPORTED, LATE = (1 << bit for bit in range(8))
_STATUSES: Final[tuple[Status, ...]] = ("answered", "no_response", "unanswered", "lost", "open", "orphan")
_NO_RESPONSE: Final = _STATUSES.index("no_response")
ROWS_AT_ONCE: Final = 4096
"""Rows that are Python objects at the same time."""
_PART: Final = 2**-12
"""Distance between the events of a row: a verdict reports many problems, and another row is EVENTS away."""


class StreamEvents:
    """The connections of one engine, and what happens on them. `max_frame`: the largest frame accepted."""

    def __init__(
        self, state: InspectorState, questions: StreamQuestions, requests: StreamMessages, *, max_frame: int
    ) -> None:
        self._state = state
        self._requests = requests
        self._questions = questions
        self._max_frame = max_frame
        self.connections: dict[int, FollowedConnection] = {}
        """By the engine's number."""
        self.by_ends: dict[bytes, FollowedConnection] = {}
        """The latest connections, by the index of their endpoints."""
        self.owners: list[FollowedConnection | None] = []
        """By slot."""
        self.ended: Callable[[FollowedConnection, int], None] | None = None
        """Receives each connection at its end, and how many of its bytes are messages or tokens, if set."""
        self._freed: list[int] = []
        self._buffer = b""
        self._from, self._until = 0, 0
        """Addresses of the batch's bytes."""
        self._taken: EngineRows
        self._row: dict[str, Any] = {}
        self._handlers = {
            RowKind.REQUEST: self._request,
            RowKind.RESPONSE: self._response,
            RowKind.TOKEN: self._token,
            RowKind.VERDICT: self._verdict,
            RowKind.ENDED: self._ended,
            RowKind.TCP: self._tcp_problem,
            RowKind.RESYNC: self._resync,
            RowKind.IMPOSSIBLE: self._impossible,
            RowKind.UNREADABLE: self._unreadable,
            RowKind.TEXT: self._text,
            RowKind.CUT: self._cut,
            RowKind.UNEXPECTED: self._unexpected,
            RowKind.SASL: self._sasl,
            RowKind.CLIENT: self._client,
        }

    def begin(self, taken: EngineRows, buffer: bytes) -> None:
        """Register the connections of a call of the engine; `buffer`: the batch's bytes."""
        self._taken, self._buffer = taken, buffer
        address = ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value or 0
        self._from, self._until = address, address + len(buffer)
        for slot in self._freed:
            self.owners[slot] = None
        self._freed.clear()
        rows = taken.rows
        for index in np.flatnonzero(rows["kind"] == RowKind.OPENED).tolist():
            self._open(int(rows["connection"][index]), taken.opened[int(rows["a"][index])])
        # Filters and lines need the roles before the event of a verdict is reported.
        for index in np.flatnonzero((rows["kind"] == RowKind.VERDICT) & (rows["a"] == 1)).tolist():
            self.connections[int(rows["connection"][index])].assign(int(rows["direction"][index]))

    def messages(self) -> Messages:
        """The regular messages of the call."""
        taken = self._taken
        return Messages(taken.messages, self._buffer, taken.arena, self.owners.copy(), taken.asked, len(taken.messages))

    @property
    def freed(self) -> list[int]:
        """Slots of connections that are over since the last call."""
        return self._freed

    def events(self, messages: Messages | None, is_event: NDArray[np.bool_] | None) -> list[Keyed]:
        """The events of all connections, with their sort keys.

        `is_event`: which of these messages are events; None: all of them.
        """
        keyed: list[Keyed] = []
        for row in self._in_order(messages, is_event):
            kind = row["kind"]
            connection = self.connections[row["connection"]]
            if kind == RowKind.FORGOTTEN:
                self._forget(connection)
                continue
            handler = self._close if kind == RowKind.CLOSED else self._handlers[kind]
            within: float = row["step"] * EVENTS
            for event in handler(connection, row):
                keyed.append((event.order, connection.place, within, connection, event))
                within += _PART
        self._questions.texts.clear()
        return keyed

    def _in_order(self, messages: Messages | None, is_event: NDArray[np.bool_] | None) -> Iterator[dict[str, Any]]:
        """The rows, and the messages that are events, in order. Each is read when it is requested."""
        rows = self._taken.rows
        rows = rows.compress(rows["kind"] != RowKind.OPENED)
        names = rows.dtype.names or ()
        others: Iterator[dict[str, Any]] = (
            dict(zip(names, row, strict=True))
            for start in range(0, len(rows), ROWS_AT_ONCE)
            for row in rows[start : start + ROWS_AT_ONCE].tolist()
        )
        if messages is None or not len(messages.rows):
            return others
        chosen = np.arange(len(messages.rows)) if is_event is None else np.flatnonzero(is_event)
        mine = (self._regular(row, messages.buffer, messages.arena) for row in messages.rows.take(chosen))
        return heapq.merge(others, mine, key=itemgetter("step"))

    def _regular(self, row: np.void, buffer: bytes, arena: bytes) -> dict[str, Any]:
        """A regular message in the form of a row."""
        found = dict(zip(MESSAGE.names or (), row.item(), strict=True))
        flags = found["flags"]
        owner = self.owners[found["connection"]]
        assert owner is not None
        is_request = bool(flags & REQUEST)
        found["key"], found["version"] = divmod(found["code"], VERSIONS)
        found["connection"], found["have"] = owner.index, found["size"]
        found["data"] = arena if flags & ARENA else buffer
        found["kind"] = RowKind.ENDED if flags & ENDED else RowKind.REQUEST if is_request else RowKind.RESPONSE
        found["flags"] = SILENT if flags & feed.SILENT else 0
        found["a"], found["b"] = _NO_RESPONSE, 0
        return found

    def _open(self, index: int, opened: Any) -> None:
        state = self._state
        state.connections += 1
        state.summary.connections += 1
        made = FollowedConnection(state.connections, index, opened)
        if not state.want_connections:
            made.account = None
        self._place(made)

    def _place(self, connection: FollowedConnection) -> None:
        self.connections[connection.index] = connection
        self.owners += [None] * (connection.slot + 1 - len(self.owners))
        self.owners[connection.slot] = connection
        self.by_ends[index_of(connection.endpoints)] = connection

    # -- connections whose state is stored -----------------------------------------------------------------------------

    def saved(self) -> list[FollowedConnection]:
        """All connections, with what the engine knows of them."""
        for connection in self.connections.values():
            connection.stream = self._questions.engine.save(connection.slot)
            connection.gate = self._questions.items.gates.get(connection.index)
        return list(self.connections.values())

    def load(self, saved: Iterable[FollowedConnection]) -> None:
        """Continue these connections. Raises ValueError if a state is damaged."""
        for connection in saved:
            connection.index, connection.slot = self._questions.engine.load(connection.stream)
            connection.stream = b""
            if connection.gate is not None:
                self._questions.items.gates[connection.index] = connection.gate
            try:
                self._place(connection)
            except struct.error as error:
                raise ValueError("the endpoints of a connection are damaged") from error

    def drop(self, connection: FollowedConnection) -> None:
        """Forget a connection without a trace."""
        self._questions.engine.drop(connection.slot)
        self._forget(connection)

    def _forget(self, connection: FollowedConnection) -> None:
        del self.connections[connection.index]
        key = index_of(connection.endpoints)
        if self.by_ends.get(key) is connection:
            del self.by_ends[key]
        self._questions.forget(connection.index)
        # Messages of this call still need it.
        self._freed.append(connection.slot)

    def _asked(self, connection: FollowedConnection, ordinal: int) -> Iterator[Event]:
        """Find a request that was kept; its event, if it was not reported yet."""
        if ordinal in connection.asked:
            return
        asked = self._requests.take_asked(connection, ordinal)
        if isinstance(asked, Asked):
            connection.asked[ordinal] = asked
        elif asked is not None:
            row, messages = asked
            yield from self._request(connection, self._regular(row, messages.buffer, messages.arena))

    # -- messages -----------------------------------------------------------------------------------------------------

    def _frame(self, connection: FollowedConnection, row: dict[str, Any]) -> Frame:
        have = row["have"]
        data: bytes | None = row.get("data")
        if data is not None:
            start, is_request = row["start"], row["kind"] == RowKind.REQUEST
            assert connection.side is not None
            row["direction"] = connection.side if is_request else 1 - connection.side
        elif have and self._from <= row["at"] and row["at"] + have <= self._until:
            data, start = self._buffer, row["at"] - self._from
        else:
            data, start = ctypes.string_at(row["at"], have) if have else b"", 0
        return Frame(
            row["order"],
            row["direction"],
            data,
            start,
            start + have,
            row["size"],
            row["first_packet"],
            row["last_packet"],
            row["first_time"],
            row["time"],
            row["packet"],
        )

    def _request(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        frame, detail = self._frame(connection, row), self._state.detail
        cut = frame.end - frame.start != frame.size
        decoded = decode_request(
            frame.data, frame.start, frame.end, detail.decode, memory=connection.message_memory, cut=cut, later=True
        )
        key, version, ordinal, client_id = row["key"], row["version"], row["ordinal"], decoded.client_id
        assert decoded.correlation_id is not None
        if row["b"]:
            client_id = client_id_text(ctypes.string_at(row["a"], row["b"] - 1))
        hidden = detail.hides and not request_plan(key, version).needed
        if hidden:
            detail.left_out.requests += 1
        else:
            problems = _incomplete(frame)
            if detail.level:
                problems += detail.omissions(key, is_request=True, has_body=decoded.body is not None)
            late = bool(row["flags"] & LATE)
            yield MessageEvent(row["order"], ordinal, frame, True, decoded, client_id, problems, late=late)
        connection.asked[ordinal] = Asked(
            key, version, decoded.correlation_id, client_id, frame.time_ns, decoded.carry, hidden
        )
        if row["flags"] & SILENT and connection.opening is not None and connection.opening.heard:
            # The client continued to produce: a broker that closes now refuses a batch, not the client.
            connection.opening = None

    def _response(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        frame, detail, order, ordinal = self._frame(connection, row), self._state.detail, row["order"], row["ordinal"]
        if row["flags"] & ORPHAN:
            connection.opening = None
            decoded = Decoded(correlation_id=row["correlation"])
            problem = Problem("orphan-response", "no request with this correlation id was seen on this connection")
            yield MessageEvent(order, ordinal, frame, False, decoded, None, (problem, *_incomplete(frame)))
            yield from self._end(row, "orphan")
            return
        yield from self._asked(connection, ordinal)
        asked = connection.asked.pop(ordinal)
        if asked.hidden:
            detail.left_out.responses += 1
            connection.opening = None
            return
        cut = frame.end - frame.start != frame.size
        decoded = decode_response(
            frame.data,
            frame.start,
            frame.end,
            asked.api_key,
            asked.api_version,
            detail.decode,
            memory=connection.message_memory,
            request=asked.carry,
            cut=cut,
            later=True,
        )
        latency, duration = _known(row["latency"]), _known(row["duration"])
        problems = self._response_problems(asked, decoded, frame, row, latency)
        if connection.opening is not None and not connection.opening.answered(asked, decoded.body, frame.time_ns):
            connection.opening = None
        if detail.level:
            problems += detail.omissions(asked.api_key, is_request=False, has_body=decoded.body is not None)
        yield MessageEvent(order, ordinal, frame, False, decoded, asked.client_id, problems, latency, duration)
        yield from self._end(row, "answered", latency, duration)

    @staticmethod
    def _response_problems(
        asked: Asked, decoded: Decoded, frame: Frame, row: dict[str, Any], latency: int | None
    ) -> tuple[Problem, ...]:
        problems: tuple[Problem, ...] = ()
        if row["flags"] & ANSWERS_SILENT:
            problems = (Problem("response-to-acks-0", "the broker answered a Produce request with acks 0"),)
        elif row["flags"] & OUT_OF_ORDER:
            problems = (Problem("response-out-of-order", "a response came before that of an earlier request"),)
        if latency is not None and latency < 0:
            detail = "the response begins before its request ends: the capture's order or clocks are off"
            problems = (*problems, Problem("latency-negative", detail))
        problems += _incomplete(frame)
        if asked.api_key in AUTHENTICATION and (refused := refusal(asked.api_key, decoded.body)) is not None:
            problems += (refused,)
        return problems

    def _token(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        is_request = row["direction"] == connection.side
        frame = self._frame(connection, row)
        if connection.opening is not None:
            connection.opening.token(is_request=is_request, time_ns=frame.time_ns)
        yield TokenEvent(row["order"], frame, is_request, connection.mechanism)

    @staticmethod
    def _sasl(connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        name = client_id_text(ctypes.string_at(row["at"], row["size"]) if row["size"] else b"")
        connection.mechanism = "GSSAPI" if row["a"] else name if isinstance(name, str) and name else None
        return iter(())

    @staticmethod
    def _client(connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        if connection.account is not None:
            connection.account.client_ids.append(client_id_text(ctypes.string_at(row["at"], row["size"])))
        return iter(())

    @staticmethod
    def _unexpected(connection: FollowedConnection, _: dict[str, Any]) -> Iterator[Event]:
        connection.opening = None
        return iter(())

    # -- ends of exchanges --------------------------------------------------------------------------------------------

    def _end(
        self,
        row: dict[str, Any],
        status: Status,
        latency: int | None = None,
        duration: int | None = None,
        problems: tuple[Problem, ...] = (),
    ) -> Iterator[Event]:
        if self._state.want_exchanges or status not in ("answered", "orphan"):
            place = row["time"], row["packet"], latency, duration, problems, row["retransmits"]
            waited = _known(row["behind"]), _known(row["muted"])
            yield ExchangeEvent(row["order"], row["ordinal"], status, *place, *waited)

    def _ended(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        status = _STATUSES[row["a"]]
        yield from self._asked(connection, row["ordinal"])
        asked = connection.asked.pop(row["ordinal"], None)
        problems: tuple[Problem, ...] = ()
        if status == "unanswered" and not row["flags"] & UNREPORTED:
            detail = "the connection ended without a response to this request"
            if row["b"]:
                detail += f": {CLOSED_BEFORE} {span_text(row['b'])} before the request"
            problems = (Problem("request-unanswered", detail),)
        elif status == "lost" and not row["flags"] & UNREPORTED:
            problems = (Problem("response-lost", "the response was in bytes that are not in the capture"),)
        if asked is None or not asked.hidden:
            yield from self._end(row, status, problems=problems)
            return
        for problem in problems:
            what = f"API {asked.api_key} v{asked.api_version} corr {asked.correlation_id}, not shown"
            detail = f"{what}: {problem.detail}"
            yield ProblemEvent(row["order"], problem.kind, detail, row["time"], row["packet"], True)

    # -- the verdict --------------------------------------------------------------------------------------------------

    def _verdict(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        order, time_ns, packet = row["order"], row["time"], row["packet"]
        held, connection.early_problems = connection.early_problems, []
        if not row["a"]:
            kind, detail, likely = self._questions.texts[row["b"]]
            connection.verdict = "not-kafka"
            yield VerdictEvent(order, False, connection.side, detail, time_ns, packet, kind, likely)
            return
        connection.verdict = "kafka"
        yield VerdictEvent(order, True, connection.side, "", time_ns, packet)
        for early_problem in held:
            order = max(order, early_problem.order)
            is_request = early_problem.direction == connection.side
            yield ProblemEvent(
                order,
                early_problem.kind,
                early_problem.detail,
                early_problem.time_ns,
                early_problem.packet,
                is_request,
                early_problem.bytes,
            )

    # -- problems -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _problem(
        connection: FollowedConnection, row: dict[str, Any], kind: str, detail: str, count: int | None = None
    ) -> Iterator[Event]:
        direction = row["direction"]
        if row["flags"] & BEFORE_VERDICT:
            held = connection.early_problems
            same = sum(other.kind == kind for other in held)
            if same == MAX_HELD - 1:
                detail += " (further ones are not reported)"
            if same < MAX_HELD:
                held.append(EarlyProblem(row["order"], direction, kind, detail, row["time"], row["packet"], count))
            return
        is_request = None if connection.side is None else direction == connection.side
        yield ProblemEvent(row["order"], kind, detail, row["time"], row["packet"], is_request, count)

    def _tcp_problem(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        is_client = row["direction"] == connection.side
        detail, count = tcp_problem(row["a"], row["b"], last=bool(row["flags"] & LAST), is_client=is_client)
        return self._problem(connection, row, TCP_KINDS[row["a"]], detail, count)

    def _text(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        kind, detail, _ = self._questions.texts[row["a"]]
        return self._problem(connection, row, kind, detail, None if row["b"] == NO_BYTES else row["b"])

    def _resync(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        detail = f"{row['a']} bytes were skipped before the first recognized frame"
        return self._problem(connection, row, "stream-resync", detail, row["a"])

    def _impossible(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        """A length prefix that cannot be one, and what it may be instead."""
        size = row["a"]
        opening, connection.opening = connection.opening, None
        is_answer = row["direction"] != connection.side and opening is not None and not opening.heard
        answer = name_answer(size) if is_answer and row["b"] else None
        if answer is not None:
            return self._problem(connection, row, "answer-not-kafka", answer)
        announced = ""
        if self._max_frame < size < MAX_SIZE:
            announced = f": {size:,} bytes, and at most {self._max_frame:,} are read"
        detail = f"a frame of impossible size{announced}; its stream is searched for the next frame"
        return self._problem(connection, row, "frame-size", detail)

    def _unreadable(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        connection.opening = None
        kind = "request" if row["direction"] == connection.side else "response"
        what = UNREADABLE[row["a"]].format(kind if row["a"] == TOO_SHORT else row["have"])
        detail = f"a frame of {row['size']} bytes, {what}"
        if row["b"]:
            frames = "another frame" if row["b"] == 1 else f"{row['b']:,} more frames in a row"
            packet = row["first_packet"] & PACKET_NUMBER
            detail = f"{frames} of less than {LEAST[kind]} bytes, {what}, from packet {packet} on"
        return self._problem(connection, row, "frame-unreadable", detail, row["size"])

    # -- the end ------------------------------------------------------------------------------------------------------

    def _cut(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Event]:
        what = "of an incomplete frame" if row["b"] else "in which no frame was found"
        detail = f"the stream ended with {row['a']} bytes {what}"
        return self._problem(connection, row, "stream-cut", detail, row["a"])

    def _close(self, connection: FollowedConnection, row: dict[str, Any]) -> Iterator[Any]:
        ending = self._taken.endings[row["a"]].copy()
        rejected = self._rejected_by_broker(connection, ending) if connection.verdict == "kafka" else None
        if rejected is not None:
            place = row["time"], row["packet"], False
            yield ProblemEvent(row["order"], "connection-rejected", rejected, *place)
        connection.opening = None
        connection.asked.clear()
        connection.early_problems.clear()
        connection.ended = True
        if self.ended is None and connection.account is None:
            return
        decoded = int(ending["decoded"].sum())
        if self.ended is not None:
            self.ended(connection, decoded)
        seen, lost = decoded + int(ending["skipped"].sum()), int(ending["lost"].sum())
        if not (seen or lost) or connection.account is None:
            return
        gate = self._questions.items.gates.get(row["connection"])
        encrypted = gate is not None and not gate.plain
        client, last = connection.client_at_end(ending), int(ending["last_time"])
        handshake = None if gate is None else gate.seen(client, last)
        yield FollowedEnd(row["order"], ending, handshake, encrypted)

    @staticmethod
    def _rejected_by_broker(connection: FollowedConnection, ending: Any) -> str | None:
        """Why the broker closed the connection, as far as the messages reveal it, else None."""
        client, opening, waiting = int(ending["client"]), connection.opening, int(ending["waiting"])
        if ending["reason"] > 1 or not ending["whole"]:
            return None
        if ending["by"] != 1 - client:
            return None if opening is None or waiting else opening.why_left()
        announced = int(ending["announced"])
        if announced >= 0 and (large := too_large(announced, opened=opening is None)) is not None:
            return large
        if opening is None or not ending["in_step"] or ending["asking"] or ending["answering"]:
            return None
        first = None
        if waiting:
            key, version = int(ending["asked_key"]), int(ending["asked_version"])
            first = Asked(key, version, 0, None, int(ending["asked_time"]), None, False)
        return opening.why_left() or opening.why_closed(first, int(ending["by_time"]))


def _known(nanoseconds: int) -> int | None:
    return None if nanoseconds == NO_TIME else nanoseconds


def _incomplete(frame: Frame) -> tuple[Problem, ...]:
    """The problem of a frame with missing bytes at its end."""
    have = frame.end - frame.start
    if have == frame.size:
        return ()
    return (Problem("frame-incomplete", f"{have} of {frame.size} bytes of the message are in the capture", have),)
