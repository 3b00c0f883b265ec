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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.runtime.export_manifest import MANIFEST, MAX_MANIFEST
from kafkasniff.tables.exports.manifest import Manifest, WrittenFile, parse_manifest
from kafkasniff.tables.exports.target import ExportTarget
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.file_names import STATES, is_date, is_state_file, run_of

__all__ = ["RUN", "ExportFolder"]

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
