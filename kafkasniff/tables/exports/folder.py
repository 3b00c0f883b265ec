"""The folder of an export: its manifest, how a run's files are added, and recovery after a killed run.

    manifest.json               the content: written last, by one rename; without it a folder is not an export
    TABLE/date=DATE/*.parquet   the tables; files that are not in the manifest do not count
    state/*.state               the state from which the next run continues
    .partial/                   the current run, or one that was killed
    .staged/                    rows of a live capture that wait for their run

A run's new files have unique names, so that no file that a reader may have open is overwritten. The run is committed
when its manifest is in `.partial`. The remaining steps (moving files, renaming the manifest, removing files that it no
longer names) can be repeated by a later process.

The folder's content may come from somebody else: its files are only reached through `runtime.confined_files`, and names
in manifests are accepted only if they are names of an export's files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final, Literal, Self

import msgspec

import kafkasniff
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.runtime.export_manifest import FORMAT, MANIFEST, MAX_MANIFEST
from kafkasniff.tables.exports.captures import CaptureFile
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import SCHEMA_VERSION, TABLE_NAMES
from kafkasniff.tables.rows.file_names import is_date, is_state_file, is_table_file

__all__ = [
    "MAX_COUNT",
    "MAX_MANIFEST",
    "MAX_RUNS",
    "RUN",
    "Engine",
    "ExportFolder",
    "FileEntry",
    "Manifest",
    "TableEntry",
    "Written",
    "local_folder",
]

PARTIAL: Final = ".partial"
STAGED: Final = ".staged"
RUN: Final = "run.json"
"""In `.partial`: the inputs of the current run, and its number."""
STATE: Final = "state"

MAX_RUNS: Final = 1_000_000_000
"""The most runs into one folder."""
MAX_COUNT: Final = 1 << 62
"""The most rows, bytes or packets, of a file or in total."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_ARROW_ERRNO: Final = re.compile(r"Detail: \[errno (\d+)\]")
_OURS: Final = re.compile(r"part-\d{5,}(-open)?(-\d{5}){1,2}\.parquet")

Engine = Literal["local", "spark"]

Written = Mapping[str, Sequence[tuple[ConfinedPath, int]]]
"""The files of each table below `.partial`, and the number of rows of each file."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class FileEntry(msgspec.Struct, omit_defaults=True):
    """A file of a table."""

    path: str
    """Path in the export's folder, with slashes."""
    rows: _Count
    bytes: _Count
    run: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUNS)]
    """The run that wrote it, from 1."""
    open: bool = False
    """It holds rows that were unfinished when the run's captures ended; the next run replaces them."""


class TableEntry(msgspec.Struct):
    """A table."""

    rows: _Count = 0
    files: list[FileEntry] = []


class _Numbered(msgspec.Struct):
    """The part of a run's plan that this module reads."""

    run: int


class Manifest(msgspec.Struct):
    """The content of an export."""

    format: Literal["kafkasniff-export"]
    schema_version: int
    version: str
    engine: Engine
    """The engine of the last run; both write the same rows."""
    options: ExportOptions
    runs: Annotated[int, msgspec.Meta(ge=0, le=MAX_RUNS)] = 0
    captures: list[CaptureFile] = []
    quarantined: list[CaptureFile] = []
    """Captures that could not be read and are ignored from now on."""
    tables: dict[str, TableEntry] = {}
    state: str | None = None
    """Path of the file from which the next run continues."""
    batch: int | None = None
    """The number of the last batch of a stream that is in the export."""


