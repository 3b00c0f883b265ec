"""Record sizes: keys, values and headers by topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from kafkasniff.analysis.accumulator import Accumulator, Parameters, TableReading
from kafkasniff.analysis.columns import column, header_bytes, in_any, integers, keys_of, named, only, table_of
from kafkasniff.analysis.distribution import distribution_rows, distribution_shape, distributions
from kafkasniff.analysis.partials import Shape

__all__ = ["RecordSizeParameters", "RecordSizes"]

_QUANTILES: Final = {"p50": 0.5, "p99": 0.99}
_FIELDS: Final = ("key", "value", "headers")
_SHOWN: Final = (*_QUANTILES, "max")


class RecordSizeParameters(Parameters, frozen=True, kw_only=True):
    """Parameters of `RecordSizes`."""

    direction: Annotated[
        Literal["any", "request", "response"],
        Meta(description="Produced records (request), fetched records (response), or both."),
    ] = "any"


class RecordSizes(Accumulator[RecordSizeParameters]):
    """Percentiles of the sizes in bytes of keys, values and headers, by topic and direction.

    Sizes are those of records before compression. Null keys and values are counted, not measured: a record without
    value deletes its key if the topic is compacted. Control records are skipped. A percentile is at most 0.4% off.
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

    def shapes(self) -> Mapping[str, Shape]:
        keys = (("direction", pa.string()), ("topic", pa.string()))
        counted: Any = tuple((name, pa.int64(), "sum") for name in ("records", "null_keys", "null_values"))
        return {
            "sizes": distribution_shape((*keys, ("field", pa.string()))),
            "records": Shape(keys=keys, measures=counted, weight="records"),
        }

    def update(self, batch: pa.RecordBatch, table: str = "records") -> None:
        mask = pc.is_null(column(batch, "control"))
        if self.parameters.direction != "any":
            mask = pc.and_(mask, in_any(batch, "direction", [self.parameters.direction]))
        batch = named(only(batch, mask))
        keys = {name: column(batch, name) for name in ("direction", "topic")}
        key, value = (column(batch, name) for name in ("key", "value"))
        self.parts["records"].add(
            {
                **keys,
                "records": np.ones(batch.num_rows, np.int64),
                "null_keys": pc.is_null(key).cast(pa.int64()),
                "null_values": pc.is_null(value).cast(pa.int64()),
            }
        )
        sizes = {"key": pc.binary_length(key), "value": pc.binary_length(value), "headers": header_bytes(batch)}
        for name, array in sizes.items():
            valid = pc.is_valid(array)
            label = pa.array([name]).take(pa.array(np.zeros(pc.sum(valid).as_py() or 0, np.int64)))
            some = {field: values.filter(valid) for field, values in keys.items()}
            self.parts["sizes"].add(distribution_rows({**some, "field": label}, array.filter(valid)))

    def result(self) -> pa.Table:
        names = ["topic", "direction"]
        table = self.parts["records"].table()
        keys, number = keys_of(table, names)
        order = np.argsort(number)
        columns: dict[str, Any] = {name: keys.column(name) for name in names}
        for name in ("records", "null_keys", "null_values"):
            columns[name] = table.column(name).take(pa.array(order))
        place = {
            pair: row for row, pair in enumerate(zip(*(keys.column(name).to_pylist() for name in names), strict=True))
        }
        groups, found = distributions(self.parts["sizes"], [*names, "field"], _QUANTILES)
        measures: dict[str, list[int | None]] = {
            f"{field}_{one}": [None] * keys.num_rows for field in _FIELDS for one in _SHOWN
        }
        arrays = {**{one: integers(found[one]) for one in _QUANTILES}, "max": integers(found["high"])}
        for row, group in enumerate(groups.to_pylist()):
            where = place.get((group["topic"], group["direction"]))
            if where is not None:
                for one in _SHOWN:
                    measures[f"{group['field']}_{one}"][where] = int(arrays[one][row])
        fields = [
            *((name, pa.string()) for name in names),
            *((name, pa.int64()) for name in ("records", "null_keys", "null_values")),
            *((name, pa.int64()) for name in measures),
        ]
        return table_of({**columns, **measures}, fields)
