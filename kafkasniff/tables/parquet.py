"""Parquet files of a table: bounded in size, private, with the statistics that readers use for skipping."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet as pq

import kafkasniff
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.rows import SCHEMA_VERSION, TABLES

# -- repeated values ---------------------------------------------------------------------------------------------------
#
# Near a broker each record passes once as it is produced, and once for each replica and consumer group that fetches it.

SAMPLE: Final = 4096
"""Number of rows whose whole values are compared."""
PLACES: Final = 8
"""Bytes of a value that are compared of all rows."""
SHARE: Final = 0.6
"""Distinct values per row, at most, in a column that repeats."""


def repeats(column: pa.ChunkedArray) -> bool:
    """Whether a binary or string column has few distinct values for its number of rows, by an estimate.

    Rows with equal values are found however far apart they are. Null counts as an empty value.
    """
    chunks = [_Values.of(chunk) for chunk in column.chunks if len(chunk)]
    if not chunks:
        return False
    marks = [chunk.marks() for chunk in chunks]
    distinct, counts = np.unique(np.concatenate(marks), return_counts=True)
    most = SHARE * len(column)
    if len(distinct) > most:
        return False
    # Values with the same mark may differ; whether they do is looked up for as many marks as the sample holds.
    sampled = max(int(np.searchsorted(np.cumsum(counts), SAMPLE, side="right")), 1)
    found: set[bytes] = set()
    # Less than 1 if the first mark alone has more rows than the sample.
    part = min(SAMPLE / int(counts[:sampled].sum()), 1)
    for chunk, mark in zip(chunks, marks, strict=True):
        rows = np.flatnonzero(mark <= distinct[sampled - 1])
        found.update(chunk.at(rows[: math.ceil(len(rows) * part)]))
    return len(distinct) * len(found) / part <= most * sampled


class _Values(NamedTuple):
    """The values of an array."""

    content: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, values: pa.Array) -> _Values:
        _, offsets, data = values.buffers()
        wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
        ends: NDArray[np.int64] = np.frombuffer(offsets, np.int64 if wide else np.int32).astype(np.int64)
        ends = ends[values.offset : values.offset + len(values) + 1]
        content = np.frombuffer(b"\0" if data is None or not data.size else data, np.uint8)
        return cls(content, ends[:-1], ends[1:] - ends[:-1])

    def marks(self) -> NDArray[np.uint64]:
        """A number for each value, the same for equal ones; different for others that differ in size or sampled bytes.

        They are spread over 64 bits.
        """
        found = self.sizes.astype(np.uint64)
        last = np.maximum(self.sizes - 1, 0)
        for place in range(PLACES):
            # An empty value has no bytes: it gets a zero.
            places = np.minimum(self.starts + last * place // (PLACES - 1), len(self.content) - 1)
            found = _mixed(found * np.uint64(257) + np.where(self.sizes > 0, self.content[places], 0))
        return found

    def at(self, rows: NDArray[np.int64]) -> list[bytes]:
        """The values of some rows."""
        content = self.content.data
        starts, ends = self.starts[rows].tolist(), (self.starts + self.sizes)[rows].tolist()
        return [bytes(content[start:end]) for start, end in zip(starts, ends, strict=True)]


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread numbers over 64 bits (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


# -- files -------------------------------------------------------------------------------------------------------------

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
"""Maximum size of a row group's dictionary of large values; Parquet stores further values plainly. Other dictionaries
keep Arrow's limit of a megabyte: larger ones do not make them smaller."""

_LARGE: Final = frozenset({"key", "value", "request_body", "response_body", "detail"})
"""Columns that nobody filters by: no statistics, and dictionaries only in files whose first rows repeat values."""
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
        plain = [path for path in _leaves(self._schema) if path.split(".")[0] not in _LARGE]
        self._plain = plain
        self._dictionaries = [path for path in plain if path not in _UNIQUE]
        self._large = [name for name in self._schema.names if name in _LARGE]
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
            self._begin(table)
        assert self._writer is not None
        assert self._stream is not None
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._written += len(table)
        self._groups += 1
        if self._stream.tell() >= FILE_BYTES or self._groups >= ROW_GROUPS:
            self._finish()

    def _begin(self, table: pa.Table) -> None:
        self._path = self._folder / f"{self._name}-{len(self.files):05}.parquet"
        self._stream = self._path.create()
        repeating = [name for name in self._large if repeats(table[name])]
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._stream, "w"),
            self._schema,
            compression=COMPRESSION,
            use_dictionary=[*self._dictionaries, *repeating],
            write_statistics=self._plain,
            dictionary_pagesize_limit=DICTIONARY_BYTES if repeating else None,
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
