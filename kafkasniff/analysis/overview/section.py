"""Common base of an overview's sections: staged rows stay as they are, and names are filled in for the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.accumulator import Accumulator, Parameters
from kafkasniff.analysis.columns import column
from kafkasniff.analysis.partials import How
from kafkasniff.tables.rows.resolve import LearnedNames

__all__ = ["TEXT", "Section", "api_labels", "errors_of", "folded", "is_staged", "topic_names", "where"]

TEXT: Final = pa.string()


class Section(Accumulator[Parameters]):
    """A part of an overview: takes rows of an export, and staged rows of captures, whose names may become known later.

    So keys are as on the wire (topic ids, endpoints, connections) until `result()` looks at `names`.
    """

    names: LearnedNames | None = None
    """Names learned from captures that were read to their end; None: rows already have all known names."""


def is_staged(batch: pa.RecordBatch) -> bool:
    """Whether rows come from a capture that is still being read, and not from an export."""
    return "_pending" in batch.schema.names


def api_labels(batch: pa.RecordBatch) -> pa.Array:
    """Names of APIs, numbers of those that are newer than the definitions; null for orphan responses."""
    return pc.coalesce(column(batch, "api"), column(batch, "api_key").cast(TEXT))


def errors_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The number of error codes of each exchange (`errors`), and whether it has any (`with_errors`)."""
    errors = pc.fill_null(column(batch, "error_count"), 0).cast(pa.int64())
    return {"errors": errors, "with_errors": pc.greater(errors, 0).cast(pa.int64())}


def where(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Integers where `mask` is true, else 0."""
    return pc.if_else(pc.fill_null(mask, False), values.cast(pa.int64()), pa.scalar(0, pa.int64()))


def folded(table: pa.Table, keys: Sequence[str], how: Mapping[str, How]) -> pa.Table:
    """Combines rows with equal keys; columns keep their names. `keys`: at least one."""
    found = table.group_by(list(keys), use_threads=False).aggregate(
        [(name, function) for name, function in how.items()]
    )
    columns = {key: found.column(key) for key in keys}
    columns |= {
        name: found.column(f"{name}_{function}").cast(table.schema.field(name).type) for name, function in how.items()
    }
    return pa.table(columns)


def topic_names(table: pa.Table, names: LearnedNames | None) -> pa.Table:
    """A table with `topic` and `topic_id` as one with `topic`: the name if it is known by now, otherwise the id."""
    table = table.combine_chunks()
    # A table without rows has no chunk.
    topics, ids = (pa.concat_arrays([pa.array([], TEXT), *table.column(name).chunks]) for name in ("topic", "topic_id"))
    if names is not None:
        topics = names.named(topics, ids)
    table = table.drop_columns(["topic_id"])
    return table.set_column(table.schema.get_field_index("topic"), "topic", pc.coalesce(topics, ids))
