"""A Parquet file of an export, read only as far as its bounds allow.

Such a file may come from anybody. Its footer, pages and dictionaries declare how much memory they need; a kilobyte can
declare two gigabytes, or repeat a long text a million times. So everything declared is added up before Arrow acts on
it: the structures of the footer, then, for the selected columns and row groups, the pages according to their headers.

    memory of a row group = its pages, uncompressed + VALUE_BYTES for each value + texts that a dictionary repeats

If a first estimate is too large, the texts are counted exactly, using only the indices, which are small.

Arrow never sees the original footer, since some contradictions in it abort the process. It gets one that
`parquet_footer` writes, with only the selected columns and row groups and without statistics; the row groups that can
hold wanted rows are determined here.
"""

from __future__ import annotations

import io
import os
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kafkasniff.analysis.parquet_footer import BYTE_ARRAY, MAX_ELEMENTS, CompactReader, Footer, Leaf, Shape
from kafkasniff.runtime.object_store import RandomFile
from kafkasniff.tables.rows import TABLES


class RowSelection(NamedTuple):
    """Rows whose API is one of `apis`, and whose time is within the bounds, both included; None: unrestricted."""

    apis: Sequence[str] | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    exact: bool = True
    """The time is in `time_ns`; otherwise in `time`, in microseconds, rounded down, as in the table `records`."""

    @property
    def _time(self) -> str:
        return "time_ns" if self.exact else "time"

    def _units(self, time_ns: int) -> int:
        # The first time of `records` must be rounded down, too.
        return time_ns if self.exact else time_ns // 1000

    @property
    def columns(self) -> list[str]:
        """The columns that the selection uses."""
        timed = self.since_ns is not None or self.until_ns is not None
        return [name for name, used in (("api", self.apis is not None), (self._time, timed)) if used]

    @property
    def expression(self) -> pc.Expression | None:
        """The selection in Arrow's form; None: all rows."""
        parts: list[pc.Expression] = []
        if self.apis is not None:
            parts.append(pc.field("api").isin(list(self.apis)))
        field = pc.field(self._time)
        if self.since_ns is not None:
            parts.append(field >= self._scalar(self.since_ns))
        if self.until_ns is not None:
            parts.append(field <= self._scalar(self.until_ns))
        whole: pc.Expression | None = None
        for part in parts:
            whole = part if whole is None else whole & part
        return whole

    def _scalar(self, time_ns: int) -> pa.Scalar:
        value = self._units(time_ns)
        return pa.scalar(value) if self.exact else pa.scalar(value, pa.timestamp("us", tz="UTC"))

    def can_match(self, footer: Footer, group: int) -> bool:
        """Whether a row group can have such rows, by its statistics.

        Raises ValueError if these are invalid.
        """
        if self.since_ns is not None or self.until_ns is not None:
            times = footer.integers(group, self._time)
            if times is not None:
                least, largest = times
                if self.since_ns is not None and largest < self._units(self.since_ns):
                    return False
                if self.until_ns is not None and least > self._units(self.until_ns):
                    return False
        texts = None if self.apis is None else footer.texts(group, "api")
        return texts is None or any(texts[0] <= api.encode() <= texts[1] for api in self.apis or ())


BATCH_ROWS: Final = 1 << 14
"""Number of rows that are processed together: the bodies of as many exchanges have to fit in memory."""
MAX_FOOTER: Final = 64 << 20
"""Maximum size of a footer in bytes. `tables.parquet` needs some kilobytes per row group, up to 240 with long
statistics.
"""
MAX_TEXT: Final = 1 << 20
"""Maximum size in bytes of a text in a page's header, which holds statistics."""
MAX_GROUP_ROWS: Final = 1 << 20
"""Maximum number of rows of a row group: `tables.parquet` writes 65,536."""
MAX_GROUP_BYTES: Final = 1 << 30
"""Maximum memory of the selected columns of a row group: `tables.parquet` writes some 128 MiB, and at least one row."""

LATER_FIELDS: Final = {"partitions": frozenset({"last_stable_offset"})}
"""Fields of structs that exports of earlier releases lack; they are null there."""
DROP_SECONDS: Final = 2.0
"""How long to wait until Arrow has released a file, which takes some milliseconds."""
LOOK_SECONDS: Final = 0.0002
VALUE_BYTES: Final = 16
"""Memory per value, null or not: eight bytes for itself or its offset, four for levels, and spare room."""
HEADER_BYTES: Final = 256
MAX_HEADER: Final = 64 << 10
"""Size of a page's header in bytes: typical maximum, and with the longest statistics."""
END_BYTES: Final = 8
MAGIC: Final = b"PAR1"

_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_DATA_PAGE_V2: Final = 3
_HEADER_FIELDS: Final = {_DATA_PAGE: (5, 2), _DICTIONARY_PAGE: (7, 2), _DATA_PAGE_V2: (8, 4)}
"""By page type: the field of `PageHeader` with its header, and the encoding in that (parquet.thrift)."""
_PAGE_HEADER: Final[Shape] = {
    **dict.fromkeys((1, 2, 3), int),
    **{field: {1: int, encoding: int} for field, encoding in _HEADER_FIELDS.values()},
}
_ENCODINGS: Final = frozenset({0, 2, 3, 8})
"""PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY. Others can expand a few bytes enormously; exports do not use them."""


