"""Lakehouse tables whose files are those of an export: Iceberg (`export --register`), Delta (`export --delta`).

The files stay where they are, and no row is written again. Neither Spark nor Java is needed. Rows of connections that
are open when a run ends are in files of their own, which the next run replaces; so a registration may remove files as
well as add some, in one commit per table. pyiceberg talks to Iceberg's catalog. Delta tables are the folders of the
export's tables, which get a log, `_delta_log`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkasniff.errors import KafkasniffError, MissingExtraError, OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.tables.exports.manifest import FileEntry, Manifest
from kafkasniff.tables.rows import TABLES
from kafkasniff.tables.rows.file_names import date_of
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyiceberg.table import Table

_NAME: Final = re.compile(r"\w+(\.\w+){2,}", re.ASCII)


class IcebergTables:
    """The tables `NAME_exchanges`, `NAME_records` … in a namespace of a catalog."""

    def __init__(self, name: str, tables: Iterable[str]) -> None:
        """Makes the namespace and tables that do not exist, and adds columns that tables lack.

        `name`: `CATALOG.NAMESPACE.NAME`; the catalog is one that pyiceberg's configuration describes. Raises
        MissingExtraError, UsageError for another form, and OutputError if the catalog or a table cannot be used.
        """
        if importlib.util.find_spec("pyiceberg") is None:
            raise MissingExtraError("--register", "pyiceberg", "iceberg")
        if not _NAME.fullmatch(name):
            raise UsageError(f"--register: {name} is not of the form CATALOG.NAMESPACE.NAME")
        from pyiceberg.catalog import load_catalog

        # It warns of each column without statistics: those of payload and bodies have none.
        logging.getLogger("pyiceberg").setLevel(logging.ERROR)
        self.name = name
        catalog_name, *namespace, last = name.split(".")
        self._tables: dict[str, Table] = {}
        try:
            catalog = load_catalog(catalog_name)
            catalog.create_namespace_if_not_exists(tuple(namespace))
            for table in tables:
                found = catalog.create_table_if_not_exists((*namespace, f"{last}_{table}"), schema=TABLES[table])
                with found.update_schema() as update:
                    update.union_by_name(TABLES[table])
                self._tables[table] = found
        except Exception as error:  # catalogs have exceptions of their own
            raise self._refused(error) from error

    def register(self, directory: str, manifest: Manifest) -> None:
        """Let the tables have the files of an export, and of its files only those. Raises OutputError."""
        location = Location.of(directory)
        root = f"file://{location.uri}" if location.is_local else location.name
        root = root.rstrip("/") + "/"
        try:
            for name, table in self._tables.items():
                wanted = {root + file.path for file in manifest.tables[name].files}
                has = {task.file.file_path: task.file for task in table.scan().plan_files()}
                new = sorted(wanted - has.keys())
                # Files of other exports may be in the same table.
                gone = [file for path, file in has.items() if path.startswith(root) and path not in wanted]
                if not new and not gone:
                    continue
                with table.transaction() as transaction:
                    if gone:
                        with transaction.update_snapshot().overwrite() as update:
                            for file in gone:
                                update.delete_data_file(file)
                    if new:
                        transaction.add_files(new, check_duplicate_files=False)
        except Exception as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> OutputError:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return OutputError(f"--register: cannot use {self.name}: {printable(lines[0])}")


# -- Delta -------------------------------------------------------------------------------------------------------------

LOG: Final = "_delta_log"
PARTITION: Final = "date"


class DeltaTables:
    """The logs of an export's tables. Each run is a version."""

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
