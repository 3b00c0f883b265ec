"""The options, the bounds and the output of a decoder besides the body.

The native kernel handles only clean messages: at anything else its decoders raise `Odd`, and the walker, which handles
everything, decodes the message again (`kafkasniff.kafka.schema.schema.Schema.read`).

A `LargeBody` is a `model.Body` like any other. The rendered forms replace bodies, and records in bodies, that only a
sink of JSON lines reads. No event that leaves the run has them.
"""

from __future__ import annotations

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from kafkasniff.kafka.schema.codes import error_name
from kafkasniff.model import Body, ErrorCode, Problem
from kafkasniff.native.library import Hiding


class LargeBody(dict[str, Any]):
    """A body that takes much memory (`LARGE_BODY`), so sinks render it in pieces; otherwise an ordinary dict."""

    __slots__ = ()


LARGE_BODY: Final = 4 << 20
"""Bytes of a message, including decompressed ones, from which on its body is a `LargeBody`."""


class BodyWithErrors(NamedTuple):
    """A decoded body with error codes."""

    body: Body
    errors: tuple[ErrorCode, ...]


class RenderedBody(msgspec.Struct, frozen=True, gc=False):
    """Replaces a body in a run that only writes JSON lines, if nothing else needs messages of its kind.

    Only an `Inspector` with a renderer yields such bodies, and only a sink of the same run gets them.
    """

    json: bytes
    """The body as in the JSON lines."""
    errors: tuple[Any, ...] = ()
    """Its error codes that are not zero, as `ErrorCode`."""


class RenderedRecords(msgspec.Struct, frozen=True, gc=False):
    """Replaces a `records` field in such a run: only its JSON is needed."""

    json: bytes
    truncated: int
    """Its `truncated_bytes`."""
    decode: Callable[[], Body]
    """Creates the field's value as in any other run, for code that needs it after all."""


MAX_GROUPS: Final = 64
"""Groups of a connection whose protocol is remembered; the least recently used one is evicted first."""


class GroupProtocol(msgspec.Struct, frozen=True):
    """The protocol of the members of a classic group."""

    type: str
    """`consumer`, `connect` …"""
    name: str | None
    """The one agreed on by the members, for consumers the assignor (`range` …); None while that is open."""


class ConnectionMemory:
    """Mutable, one per connection, bounded. Messages are decoded in the order in which they are reported."""

    __slots__ = ("_groups", "sasl_mechanism")

    def __init__(self) -> None:
        self._groups: OrderedDict[str | bytes, GroupProtocol] | None = None
        self.sasl_mechanism: str | None = None
        """The mechanism of the last SaslHandshake that was not refused."""

    def remember_group(self, group: str | bytes, protocol: GroupProtocol) -> None:
        """A member of this connection joins the group, or has joined it."""
        if self._groups is None:
            self._groups = OrderedDict()
        self._groups[group] = protocol
        self._groups.move_to_end(group)
        if len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)

    def group_protocol(self, group: str | bytes) -> GroupProtocol | None:
        """The protocol with which a member of this connection last joined the group."""
        return None if self._groups is None else self._groups.get(group)


MAX_DECOMPRESSED: Final = 256 << 20
"""Bytes that the record batches of one message may decompress to: Kafka's own limit (message.max.bytes) is lower.
Reduced with a memory budget below 1 GiB (`inspector_state.message_limits`)."""

MAX_RECORDS: Final = 4_000_000
"""Records, or headers of them, of one message: an empty record takes 7 bytes on the wire and some 400 as a dict. A
response of 50 MiB (fetch.max.bytes) with records of 50 bytes, compressed to a quarter, has as many. Reduced with a
memory budget below 4 GiB (`inspector_state.message_limits`)."""

MAX_PROBLEMS: Final = 100
"""Problems kept per message, so that hostile bytes cannot make a message's problems outgrow the message."""