def _manifest(path: ConfinedPath) -> Manifest | None:
    """The manifest in a file; None if there is no file.

    Raises UsageError if it is invalid, or names files that no export has.
    """
    try:
        data = path.content(MAX_MANIFEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{path} is not a manifest of an export: {error}") from None
    if manifest.schema_version != SCHEMA_VERSION:
        version = manifest.schema_version
        raise UsageError(
            f"{path.parent} has tables of schema version {version}, not {SCHEMA_VERSION}; name a new folder"
        )
    for name in _foreign_names(manifest):
        raise UsageError(f"{path} names {name!r}, which is not a file of an export: name a new folder")
    return manifest


def _foreign_names(manifest: Manifest) -> Iterator[str]:
    """Names in a manifest that are not files of an export."""
    for table, entry in manifest.tables.items():
        yield from (file.path for file in entry.files if not is_table_file(file.path, table))
    if manifest.state is not None and not is_state_file(manifest.state):
        yield manifest.state


def local_folder(directory: str | os.PathLike[str]) -> Path:
    """The path of a folder. Raises UsageError for a URI, which would name a folder `s3:` below the current one."""
    path = Path(directory)
    scheme = _SCHEME.match(str(path))
    if scheme is not None:
        raise UsageError(
            f"cannot write to {scheme[1]}://: tables go to folders of this machine; name one, and copy it from there"
        )
    return path


class ExportFolder:
    """The folder of an export while a run writes to it; a context manager that locks it for one process.

    Raises UsageError if it is a URI, if another process exports into it, if it holds tables of another origin, or if it
    or its content belongs to another user or leads elsewhere (`runtime.confined_files`). Raises OutputError if it
    cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = local_folder(directory)
        self._made = False
        with self.output():
            self._made = not self.directory.exists()
            self.root = open_own_folder(self.directory, make=True)
            self._lock = self.root.folder_descriptor()
        self.partial = self.root / PARTIAL
        self.staged = self.root / STAGED
        try:
            with self.output():
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UsageError(f"another export is writing into {self.directory}") from None
                self._finish_commit()
                self.manifest = _manifest(self.root / MANIFEST)
                self._sweep()
                self.staged.remove_tree()
                if self._is_stale():
                    self.discard()
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        os.close(self._lock)
        self.root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._made and error is not None:
            self.root.remove_if_empty()
        self._close()

    @contextlib.contextmanager
    def output(self) -> Iterator[None]:
        """Turn write errors into OutputError."""
        try:
            yield
        except OSError as error:
            raise OutputError(f"cannot write {self.directory}: {_reason(error)}") from error

    @property
    def run(self) -> int:
        """The number of the current run."""
        return 1 if self.manifest is None else self.manifest.runs + 1

    def _is_stale(self) -> bool:
        """Whether `.partial` belongs to a run that was committed, and killed before it was removed."""
        try:
            plan = msgspec.json.decode((self.partial / RUN).content(MAX_MANIFEST), type=_Numbered)
        except (FileNotFoundError, msgspec.MsgspecError, RecursionError):
            return False  # the next run will report it
        return plan.run != self.run

    def discard(self) -> None:
        """Discard the current run, unless it is committed: then the next process finishes it."""
        with contextlib.suppress(OSError):
            if not (self.partial / MANIFEST).exists():
                self.partial.remove_tree()

    def commit(
        self,
        options: ExportOptions,
        captures: Sequence[CaptureFile],
        written: Written,
        unfinished: Written,
        state: bytes,
        *,
        engine: Engine = "local",
        goes_on: bool = True,
        batch: int | None = None,
        quarantined: Sequence[CaptureFile] = (),
    ) -> Manifest:
        """Add a run's files to the export and remove the last run's unfinished rows. Returns the new manifest.

        `goes_on` False: the run does not continue the last one, so that the unfinished rows are final. `batch`: the
        number of a stream's batch, if the run is one; `quarantined`: captures that later runs ignore.
        """
        old = self.manifest
        run = self.run
        tables: dict[str, TableEntry] = {}
        for table in options.tables:
            kept = [] if old is None or table not in old.tables else old.tables[table].files
            files = [entry for entry in kept if not (entry.open and goes_on)]
            files = [msgspec.structs.replace(entry, open=False) for entry in files]
            files += [self._entry(path, rows, run, unfinished=False) for path, rows in written.get(table, ())]
            files += [self._entry(path, rows, run, unfinished=True) for path, rows in unfinished.get(table, ())]
            files.sort(key=lambda entry: entry.path)
            tables[table] = TableEntry(sum(entry.rows for entry in files), files)
        name = f"{STATE}/run-{run:05}.state"
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
            name,
            batch,
        )
        with self.output():
            self.partial.below(*name.split("/")).put(state)
            encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
            (self.partial / MANIFEST).put(encoded)
            self._finish_commit()
            self.manifest = manifest
            self._sweep()
            self.partial.remove_tree()
        return manifest

    def _entry(self, path: ConfinedPath, rows: int, run: int, *, unfinished: bool) -> FileEntry:
        with path.open_to_read() as file:
            size = os.fstat(file.fileno()).st_size
        return FileEntry(path.relative_to(self.partial), rows, size, run, unfinished)

    def _finish_commit(self) -> None:
        """Do the remaining steps of a commit, whichever were done before."""
        committed = self.partial / MANIFEST
        manifest = _manifest(committed)
        if manifest is None:
            return
        paths = [entry.path for table in manifest.tables.values() for entry in table.files]
        for path in (*paths, *(() if manifest.state is None else (manifest.state,))):
            made = self.partial.below(*path.split("/"))
            if made.exists():
                made.move_to(self.root.below(*path.split("/")))
        self.root.sync()
        committed.move_to(self.root / MANIFEST)
        self.root.sync()

    def _sweep(self) -> None:
        """Remove files that the manifest does not name: unfinished rows that were replaced, and old states."""
        manifest = self.manifest
        if manifest is None:
            for table in TABLE_NAMES:
                if (self.root / table).exists():
                    raise UsageError(f"{self.directory / table} is not part of an export; name a new folder")
            return
        named = {entry.path for table in manifest.tables.values() for entry in table.files} | {manifest.state}
        for path in self._ours():
            if path.relative_to(self.root) not in named:
                path.remove_file()
                path.parent.remove_if_empty()

    def _ours(self) -> Iterator[ConfinedPath]:
        """Files with names that only exports use, in any of their folders."""
        for table in TABLE_NAMES:
            for date in (self.root / table).names():
                if is_date(date.removeprefix("date=")) and date.startswith("date="):
                    folder = self.root.below(table, date)
                    yield from (folder / name for name in folder.names() if _OURS.fullmatch(name))
        states = self.root / STATE
        yield from (states / name for name in states.names() if is_state_file(f"{STATE}/{name}"))


def _reason(error: OSError) -> str:
    """The system's message; in Arrow's errors it is only part of the text."""
    found = _ARROW_ERRNO.search(str(error))
    return os.strerror(int(found[1])) if found else error.strerror or str(error)
