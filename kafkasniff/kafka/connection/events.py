"""Events of a connection, in the order in which they became known, and the log that collects them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.kafka.connection.framing import Frame
from kafkasniff.kafka.messages.message import Decoded, read_rest
from kafkasniff.model import Problem, Status
from kafkasniff.tcp.segments import NO_TIME, TcpProblem

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.rendered import Renderer

__all__ = ["Event", "EventLog", "ExchangeEvent", "MessageEvent", "ProblemEvent", "TokenEvent", "VerdictEvent"]

MAX_HELD: Final = 32
"""Problems per kind kept of an undecided connection; the TCP side itself reports at most 20, except for gaps."""


class MessageEvent(msgspec.Struct):
    """A request or a response."""

    order: int
    ordinal: int
    """Ordinal of the exchange within the connection."""
    frame: Frame
    is_request: bool
    decoded: Decoded
    """The header alone if the body can wait (`read`)."""
    client_id: str | bytes | None
    problems: tuple[Problem, ...] = ()
    """Problems in addition to the decoder's."""
    latency_ns: int | None = None
    duration_ns: int | None = None

    def read(self, renderer: Renderer | None = None) -> Decoded:
        """The message with its body, which is decoded on each call if it was left."""
        if renderer is not None and self.decoded.rest is not None:
            rendered = renderer.rest(self.decoded, is_request=self.is_request)
            if rendered is not None:
                return rendered
        return read_rest(self.decoded)


class ExchangeEvent(msgspec.Struct):
    """The end of an exchange."""

    order: int
    ordinal: int
    status: Status
    time_ns: int
    packet: int
    latency_ns: int | None = None
    duration_ns: int | None = None
    problems: tuple[Problem, ...] = ()
    retransmits: int = 0


class TokenEvent(msgspec.Struct):
    """A raw SASL token."""

    order: int
    frame: Frame
    is_request: bool
    mechanism: str | None


class ProblemEvent(msgspec.Struct):
    """A problem of a stream."""

    order: int
    kind: str
    detail: str
    time_ns: int
    packet: int
    is_request: bool | None
    """The stream; None if the roles are unknown or the problem concerns both."""
    bytes: int | None = None


class VerdictEvent(msgspec.Struct):
    """The decision whether the connection is Kafka."""

    order: int
    is_kafka: bool
    client: int | None
    """Direction of the client's stream."""
    detail: str
    time_ns: int
    packet: int
    kind: str = "not-kafka"
    """The kind of problem to report if it is not Kafka."""
    likely: bool = False
    """It may well be Kafka that could not be decoded."""


Event = MessageEvent | ExchangeEvent | TokenEvent | ProblemEvent | VerdictEvent


class EventLog:
    """The events of one connection, and the current packet: new events belong to that packet."""

    __slots__ = ("client", "events", "held", "order", "packet", "time_ns")

    def __init__(self, client: int | None) -> None:
        self.client = client
        """Direction of the client's stream; None while the roles are unknown."""
        self.events: list[Event] = []
        self.held: list[TcpProblem] = []
        """Problems of an undecided connection, reported if it turns out to be Kafka."""
        self.order = 0
        self.time_ns = NO_TIME
        self.packet = 0

    def at(self, order: int, time_ns: int, packet: int) -> None:
        """Advance to this packet; the order never decreases."""
        self.order = max(self.order, order)
        self.time_ns = time_ns
        self.packet = packet

    def take(self) -> list[Event]:
        """Return the events so far and clear the log."""
        events, self.events = self.events, []
        return events

    def problem(self, kind: str, detail: str, direction: int, count: int | None = None) -> None:
        """Report a problem of the stream of `direction`."""
        is_request = None if self.client is None else direction == self.client
        self.events.append(ProblemEvent(self.order, kind, detail, self.time_ns, self.packet, is_request, count))

    def report(self, item: TcpProblem) -> None:
        """Report a problem at its own packet."""
        self.at(item.order, item.time_ns, item.packet)
        self.problem(item.kind, item.detail, item.direction, item.bytes)

    def hold(self, item: TcpProblem) -> None:
        """Keep a problem until the verdict."""
        same = sum(other.kind == item.kind for other in self.held)
        if same == MAX_HELD - 1:
            item = msgspec.structs.replace(item, detail=f"{item.detail} (further ones are not reported)")
        if same < MAX_HELD:
            self.held.append(item)

    def report_held(self) -> None:
        """Report the kept problems, and return to the current packet."""
        here = self.time_ns, self.packet
        held, self.held = self.held, []
        for item in held:
            self.report(item)
        self.at(0, *here)

    def verdict(self, is_kafka: bool, detail: str, kind: str = "not-kafka", *, likely: bool = False) -> None:
        """Report the verdict."""
        place = self.time_ns, self.packet
        self.events.append(VerdictEvent(self.order, is_kafka, self.client, detail, *place, kind, likely))
