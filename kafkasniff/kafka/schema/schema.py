"""A schema: a definition at one version, with its decoders.

`data_schema` finds those of structures that are not requests or responses: headers, records, embedded structures. They
contain no record sets.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.schema.codes import data_folder, read_text, sorted_files
from kafkasniff.kafka.schema.context import DecodeContext, Ended, Odd, RecordsReader
from kafkasniff.kafka.schema.definition import DataDefinition, MessageDefinition, Struct, cut
from kafkasniff.kafka.schema.definition_parser import parse_data
from kafkasniff.kafka.schema.walker import Span, Walk, walk
from kafkasniff.native.library import kernel

if TYPE_CHECKING:
    from kafkasniff.kafka.schema.packed import Decoder


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


@functools.cache
def data_definitions() -> dict[str, DataDefinition]:
    """All of them by name."""
    folder = data_folder()
    found: dict[str, DataDefinition] = {}
    records = (path for path in sorted_files(folder / "records") if path.name.endswith(".txt"))
    for path in (folder / "headers.txt", *records):
        for definition in parse_data(path, read_text(path)):
            name = definition.message.name
            if name in found:
                raise DefinitionError(f"{path}: {name} is also in {found[name].file}.txt")
            found[name] = definition
    return found


@functools.lru_cache(maxsize=1024)  # more than there are; types that do not exist come from the wire
def data_definition(kind: str, number: int, file: str | None = None) -> DataDefinition | None:
    """The definition of a record type, by kind and id; None if unknown.

    For coordinator records the file matters too, since each topic has its own ids: `group_coordinator`,
    `transaction_coordinator`, `share_coordinator`.
    """
    for definition in data_definitions().values():
        if (definition.kind, definition.id) == (kind, number) and file in (None, definition.file):
            return definition
    return None


@functools.lru_cache(maxsize=1024)
def data_schema(name: str, version: int) -> Schema | None:
    """The schema of a `data` block; None if name or version are unknown."""
    definition = data_definitions().get(name)
    if definition is None or version not in definition.message.versions:
        return None
    return Schema(definition.message, version)
