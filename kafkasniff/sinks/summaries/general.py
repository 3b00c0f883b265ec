"""The summary of an API without a template: names first, then values that are neither null nor a default."""

from __future__ import annotations

from typing import Any, Final

from kafkasniff.kafka.schema.definition import Struct
from kafkasniff.model import Body, Message
from kafkasniff.sinks.names import enum_name, layout_of
from kafkasniff.sinks.summaries import syntax
from kafkasniff.sinks.summaries.phrases import NO_ID, amount, few, label_of
from kafkasniff.text.printable import word

FIELDS_SHOWN: Final = 4
"""Number of fields of a body shown in a line."""
BYTES_SHOWN: Final = 32
"""Longer bytes fields are shown only by their size."""

# Shown elsewhere (errors, throttling) or not interesting in a line.
LEFT_OUT: Final = frozenset({"throttle_time_ms", "error_code", "error_message", "timeout_ms", "_unknown_tags"})
"""Fields that are not shown."""
_DULL: Final[tuple[object, ...]] = (None, "", -1, NO_ID)
_NUMBERS: Final = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})


def general_nodes(layout: Struct) -> syntax.Parts | None:
    """The same as a template for bodies of a layout; None if they have more than a few numbers and booleans."""
    fields = [field for field in (*layout.fields, *layout.tagged) if field.name not in LEFT_OUT]
    if len(fields) > FIELDS_SHOWN:
        return None
    parts: list[syntax.Sequence] = []
    for field in fields:
        path = (field.name,)
        if field.array or field.tag is not None or field.enum or field.secret != "no":
            return None
        if field.type == "bool":
            shown: syntax.Sequence = (syntax.Text(field.name.replace("_", " ")),)
            tests: tuple[syntax.Test, ...] = (syntax.Test(path, "some"),)
        elif field.type in _NUMBERS:
            shown = syntax.Text(f"{field.name.removesuffix('_id')} "), syntax.Value(path)
            tests = syntax.Test(path, "!="), syntax.Test(path, "!=", -1)
        else:
            return None
        parts.append((syntax.Choice((syntax.Option(tests, shown),)),))
    return syntax.Parts(tuple(parts) or ((),))


def _scalar(name: str, value: object, enum: str | None) -> str:
    if isinstance(value, bool):
        return name.replace("_", " ") if value else ""
    if isinstance(value, bytes) and len(value) > BYTES_SHOWN:
        return f"{name} {amount(len(value))}"
    name_of = None if enum is None else enum_name(enum, value)
    return f"{name.removesuffix('_id')} {word(value) if name_of is None else name_of}"


def _array(name: str, value: list[Any]) -> str:
    if not value:
        return ""
    if isinstance(value[0], dict):
        # Elements with an error are shown with the errors.
        items = [item for item in value if isinstance(item, dict) and not item.get("error_code")]
        labels = [label for label in map(label_of, items) if label is not None]
        if len(labels) < len(items):
            return f"{len(value)} {name}"
        return f"{name} {few(labels)}" if labels else ""
    return f"{name} {few([word(item) for item in value])}"


def general(message: Message) -> str:
    """The first few significant fields of a body."""
    body = message.body or {}
    if body.keys() <= LEFT_OUT:
        return ""  # as for the responses of many APIs
    return _fields(body, layout_of(message))


def _fields(body: Body, layout: Struct | None) -> str:
    fields = {field.name: field for field in (*layout.fields, *layout.tagged)} if layout is not None else {}
    phrases: list[str] = []
    for name, value in body.items():
        if name in LEFT_OUT or any(value is dull or value == dull for dull in _DULL):
            continue
        field = fields.get(name)
        if isinstance(value, dict) and "redacted" not in value:
            inner = _fields(value, None if field is None else field.struct)
            text = f"{name} ({inner})" if inner else ""
        elif isinstance(value, list):
            text = _array(name, value)
        else:
            text = _scalar(name, value, None if field is None else field.enum)
        if text:
            phrases.append(text)
        if len(phrases) == FIELDS_SHOWN:
            break
    return ", ".join(phrases)
