"""What connections yield: frames, events, and how much of the messages is decoded if a run cannot keep up.

`Detail` is one object for all connections of a run.

At full detail it changes nothing. At lower levels, skipped parts are reported with the message, or counted if the
message itself is skipped. Pairing of responses with requests is right at any level, since headers are always decoded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.messages.message import Decoded, read_rest
from kafkasniff.kafka.schema.context import DecodeOptions, RecordsRenderer, RenderingOptions
from kafkasniff.model import Problem, Status

if TYPE_CHECKING:
    from kafkasniff.kafka.messages.rendered import Renderer


MAX_FRAME: Final = 100 << 20
"""Default bound on a frame's size: `socket.request.max.bytes` of the broker, whose default this is."""


class Frame(NamedTuple):
    """One frame. The message is `data[start:end]`."""

    order: int
    """Order of the packet that completed it (if incomplete: at which it was known to stay so)."""
    direction: int
    data: bytes
    start: int
    end: int
    size: int
    """The length prefix; larger than `end - start` if bytes are missing at the end."""
    first_packet: int
    """Lowest of the packets that delivered its bytes (`model.PACKET_SHIFT`)."""
    last_packet: int
    first_time: int
    """time_ns of the packet that delivered its first byte."""
    time_ns: int
    """time_ns of the packet that completed it; if incomplete: of the packet after the gap, if it ends there, else of
    the last one with bytes of it."""
    last_seen: int
    """The packet that made it complete, which differs from `last_packet` if segments were held back."""


NS_IN_S: Final = 1_000_000_000
CLOSED_BEFORE: Final = "the broker had closed it"
"""Problem text for a request that was sent after the end of its connection."""


def span_text(nanoseconds: int) -> str:
    """A duration as text."""
    if nanoseconds < NS_IN_S:
        return f"{nanoseconds / 1_000_000:.3g} ms"
    return f"{nanoseconds / NS_IN_S:,.1f} s"


class Level(IntEnum):
    """What is skipped; each level includes the previous ones."""

    ALL = 0
    """Nothing is skipped."""
    NO_RECORDS = 1
    NO_BODIES = 2
    """Bodies, except for those that other messages need."""
    NO_MESSAGES = 3
    """New exchanges are paired and counted, but not reported."""


class LeftOut(msgspec.Struct):
    """Numbers of messages with skipped parts."""

    records: int = 0
    bodies: int = 0
    requests: int = 0
    """Requests that were not reported at all, like their responses."""
    responses: int = 0


_WHOLE: Final = ("full", "columns")
"""Values of the option `records` that decode all of them."""
_NO_RECORDS: Final = (Problem("records-skipped", "its records were not decoded: kafkasniff could not keep up"),)
_NO_BODY: Final = (Problem("body-skipped", "its body was not decoded: kafkasniff could not keep up"),)


class Detail:
    """Mutable: the current level, and what was skipped so far."""

    __slots__ = ("_decodes", "_full", "_renderer", "decode", "hides", "left_out", "level")

    def __init__(self, full: DecodeOptions, renderer: RecordsRenderer | None = None) -> None:
        self._full = full
        self._renderer = renderer
        self.level = Level.ALL
        self._decodes: dict[Level, DecodeOptions] = {}
        """Decode options of each level so far: users compare them by identity."""
        self.decode = self._options(Level.ALL)
        """The current decode options."""
        self.hides = False
        """Exchanges that begin now are not reported."""
        self.left_out = LeftOut()

    def _options(self, level: Level) -> DecodeOptions:
        decode_options = self._decodes.get(level)
        if decode_options is not None:
            return decode_options
        full = self._full
        if level:
            records = "metadata" if full.records in _WHOLE else full.records
            # Only pairing needs the bodies of messages that are not reported.
            records = "skip" if level is Level.NO_MESSAGES else records
            decode_options = msgspec.structs.replace(full, records=records, bodies=level is Level.NO_RECORDS)
        elif self._renderer is None:
            decode_options = full
        else:
            decode_options = RenderingOptions(**msgspec.structs.asdict(full), renderer=self._renderer)
        self._decodes[level] = decode_options
        return decode_options

    @property
    def full(self) -> DecodeOptions:
        """Decode options at full detail."""
        return self._full

    @property
    def has_records(self) -> bool:
        """Whether there are records to skip: without, the first level changes nothing."""
        return self._full.records in _WHOLE

    def limit(self, decompressed: int, records: int) -> None:
        """Set the bounds, from the next message on."""
        self._full = msgspec.structs.replace(self._full, max_decompressed=decompressed, max_records=records)
        self._decodes.clear()
        self.set(self.level)

    def set(self, level: Level) -> None:
        """Set the level, from the next message on."""
        self.level = level
        self.hides = level is Level.NO_MESSAGES
        self.decode = self._options(level)

    def omissions(self, api_key: int, *, is_request: bool, has_body: bool) -> tuple[Problem, ...]:
        """The problems for a message that was decoded below full detail; counts it."""
        problems = self._lack(api_key, is_request=is_request, has_body=has_body)
        self.count(problems)
        return problems

    def lack(self, api_key: int, *, is_request: bool) -> tuple[Problem, ...]:
        """The problems for messages of a kind that no later message depends on, at the current level."""
        if not self.level:
            return ()
        return self._lack(api_key, is_request=is_request, has_body=False)

    def count(self, problems: tuple[Problem, ...], messages: int = 1) -> None:
        """Count messages with these problems."""
        if problems is _NO_BODY:
            self.left_out.bodies += messages
        elif problems:
            self.left_out.records += messages

    def _lack(self, api_key: int, *, is_request: bool, has_body: bool) -> tuple[Problem, ...]:
        if not (has_body or self.decode.bodies):
            return _NO_BODY
        has_records = self._full.records in _WHOLE and _has_records(api_key, is_request=is_request)
        return _NO_RECORDS if has_records else ()


def _has_records(api_key: int, *, is_request: bool) -> bool:
    """Whether such messages have `records` fields."""
    found = api(api_key)
    if found is None:
        return False
    return (found.definition.request if is_request else found.definition.response).has_records


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