class RecordsRenderer(Protocol):
    """Makes JSON of `records` fields (`rendered.Renderer`)."""

    wants: int
    """How the kernel writes such fields: bits of `native.library`."""
    hiding: Hiding
    """How payload in them is shown."""

    def records(self, data: bytes, start: int, end: int, context: DecodeContext) -> RenderedRecords | None:
        """The field `data[start:end]`; None if it has to be decoded."""


class RecordsReader(Protocol):
    """Reads `records` fields for the decoders of schemas (module `records`, whose control records have schemas)."""

    def decode_records(self, data: bytes, start: int, end: int, context: DecodeContext) -> Any:
        """The field `data[start:end]`."""

    def decode_unaligned(self, data: bytes, start: int, end: int, context: DecodeContext) -> Any:
        """The same for a slice of a log that may start within a batch."""

    def held_batch(self, batch: dict[str, Any], wire: bytes, offset: int) -> dict[str, Any]:
        """A batch whose records are decoded later, from its bytes and its offset in the message."""

    def rendered_records(  # noqa: PLR0917
        self, json: bytes, truncated: int, data: bytes, start: int, end: int, options: RenderingOptions
    ) -> RenderedRecords:
        """The field `data[start:end]`, of which the JSON was made."""


class DecodeOptions(msgspec.Struct, frozen=True):
    """How bodies are decoded; the same for all messages of a run."""

    records: Literal["full", "columns", "metadata", "batches", "skip"] = "full"
    """full: batches with their records; batches: only the batches' headers; metadata: like batches, but full for
    KRaft's metadata log; columns: like metadata, and every other batch keeps the bytes of its records
    (`batches.Batch`); skip: neither (`records` is None)."""
    show_secrets: bool = False
    """False: secret values become `{"redacted": N}`, N their length in bytes."""
    max_decompressed: int = MAX_DECOMPRESSED
    max_records: int = MAX_RECORDS
    """Maximum number of records of a message, and of their headers."""
    bodies: bool = True
    """False: decode only bodies that pairing or later messages need (`message_plan.MessagePlan.needed`)."""
    headers: bool = False
    """With `bodies` False: do not decode Produce requests either, except for whether a response will follow."""
    inside: bool = True
    """Also decode embedded structures; False for trials, which ask about the message's own bytes only."""


class RenderingOptions(DecodeOptions, frozen=True):
    """Options of a run that only writes JSON lines, where only the sink needs most records."""

    renderer: RecordsRenderer | None = None
    """With `records` "full": renders `records` fields; None: they are decoded."""

    def decoding(self) -> RenderingOptions:
        """The same for messages whose records are needed as values."""
        return msgspec.structs.replace(self, renderer=None)


UNMARKED: Final = (0, 0, 0, 0, 0, 0)
"""The mark of an empty context."""


