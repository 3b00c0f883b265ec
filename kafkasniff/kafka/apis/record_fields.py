"""The `records` fields of a message, anywhere in its definition: in arrays, structs and tags.

Interpreters of records (secrets of Kafka Connect, schema ids, the metadata log) use this module, so that the records of
a new API only need its definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from kafkasniff.kafka.apis.dissectors import api
from kafkasniff.kafka.schema.body_forms import RenderedRecords
from kafkasniff.kafka.schema.layout import Struct
from kafkasniff.model import Body, Direction

__all__ = ["PARTITION_FIELDS", "RecordFields", "each_records", "each_whole", "record_fields"]

PARTITION_FIELDS: Final = frozenset({"index", "partition", "partition_index"})
"""Names of int32 fields with a partition number."""


class RecordFields(msgspec.Struct, frozen=True):
    """The `records` fields of one struct, and its nested structs with such fields."""

    topic: str | None
    """The field that names the topic of all records in the struct; None if there is none."""
    plain: tuple[str, ...]
    """Records of any topic."""
    secret: tuple[str, ...]
    """Records that may be shown only as far as they were decoded: those of the metadata log."""
    inner: tuple[tuple[str, RecordFields], ...]


@lru_cache(maxsize=4096)  # keys and versions come from the wire
def record_fields(api_key: int, version: int, direction: Direction) -> RecordFields | None:
    """The `records` fields of a message; None if it has none, or its layout is unknown."""
    found = api(api_key)
    if found is None or version not in found.versions:
        return None
    schema = found.request(version) if direction == "request" else found.response(version)
    return _of(schema.root) if schema.root.records else None


def _of(struct: Struct) -> RecordFields:
    fields = (*struct.fields, *struct.tagged)
    records = [field for field in fields if field.type == "records"]
    topics = (field.name for field in fields if field.entity == "topic_name" and not field.array)
    return RecordFields(
        topic=next(topics, None),
        plain=tuple(field.name for field in records if field.secret == "no"),
        secret=tuple(field.name for field in records if field.secret != "no"),
        inner=tuple(
            (field.name, _of(field.struct)) for field in fields if field.struct is not None and field.struct.records
        ),
    )


def each_records(
    fields: RecordFields, body: Body, topic: Any = None, *, secret: bool = False
) -> Iterator[tuple[Body, Any]]:
    """Each decoded `records` value of a body that is not null, and the name of its topic if the body has it.

    `secret`: those that are secret, else all others. `topic` is the one named by a struct around `body`.
    """
    if fields.topic is not None:
        topic = body.get(fields.topic)
    elif "_topic_name" in body:
        topic = body["_topic_name"]
    for name in fields.secret if secret else fields.plain:
        value = body.get(name)
        for one in value if isinstance(value, list) else (value,):
            # Rendered records need no interpreter, or they would have been decoded.
            if one is not None and one.__class__ is not RenderedRecords:
                yield one, topic
    for name, inner in fields.inner:
        value = body.get(name)
        for one in value if isinstance(value, list) else (value,):
            if one is not None:
                yield from each_records(inner, one, topic, secret=secret)


def each_whole(struct: Struct, body: Body) -> Iterator[tuple[Any, str, int | None]]:
    """Each `records` value of a body that must end with a whole batch, its field, and its partition if named.

    This includes rendered values.
    """
    fields = (*struct.fields, *struct.tagged)
    index = next((one.name for one in fields if one.name in PARTITION_FIELDS and one.type == "int32"), None)
    for field in fields:
        value = body.get(field.name)
        for one in value if isinstance(value, list) else (value,):
            if one is None:
                continue
            if field.whole:
                yield one, field.name, None if index is None else body.get(index)
            elif field.struct is not None and field.struct.whole_records:
                yield from each_whole(field.struct, one)
