"""Record sizes: keys, values and headers by topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
from msgspec import Meta

from kafkasniff.analysis.accumulator import Parameters, TableReading
from kafkasniff.analysis.columns import table_of
from kafkasniff.analysis.sql.question import SqlQuestion, ranked, texts

_KEYS: Final = ("topic", "direction")
_NUMBERS: Final = ("records", "nulls", "p50", "p99", "most")


class RecordSizeParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `RecordSizes`."""

    direction: Annotated[
        Literal["any", "request", "response"],
        Meta(description="Produced records (request), fetched records (response), or both."),
    ] = "any"


class RecordSizes(SqlQuestion[RecordSizeParameters]):
    """Percentiles of the sizes in bytes of keys, values and headers, by topic and direction.

    Sizes are those of records before compression. Null keys and values are counted, not measured: a record without
    value deletes its key if the topic is compacted. Control records are skipped. Percentiles are exact.
    """

    name: ClassVar[str] = "record-sizes"
    summary: ClassVar[str] = "Sizes of keys, values and headers by topic."
    essential: ClassVar[tuple[str, ...]] = (
        "topic",
        "direction",
        "records",
        "value_p50",
        "value_max",
        "key_p50",
        "key_max",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "direction": "request: produced; response: fetched",
        "null_keys": "records without a key",
        "null_values": "records without a value, which delete their key in a compacted topic",
        "key_p50": "bytes; null if no record has a key",
        "key_p99": "bytes; null if no record has a key",
        "key_max": "bytes; null if no record has a key",
        "value_p50": "bytes; null if no record has a value",
        "value_p99": "bytes; null if no record has a value",
        "value_max": "bytes; null if no record has a value",
        "headers_p50": "bytes of keys and values of a record's headers",
        "headers_p99": "bytes of keys and values of a record's headers",
        "headers_max": "bytes of keys and values of a record's headers",
    }
    parameters_type = RecordSizeParameters

    def reads(self) -> Mapping[str, TableReading]:
        return {"records": TableReading(("direction", "topic", "topic_id", "key", "value", "headers", "control"))}

    def pieces(self) -> dict[str, str]:
        wanted = self.parameters.direction
        directions = ("request", "response") if wanted == "any" else (wanted,)
        return {"directions": texts(directions), "ranked": ranked("topic, direction, field")}

    @property
    def found_fields(self) -> Sequence[tuple[str, pa.DataType]]:
        return [*((name, pa.string()) for name in (*_KEYS, "field")), *((name, pa.int64()) for name in _NUMBERS)]

    def finish(self, found: pa.Table) -> pa.Table:
        groups: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in found.to_pylist():
            group = groups.setdefault(tuple(row[name] for name in _KEYS), {name: row[name] for name in _KEYS})
            field = row["field"]
            group |= {"records": row["records"], f"null_{field}s": row["nulls"]}
            group |= {f"{field}_p50": row["p50"], f"{field}_p99": row["p99"], f"{field}_max": row["most"]}
        fields = [
            *((name, pa.string()) for name in _KEYS),
            *((name, pa.int64()) for name in ("records", "null_keys", "null_values")),
            *((f"{field}_{one}", pa.int64()) for field in ("key", "value", "headers") for one in ("p50", "p99", "max")),
        ]
        columns = {name: [group[name] for group in groups.values()] for name, _ in fields}
        return table_of(columns, fields, [(name, "ascending") for name in _KEYS])
