"""A schema: a definition at one version, with its decoders."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from kafkasniff.kafka.schema.context import DecodeContext, RecordsReader
from kafkasniff.kafka.schema.definition import MessageDefinition
from kafkasniff.kafka.schema.layout import Struct, cut
from kafkasniff.kafka.schema.spans import Span
from kafkasniff.kafka.schema.walker import Walk, walk
from kafkasniff.kafka.schema.wire import Ended, Odd
from kafkasniff.native.library import kernel

if TYPE_CHECKING:
    from kafkasniff.kafka.schema.packed import Decoder

__all__ = ["Schema"]


class Schema:
    """One version of a request, of a response or of a `data` block."""

    def __init__(self, message: MessageDefinition, version: int, records: RecordsReader | None = None) -> None:
        """Raises ValueError if it has `records` fields, and no reader for them is given."""
        self.name = message.name
        """`Produce request`, `ConfigRecord` …"""
        self.version = version
        self.flexible = version in message.flexible
        self.root: Struct = cut(message, version)
        self._records = records
        if self.root.records and records is None:
            raise ValueError(f"{message.name} has records")

    def __repr__(self) -> str:
        return f"<Schema {self.name} version {self.version}>"

    @property
    def has_secrets(self) -> bool:
        """Whether a field of it is, or may be, a secret."""
        return self.root.secrets

    @functools.cached_property
    def decode(self) -> Decoder:
        """Decodes clean bytes, by the native kernel; raises Odd at others. `read` is for all bytes."""
        # Imported here because looking up names and versions, as completion does, has to be quick.
        from kafkasniff.kafka.schema.packed import decoder_of  # noqa: PLC0415

        return decoder_of(kernel(), self.root, self._records)

    def read(self, data: bytes, position: int, end: int, context: DecodeContext) -> Walk:
        """Decode `data[position:end]`, whatever it holds: bytes that are not clean go to the walker.

        The caller has to check for surplus bytes: those from the result's `position` on.
        """
        mark = context.mark()
        try:
            body, position_after = self.decode(data, position, end, context)
        except Ended as ended:
            return Walk(ended.body, ended.position, False)
        except Odd:
            context.rewind(mark)
            return walk(self.root, data, position, end, context, self._records)
        return Walk(body, position_after, True)

    def walk(self, data: bytes, position: int, end: int, context: DecodeContext) -> Walk:
        """The same by the walker alone."""
        return walk(self.root, data, position, end, context, self._records)

    def spans(
        self, data: bytes, position: int, end: int, context: DecodeContext, *, most: int | None = None
    ) -> tuple[Walk, list[Span]]:
        """The same by the walker alone, with the place of every field, or of the first `most`."""
        spans: list[Span] = []
        return walk(self.root, data, position, end, context, self._records, spans=spans, most=most), spans
