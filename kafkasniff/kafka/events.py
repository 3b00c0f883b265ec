"""What a connection yields, in the order in which it became known, and the log that collects it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.kafka.framing import Frame
from kafkasniff.kafka.message import Decoded, read_rest
from kafkasniff.model import Problem, Status
from kafkasniff.streams import NO_TIME, TcpProblem

if TYPE_CHECKING:
    from kafkasniff.kafka.rendered import Renderer

__all__ = ["Event", "EventLog", "ExchangeEvent", "MessageEvent", "ProblemEvent", "TokenEvent", "VerdictEvent"]

MAX_HELD: Final = 32
"""Problems of one kind that an undecided connection keeps; the TCP side itself tells no more than 20, but for gaps."""


class MessageEvent(msgspec.Struct):
    """A request or a response."""

    order: int
    ordinal: int
    """Ordinal of the exchange within the connection."""
    frame: Frame
    is_request: bool
    decoded: Decoded
    """The header alone where the body can wait (`read`)."""
    client_id: str | bytes | None
    problems: tuple[Problem, ...] = ()
    """What is to be told besides the decoder's problems."""
    latency_ns: int | None = None
    duration_ns: int | None = None

    def read(self, renderer: Renderer | None = None) -> Decoded:
        """The message with its body, which is read anew each time where it was left."""
        if renderer is not None and self.decoded.rest is not None:
            rendered = renderer.rest(self.decoded, is_request=self.is_request)
            if rendered is not None:
                return rendered
        return read_rest(self.decoded)


class ExchangeEvent(msgspec.Struct):
    """An exchange is over."""

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
    """Which stream; None where the roles are not known or the problem is of both."""
    bytes: int | None = None


class VerdictEvent(msgspec.Struct):
    """It is clear now whether the connection is Kafka."""

    order: int
    is_kafka: bool
    client: int | None
    """Direction of the client's stream."""
    detail: str
    time_ns: int
    packet: int
    kind: str = "not-kafka"
    """What it is told as, where it is not Kafka."""
    likely: bool = False
    """It may well be Kafka that could not be read."""


Event = MessageEvent | ExchangeEvent | TokenEvent | ProblemEvent | VerdictEvent


class EventLog:
    """The events of one connection, and the packet at which it is: what is told now is told at that packet."""

    __slots__ = ("client", "events", "held", "order", "packet", "time_ns")

    def __init__(self, client: int | None) -> None:
        self.client = client
        """Direction of the client's stream; None while the roles are not known."""
        self.events: list[Event] = []
        self.held: list[TcpProblem] = []
        """Problems of an undecided connection: told if it is Kafka."""
        self.order = 0
        self.time_ns = NO_TIME
        self.packet = 0

    def at(self, order: int, time_ns: int, packet: int) -> None:
        """Go on to this packet; the order never goes back."""
        self.order = max(self.order, order)
        self.time_ns = time_ns
        self.packet = packet

    def take(self) -> list[Event]:
        """The events so far; the log is empty then."""
        events, self.events = self.events, []
        return events

    def problem(self, kind: str, detail: str, direction: int, count: int | None = None) -> None:
        """Tell a problem of the stream of `direction`."""
        is_request = None if self.client is None else direction == self.client
        self.events.append(ProblemEvent(self.order, kind, detail, self.time_ns, self.packet, is_request, count))

    def tell(self, item: TcpProblem) -> None:
        """Tell a problem at the packet that it has."""
        self.at(item.order, item.time_ns, item.packet)
        self.problem(item.kind, item.detail, item.direction, item.bytes)

    def hold(self, item: TcpProblem) -> None:
        """Keep a problem until the verdict is there."""
        same = sum(other.kind == item.kind for other in self.held)
        if same == MAX_HELD - 1:
            item = msgspec.structs.replace(item, detail=f"{item.detail} (others like this one are not told)")
        if same < MAX_HELD:
            self.held.append(item)

    def tell_held(self) -> None:
        """Tell what was kept, and be where the log was before."""
        here = self.time_ns, self.packet
        held, self.held = self.held, []
        for item in held:
            self.tell(item)
        self.at(0, *here)

    def verdict(self, is_kafka: bool, detail: str, kind: str = "not-kafka", *, likely: bool = False) -> None:
        """Tell the verdict."""
        place = self.time_ns, self.packet
        self.events.append(VerdictEvent(self.order, is_kafka, self.client, detail, *place, kind, likely))
