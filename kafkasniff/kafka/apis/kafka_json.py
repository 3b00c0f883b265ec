"""Bodies as Kafka's own JSON, which its `…JsonConverter` classes write: in request logs, for one."""

from __future__ import annotations

import base64
import functools
from typing import Any

from kafkasniff.kafka.apis.dissectors import snake_case
from kafkasniff.kafka.schema.layout import Field, Struct
from kafkasniff.kafka.schema.uuids import uuid_bytes

__all__ = ["our_name", "values_of"]


@functools.lru_cache(maxsize=8192)  # more than there are; names that do not exist come from a log
def our_name(name: str) -> str:
    """Our name of a field of Kafka's JSON; Kafka's own name starts with a capital (kRaftVersion: KRaftVersion)."""
    return snake_case(name[:1].upper() + name[1:])


def values_of(struct: Struct, body: Any, sizes: list[int]) -> dict[str, Any]:
    """The values of a struct for `encoder.encode`. Records are null, and their sizes are added to `sizes`.

    Names that are unknown here are those of the fields without a value, in order: releases have renamed fields, and
    records have the name of their size.
    Raises ValueError or TypeError, with what is wrong, if the JSON is not that of this struct.
    """
    if not isinstance(body, dict):
        raise TypeError(f"{body!r:.40} is not an object")
    given = {our_name(name): value for name, value in body.items()}
    values: dict[str, Any] = {}
    missing: list[Field] = []
    for field in (*struct.fields, *struct.tagged):
        if field.name in given:
            values[field.name] = _values(field, given.pop(field.name), sizes)
        elif field.tag is None:
            missing.append(field)
    if len(missing) != len(given):
        names = ", ".join(given) or "none"
        raise ValueError(f"fields without a value: {len(missing)}, values without a field: {names!r:.80}")
    values.update((field.name, _values(field, given[name], sizes)) for field, name in zip(missing, given, strict=True))
    return values


def _values(field: Field, value: Any, sizes: list[int]) -> Any:
    if not field.array or value is None:
        return _value(field, value, sizes)
    if not isinstance(value, list):
        raise TypeError(f"{field.name} is not a list")
    return [_value(field, element, sizes) for element in value]


def _value(field: Field, value: Any, sizes: list[int]) -> Any:
    if value is None:
        if not field.nullable:
            raise ValueError(f"{field.name} is null")
        return None
    if field.struct is not None:
        return values_of(field.struct, value, sizes)
    if field.type == "uuid":
        return uuid_bytes(value)
    if field.type == "records" and isinstance(value, int):
        if not 0 <= value < 1 << 31:
            raise ValueError(f"{field.name} cannot have that size")
        sizes.append(value)
        return None
    if field.type in ("bytes", "records"):
        return base64.b64decode(value, validate=True)
    if field.type == "float64":
        return float(value)
    if isinstance(value, str) != (field.type == "string"):
        raise TypeError(f"{field.name} is {value!r:.40}")
    return value
