"""A schema: a definition at one version, with what decodes it."""

from __future__ import annotations

import functools
from typing import Any

from kafkasniff.kafka.context import DecodeContext
from kafkasniff.kafka.definition import MessageDefinition
from kafkasniff.kafka.layout import Struct, cut
from kafkasniff.kafka.packed import Decoder, decoder_of
from kafkasniff.kafka.walker import Span, Walk, walk
from kafkasniff.kafka.wire import Ended, Odd
from kafkasniff.native.library import kernel

__all__ = ["Schema"]


def _leave(data: bytes, position: int, end: int, context: DecodeContext) -> tuple[dict[str, Any], int]:
    """Without the kernel the walker reads everything."""
    raise Odd


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
    def decode(self) -> Decoder:
        """Reads clean bytes by the native kernel: at others, and without the kernel, it raises; `read` is for all."""
        found = kernel()
        return _leave if found is None else decoder_of(found, self.root)

    def read(self, data: bytes, position: int, end: int, context: DecodeContext) -> Walk:
        """Decode `data[position:end]`, whatever it holds: what is not clean is read by the walker.

        Bytes left over are for the caller to judge: they are those from the result's `position` on.
        """
        mark = context.mark()
        try:
            body, position_after = self.decode(data, position, end, context)
        except Ended as ended:
            return Walk(ended.body, ended.position, False)
        except Odd:
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
