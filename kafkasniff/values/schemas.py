"""Schemas as registries have them, and the errors of schemas and values."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

MAX_SCHEMA: Final = 1 << 20
"""Bytes of a schema that are read; those of code generators have some 100 kB."""
MAX_VALUE: Final = 1 << 20
"""Bytes of a key or value that are decoded, as many as filters parse of JSON."""
MAX_DEPTH: Final = 100
"""Nesting of a decoded value, and of a schema: as deep as Protobuf's libraries go. orjson writes 254 levels."""

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]


class SchemaError(ValueError):
    """A schema that cannot be used; `str()` of it is one line."""


class MalformedValueError(ValueError):
    """A value that does not follow its schema. The message has places, but nothing of the value: it is shown anyway."""


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one refers to."""

    name: str
    """Avro: the full name of a type; Protobuf: the path of an import."""
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True, rename="camel"):
    """A schema in the notation of Confluent's REST API."""

    schema: str
    schema_type: SchemaKind = "AVRO"
    references: tuple[Reference, ...] | None = ()
    guid: str | None = None


class DecodedValue(NamedTuple):
    """A decoded key or value."""

    name: str | None
    """The type that the schema names, such as `shop.Order`."""
    value: Any
    """Bytes stay bytes; no numbers that JSON lacks; at most `MAX_DEPTH` levels."""


MessagePlace = tuple[int, ...] | str
"""Which message of a Protobuf file a value is: indexes in the file and in outer messages, or its name."""
FIRST_MESSAGE: Final[MessagePlace] = (0,)


class ValueReader(Protocol):
    """Decodes values by one schema."""

    kind: SchemaKind

    def read(self, data: bytes, start: int, place: MessagePlace = FIRST_MESSAGE) -> DecodedValue:
        """Decode `data[start:]`, all of it; `place`: for Protobuf.

        Raises MalformedValueError.
        """


def finite(value: float) -> float | str:
    """A number as in JSON lines: NaN and infinities are strings. Hot."""
    if value - value == 0.0:
        return value
    if value != value:  # noqa: PLR0124 (only NaN differs from itself)
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
