"""A schema: a definition at one version, with its compiled decoder."""

from __future__ import annotations

import functools
import struct
from typing import Final

from kafkasniff.kafka.compiler import Decoder, compile_source, source_of
from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.definition import MessageDefinition
from kafkasniff.kafka.layout import Struct, cut
from kafkasniff.kafka.walker import Span, Walk, walk
from kafkasniff.kafka.wire import Odd

__all__ = ["NOT_CLEAN", "Schema"]


NOT_CLEAN: Final = (Odd, IndexError, struct.error, UnicodeDecodeError)
"""What a compiled decoder raises where the walker has to read."""


class Schema:
    """One version of a request, of a response or of a `data` block."""

    def __init__(self, message: MessageDefinition, version: int) -> None:
        self.name = message.name
        """`Produce request`, `ConfigRecord` …"""
        self.version = version
        self.flexible = version in message.flexible
        self.root: Struct = cut(message, version)

    def __repr__(self) -> str:
        return f"<Schema {self.name} version {self.version}>"

    @property
    def has_secrets(self) -> bool:
        """Whether a field of it is, or may be, a secret."""
        return self.root.secrets

    @functools.cached_property
    def source(self) -> str:
        """The source of the compiled decoder."""
        return source_of(self.root, f"{self.name}, version {self.version}")

    @functools.cached_property
    def decode(self) -> Decoder:
        """The compiled decoder, which knows only clean bytes: at others it raises; `read` is for all bytes."""
        return compile_source(self.source, f"<{self.name} version {self.version}>")

    def read(self, data: bytes, position: int, end: int, context: DecodeContext) -> Walk:
        """Decode `data[position:end]`, whatever it holds: what is not clean is read by the walker.

        Bytes left over are for the caller to judge: they are those from the result's `position` on.
        """
        mark = context.mark()
        try:
            body, position_after = self.decode(data, position, end, context)
        except NOT_CLEAN:
            context.rewind(mark)
            return walk(self.root, data, position, end, context)
        return Walk(body, position_after, True)

    def walk(self, data: bytes, position: int, end: int, context: DecodeContext) -> Walk:
        """The same by the walker alone."""
        return walk(self.root, data, position, end, context)

    def spans(self, data: bytes, position: int, end: int, context: DecodeContext) -> tuple[Walk, list[Span]]:
        """The same by the walker alone, with the place of every field."""
        spans: list[Span] = []
        return walk(self.root, data, position, end, context, spans=spans), spans
