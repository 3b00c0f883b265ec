"""Parquet files of a table: bounded in size, private, with the statistics that readers use for skipping."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import BinaryIO, Final, Self

import pyarrow as pa
from pyarrow import parquet as pq

import kafkasniff
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.rows import SCHEMA_VERSION, TABLES

ROW_GROUP_ROWS: Final = 65_536
"""Rows of a row group: enough for good compression, few enough to hold back in memory."""
ROW_GROUP_BYTES: Final = 32 << 20
"""Bytes of rows in Arrow's memory that make a row group even if there are fewer rows."""
ROW_GROUPS: Final = 256
"""Row groups after which a new file is started, so that its footer stays small, however well rows are compressed."""
FILE_BYTES: Final = 256 << 20
"""Bytes after which a new file is started: large enough to be read at speed, small enough to be read in parallel."""
COMPRESSION: Final = "zstd"
DICTIONARY_BYTES: Final = 8 << 20
"""Maximum size of a column's dictionary in a row group; Parquet stores further values plainly. Near a broker each
record passes once as it is produced, and once for each replica and consumer group that fetches it. Where no value is
repeated, writing takes 0.3 s of CPU time more for each GB."""

_LARGE: Final = frozenset({"key", "value", "request_body", "response_body", "detail"})
"""Columns that nobody filters by: no statistics."""
_UNIQUE: Final = frozenset({"time", "time_ns"})
"""Columns with hardly any repeated values, whose dictionaries would take time and space: times of small messages take
40% less without."""
_LOOKED_UP: Final = ("connection_id", "client_id", "group_id", "topic")
"""Columns with Bloom filters: rows are in order of time, so that minimum and maximum do not show where a value is."""
_DISTINCT: Final = {"ndv": 4096, "fpp": 0.01}
"""Values of such a column in a row group; with more, the filter lets more row groups pass."""


class TableWriter:
    """Writes rows of one table to `FOLDER/NAME-00000.parquet`, `-00001` …; a context manager.

    Rows keep their order. `group_bytes`: maximum size of a row group, if less than `ROW_GROUP_BYTES`; `order`: columns
    by which rows are in ascending order, null first, for readers to know. Raises OSError if a file cannot be written.
    """

    def __init__(
        self, table: str, folder: ConfinedPath, name: str, group_bytes: int | None = None, order: Sequence[str] = ()
    ) -> None:
        self._schema = TABLES[table].with_metadata(
            {
                "kafkasniff.schema_version": str(SCHEMA_VERSION),
                "kafkasniff.version": kafkasniff.__version__,
                "kafkasniff.table": table,
            }
        )
        self._leaves = _leaves(self._schema)
        self._folder = folder
        self._name = name
        self._most = ROW_GROUP_BYTES if group_bytes is None else group_bytes
        self._order = pq.SortingColumn.from_ordering(
            self._schema, [(column, "ascending") for column in order], null_placement="at_start"
        )
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._stream: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._path = folder
        self._written = self._groups = 0
        self.files: list[tuple[ConfinedPath, int, int]] = []
        """Finished files, their numbers of rows, and their sizes in bytes."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows in the table's schema."""
        while len(batch):
            # Fill row groups: small ones take more space.
            rows = batch.slice(0, ROW_GROUP_ROWS - self._rows)
            batch = batch.slice(len(rows))
            self._waiting.append(rows)
            self._rows += len(rows)
            self._bytes += rows.nbytes
            if self._rows == ROW_GROUP_ROWS or self._bytes >= self._most:
                self._flush()

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add batches one by one."""
        for batch in batches:
            self.write(batch)

    def _flush(self) -> None:
        """Write the waiting rows as a row group."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._rows, self._bytes = [], 0, 0
        if self._writer is None:
            self._begin()
        assert self._writer is not None
        assert self._stream is not None
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._written += len(table)
        self._groups += 1
        if self._stream.tell() >= FILE_BYTES or self._groups >= ROW_GROUPS:
            self._finish()

    def _begin(self) -> None:
        self._path = self._folder / f"{self._name}-{len(self.files):05}.parquet"
        self._stream = self._path.create()
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._stream, "w"),
            self._schema,
            compression=COMPRESSION,
            use_dictionary=[path for path in self._leaves if path not in _UNIQUE],
            write_statistics=[path for path in self._leaves if path.split(".")[0] not in _LARGE],
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            write_page_index=True,
            sorting_columns=self._order or None,
            bloom_filter_options={name: _DISTINCT for name in _LOOKED_UP if name in self._schema.names},
        )

    def _finish(self) -> None:
        writer, stream = self._writer, self._stream
        self._writer = self._stream = None
        if writer is None or stream is None:
            return
        writer.close()
        stream.flush()
        os.fsync(stream.fileno())
        self.files.append((self._path, self._written, stream.tell()))
        stream.close()
        self._written = self._groups = 0

    def close(self) -> None:
        """Write the waiting rows, finish the last file."""
        self._flush()
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._stream is not None:
            # The file is given up; errors of closing it must not hide the cause.
            with contextlib.suppress(OSError, pa.ArrowException):
                self._stream.close()


def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of all columns in Parquet's notation."""
    paths: list[str] = []

    def walk(path: str, kind: pa.DataType) -> None:
        if pa.types.is_list(kind):
            walk(f"{path}.list.element", kind.value_type)
        elif pa.types.is_struct(kind):
            for field in kind:
                walk(f"{path}.{field.name}", field.type)
        else:
            paths.append(path)

    for field in schema:
        walk(field.name, field.type)
    return paths
