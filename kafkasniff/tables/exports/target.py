"""Where a run writes its tables: a folder (`ExportFolder`) or an object store (`ExportStore`).

    manifest.json               the content; without it, neither is an export
    TABLE/date=DATE/*.parquet   the tables; files that are not in the manifest do not count
    state/*.state               the state from which the next run continues

Both hold the same files, with names that no other run uses. They differ in how a run becomes visible: by a rename of
the manifest, or by a conditional write of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

import kafkasniff
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.runtime.export_manifest import FORMAT, MANIFEST, MAX_MANIFEST
from kafkasniff.runtime.object_store import SCHEMES, ChangedObjectError, ObjectStore, ObjectVersion, is_object_store
from kafkasniff.tables.checkpoint import Carried, load
from kafkasniff.tables.exports.captures import ManifestCapture
from kafkasniff.tables.exports.manifest import Engine, FileEntry, Manifest, TableEntry, WrittenFile, parse_manifest
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.rows import SCHEMA_VERSION, TABLE_NAMES
from kafkasniff.tables.rows.file_names import STATES, is_date, is_state_file, run_of

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

    def carried(self, *, discard: bool = False) -> Carried:
        """The state of the last run, in parts; with `discard` an empty one.

        Raises OutputError, and UsageError as `kafkasniff.tables.checkpoint.load` does.
        """
        state = None if discard else self.state()
        return Carried() if state is None else load(state, Carried)

    def check_continues(self, options: ExportOptions, *, streams: bool = False) -> None:
        """Raises UsageError if the export has other options, or only one of it and the run is a stream (`streams`).

        A stream numbers its captures itself.
        """
        manifest, name = self.manifest, self.name
        if manifest is None:
            return
        if manifest.batch is not None and not streams:
            raise UsageError(f"a stream writes into {name}; name a new folder")
        if manifest.batch is None and streams:
            raise UsageError(f"{name} is not the export of a stream; name a new folder")
        old, new = manifest.options, options.public
        if old.payload.form == new.payload.form != "shown" and old.payload != new.payload:
            raise UsageError(
                f"{name} has hashes with another salt; give the same with --hash-salt, or name a new folder"
            )
        for field in new.__struct_fields__:
            if getattr(old, field) != getattr(new, field):
                raise UsageError(f"{name} was exported with other options ({field}); name a new folder")

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
    match = _ARROW_ERRNO.search(str(error))
    return os.strerror(int(match[1])) if match else error.strerror or str(error)


# -- a folder -------------------------------------------------------------------------------------------------------
#
#     .partial/   the current run, or one that was killed
#     .staged/    rows of a live capture that wait for their run
#
# The run is committed when its manifest is in `.partial`. The remaining steps (moving files, renaming the manifest,
# removing files that it no longer names) can be repeated by a later process.
#
# The folder's content may come from somebody else: its files are only reached through `runtime.confined_files`, and
# names in manifests are accepted only if they are names of an export's files.

PARTIAL: Final = ".partial"
STAGED: Final = ".staged"
RUN: Final = "run.json"
"""In `.partial`: the inputs of the current run, and its number."""


class _Numbered(msgspec.Struct):
    """The part of a run's plan that this module reads."""

    run: int


def _manifest(path: ConfinedPath) -> Manifest | None:
    """The manifest in a file; None if there is no file. Raises UsageError and OutputError."""
    try:
        data = path.content(MAX_MANIFEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror or error}") from error
    return parse_manifest(data, str(path), str(path.parent))


