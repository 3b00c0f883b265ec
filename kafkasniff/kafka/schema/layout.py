"""A definition at one version: the tree of structs and fields that programs and the walker are based on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kafkasniff.kafka.schema.definition import EntityChoice, FieldDefinition, MessageDefinition, Nested, Secret

__all__ = ["FORMATS", "Field", "Struct", "cut", "element_size", "topic_fields"]

FORMATS: Final = {
    "bool": ("B", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "error": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of fixed size: format of the `struct` module (big-endian) and size in bytes."""


class Field(msgspec.Struct, frozen=True):
    """A field as it is on the wire in one version."""

    name: str
    type: str
    """A scalar of the grammar, or "struct"."""
    array: bool
    nullable: bool
    compact: bool
    """Lengths are unsigned varints of length + 1 (KIP-482), not int16 or int32."""
    struct: Struct | None
    """Present exactly when the type is "struct"."""
    tag: int | None
    secret: Secret
    entity: str | None
    entity_by: EntityChoice | None
    enum: str | None
    default: str | None
    unaligned: bool = False
    """For records: a slice that may start within a batch."""
    whole: bool = False
    """For records: they must end with a whole batch."""
    payload: bool = False
    """An application's bytes or text; `records` fields are marked, too."""
    nests: Nested | None = None
    """Bytes with a whole message, which may contain payload and secrets."""
    silences: bool = False
    """If it is 0, there is no response."""
    tokens: bool = False
    """It names the mechanism of raw SASL tokens that follow the response."""


class Struct(msgspec.Struct, frozen=True):
    """The fields of a struct in one version."""

    fields: tuple[Field, ...]
    """In wire order."""
    tagged: tuple[Field, ...]
    """Those of the tag section, in ascending order of tags."""
    flexible: bool
    """A tag section ends it."""
    size: int
    """Its minimum size in bytes."""
    errors: bool
    """It contains an error code, at any depth."""
    secrets: bool
    """It contains a secret, at any depth."""
    records: bool
    """It contains a `records` field, at any depth."""
    whole_records: bool
    """It contains records that must end with a whole batch, at any depth."""
    payload: bool
    """It contains payload, or may contain some in a nested message, at any depth."""


TOPIC_FIELDS: Final = frozenset({"name", "topic", "topic_name"})
"""Names of the field with the topic's name, in a struct with a `topic_id`."""


def topic_fields(fields: Iterable[Field | FieldDefinition]) -> tuple[str | None, str | None]:
    """The fields of a struct, in one version, with the name and the id of a topic."""
    scalars = [field for field in fields if not field.array]
    topic_id = next((one.name for one in scalars if one.name == "topic_id" and one.type == "uuid"), None)
    topic = next((one.name for one in scalars if one.entity == "topic_name"), None)
    if topic is None and topic_id is not None:
        topic = next((one.name for one in scalars if one.name in TOPIC_FIELDS and one.type == "string"), None)
    return topic, topic_id


def cut(message: MessageDefinition, version: int) -> Struct:
    """The layout of one version; `version` is one of the message's."""
    return _struct(message.fields, version, version in message.flexible)


def _struct(definitions: tuple[FieldDefinition, ...], version: int, flexible: bool) -> Struct:
    present = [_field(definition, version, flexible) for definition in definitions if version in definition.versions]
    inner = [field.struct for field in present if field.struct is not None]
    fields = tuple(field for field in present if field.tag is None)
    return Struct(
        fields=fields,
        tagged=tuple(sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)),
        flexible=flexible,
        size=sum(_field_size(field) for field in fields) + flexible,
        errors=any(field.type == "error" for field in present) or any(struct.errors for struct in inner),
        secrets=any(field.secret != "no" for field in present) or any(struct.secrets for struct in inner),
        records=any(field.type == "records" for field in present) or any(struct.records for struct in inner),
        whole_records=any(field.whole for field in present) or any(struct.whole_records for struct in inner),
        payload=any(field.payload or field.nests is not None for field in present)
        or any(struct.payload for struct in inner),
    )


def _field(definition: FieldDefinition, version: int, flexible: bool) -> Field:
    return Field(
        name=definition.name,
        type=definition.type,
        array=definition.array,
        nullable=version in definition.nullable,
        compact=flexible and not definition.classic,
        struct=_struct(definition.fields, version, flexible) if definition.type == "struct" else None,
        tag=definition.tag,
        secret=definition.secret,
        entity=definition.entity,
        entity_by=definition.entity_by,
        enum=definition.enum,
        default=definition.default,
        unaligned=definition.unaligned,
        whole=definition.whole,
        payload=definition.payload or definition.type == "records",
        nests=definition.nests,
        silences=definition.silences,
        tokens=version in definition.tokens,
    )


def element_size(field: Field) -> int:
    """Minimum size of a value in bytes: for an array, of each of its elements."""
    if field.struct is not None:
        # A nullable struct begins with a mark, and is only that if null; elements are never null.
        return 1 if field.nullable and not field.array else field.struct.size
    if field.type in FORMATS:
        return FORMATS[field.type][1]
    if field.compact:
        return 1
    return 2 if field.type == "string" else 4


def _field_size(field: Field) -> int:
    if field.array:
        return 1 if field.compact else 4
    return element_size(field)
