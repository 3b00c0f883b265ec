"""What a decoder is told and what it reports besides the body."""

from __future__ import annotations

from typing import Final, Literal, Protocol

import msgspec

from kafkasniff.kafka.memory import ConnectionMemory
from kafkasniff.model import ErrorCode, Problem, RenderedRecords

__all__ = [
    "MAX_DECOMPRESSED",
    "MAX_PROBLEMS",
    "MAX_RECORDS",
    "UNMARKED",
    "DecodeContext",
    "DecodeOptions",
    "RecordsRenderer",
    "RenderingOptions",
]

MAX_DECOMPRESSED: Final = 256 << 20
"""Bytes that the record batches of one message may decompress to: Kafka's own limit (message.max.bytes) is lower. Less
with a memory budget below 1 GiB (`memory_limits.message_limits`)."""

MAX_RECORDS: Final = 4_000_000
"""Records, or headers of them, of one message: an empty record takes 7 bytes on the wire and some 400 as a dict. A
response of 50 MiB (fetch.max.bytes) with records of 50 bytes, compressed to a quarter, has as many. Less with a memory
budget below 4 GiB (`memory_limits.message_limits`)."""

MAX_PROBLEMS: Final = 100
"""Problems kept per message, so that hostile bytes cannot make a message's problems outgrow the message."""


class RecordsRenderer(Protocol):
    """Makes JSON of `records` fields (`rendered.Renderer`)."""

    def records(self, data: bytes, start: int, end: int, context: DecodeContext) -> RenderedRecords | None:
        """The field `data[start:end]`; None where it has to be decoded."""


class DecodeOptions(msgspec.Struct, frozen=True):
    """How bodies are decoded; the same for all messages of a run."""

    records: Literal["full", "columns", "metadata", "batches", "skip"] = "full"
    """full: batches with their records; batches: only the batches' headers; metadata: as batches, but full where they
    are records of KRaft's metadata log; columns: as metadata, and each other batch keeps what its records are read from
    (`record_batch.Batch`); skip: neither (`records` is None)."""
    show_secrets: bool = False
    """False: secret values are `{"redacted": N}`, N their length in bytes."""
    max_decompressed: int = MAX_DECOMPRESSED
    max_records: int = MAX_RECORDS
    """Records of a message, and headers of them, beyond which none are read."""
    bodies: bool = True
    """False: only those are decoded that pairing or later messages need (`message_plan.Plan.needed`)."""
    headers: bool = False
    """With `bodies` False: neither are those of Produce requests, of which no more is read than whether a response will
    come."""
    inside: bool = True
    """What lies inside bytes is decoded, too; False for trials, which ask about the message's own bytes only."""


class RenderingOptions(DecodeOptions, frozen=True):
    """Options of a run that only writes JSON lines, where nobody but the sink looks at most records."""

    renderer: RecordsRenderer | None = None
    """With `records` "full": what makes `records` fields; None: they are decoded."""

    def decoding(self) -> RenderingOptions:
        """The same for messages whose records are looked at."""
        return msgspec.structs.replace(self, renderer=None)


UNMARKED: Final = (0, 0, 0, 0, 0, 0)
"""The mark of a context in which nothing is noted yet."""


class DecodeContext(msgspec.Struct, eq=False):
    """Mutable, one per message: the options in, problems and error codes out.

    One that nothing was noted in serves the next message, too (`message.decode_body`).
    """

    options: DecodeOptions
    base: int = 0
    """Offset of the message in `data`: offsets in problems are relative to it."""
    memory: ConnectionMemory | None = None
    """What earlier messages of the connection said; None for a message that stands alone."""
    request: object = None
    """Of a response: what the reader of its request left for it."""
    depth: int = 0
    """How many messages this one lies in (Envelope)."""
    carry: object = None
    """Of a request: what its reader leaves for the response."""
    problems: list[Problem] = []
    errors: list[ErrorCode] = []
    decompressed: int = 0
    """Bytes decompressed so far for this message, held against `options.max_decompressed`."""
    records: int = 0
    """Records or headers, whichever are more, of the batches of this message so far, held against
    `options.max_records`."""
    problems_dropped: int = 0
    unknown_tags: int = 0
    """Tagged fields without a definition that were kept so far, held against `wire.MAX_UNKNOWN_TAGS`."""
    truncated: bool = False
    """A `records` field of it ends within a batch."""
    telling: bool = False
    """A record of it may be one that interpreters add to: else they need not look."""
    withheld: list[tuple[dict[str, int], bytes]] | None = None
    """What stands in the body for secret bytes, and the bytes; kept only where something reads what is in them."""

    def withhold(self, secret: bytes) -> dict[str, int]:
        """What stands for a field of secret bytes: `{"redacted": N}`."""
        stand_in = {"redacted": len(secret)}
        if self.withheld is not None:
            self.withheld.append((stand_in, secret))
        return stand_in

    def revealed(self, value: object) -> bytes | None:
        """The bytes of a field, for who reads what is in them: those that `value` stands for, too.

        None for null, and for a field that is not there.
        """
        if isinstance(value, bytes):
            return value
        return next((secret for stand_in, secret in self.withheld or () if stand_in is value), None)

    def mark(self) -> tuple[int, int, int, int, int, int]:
        """The state, to `rewind` to where a decoder gives up and another one reads the same bytes again."""
        return (
            len(self.problems),
            len(self.errors),
            self.decompressed,
            self.problems_dropped,
            self.unknown_tags,
            self.records,
        )

    def rewind(self, mark: tuple[int, int, int, int, int, int]) -> None:
        """Undo what was noted since `mark`."""
        del self.problems[mark[0] :]
        del self.errors[mark[1] :]
        self.decompressed, self.problems_dropped, self.unknown_tags, self.records = mark[2:]

    def clear(self) -> None:
        """Undo all that was noted, for another reading of the same bytes."""
        if self.problems:
            self.problems = []
        if self.errors:
            self.errors = []
        self.decompressed = self.problems_dropped = self.unknown_tags = self.records = 0
        self.truncated = self.telling = False

    def problem(
        self, kind: str, detail: str, position: int | None = None, *, size: int | None = None, always: bool = False
    ) -> None:
        """Add a problem; `position` is an absolute offset in the data being decoded, `size` the bytes concerned.

        `always` is for the one that tells why decoding ended: it stands even where there are too many others.
        """
        if len(self.problems) >= MAX_PROBLEMS and not always:
            self.problems_dropped += 1
            return
        offset = None if position is None else position - self.base
        self.problems.append(Problem(kind, detail, offset, bytes=size))
