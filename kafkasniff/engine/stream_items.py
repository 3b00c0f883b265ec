"""Items of connections that may be TLS: the engine passes them here, and gets those of the clear streams."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, Protocol

from kafkasniff.engine.followed import REASONS
from kafkasniff.engine.stream_problems import NO_BYTES, TCP_KINDS, tcp_problem
from kafkasniff.native.streams import StreamEngine
from kafkasniff.tls.gate import TlsGate
from kafkasniff.tls.items import (
    Closed,
    Gap,
    Hole,
    Item,
    Late,
    Rejected,
    Retransmit,
    Segment,
    Started,
    TcpProblem,
    Wrapped,
)
from kafkasniff.tls.keylog import KeyLog

SEGMENT, STARTED, GAP, LATE, HOLE, RETRANSMIT, CLOSED, PROBLEM, WRAPPED, REJECTED, TEXT = range(11)
"""Kinds of items (`stream_types.Item`)."""
SNAPPED, UNHEARD, INEXACT = 1, 2, 4
NOT_KAFKA: Final = 2


class Says(Protocol):
    """Gives a text a number."""

    def __call__(self, kind: str, detail: str, *, likely: bool = False) -> int:
        """The number of a text."""


class StreamItems:
    """The TLS of one engine's connections. `keys`: returns the secrets; `say`: gives a text a number."""

    def __init__(self, engine: StreamEngine, keys: Callable[[], KeyLog], say: Says) -> None:
        self._engine = engine
        self._keys = keys
        self._say = say
        self.gates: dict[int, TlsGate] = {}
        """By connection."""
        self.tap: Callable[[Any], None] | None = None
        """Called with each item before that, if set."""

    def forget(self, connection: int) -> None:
        """A connection is over."""
        self.gates.pop(connection, None)

    @property
    def memory(self) -> int:
        """Approximate bytes of memory."""
        return sum(gate.memory for gate in self.gates.values())

    def take(self, question: Any) -> int:
        """Take an item of a connection, and pass on what it makes clear. Returns 1 if the connection is not TLS."""
        if self.tap is not None:
            self.tap(question)
        gate = self.gates.get(question.connection)
        if gate is None:
            aligned = [bool(question.aligned[0]), bool(question.aligned[1])]
            gate = self.gates[question.connection] = TlsGate.after(aligned)
        wanted = question.verdict != NOT_KAFKA
        for item in gate.feed(self._item(question), self._keys(), wanted=wanted):
            self._pass(item)
        return int(gate.plain)

    def _item(self, question: Any) -> Item:
        direction, order, packet, time_ns = question.direction, question.order, question.packet, question.time
        kind = question.a
        if kind == SEGMENT:
            data = ctypes.string_at(question.data, question.size)
            return Segment(order, direction, data, packet, time_ns, question.released)
        if kind == STARTED:
            return Started(order, direction, client=bool(question.b))
        if kind == GAP:
            flags = question.c
            snapped, unheard = bool(flags & SNAPPED), bool(flags & UNHEARD)
            return Gap(order, direction, question.b, packet, time_ns, snapped, question.released, unheard=unheard)
        if kind == LATE:
            return Late(order, direction, ctypes.string_at(question.data, question.size), packet, time_ns)
        if kind == HOLE:
            return Hole(order, direction, bool(question.b))
        if kind == RETRANSMIT:
            return Retransmit(order, direction)
        if kind == PROBLEM:
            number = question.c
            detail, count = tcp_problem(number >> 1, question.b, last=bool(number & 1), is_client=False)
            return TcpProblem(order, direction, TCP_KINDS[number >> 1], detail, packet, time_ns, count)
        assert kind == CLOSED
        by = None if question.c < 0 else question.c
        return Closed(order, REASONS[question.b], packet, time_ns, by=by, by_ns=question.released)

    def _pass(self, item: Item) -> None:
        """Pass an item of the clear streams on."""
        if isinstance(item, Segment):
            place = item.order, item.packet, item.time_ns, item.released
            self._call(SEGMENT, item.direction, *place, data=item.data)
        elif isinstance(item, Started):
            self._call(STARTED, item.direction, item.order, size=int(item.client))
        elif isinstance(item, Gap):
            flags = SNAPPED * item.snapped | UNHEARD * item.unheard | INEXACT * (not item.exact)
            place = item.order, item.packet, item.time_ns, item.resumed_ns
            self._call(GAP, item.direction, *place, size=item.size, flags=flags)
        elif isinstance(item, Late):
            self._call(LATE, item.direction, item.order, item.packet, item.time_ns, data=item.data)
        elif isinstance(item, Hole):
            self._call(HOLE, item.direction, item.order, size=int(item.open))
        elif isinstance(item, Retransmit):
            self._call(RETRANSMIT, item.direction, item.order)
        elif isinstance(item, Wrapped):
            self._call(WRAPPED, item.direction, size=item.size)
        elif isinstance(item, Rejected):
            text = self._say(item.kind, item.detail, likely=item.likely)
            self._call(REJECTED, item.direction, item.order, item.packet, item.time_ns, flags=text)
        elif isinstance(item, TcpProblem):
            text, count = self._say(item.kind, item.detail), NO_BYTES if item.bytes is None else item.bytes
            self._call(TEXT, item.direction, item.order, item.packet, item.time_ns, size=count, flags=text)
        else:
            self._call(CLOSED, 0, item.order, item.packet, item.time_ns)

    def _call(
        self,
        kind: int,
        direction: int,
        *place: int,
        size: int = 0,
        flags: int = 0,
        data: bytes = b"",
    ) -> None:
        """Pass an item on; `place`: order, packet, its time, and when the bytes became contiguous."""
        item = self._engine.ask()
        item.a, item.b, item.c, item.direction = kind, size, flags, direction
        item.order, item.packet, item.time, item.released = (*place, 0, 0, 0, 0)[:4]
        item.data, item.size = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, len(data)
        self._engine.pass_item(item)
