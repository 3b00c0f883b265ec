"""A Parquet file of an export, of which nothing is read that bounds do not allow.

Such a file may be anybody's. Its footer, its pages and its dictionaries say how much memory they take, and a kilobyte
can say two gigabytes, or repeat a long text a million times. So what it says is added up before Arrow acts on it: the
structures of the footer, then, for the columns and row groups that are wanted, the pages as their headers have them.

    memory of a row group = its pages, uncompressed + VALUE_BYTES for each value + texts that a dictionary repeats

The texts are counted exactly, where a first estimate is too large: by the indices alone, which are small.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kafkasniff.analysis.thrift_compact import CompactReader
from kafkasniff.confined import ConfinedPath
from kafkasniff.rows import TABLES

__all__ = [
    "BATCH_ROWS",
    "MAX_COLUMNS",
    "MAX_FOOTER",
    "MAX_GROUP_BYTES",
    "MAX_GROUP_ROWS",
    "MAX_ROW_GROUPS",
    "MAX_TEXT",
    "TableFile",
]

BATCH_ROWS: Final = 1 << 14
"""Rows that are looked at together: bodies of as many exchanges have to be in memory at once."""
MAX_FOOTER: Final = 64 << 20
"""Bytes of a footer. `sinks.parquet` needs some kilobytes for each row group, up to 240 with long statistics."""
SMALL_FOOTER: Final = 256 << 10
"""Bytes of a footer whose structures are not counted before it is read: some hundred megabytes at the worst."""
MAX_COLUMNS: Final = 1024
"""Leaves of a schema: tables have up to 60."""
MAX_ROW_GROUPS: Final = 4096
"""And elements of any other list of a footer."""
MAX_TEXT: Final = 1 << 20
"""Bytes of a text in a footer, such as Arrow's schema."""
MAX_GROUP_ROWS: Final = 1 << 20
"""Rows of a row group: `sinks.parquet` writes 65,536."""
MAX_GROUP_BYTES: Final = 1 << 30
"""Memory of the wanted columns of a row group: `sinks.parquet` writes some 128 MiB, and at least one row."""

VALUE_BYTES: Final = 16
"""Of each value, null or not: eight for itself or its offset, four for levels, and room."""
HEADER_BYTES: Final = 256
MAX_HEADER: Final = 64 << 10
"""Bytes of a page's header: most, and with the longest statistics."""
END_BYTES: Final = 8

_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
_HEADER_FIELDS: Final = {_DATA_PAGE: (5, 2), _DICTIONARY_PAGE: (7, 2), _DATA_PAGE_V2: (8, 4)}
"""By type of page, where its header is in `PageHeader`, and the encoding in that (parquet.thrift)."""
_ENCODINGS: Final = frozenset({0, 2, 3, 8})
"""PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY. Others can make much of few bytes; exports have none."""
_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})


class _Chunk(NamedTuple):
    """A column of a row group."""

    path: str
    size: int
    """Its memory, without texts that a dictionary repeats."""
    texts: int
    """The most that these can take."""