class _Lent:
    """Python objects that Arrow holds: a file, and buffers read from it.

    If one of Arrow's threads holds the last reference, it needs the interpreter to release it. If the interpreter is
    about to exit, that aborts the process. So reading ends only when all are released.
    """

    def __init__(self) -> None:
        self._refs: list[weakref.ref[Any]] = []

    def add(self, one: object) -> None:
        self._refs = [*(ref for ref in self._refs if ref() is not None), weakref.ref(one)]

    def wait(self) -> None:
        deadline = time.monotonic() + DROP_SECONDS
        while any(ref() is not None for ref in self._refs) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)


def _earlier(field: pa.Field) -> pa.DataType:
    """The type of a column in exports of earlier releases."""
    later = LATER_FIELDS.get(field.name)
    if later is None:
        return field.type
    struct = field.type.value_type
    fields = [struct.field(place) for place in range(struct.num_fields)]
    return pa.list_(field.type.value_field.with_type(pa.struct([field for field in fields if field.name not in later])))


class _WithFooter(io.RawIOBase):
    """A file up to the beginning of its footer, followed by another footer: what Arrow reads."""

    def __init__(self, file: RandomFile, data_end: int, footer: bytes, lent: _Lent) -> None:
        super().__init__()
        self._lent = lent
        lent.add(self)
        self._file = file
        self._data_end = data_end
        self._end = footer + len(footer).to_bytes(4, "little") + MAGIC
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._data_end + len(self._end)}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def read_buffer(self, size: int) -> pa.Buffer:
        """Called by pyarrow instead of `read`."""
        left = max(self._data_end + len(self._end) - self._at, 0)
        buffer = pa.allocate_buffer(min(size, left), resizable=True)
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            if self._at < self._data_end:
                count = self._file.read_into(view[filled : filled + self._data_end - self._at], self._at)
            else:
                index = self._at - self._data_end
                part = self._end[index : index + len(view) - filled]
                count = len(part)
                view[filled : filled + count] = part
            if not count:
                break
            filled += count
            self._at += count
        view.release()
        buffer.resize(filled)
        self._lent.add(buffer)
        return buffer


