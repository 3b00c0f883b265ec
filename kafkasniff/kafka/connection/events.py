"""Events of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from kafkasniff.kafka.connection.framing import Frame
from kafkasniff.kafka.messages.message import Decoded, read_rest
from kafkasniff.model import Problem, Status

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.rendered import Renderer

__all__ = ["MAX_HELD", "Event", "ExchangeEvent", "MessageEvent", "ProblemEvent", "TokenEvent", "VerdictEvent"]

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
    late: bool = False
    """An exchange of the connection was over before this request."""

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
    behind_ns: int | None = None
    """As in `Exchange`, if there is a response."""
    muted_ns: int | None = None
    """The same. Without a response: time until which the client was to send nothing."""


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
