"""The manifest of an export: which files belong to it, and what the next run continues from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.tables.exports.captures import ManifestCapture
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import SCHEMA_VERSION
from kafkasniff.tables.rows.file_names import is_state_file, is_table_file

MAX_RUNS: Final = 1_000_000_000
"""Maximum number of runs of one export."""
MAX_COUNT: Final = 1 << 62
"""Maximum number of rows, bytes or packets, of a file or in total."""

Engine = Literal["local", "spark"]

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class WrittenFile(NamedTuple):
    """A file of a table that a run has written."""

    path: str
    """Path in the export, with slashes."""
    rows: int
    bytes: int


class FileEntry(msgspec.Struct, omit_defaults=True):
    """A file of a table."""

    path: str
    """Path in the export, with slashes."""
    rows: _Count
    bytes: _Count
    run: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUNS)]
    """The run that wrote it, from 1."""
    open: bool = False
    """It holds rows that were unfinished when the run's captures ended; the next run replaces them."""
    compacted: bool = False
    """A compaction wrote it: it has all rows of its date that were there, in order."""


class TableEntry(msgspec.Struct):
    """A table."""

    rows: _Count = 0
    files: list[FileEntry] = []


class Manifest(msgspec.Struct):
    """The content of an export."""

    format: Literal["kafkasniff-export"]
    schema_version: int
    version: str
    engine: Engine
    """The engine of the last run; both write the same rows."""
    options: ExportOptions
    runs: Annotated[int, msgspec.Meta(ge=0, le=MAX_RUNS)] = 0
    captures: list[ManifestCapture] = []
    quarantined: list[ManifestCapture] = []
    """Captures that could not be read and are ignored from now on."""
    tables: dict[str, TableEntry] = {}
    state: str | None = None
    """Path of the file from which the next run continues."""
    batch: int | None = None
    """The number of the last batch of a stream that is in the export."""


def parse_manifest(data: bytes, name: str, place: str) -> Manifest:
    """The manifest in the file `name` of the export `place`.

    Raises UsageError if it is invalid, or names files that no export has.
    """
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{name} is not a manifest of an export: {error}") from None
    if manifest.schema_version != SCHEMA_VERSION:
        version = manifest.schema_version
        raise UsageError(f"{place} has tables of schema version {version}, not {SCHEMA_VERSION}; name a new folder")
    for path in _foreign_names(manifest):
        raise UsageError(f"{name} names {path!r}, which is not a file of an export: name a new folder")
    return manifest


def _foreign_names(manifest: Manifest) -> Iterator[str]:
    """Names in a manifest that are not files of an export."""
    for table, entry in manifest.tables.items():
        yield from (file.path for file in entry.files if not is_table_file(file.path, table))
    if manifest.state is not None and not is_state_file(manifest.state):
        yield manifest.state