class TableFile:
    """An open file of a table, which it closes.

    The constructor and `batches` raise OSError, ValueError or `pyarrow.ArrowException` if it cannot be read or exceeds
    the bounds, CaptureError if the file may not be read.
    """

    def __init__(self, file: RandomFile, table: str) -> None:
        self._table = table
        self._file = file
        try:
            self._size = file.size
            self._data_end, data = self._footer()
            self.footer = Footer(data)
            self.schema = self._parquet(self.footer.rewritten()).schema_arrow
            self._check_schema()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Nothing more will be read."""
        self._file.close()

    def _native(self, footer: bytes, lent: _Lent) -> pa.PythonFile:
        return pa.PythonFile(_WithFooter(self._file, self._data_end, footer, lent), "r")

    def _parquet(self, footer: bytes, read_dictionary: Sequence[str] | None = None) -> pq.ParquetFile:
        return pq.ParquetFile(
            self._native(footer, _Lent()),
            thrift_string_size_limit=MAX_TEXT,
            thrift_container_size_limit=MAX_ELEMENTS + 1,
            read_dictionary=read_dictionary,
        )

    def _footer(self) -> tuple[int, bytes]:
        """Offset of the footer, and its bytes."""
        end = self._file.read(END_BYTES, max(self._size - END_BYTES, 0))
        size = int.from_bytes(end[:4], "little")
        start = self._size - END_BYTES - size
        if end[4:] != MAGIC or start < len(MAGIC):
            raise ValueError("it is not a Parquet file")
        if size > MAX_FOOTER:
            raise ValueError(f"its footer has {size} bytes, more than {MAX_FOOTER}")
        return start, self._file.read(size, start)

    def _check_schema(self) -> None:
        for field in TABLES[self._table]:
            place = self.schema.get_field_index(field.name)
            found = field.type if place < 0 else self.schema.field(place).type
            if found not in {field.type, _earlier(field)}:
                raise ValueError(f"its column {field.name} is {found}, not {field.type}")

    def minimum(self, column: str) -> int | None:
        """The smallest value of a column of 64-bit integers, by the statistics of row groups; None if they lack it."""
        found = (self.footer.integers(group, column) for group in range(self.footer.groups))
        return min((one[0] for one in found if one is not None), default=None)

    def batches(self, columns: Sequence[str], selection: RowSelection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Selected rows of the row groups that statistics do not exclude.

        `schema`: the table's, according to its first file.
        """
        groups = [group for group in range(self.footer.groups) if selection.can_match(self.footer, group)]
        if not groups:
            return
        # Rows exist without columns, too, but Parquet cannot express that.
        names = {*columns, *selection.columns} & set(self.schema.names) or {self.schema.names[0]}
        schema = pa.schema([self.schema.field(one.name) if one.name in names else one for one in schema])
        leaves = self.footer.leaves_of(names)
        for group in groups:
            self._check_group(group, leaves)
        reader = ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(
                thrift_string_size_limit=MAX_TEXT, thrift_container_size_limit=MAX_ELEMENTS + 1
            )
        )
        lent = _Lent()
        fragment = reader.make_fragment(self._native(self.footer.rewritten(names, groups), lent))
        scanner = ds.FileSystemDataset([fragment], schema, reader).scanner(
            columns=list(columns),
            filter=selection.expression,
            batch_size=BATCH_ROWS,
            batch_readahead=2,
            fragment_readahead=1,
        )
        del fragment
        try:
            for batch in scanner.to_batches():
                # Parquet's reader accepts text that is not UTF-8.
                batch.validate(full=True)
                yield self._completed(batch)
        finally:
            # After an error or an early end, Arrow's threads are still reading.
            del scanner
            lent.wait()

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With null for fields that an earlier release did not write."""
        for field in TABLES[self._table]:
            place = batch.schema.get_field_index(field.name)
            if place >= 0 and batch.schema.field(place).type == _earlier(field) != field.type:
                batch = batch.set_column(place, field, batch.column(place).cast(field.type))
        return batch

    def _check_group(self, number: int, leaves: Sequence[Leaf]) -> None:
        rows = self.footer.rows(number)
        if rows > MAX_GROUP_ROWS:
            raise ValueError(f"row group {number} has {rows} rows, more than {MAX_GROUP_ROWS}")
        chunks = [(leaf, *self._chunk(number, leaf)) for leaf in leaves]
        size = sum(plain for _, plain, _ in chunks)
        texts = sum(most for _, _, most in chunks)
        for leaf, _, most in sorted(chunks, key=lambda one: one[2], reverse=True):
            if size + texts <= MAX_GROUP_BYTES or size > MAX_GROUP_BYTES:
                break
            size += self._texts(number, leaf)
            texts -= most
        if size + texts > MAX_GROUP_BYTES:
            raise ValueError(f"row group {number} takes {size + texts} bytes of memory, more than {MAX_GROUP_BYTES}")

    def _chunk(self, group: int, leaf: Leaf) -> tuple[int, int]:
        """Memory of a column of a row group, and the maximum size of texts that a dictionary repeats.

        According to the headers of its pages.
        """
        path = leaf.path
        chunk = self.footer.chunk(group, leaf)
        at = chunk.start
        end = at + chunk.stored_size
        if not len(MAGIC) <= at <= end <= self._data_end:
            raise ValueError(f"its column {path} is not within the file")
        size = values = repeated = 0
        while values < chunk.values:
            kind, after, stored, plain, count = self._page(at, path)
            at = after + stored
            if at > end:
                raise ValueError(f"a page of its column {path} ends after the column")
            size += plain
            if kind == _DICTIONARY_PAGE:
                repeated = plain
            else:
                values += count
            if size > MAX_GROUP_BYTES or values > chunk.values:
                raise ValueError(
                    f"the pages of its column {path} claim {size} bytes and {values} values, "
                    f"more than {MAX_GROUP_BYTES} or {chunk.values}"
                )
        size += values * VALUE_BYTES
        return size, repeated * values if leaf.physical == BYTE_ARRAY else 0

    def _page(self, at: int, path: str) -> tuple[int, int, int, int, int]:
        """For the page at an offset: type, end of its header, size as stored and uncompressed, number of values."""
        for length in (HEADER_BYTES, MAX_HEADER):
            data = self._file.read(min(length, max(self._data_end - at, 0)), at)
            reader = CompactReader(data)
            try:
                found = reader.read(_PAGE_HEADER)
                break
            except ValueError as error:
                if length == MAX_HEADER or len(data) < length:
                    raise ValueError(f"a page of its column {path} cannot be read: {error}") from None
        kind, plain, stored = (found.get(field, -1) for field in (1, 2, 3))
        place, encoding = _HEADER_FIELDS.get(kind, (0, 0))
        header = found.get(place)
        if not isinstance(header, dict) or plain < 0 or stored < 0 or header.get(1, -1) < 0:
            raise ValueError(f"a page of its column {path} is invalid")
        if header.get(encoding) not in _ENCODINGS:
            raise ValueError(
                f"a page of its column {path} has encoding {header.get(encoding)}, which exports do not use"
            )
        return kind, at + reader.at, stored, plain, header[1]

    def _texts(self, group: int, leaf: Leaf) -> int:
        """Bytes of the texts of a column in a row group, by the indices into its dictionary."""
        file = self._parquet(self.footer.rewritten(leaf.names[:1], [group]), [leaf.path])
        found = 0
        for chunk in file.read_row_group(0, columns=[leaf.path]).column(0).chunks:
            array = chunk
            while not pa.types.is_dictionary(array.type):
                array = array.field(0) if pa.types.is_struct(array.type) else array.flatten()
            lengths = pc.binary_length(array.dictionary).cast(pa.int64()).take(array.indices)
            found += pc.sum(lengths).as_py() or 0
        return found
