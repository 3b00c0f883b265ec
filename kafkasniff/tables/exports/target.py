"""Where a run writes its tables: a folder (`folder.ExportFolder`) or an object store (`store.ExportStore`).

Both hold the same files. They differ in how a run becomes visible: by a rename of the manifest, or by a conditional
write of it.
"""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import msgspec

import kafkasniff
from kafkasniff.errors import OutputError
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.export_manifest import FORMAT
from kafkasniff.tables.exports.captures import ManifestCapture
from kafkasniff.tables.exports.manifest import Engine, FileEntry, Manifest, TableEntry, WrittenFile
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import SCHEMA_VERSION
from kafkasniff.tables.rows.file_names import STATES

__all__ = ["Deliver", "ExportTarget", "Written"]

Written = Mapping[str, Sequence[WrittenFile]]
"""The files of each table."""

Deliver = Callable[[ConfinedPath, Sequence[WrittenFile]], None]
"""Brings files in a folder to where the tables are. Picklable; raises OSError."""

_ARROW_ERRNO: Final = re.compile(r"Detail: \[errno (\d+)\]")


class ExportTarget(ABC):
    """An export while a run writes to it; a context manager."""

    name: str
    """Path or address, as messages show it."""
    manifest: Manifest | None
    deliver: Deliver | None = None
    """For other processes that write files of a run; without it they stay in `partial` until `commit`."""
    partial: ConfinedPath
    """Folder of the current run, for the files of its tables until they are committed, and for what it needs beside."""
    staged: ConfinedPath
    """Folder for rows of a live capture that wait for their run."""

    @property
    def run(self) -> int:
        """The number of the current run."""
        return 1 if self.manifest is None else self.manifest.runs + 1

    @property
    def file_name(self) -> str:
        """What the names of the current run's files begin with."""
        return f"part-{self.run:05}"

    @property
    def state_name(self) -> str:
        """Path of the current run's state."""
        return f"{STATES}/run-{self.run:05}.state"

    @abstractmethod
    def state(self) -> bytes | None:
        """The state that the last run left, if any. Raises OutputError."""

    @abstractmethod
    def discard(self) -> None:
        """Discard the current run, unless it is committed."""

    @abstractmethod
    def _publish(self, manifest: Manifest, encoded: bytes, new: Sequence[WrittenFile], state: bytes) -> None:
        """Make a run visible: its files, its state, and last its manifest. Raises OSError."""

    @abstractmethod
    def _close(self, *, failed: bool) -> None:
        """Release what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(failed=error is not None)

    @contextlib.contextmanager
    def output(self) -> Iterator[None]:
        """Turn write errors into OutputError."""
        try:
            yield
        except OSError as error:
            raise OutputError(f"cannot write {self.name}: {_reason(error)}") from error

    def commit(
        self,
        options: ExportOptions,
        captures: Sequence[ManifestCapture],
        written: Written,
        unfinished: Written,
        state: bytes,
        *,
        engine: Engine = "local",
        continues: bool = True,
        batch: int | None = None,
        quarantined: Sequence[ManifestCapture] = (),
    ) -> Manifest:
        """Add a run's files to the export and remove the last run's unfinished rows. Returns the new manifest.

        `continues` False: the run does not continue the last one, so that the unfinished rows are final. `batch`: the
        number of a stream's batch, if the run is one; `quarantined`: captures that later runs ignore.
        """
        old, run = self.manifest, self.run
        tables: dict[str, TableEntry] = {}
        for table in options.tables:
            kept = [] if old is None or table not in old.tables else old.tables[table].files
            files = [entry for entry in kept if not (entry.open and continues)]
            files = [msgspec.structs.replace(entry, open=False) for entry in files]
            files += [FileEntry(*file, run) for file in written.get(table, ())]
            files += [FileEntry(*file, run, open=True) for file in unfinished.get(table, ())]
            files.sort(key=lambda entry: entry.path)
            tables[table] = TableEntry(sum(entry.rows for entry in files), files)
        manifest = Manifest(
            FORMAT,
            SCHEMA_VERSION,
            kafkasniff.__version__,
            engine,
            options.public,
            run,
            [*(() if old is None else old.captures), *captures],
            [*(() if old is None else old.quarantined), *quarantined],
            tables,
            self.state_name,
            batch,
        )
        self._replace_manifest(manifest, state)
        return manifest

    def replace(self, tables: dict[str, TableEntry], state: bytes) -> Manifest:
        """Replace files of the export as a run of its own, which reads no captures. Returns the new manifest.

        `state`: that of the last run; later runs continue from it.
        """
        assert self.manifest is not None
        manifest = msgspec.structs.replace(
            self.manifest, version=kafkasniff.__version__, runs=self.run, tables=tables, state=self.state_name
        )
        self._replace_manifest(manifest, state)
        return manifest

    def _replace_manifest(self, manifest: Manifest, state: bytes) -> None:
        """Publish a run; the files that it has written are those with its number."""
        new = [
            WrittenFile(entry.path, entry.rows, entry.bytes)
            for table in manifest.tables.values()
            for entry in table.files
            if entry.run == manifest.runs
        ]
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        with self.output():
            self._publish(manifest, encoded, new, state)


def _reason(error: OSError) -> str:
    """The system's message; in Arrow's errors it is only part of the text."""
    found = _ARROW_ERRNO.search(str(error))
    return os.strerror(int(found[1])) if found else error.strerror or str(error)
