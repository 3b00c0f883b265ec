"""Values of serializers for JSON Schema: JSON, which needs no schema to be decoded."""

from __future__ import annotations

from typing import Any, Final

import orjson

from kafkasniff.values.schemas import (
    FIRST_MESSAGE,
    MAX_DEPTH,
    DecodedValue,
    MalformedValueError,
    MessagePlace,
    SchemaKind,
)

__all__ = ["JsonReader"]

_OPENING: Final = (b"{", b"[")


class JsonReader:
    """Decodes values that are JSON. Whether they follow the schema is not checked."""

    kind: SchemaKind = "JSON"

    def __init__(self, schema: str) -> None:
        self._name = _title(schema)

    def read(self, data: bytes, start: int, _place: MessagePlace = FIRST_MESSAGE) -> DecodedValue:
        """Decode `data[start:]`. Raises MalformedValueError."""
        text = data[start:]
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise MalformedValueError(f"it is not JSON: {error}") from None
        if sum(map(text.count, _OPENING)) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise MalformedValueError(f"nested more than {MAX_DEPTH} levels deep")
        return DecodedValue(self._name, value)


def _title(schema: str) -> str | None:
    try:
        parsed = orjson.loads(schema)
    except orjson.JSONDecodeError:
        return None
    title = parsed.get("title") if isinstance(parsed, dict) else None
    return title if isinstance(title, str) else None


def _depth(value: Any) -> int:
    """Levels of lists and objects."""
    levels, inside = 0, [value]
    while inside:
        levels += any(isinstance(one, list | dict) for one in inside)
        inside = [
            item
            for one in inside
            if isinstance(one, list | dict)
            for item in (one if isinstance(one, list) else one.values())
        ]
    return levels
