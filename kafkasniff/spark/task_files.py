"""Files that tasks write: the folder where they prepare them, and their reports to the driver."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.spark.task_output import TaskOutput
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.partitions import TablePartitions

__all__ = ["FILES", "FileReport", "file_batch", "file_reports", "own_folder"]

FILES: Final = {
    "table": "string",
    "path": "string",
    "rows": "bigint",
    "size": "bigint",
    "open": "boolean",
    "part": "int",
    "days": "binary",
}
"""Result of writing files, with types in Spark: the fields of `FileReport`."""
_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "binary": pa.binary(),
}
_SCHEMA: Final = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in FILES.items()])


class FileReport(msgspec.Struct):
    """A file that a task wrote, or how many rows it wrote of which day."""

    table: str
    open: bool
    """Rows of connections that were still open when the captures ended."""
    part: int
    """The number of the task."""
    path: str | None = None
    """As `TaskOutput` has it; None: the report has `days`."""
    rows: int | None = None
    size: int | None = None
    """In bytes."""
    days: bytes | None = None
    """Rows of the table by day (`exports.partitions`), as MessagePack."""


def file_reports(
    output: TaskOutput,
    into: ConfinedPath,
    written: Mapping[str, Sequence[WrittenFile]],
    partitions: TablePartitions,
    *,
    part: int,
    open_: bool,
) -> list[FileReport]:
    """Reports on files that were written to `into`, and on the days of their rows."""
    files = [
        FileReport(table, open_, part, output.path_of(into, file), file.rows, file.bytes)
        for table, found in written.items()
        for file in found
    ]
    days = [
        FileReport(table, open_, part, days=msgspec.msgpack.encode(counts))
        for table, counts in partitions.days.items()
        if counts
    ]
    return files + days


def file_batch(reports: Sequence[FileReport]) -> pa.RecordBatch:
    """Reports as rows of `FILES`."""
    return pa.RecordBatch.from_pylist([msgspec.structs.asdict(one) for one in reports], schema=_SCHEMA)


@contextlib.contextmanager
def own_folder() -> Iterator[ConfinedPath]:
    """A folder of the task on a disk for temporary files, deleted with the task."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    place = local if os.path.isdir(local) else None
    with (
        tempfile.TemporaryDirectory(prefix="kafkasniff-", dir=place) as folder,
        contextlib.closing(open_own_folder(folder)) as opened,
    ):
        yield opened
