"""Iceberg tables whose files are those of an export: `export --register`.

The files stay where they are, and no row is written again. Spark and Java are not needed: pyiceberg talks to the
catalog. Rows of connections that are open when a run ends are in files of their own, which the next run replaces; so a
registration may remove files as well as add some, in one commit per table.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkasniff.errors import MissingExtraError, OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.tables.exports.manifest import Manifest
from kafkasniff.tables.rows import TABLES
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    from pyiceberg.table import Table

__all__ = ["IcebergTables"]

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
