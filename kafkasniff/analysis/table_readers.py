"""Passes the rows of tables to accumulators that read them: each gets its own columns, and rows of its APIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from kafkasniff.analysis.accumulator import Accumulator, TableReading
from kafkasniff.analysis.columns import BROKER, broker_endpoint, in_any, only

__all__ = ["TableReaders", "sharing", "united"]

_MORE: Final = (BROKER, "_endpoints", "_pending")
"""Columns that nobody asks for: the broker's endpoint, made once for all, and those of staged rows alone."""
_Sharing = list[tuple[TableReading, list[tuple[Accumulator[Any], tuple[str, ...]]]]]


class TableReaders:
    """Accumulators that read the same tables."""

    def __init__(self, readers: Iterable[Accumulator[Any]]) -> None:
        readers = tuple(readers)
        needed = united(*(one.reads() for one in readers))
        self._sharing = {table: sharing(readers, table) for table in needed}
        # Their rows are selected by API.
        by_api = {
            table: TableReading(("api",), needed[table].apis, needed[table].optional)
            for table, some in self._sharing.items()
            if any(reading.apis is not None for reading, _ in some)
        }
        self.reads = united(needed, by_api)
        """Tables with the columns that `update` needs."""

    def update(self, batch: pa.RecordBatch, table: str) -> None:
        """Take rows of a table."""
        if "broker_ip" in batch.schema.names:
            batch = batch.append_column(BROKER, broker_endpoint(batch))
        more = [name for name in _MORE if name in batch.schema.names]
        for reading, readers in self._sharing.get(table, ()):
            rows = batch.select([*reading.columns, *more])
            if reading.apis is not None:
                rows = only(rows, in_any(batch, "api", reading.apis))
            for one, columns in readers if rows.num_rows else ():
                # Each selects rows again, which would copy the columns of all others.
                one.update(rows.select([*columns, *more]), table)


def sharing(readers: Iterable[Accumulator[Any]], table: str) -> _Sharing:
    """Those that look at the same rows of a table, each with its columns, and what they read of it together."""
    by_apis: dict[tuple[str, ...] | None, list[tuple[Accumulator[Any], TableReading]]] = {}
    for one in readers:
        reading = one.reads().get(table)
        if reading is not None:
            by_apis.setdefault(reading.apis, []).append((one, reading))
    return [
        (united(*({table: reading} for _, reading in some))[table], [(one, reading.columns) for one, reading in some])
        for some in by_apis.values()
    ]


def united(*readings: Mapping[str, TableReading]) -> dict[str, TableReading]:
    """The combined needs of all readings: columns and APIs. A table is optional if all treat it as optional."""
    found: dict[str, TableReading] = {}
    for reading in readings:
        for table, wanted in reading.items():
            known = found.get(table)
            if known is None:
                found[table] = wanted
                continue
            apis = None
            if known.apis is not None and wanted.apis is not None:
                apis = tuple(dict.fromkeys((*known.apis, *wanted.apis)))
            found[table] = TableReading((*known.columns, *wanted.columns), apis, known.optional and wanted.optional)
    return found
