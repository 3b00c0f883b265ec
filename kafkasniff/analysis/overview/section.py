"""What the sections of an overview share: staged rows as they are, names put in when the answer is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters
from kafkasniff.analysis.columns import column
from kafkasniff.analysis.partials import How
from kafkasniff.rows.resolve import Names

__all__ = ["TEXT", "Section", "api_labels", "errors_of", "folded", "is_staged", "topic_names", "where"]

TEXT: Final = pa.string()


class Section(Accumulator[Parameters]):
    """A part of an overview: takes rows of an export, and staged rows of captures, whose names may be told later.

    So keys are what the wire has (topic ids, endpoints, connections), until `result()` looks at `names`.
    """

    names: Names | None = None
    """What captures told, when they are read to their end; None: rows have the names that there are."""


def is_staged(batch: pa.RecordBatch) -> bool:
    """Whether rows come from a capture that is still being read, and not from an export."""
    return "_pending" in batch.schema.names


def api_labels(batch: pa.RecordBatch) -> pa.Array:
    """Names of APIs, numbers of those that are newer than the definitions; null for orphan responses."""
    return pc.coalesce(column(batch, "api"), column(batch, "api_key").cast(TEXT))


def errors_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """How many error codes each exchange has (`errors`), and whether it has one (`with_errors`)."""
    errors = pc.fill_null(column(batch, "error_count"), 0).cast(pa.int64())
    return {"errors": errors, "with_errors": pc.greater(errors, 0).cast(pa.int64())}


def where(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Integers as they are where `mask` is true, else 0."""
    return pc.if_else(pc.fill_null(mask, False), values.cast(pa.int64()), pa.scalar(0, pa.int64()))


def folded(table: pa.Table, keys: Sequence[str], how: Mapping[str, How]) -> pa.Table:
    """Rows with equal keys as one; columns keep their names. `keys`: at least one."""
    found = table.group_by(list(keys), use_threads=False).aggregate([(name, way) for name, way in how.items()])
    columns = {key: found.column(key) for key in keys}
    columns |= {name: found.column(f"{name}_{way}").cast(table.schema.field(name).type) for name, way in how.items()}
    return pa.table(columns)


def topic_names(table: pa.Table, names: Names | None) -> pa.Table:
    """A table with `topic` and `topic_id` as one with `topic`: the name that is known by now, or else the id."""
    table = table.combine_chunks()
    # Of a table without rows there is no chunk.
    topics, ids = (pa.concat_arrays([pa.array([], TEXT), *table.column(name).chunks]) for name in ("topic", "topic_id"))
    if names is not None:
        topics = names.named(topics, ids)
    table = table.drop_columns(["topic_id"])
    return table.set_column(table.schema.get_field_index("topic"), "topic", pc.coalesce(topics, ids))