class TableFile:
    """A file of a table, open.

    The constructor and `batches` raise OSError, ValueError or `pyarrow.ArrowException` where it cannot be read or goes
    over the bounds, CaptureError where it is no file that may be read.
    """

    def __init__(self, path: ConfinedPath, table: str) -> None:
        self.path = path.path
        self._table = table
        self._file = path.open_to_read()
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._data_end = self._check_footer()
            # One object for all who read: it has the lock for the file's position.
            self._native = pa.PythonFile(self._file, "r")
            self._parquet = self._open()
            self.metadata = self._parquet.metadata
            self.schema = self._parquet.schema_arrow
            self._check_schema()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """There is nothing more to read."""
        self._file.close()

    def _open(self, read_dictionary: Sequence[str] | None = None) -> pq.ParquetFile:
        return pq.ParquetFile(
            self._native,
            thrift_string_size_limit=MAX_TEXT,
            thrift_container_size_limit=MAX_ROW_GROUPS,
            read_dictionary=read_dictionary,
        )

    def _check_footer(self) -> int:
        """Where the footer begins."""
        end = os.pread(self._file.fileno(), END_BYTES, max(self._size - END_BYTES, 0))
        size = int.from_bytes(end[:4], "little")
        start = self._size - END_BYTES - size
        if end[4:] != b"PAR1" or start < 4:
            raise ValueError("it is no Parquet file")
        if size > MAX_FOOTER:
            raise ValueError(f"its footer has {size} bytes, more than {MAX_FOOTER}")
        if size > SMALL_FOOTER:
            CompactReader(os.pread(self._file.fileno(), size, start)).read()
        return start

    def _check_schema(self) -> None:
        if self.metadata.num_columns > MAX_COLUMNS:
            raise ValueError(f"it has {self.metadata.num_columns} columns, more than {MAX_COLUMNS}")
        for field in TABLES[self._table]:
            place = self.schema.get_field_index(field.name)
            found = field.type if place < 0 else self.schema.field(place).type
            if found != field.type:
                raise ValueError(f"its column {field.name} is {found}, not {field.type}")

    def minimum(self, column: str) -> int | None:
        """The least value of a column, by the statistics of row groups; None where they lack it."""
        found: list[int] = []
        for group in range(self.metadata.num_row_groups):
            chunks = (self.metadata.row_group(group).column(place) for place in self._leaves({column}))
            statistics = next((chunk.statistics for chunk in chunks), None)
            if statistics is not None and statistics.has_min_max:
                found.append(statistics.min)
        return min(found, default=None)

    def batches(
        self, columns: Sequence[str], condition: pc.Expression | None, needed: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Rows for which `condition` is true, of the row groups that statistics do not exclude.

        `needed`: the columns that the condition is about; `schema`: the table's, as its first file has it.
        """
        reader = ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(
                thrift_string_size_limit=MAX_TEXT, thrift_container_size_limit=MAX_ROW_GROUPS
            )
        )
        fragment = reader.make_fragment(self._native)
        if condition is not None:
            fragment = fragment.subset(condition, schema=schema)
        groups = [group.id for group in fragment.row_groups]
        if not groups:
            return
        leaves = self._leaves({*columns, *needed})
        for group in groups:
            self._check_group(group, leaves)
        scanner = ds.FileSystemDataset([fragment], schema, reader).scanner(
            columns=list(columns), filter=condition, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
        )
        for batch in scanner.to_batches():
            # Text that is no UTF-8 comes through Parquet's reader.
            batch.validate(full=True)
            yield batch

    def _leaves(self, columns: set[str]) -> list[int]:
        schema = self.metadata.schema
        return [
            place
            for place in range(self.metadata.num_columns)
            if schema.column(place).path.partition(".")[0] in columns
        ]

    def _check_group(self, number: int, leaves: Sequence[int]) -> None:
        group = self.metadata.row_group(number)
        if group.num_rows > MAX_GROUP_ROWS:
            raise ValueError(f"row group {number} has {group.num_rows} rows, more than {MAX_GROUP_ROWS}")
        chunks = [self._chunk(group.column(place)) for place in leaves]
        size = sum(chunk.size for chunk in chunks)
        texts = sum(chunk.texts for chunk in chunks)
        for chunk in sorted(chunks, key=lambda one: one.texts, reverse=True):
            if size + texts <= MAX_GROUP_BYTES or size > MAX_GROUP_BYTES:
                break
            exact = self._texts(number, chunk.path)
            size += exact
            texts -= chunk.texts
        if size + texts > MAX_GROUP_BYTES:
            raise ValueError(f"row group {number} takes {size + texts} bytes of memory, more than {MAX_GROUP_BYTES}")

    def _chunk(self, column: Any) -> _Chunk:
        """What a column of a row group takes, by the headers of its pages."""
        path = column.path_in_schema
        if column.compression not in _CODECS or column.file_path:
            raise ValueError(f"its column {path} is compressed by {column.compression}, or in another file")
        at = column.data_page_offset
        dictionary = column.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < at:
            at = dictionary
        end = at + column.total_compressed_size
        if not 4 <= at <= end <= self._data_end:
            raise ValueError(f"its column {path} is not within the file")
        size = values = repeated = 0
        while values < column.num_values:
            kind, after, stored, plain, count = self._page(at, path)
            at = after + stored
            if at > end:
                raise ValueError(f"a page of its column {path} ends behind it")
            size += plain
            if kind == _DICTIONARY_PAGE:
                repeated = plain
            else:
                values += count
            if size > MAX_GROUP_BYTES or values > column.num_values:
                raise ValueError(
                    f"the pages of its column {path} claim {size} bytes and {values} values, "
                    f"more than {MAX_GROUP_BYTES} or {column.num_values}"
                )
        size += values * VALUE_BYTES
        return _Chunk(path, size, repeated * values if column.physical_type == "BYTE_ARRAY" else 0)

    def _page(self, at: int, path: str) -> tuple[int, int, int, int, int]:
        """Of the page at an offset its type, where its header ends, its size as stored, uncompressed, its values."""
        for length in (HEADER_BYTES, MAX_HEADER):
            data = os.pread(self._file.fileno(), min(length, max(self._data_end - at, 0)), at)
            reader = CompactReader(data)
            try:
                found = reader.read()
                break
            except ValueError as error:
                if length == MAX_HEADER or len(data) < length:
                    raise ValueError(f"a page of its column {path} cannot be read: {error}") from None
        kind, plain, stored = (found.get(field, -1) for field in (1, 2, 3))
        place, encoding = _HEADER_FIELDS.get(kind, (0, 0))
        header = found.get(place)
        if not isinstance(header, dict) or plain < 0 or stored < 0 or header.get(1, -1) < 0:
            raise ValueError(f"a page of its column {path} makes no sense")
        if header.get(encoding) not in _ENCODINGS:
            raise ValueError(f"a page of its column {path} has encoding {header.get(encoding)}, which exports lack")
        return kind, at + reader.at, stored, plain, header[1]

    def _texts(self, group: int, path: str) -> int:
        """Bytes of the texts of a column in a row group, by the indices into its dictionary."""
        found = 0
        for chunk in self._open([path]).read_row_group(group, columns=[path]).column(0).chunks:
            leaf = chunk
            while not pa.types.is_dictionary(leaf.type):
                leaf = leaf.field(0) if pa.types.is_struct(leaf.type) else leaf.flatten()
            lengths = pc.binary_length(leaf.dictionary).cast(pa.int64()).take(leaf.indices)
            found += pc.sum(lengths).as_py() or 0
        return found
