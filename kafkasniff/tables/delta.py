"""Delta tables whose files are those of an export: `export --delta`.

Each table's folder in the export gets a log, in `_delta_log`, and is a Delta table then. No row is written again, and
neither Spark nor Java is needed. Each run is a version.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkasniff.errors import KafkasniffError, MissingExtraError, OutputError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports.manifest import FileEntry, Manifest
from kafkasniff.tables.rows import TABLES
from kafkasniff.tables.rows.file_names import date_of
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

__all__ = ["DeltaTables"]

LOG: Final = "_delta_log"
PARTITION: Final = "date"


class DeltaTables:
    """The logs of an export's tables."""

    def __init__(self) -> None:
        """Raises MissingExtraError."""
        if importlib.util.find_spec("deltalake") is None:
            raise MissingExtraError("--delta", "deltalake", "delta")

    def register(self, directory: str, manifest: Manifest) -> None:
        """Let each table have the files that the manifest names, and only those.

        Raises OutputError, and UsageError if a log leads elsewhere.
        """
        location = Location.of(directory)
        root = (location.path if location.is_local else location.uri).rstrip("/")
        for table, entry in manifest.tables.items():
            try:
                if location.is_local:
                    # The log is written by path.
                    with contextlib.closing(open_own_folder(root)) as folder:
                        log = folder.below(table, LOG)
                        log.make_folder()
                        log.check_tree()
                _bring_up_to_date(f"{root}/{table}", table, entry.files)
            except KafkasniffError:
                raise
            except OSError as error:
                raise OutputError(f"--delta: cannot write {table}: {error.strerror or error}") from error
            except Exception as error:  # the package has exceptions of its own
                lines = str(error).strip().splitlines() or [type(error).__name__]
                raise OutputError(f"--delta: cannot use {table}: {printable(lines[0])}") from error


def _bring_up_to_date(place: str, table: str, files: list[FileEntry]) -> None:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import RemoveAction, create_table_with_add_actions

    schema = pa.schema([*TABLES[table], pa.field(PARTITION, pa.date32())])
    wanted = {file.path.removeprefix(f"{table}/"): file for file in files}
    if not DeltaTable.is_deltatable(place):
        added = [_added(path, file) for path, file in wanted.items()]
        create_table_with_add_actions(place, Schema.from_arrow(schema), added, partition_by=[PARTITION])
        return
    found = DeltaTable(place)
    has = set(pa.table(found.get_add_actions(flatten=True)).column("path").to_pylist())
    now = time.time_ns() // 1_000_000
    gone = [
        RemoveAction(path, data_change=True, deletion_timestamp=now, partition_values={PARTITION: date_of(f"/{path}")})
        for path in sorted(has - wanted.keys())
    ]
    new = [_added(path, wanted[path]) for path in sorted(wanted.keys() - has)]
    if gone or new:
        found.create_write_transaction([*gone, *new], "append", Schema.from_arrow(schema), partition_by=[PARTITION])


def _added(path: str, file: FileEntry) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(
        path,
        file.bytes,
        {PARTITION: date_of(file.path)},
        time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
