"""What is known of the clusters of brokers: for whoever adds up or compares what several brokers did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.analysis.partials import Partials

__all__ = ["ALONE", "Known"]


class Known(msgspec.Struct, frozen=True):
    """The clusters of brokers, which go by their endpoints (`address:port`)."""

    labels: Mapping[str, str] = {}
    """Cluster ids by broker; a cluster without an id goes by the endpoint of its first broker."""

    ids: frozenset[str] = frozenset()
    """Cluster ids."""

    @property
    def several(self) -> bool:
        """Whether there are two or more for sure: a cluster without an id may be any of the others."""
        return len(self.ids) > 1

    def label(self, broker: str | None) -> str | None:
        """The cluster of a broker; None where it is not known."""
        return None if broker is None else self.labels.get(broker)

    def group(self, broker: str | None) -> str | None:
        """The same where there are several clusters; None where all brokers may be of one."""
        return self.label(broker) if self.several else None

    def groups(self, brokers: pa.Array | pa.ChunkedArray) -> pa.Array:
        """`group` of each broker."""
        if isinstance(brokers, pa.ChunkedArray):
            brokers = pa.concat_arrays([pa.array([], pa.string()), *brokers.chunks])
        found = brokers.dictionary_encode()
        return pa.array([self.group(one) for one in found.dictionary.to_pylist()], pa.string()).take(found.indices)

    def folded(self, part: Partials) -> pa.Table:
        """Rows of a partial answer whose key `cluster` holds brokers, which become their `group`; equal ones folded."""
        table = part.table()
        if not table.num_rows:
            return table
        again = Partials(part.shape)
        columns = {name: table.column(name) for name in table.column_names}
        again.add({**columns, "cluster": self.groups(table.column("cluster"))})
        return again.table()


ALONE: Final = Known()
"""Nothing is known: brokers are taken for one cluster's."""
