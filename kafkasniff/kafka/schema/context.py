"""The options and the output of a decoder besides the body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import msgspec

from kafkasniff.kafka.schema.body_forms import RenderedRecords
from kafkasniff.kafka.schema.memory import ConnectionMemory
from kafkasniff.model import Body, ErrorCode, Problem
from kafkasniff.native.calls import Hiding

__all__ = [
    "MAX_DECOMPRESSED",
    "MAX_PROBLEMS",
    "MAX_RECORDS",
    "UNMARKED",
    "DecodeContext",
    "DecodeOptions",
    "Interpreter",
    "RecordsReader",
    "RecordsRenderer",
    "RenderingOptions",
]

MAX_DECOMPRESSED: Final = 256 << 20
"""Bytes that the record batches of one message may decompress to: Kafka's own limit (message.max.bytes) is lower.
Reduced with a memory budget below 1 GiB (`memory_budget.message_limits`)."""

MAX_RECORDS: Final = 4_000_000
"""Records, or headers of them, of one message: an empty record takes 7 bytes on the wire and some 400 as a dict. A
response of 50 MiB (fetch.max.bytes) with records of 50 bytes, compressed to a quarter, has as many. Reduced with a
memory budget below 4 GiB (`memory_budget.message_limits`)."""

MAX_PROBLEMS: Final = 100
"""Problems kept per message, so that hostile bytes cannot make a message's problems outgrow the message."""


class RecordsRenderer(Protocol):
    """Makes JSON of `records` fields (`rendered.Renderer`)."""

    wants: int
    """How the kernel writes such fields: bits of `native.calls`."""
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
    (`record_batch.Batch`); skip: neither (`records` is None)."""
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
    """Tagged fields without a definition that were kept so far, bounded by `wire.MAX_UNKNOWN_TAGS`."""
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
