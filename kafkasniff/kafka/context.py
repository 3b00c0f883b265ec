"""What a decoder is told and what it reports besides the body."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kafkasniff.model import ErrorCode, Problem

__all__ = ["DecodeContext", "DecodeOptions", "MAX_DECOMPRESSED", "MAX_PROBLEMS"]

MAX_DECOMPRESSED: Final = 256 << 20
"""Bytes that the record batches of one message may decompress to: Kafka's own limit is message.max.bytes, far below it."""

MAX_PROBLEMS: Final = 100
"""Problems kept per message, so that hostile bytes cannot make a message's problems outgrow the message."""


class DecodeOptions(msgspec.Struct, frozen=True):
    """How bodies are decoded; the same for all messages of a run."""

    records: Literal["full", "batches", "skip"] = "full"
    """full: batches with their records; batches: only the batches' headers; skip: neither (`records` fields stay None)."""
    show_secrets: bool = False
    """False: secret values are `{"redacted": N}`, N their length in bytes."""
    max_decompressed: int = MAX_DECOMPRESSED


class DecodeContext:
    """Mutable, one per message: the options in, problems and error codes out."""

    __slots__ = ("base", "decompressed", "errors", "options", "problems", "problems_dropped")

    def __init__(self, options: DecodeOptions, base: int = 0) -> None:
        self.options = options
        self.base = base
        """Offset of the message in `data`: offsets in problems are relative to it."""
        self.problems: list[Problem] = []
        self.errors: list[ErrorCode] = []
        self.decompressed = 0
        """Bytes decompressed so far for this message, held against `options.max_decompressed`."""
        self.problems_dropped = 0

    def problem(self, kind: str, detail: str, position: int | None = None) -> None:
        """Add a problem; `position` is an absolute offset in the data that is being decoded."""
        if len(self.problems) >= MAX_PROBLEMS:
            self.problems_dropped += 1
            return
        self.problems.append(Problem(kind, detail, None if position is None else position - self.base))
