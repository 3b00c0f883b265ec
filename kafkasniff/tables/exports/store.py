"""An export in an object store, where nothing can be renamed or locked.

    manifest.json               the content: written last, on condition that it is still the one that the run began with
    TABLE/date=DATE/*.parquet   the tables; objects that are not in the manifest do not count
    state/*.state               the state from which the next run continues

All objects of a run have names that no other run uses: they contain a random number. If two runs
begin with the same manifest, the first one to replace it is added. The other one fails and removes its objects.

A run that was killed leaves objects that no manifest names. The next run removes them, and those that it replaces, once
its own manifest is there: all objects of runs up to its own number that the manifest does not name. They belong either
to runs that have been replaced or to runs that can no longer write their manifest.

The files of a run are made in a temporary folder of this machine. A run that was killed is repeated from its start.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator, Sequence

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.runtime.export_manifest import MANIFEST, MAX_MANIFEST
from kafkasniff.runtime.object_store import ChangedObjectError, ObjectStore, ObjectVersion
from kafkasniff.tables.exports.manifest import Manifest, WrittenFile, parse_manifest
from kafkasniff.tables.exports.target import ExportTarget
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.file_names import STATES, run_of

__all__ = ["DeliverFiles", "ExportStore", "random_part"]


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
