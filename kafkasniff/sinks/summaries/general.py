"""The summary of an API that has none of its own: names first, then what is neither null nor a default."""

from __future__ import annotations

from typing import Any, Final

from kafkasniff.kafka.layout import Struct
from kafkasniff.model import Body, Message
from kafkasniff.sinks.names import enum_name, layout_of
from kafkasniff.sinks.printable import word
from kafkasniff.sinks.summaries.phrases import NO_ID, amount, few, label_of

__all__ = ["LEFT_OUT", "general"]

FIELDS_SHOWN: Final = 4
"""Fields of a body that its line shows."""
BYTES_SHOWN: Final = 32
"""A longer bytes field is told by its size."""

# Told elsewhere (errors, throttling) or of no interest in a line.
LEFT_OUT: Final = frozenset({"throttle_time_ms", "error_code", "error_message", "timeout_ms", "_unknown_tags"})
"""Fields that it does not show."""
_DULL: Final[tuple[object, ...]] = (None, "", -1, NO_ID)


def _scalar(name: str, value: object, enum: str | None) -> str:
    if isinstance(value, bool):
        return name.replace("_", " ") if value else ""
    if isinstance(value, bytes) and len(value) > BYTES_SHOWN:
        return f"{name} {amount(len(value))}"
    told = None if enum is None else enum_name(enum, value)
    return f"{name.removesuffix('_id')} {word(value) if told is None else told}"


def _array(name: str, value: list[Any]) -> str:
    if not value:
        return ""
    if isinstance(value[0], dict):
        # What has an error of its own is told with the errors.
        items = [item for item in value if isinstance(item, dict) and not item.get("error_code")]
        told = [label for label in map(label_of, items) if label is not None]
        if len(told) < len(items):
            return f"{len(value)} {name}"
        return f"{name} {few(told)}" if told else ""
    return f"{name} {few([word(item) for item in value])}"


def general(message: Message) -> str:
    """The first few fields of a body that say something."""
    body = message.body or {}
    if body.keys() <= LEFT_OUT:
        return ""  # so it is with the responses of many APIs
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