class ExportFolder(ExportTarget):
    """The folder of an export while a run writes to it; a context manager that locks it for one process.

    Raises UsageError if another process exports into it, if it holds tables of another origin, or if it or its content
    belongs to another user or leads elsewhere (`runtime.confined_files`). Raises OutputError if it cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = str(directory)
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
            self._close(failed=False)
            raise

    def _close(self, *, failed: bool) -> None:
        if self._made and failed:
            self.root.remove_if_empty()
        os.close(self._lock)
        self.root.close()

    def state(self) -> bytes | None:
        """The state that the last run left, if any. Raises OutputError."""
        if self.manifest is None or self.manifest.state is None:
            return None
        path = self.root.below(*self.manifest.state.split("/"))
        try:
            return path.content()
        except OSError as error:
            raise OutputError(f"cannot read {path}: {error.strerror or error}") from error

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

    def _publish(self, manifest: Manifest, encoded: bytes, new: Sequence[WrittenFile], state: bytes) -> None:
        assert manifest.state is not None
        self.partial.below(*manifest.state.split("/")).put(state)
        (self.partial / MANIFEST).put(encoded)
        self._finish_commit()
        self.manifest = manifest
        self._sweep()
        self.partial.remove_tree()

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
                    yield from (folder / name for name in folder.names() if run_of(name) is not None)
        states = self.root / STATES
        yield from (states / name for name in states.names() if is_state_file(f"{STATES}/{name}"))


# -- an object store ------------------------------------------------------------------------------------------------
#
# Nothing can be renamed or locked there. If two runs begin with the same manifest, the first one to replace it is
# added. The other one fails and removes its objects.
#
# A run that was killed leaves objects that no manifest names. The next run removes them, and those that it replaces,
# once its own manifest is there: all objects of runs up to its own number that the manifest does not name. They belong
# either to runs that have been replaced or to runs that can no longer write their manifest.
#
# The files of a run are made in a temporary folder of this machine. A run that was killed is repeated from its start.


def random_part() -> str:
    """A random number for the names of a run's objects."""
    return secrets.token_hex(6)


