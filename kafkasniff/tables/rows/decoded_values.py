"""Decoded keys and values as columns of the table `records`.

A row is judged alone, unlike in messages: an id before the data counts if the registry has it and all of the value
follows the schema.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.model import Body, Summary
from kafkasniff.sinks.jsonl import json_default
from kafkasniff.values.stage import HEADER_NAMES, MAX_MESSAGE, Flaws, ValueDecoder, ValueSchemas

_DEFAULT: Final = json_default()
MISSING_NAMED: Final = 10
"""Missing schema ids that are named."""


class DecodedValues:
    """Makes the columns of a run. Call `columns` with all rows, in order."""

    def __init__(self, schemas: ValueSchemas) -> None:
        self._decoder = ValueDecoder(schemas, Summary())
        self._name = "" if schemas.registry is None else schemas.registry.name
        self._problems: list[str] = []

    @property
    def problems(self) -> list[str]:
        """Details of problems, each once."""
        missing = self._decoder.missing
        if not missing:
            return self._problems
        ids = ", ".join(map(str, missing[:MISSING_NAMED]))
        more = f" and {len(missing) - MISSING_NAMED:,} more" if len(missing) > MISSING_NAMED else ""
        return [*self._problems, f"{self._name} lacks ids with which keys or values seem to begin: {ids}{more}"]

    def columns(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """`key_decoded` and `value_decoded` of rows with these columns."""
        rows = len(columns["key"])
        found: dict[str, list[str | None]] = {"key": [None] * rows, "value": [None] * rows}
        headers = _headers(columns["headers"])
        flaws = Flaws()
        parts = (columns[name].to_pylist() for name in ("topic", "key", "value", "control", "offset"))
        for row, (topic, key, value, control, offset) in enumerate(zip(*parts, strict=True)):
            # The brokers' own topics have their own formats.
            if control is None and not (topic is not None and topic.startswith("__")):
                record: Body = {"key": key, "value": value, "offset": offset}
                record["headers"] = headers[row] if headers is not None else None
                flaws.left = MAX_MESSAGE
                self._decoder.decode(record, topic, flaws, self._report)
                for field, texts in found.items():
                    decoded = record.get(f"_{field}")
                    if decoded is not None:
                        texts[row] = orjson.dumps(decoded["value"], default=_DEFAULT).decode()
        return {f"{field}_decoded": pa.array(texts, pa.string()) for field, texts in found.items()}

    def _report(self, _: str, detail: str) -> None:
        self._problems.append(detail)


def _headers(column: pa.Array) -> list[Any] | None:
    """The headers of each row; None if none of them can name a schema."""
    names = pc.unique(column.flatten().field("key")).to_pylist()
    return None if HEADER_NAMES.isdisjoint(names) else column.to_pylist()
