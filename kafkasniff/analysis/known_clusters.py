"""The known clusters of brokers, for code that adds up or compares several brokers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafkasniff.analysis.partials import Partials
from kafkasniff.tables.rows.resolve import LearnedNames

__all__ = ["ALONE", "Known"]


class Known(msgspec.Struct, frozen=True):
    """The clusters of brokers, which are identified by endpoint (`address:port`)."""

    labels: Mapping[str, str] = {}
    """Cluster ids by broker; a cluster without an id is identified by the endpoint of its first broker."""

    ids: frozenset[str] = frozenset()
    """Cluster ids."""

    @property
    def several(self) -> bool:
        """Whether there are certainly two or more: a cluster without an id may be any of the others."""
        return len(self.ids) > 1

    def label(self, broker: str | None) -> str | None:
        """The cluster of a broker; None if it is unknown."""
        return None if broker is None else self.labels.get(broker)

    def group(self, broker: str | None) -> str | None:
        """The same if there are several clusters; None if all brokers may belong to one."""
        return self.label(broker) if self.several else None

    def groups(self, brokers: pa.Array | pa.ChunkedArray) -> pa.Array:
        """`group` of each broker."""
        if isinstance(brokers, pa.ChunkedArray):
            brokers = pa.concat_arrays([pa.array([], pa.string()), *brokers.chunks])
        found = brokers.dictionary_encode()
        return pa.array([self.group(one) for one in found.dictionary.to_pylist()], pa.string()).take(found.indices)

    def folded(self, part: Partials, names: LearnedNames | None = None) -> pa.Table:
        """Rows of a partial answer, brokers in the key `cluster` replaced by their `group`; equal rows combined.

        `names`: topics in the key `topic` are replaced by their names, too.
        """
        table = part.table()
        columns: dict[str, Any] = {}
        if names is not None and table.num_rows and "topic" in table.column_names:
            topics = table.column("topic").combine_chunks().dictionary_encode()
            known = [names.topic(one) or one for one in topics.dictionary.to_pylist()]
            columns["topic"] = pa.array(known, pa.string()).take(topics.indices)
        if table.num_rows and "cluster" in table.column_names:
            columns["cluster"] = self.groups(table.column("cluster"))
        if not columns:
            return table
        distinct = functools.partial(pc.count_distinct, mode="all")
        if all(distinct(table.column(name)) == distinct(found) for name, found in columns.items()):
            # No two rows have become equal.
            for name, found in columns.items():
                table = table.set_column(table.schema.get_field_index(name), name, found)
            return table
        merged = Partials(part.shape)
        merged.add({**{name: table.column(name) for name in table.column_names}, **columns})
        return merged.table()


ALONE: Final = Known()
"""Nothing is known: brokers are assumed to belong to one cluster."""