class DeliverFiles:
    """Writes the files of a run to the store, in any process."""

    def __init__(self, location: Location) -> None:
        self.location = location

    def __call__(self, folder: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        """Write files below `folder` under the same paths, and remove them here. Raises OSError."""
        places = [folder.below(*file.path.split("/")) for file in files]
        named = [(file.path, place.open_to_read) for file, place in zip(files, places, strict=True)]
        ObjectStore(self.location).put_all(named)
        for place in places:
            place.remove_file()


class ExportStore(ExportTarget):
    """An export in an object store while a run writes to it; a context manager that removes its temporary folder.

    Raises UsageError if it holds something else, or the store ignores conditions of writes; OutputError if it cannot
    be reached or written; MissingPartError if the package obstore is missing.
    """

    def __init__(self, location: Location) -> None:
        self.name = location.name.rstrip("/")
        self.location = location
        self._store = ObjectStore(location)
        self._token = random_part()
        self._version: ObjectVersion | None = None
        self._deliver_files = DeliverFiles(location)
        self.deliver = self._deliver_files
        with self.output():
            self._store.check_conditions()
            self.manifest = self._read()
            if self.manifest is None:
                self._check_foreign()
        self._folder = tempfile.TemporaryDirectory(prefix="kafkasniff-")
        self._root = open_own_folder(self._folder.name)
        self.partial = self._root / "partial"
        self.staged = self._root / "staged"

    @property
    def file_name(self) -> str:
        """What the names of the current run's files begin with."""
        return f"{super().file_name}-{self._token}"

    @property
    def state_name(self) -> str:
        """Path of the current run's state."""
        return f"{STATES}/run-{self.run:05}-{self._token}.state"

    def _close(self, *, failed: bool) -> None:
        self._root.close()
        self._folder.cleanup()

    def _read(self) -> Manifest | None:
        """The manifest; its version is kept."""
        try:
            found = self._store.get(MANIFEST, MAX_MANIFEST)
        except FileNotFoundError:
            return None
        self._version = found.version
        return parse_manifest(found.data, f"{self.name}/{MANIFEST}", self.name)

    def _check_foreign(self) -> None:
        """Without a manifest there may be what killed runs have left, and nothing else."""
        for path in self._objects():
            if run_of(path) is None:
                raise UsageError(f"{self.name}/{path} is not part of an export; name a new folder")

    def _objects(self) -> Iterator[str]:
        for folder in (*TABLE_NAMES, STATES):
            yield from self._store.names(f"{folder}/")

    def state(self) -> bytes | None:
        """The state that the last run left, if any. Raises OutputError."""
        if self.manifest is None or self.manifest.state is None:
            return None
        try:
            return self._store.get(self.manifest.state).data
        except OSError as error:
            raise OutputError(f"cannot read {self.name}/{self.manifest.state}: {error.strerror or error}") from error

    def discard(self) -> None:
        """Discard the current run. Objects that it has already written are removed by the next one."""
        with contextlib.suppress(OSError):
            self.partial.remove_tree()

    def _publish(self, manifest: Manifest, encoded: bytes, new: Sequence[WrittenFile], state: bytes) -> None:
        here = [file for file in new if self.partial.below(*file.path.split("/")).exists()]
        assert manifest.state is not None
        try:
            self._deliver_files(self.partial, here)
            self._store.put(manifest.state, state)
            self._version = self._replace(encoded)
        except ChangedObjectError:
            # The manifest that this run began with is gone, so that this run can never be published.
            with contextlib.suppress(OSError):
                self._store.remove([manifest.state, *(file.path for file in new)])
            raise UsageError(
                f"another export has written into {self.name} meanwhile, so that this run was not added: run it again"
            ) from None
        self.manifest = manifest
        # For the next run of this process.
        self._token = random_part()
        self.partial.remove_tree()
        try:
            self._sweep(manifest)
        except OSError as error:
            reason = "the run was added, but files that it replaces are left, which the next run removes"
            raise OSError(error.errno, f"{error.strerror}; {reason}") from error

    def _replace(self, encoded: bytes) -> ObjectVersion:
        """Write the manifest; returns its version. Raises ChangedObjectError, and OSError if the outcome is unknown."""
        try:
            return self._store.put_if(MANIFEST, encoded, self._version)
        except ChangedObjectError:
            # A repeated request finds what the first one has written if only its answer was lost.
            found = self._store.get(MANIFEST)
            if found.data != encoded:
                raise
            return found.version
        except OSError as error:
            with contextlib.suppress(OSError):
                found = self._store.get(MANIFEST)
                if found.data == encoded:
                    return found.version
            raise OSError(
                error.errno, f"{error.strerror}; whether the run was added is unknown, running it again adds it once"
            ) from error

    def _sweep(self, manifest: Manifest) -> None:
        """Remove objects that the manifest does not name, of this run and of those before."""
        named = {entry.path for table in manifest.tables.values() for entry in table.files} | {manifest.state}
        runs = ((path, run_of(path)) for path in self._objects() if path not in named)
        self._store.remove([path for path, run in runs if run is not None and run <= manifest.runs])
        self._store.remove_old_probes()


# -- opening -----------------------------------------------------------------------------------------------------------

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def open_export(directory: str | os.PathLike[str]) -> ExportTarget:
    """The export in a folder, which is made if necessary, or at an address such as `s3://bucket/out`.

    Raises UsageError, OutputError, and MissingPartError as `check_output`, `ExportFolder` and `ExportStore` do.
    """
    name = os.fspath(directory)
    check_output(name)
    return ExportStore(Location.of(name)) if is_object_store(name) else ExportFolder(local_folder(name))


def check_output(directory: str) -> None:
    """Raises UsageError for an address that nothing can be written to."""
    if not is_object_store(directory):
        local_folder(directory, schemes=SCHEMES)


def local_folder(directory: str | os.PathLike[str], *, schemes: tuple[str, ...] = ()) -> Path:
    """The path of a folder: a path, or an address `file://…`.

    Raises UsageError for other addresses, which would name a folder `s3:` below the current one. `schemes`: those that
    would do.
    """
    name = os.fspath(directory)
    location = Location.of(name)
    if location.is_local and location.path != name:
        return Path(location.path)
    scheme = _SCHEME.match(name)
    if scheme is not None:
        if not _ADDRESS.match(name):
            raise UsageError(f"cannot write to {name}: an address begins with {scheme[1]}://, which a Path shortens")
        stores = f", or an object store ({', '.join(f'{scheme}://' for scheme in schemes)})" if schemes else ""
        raise UsageError(f"cannot write to {scheme[1]}://: name a folder of this machine{stores}")
    return Path(name)