class DecodeContext(msgspec.Struct, eq=False):
    """Mutable, one per message: the options in, problems and error codes out.

    An empty one is reused for the next message.
    """

    options: DecodeOptions
    base: int = 0
    """Offset of the message in `data`: offsets in problems are relative to it."""
    memory: ConnectionMemory | None = None
    """Facts from earlier messages of the connection; None for a message on its own."""
    request: object = None
    """For a response: data left by the decoder of its request."""
    depth: int = 0
    """Nesting depth of this message (Envelope)."""
    carry: object = None
    """For a request: data left for its response."""
    problems: list[Problem] = []
    errors: list[ErrorCode] = []
    decompressed: int = 0
    """Bytes decompressed so far for this message, bounded by `options.max_decompressed`."""
    records: int = 0
    """Records or headers, whichever are more, of the batches of this message so far, bounded by
    `options.max_records`."""
    problems_dropped: int = 0
    unknown_tags: int = 0
    """Tagged fields without a definition that were kept so far, bounded by `MAX_UNKNOWN_TAGS`."""
    truncated: bool = False
    """A `records` field of it ends within a batch."""
    interpretable: bool = False
    """One of its records may need an interpreter: otherwise they can skip it."""
    withheld: list[tuple[dict[str, int], bytes]] | None = None
    """The replacements of secret bytes in the body, and the bytes; kept only if something decodes them."""

    def withhold(self, secret: bytes) -> dict[str, int]:
        """The replacement for a field of secret bytes: `{"redacted": N}`."""
        stand_in = {"redacted": len(secret)}
        if self.withheld is not None:
            self.withheld.append((stand_in, secret))
        return stand_in

    def revealed(self, value: object) -> bytes | None:
        """The bytes of a field, for decoding them, even if `value` is their replacement.

        None for null, and for a missing field.
        """
        if isinstance(value, bytes):
            return value
        return next((secret for stand_in, secret in self.withheld or () if stand_in is value), None)

    def mark(self) -> tuple[int, int, int, int, int, int]:
        """The state, for `rewind` if a decoder gives up and another one decodes the same bytes."""
        return (
            len(self.problems),
            len(self.errors),
            self.decompressed,
            self.problems_dropped,
            self.unknown_tags,
            self.records,
        )

    def rewind(self, mark: tuple[int, int, int, int, int, int]) -> None:
        """Undo all additions since `mark`."""
        del self.problems[mark[0] :]
        del self.errors[mark[1] :]
        self.decompressed, self.problems_dropped, self.unknown_tags, self.records = mark[2:]

    def clear(self) -> None:
        """Undo all additions, before the same bytes are decoded again."""
        if self.problems:
            self.problems = []
        if self.errors:
            self.errors = []
        self.decompressed = self.problems_dropped = self.unknown_tags = self.records = 0
        self.truncated = self.interpretable = False

    def problem(
        self, kind: str, detail: str, position: int | None = None, *, size: int | None = None, always: bool = False
    ) -> None:
        """Add a problem; `position` is an absolute offset in the data being decoded, `size` the bytes concerned.

        `always` is for the problem that ended the decoding: it is kept even if there are too many others.
        """
        if len(self.problems) >= MAX_PROBLEMS and not always:
            self.problems_dropped += 1
            return
        offset = None if position is None else position - self.base
        self.problems.append(Problem(kind, detail, offset, bytes=size))


Interpreter = Callable[[Body, int, DecodeContext], None]
"""Decodes structures embedded in a body: takes it, its version and the message's context."""


MAX_ELEMENTS: Final = 4_000_000
"""Elements of all arrays of one message: a body of tiny elements must not take hundreds of times its size in memory.
The largest real messages (metadata of 200,000 partitions) hold half of it."""

MAX_UNKNOWN_TAGS: Final = 100_000
"""Tagged fields without a definition per message; each takes two bytes on the wire and 300 in memory."""

ZERO_SIZE_SLACK: Final = 64
"""If elements may take no bytes at all, a count may exceed the remaining bytes by this much and no more."""


class Odd(Exception):  # noqa: N818 - not an error: it says that the walker has to decode this message
    """Something that the kernel leaves to the walker."""


class Ended(Odd):
    """The walk ended at a problem, which was recorded: the fields before it.

    A handler of `Odd` alone makes the walker decode the message again, with the same result.
    """

    def __init__(self, body: dict[str, Any], position: int) -> None:
        super().__init__()
        self.body = body
        self.position = position


def varint_rest(data: bytes, position: int, first: int) -> tuple[int, int]:
    """The value of an unsigned varint whose first byte was read, and the position after it.

    A varint has at most 5 bytes (org.apache.kafka.common.utils.ByteUtils): raises Odd if it is longer, IndexError at
    the end of the data.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise Odd


def add_error(context: DecodeContext, code: int, path: str) -> None:
    """Record a non-zero error code."""
    context.errors.append(ErrorCode(code, error_name(code), path))


def keep_tag(context: DecodeContext, struct: dict[str, Any], tag: int, value: bytes, show: bool) -> None:
    """Keep a tagged field that has no definition; its bytes are withheld if the schema contains secrets."""
    context.unknown_tags += 1
    if context.unknown_tags > MAX_UNKNOWN_TAGS:
        raise Odd
    kept: dict[str, Any] = {"tag": tag}
    if show:
        kept["base64"] = b64encode(value).decode("ascii")
    else:
        kept["redacted"] = len(value)
    struct.setdefault("_unknown_tags", []).append(kept)
