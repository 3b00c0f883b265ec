"""The folder of an export: its manifest, how a run's files come into it, and what a killed run left.

    manifest.json               what there is: written last, by one rename; without it a folder is no export
    TABLE/date=DATE/*.parquet   the tables; files that the manifest does not name do not count
    state/*.state               what the next run goes on from
    .partial/                   the run that is being made, or was killed
    .staged/                    rows of a live capture that wait for their run

A run's new files have names of their own, so that nothing that readers may have open is written over. It is committed
when its manifest stands in `.partial`: what is left to do then (moving files, renaming the manifest, removing the files
that it does not name any more) can be done again by whoever comes next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec

import kafkasniff
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.exports.captures import CaptureFile
from kafkasniff.exports.carried import write_aside
from kafkasniff.exports.options import ExportOptions
from kafkasniff.rows import SCHEMA_VERSION, TABLE_NAMES

__all__ = ["RUN", "Engine", "ExportFolder", "FileEntry", "Manifest", "TableEntry", "Written", "read_manifest"]

MANIFEST: Final = "manifest.json"
PARTIAL: Final = ".partial"
STAGED: Final = ".staged"
RUN: Final = "run.json"
"""In `.partial`: what the run that is being made is over, and its number."""
STATE: Final = "state"
FORMAT: Final = "kafkasniff-export"

_ARROW_ERRNO: Final = re.compile(r"Detail: \[errno (\d+)\]")
_OURS: Final = re.compile(r"part-\d{5,}(-open)?(-\d{5}){1,2}\.parquet")

Engine = Literal["local", "spark"]

Written = Mapping[str, Sequence[tuple[Path, int]]]
"""By table, files below `.partial` and how many rows each has."""


class FileEntry(msgspec.Struct, omit_defaults=True):
    """A file of a table."""

    path: str
    """Below the export's folder, parts separated by slashes."""
    rows: int
    bytes: int
    run: int
    """The run that wrote it, from 1."""
    open: bool = False
    """It holds what was not over when the run's captures ended; the next run writes these rows anew."""


class TableEntry(msgspec.Struct):
    """A table."""

    rows: int = 0
    files: list[FileEntry] = []


class _Numbered(msgspec.Struct):
    """What stands in the plan of a run."""

    run: int


class Manifest(msgspec.Struct):
    """What an export holds."""

    format: Literal["kafkasniff-export"]
    schema_version: int
    version: str
    engine: Engine
    """Which made the last run; both write the same rows."""
    options: ExportOptions
    runs: int = 0
    captures: list[CaptureFile] = []
    tables: dict[str, TableEntry] = {}
    state: str | None = None
    """Path of the file that the next run goes on from."""
    batch: int | None = None
    """Of a stream: the number of the last batch that is in it."""


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of an export; None where there is none. Raises UsageError where it cannot be read as one."""
    try:
        data = (directory / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"cannot read {directory / MANIFEST}: {error.strerror or error}") from error
    return _manifest(data, directory)


def _manifest(data: bytes, directory: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{directory / MANIFEST} is no manifest of an export: {error}") from None
    if manifest.schema_version != SCHEMA_VERSION:
        version = manifest.schema_version
        raise UsageError(f"{directory} has tables of schema version {version}, not {SCHEMA_VERSION}; name a new folder")
    return manifest


class ExportFolder:
    """A folder that is being exported into; a context manager that holds it for one process.

    Raises UsageError where another process exports into it, or where it holds tables of another origin; OutputError
    where it cannot be written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.partial = self.directory / PARTIAL
        self.staged = self.directory / STAGED
        self._made = False
        with self.output():
            self._made = not self.directory.exists()
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with self.output():
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UsageError(f"another export is writing into {self.directory}") from None
                self._finish_commit()
                self.manifest = read_manifest(self.directory)
                self._sweep()
                shutil.rmtree(self.staged, ignore_errors=True)
                if self._is_stale():
                    self.discard()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            if self._made and error is not None:
                self.directory.rmdir()  # only an empty one goes
        os.close(self._lock)

    @contextlib.contextmanager
    def output(self) -> Iterator[None]:
        """What cannot be written is an OutputError."""
        try:
            yield
        except OSError as error:
            raise OutputError(f"cannot write {self.directory}: {_reason(error)}") from error

    @property
    def run(self) -> int:
        """The number of the run that is being made."""
        return 1 if self.manifest is None else self.manifest.runs + 1

    def _is_stale(self) -> bool:
        """Whether what is being made is another run than the next: it was committed, and killed before it was gone."""
        try:
            plan = msgspec.json.decode((self.partial / RUN).read_bytes(), type=_Numbered)
        except (FileNotFoundError, msgspec.MsgspecError):
            return False  # whoever makes the next run will see
        return plan.run != self.run

    def discard(self) -> None:
        """Give up the run that is being made; one that is committed stays, for whoever comes next to finish."""
        if not (self.partial / MANIFEST).exists():
            shutil.rmtree(self.partial, ignore_errors=True)

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
    ) -> Manifest:
        """Take a run's files into the export; those of the last run's unfinished rows go. Returns the new manifest.

        `goes_on` False: the run does not go on from the last one, so that those rows are as finished as they get.
        `batch`: the number of a stream's batch, where the run is one.
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
            tables,
            name,
            batch,
        )
        with self.output():
            (self.partial / STATE).mkdir(exist_ok=True)
            write_aside(self.partial / name, state)
            encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
            write_aside(self.partial / MANIFEST, encoded)
            self._finish_commit()
            self.manifest = manifest
            self._sweep()
            shutil.rmtree(self.partial)
        return manifest

    def _entry(self, path: Path, rows: int, run: int, *, unfinished: bool) -> FileEntry:
        size = path.stat().st_size
        return FileEntry(path.relative_to(self.partial).as_posix(), rows, size, run, unfinished)

    def _finish_commit(self) -> None:
        """Do what is left of a commit, however far it came."""
        committed = self.partial / MANIFEST
        if not committed.exists():
            return
        manifest = _manifest(committed.read_bytes(), self.directory)
        paths = [entry.path for table in manifest.tables.values() for entry in table.files]
        for path in (*paths, *(() if manifest.state is None else (manifest.state,))):
            if (self.partial / path).exists():
                (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
                (self.partial / path).rename(self.directory / path)
        _sync(self.directory)
        committed.rename(self.directory / MANIFEST)
        _sync(self.directory)

    def _sweep(self) -> None:
        """Remove what the manifest does not name: files of unfinished rows that were written anew, old states."""
        manifest = self.manifest
        if manifest is None:
            for table in TABLE_NAMES:
                if (self.directory / table).exists():
                    raise UsageError(f"{self.directory / table} is not part of an export; name a new folder")
            return
        named = {entry.path for table in manifest.tables.values() for entry in table.files} | {manifest.state}
        found = [path for table in TABLE_NAMES for path in (self.directory / table).glob("date=*/part-*.parquet")]
        found = [path for path in found if _OURS.fullmatch(path.name)]
        found += (self.directory / STATE).glob("run-*.state")
        for path in found:
            if path.relative_to(self.directory).as_posix() not in named:
                path.unlink()
                with contextlib.suppress(OSError):
                    path.parent.rmdir()  # only an empty one goes


def _reason(error: OSError) -> str:
    """What the system says; Arrow's errors have it within their text only."""
    found = _ARROW_ERRNO.search(str(error))
    return os.strerror(int(found[1])) if found else error.strerror or str(error)


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
