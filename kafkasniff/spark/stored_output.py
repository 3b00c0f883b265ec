"""An export in an object store, as tasks write to it: final objects, with names that no other attempt uses."""

from __future__ import annotations

from collections.abc import Sequence

from kafkasniff.errors import MissingPartError, OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.runtime.object_store import ObjectStore
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.store import DeliverFiles, random_part
from kafkasniff.tables.rows.file_names import is_table_file, run_of

__all__ = ["StoredOutput"]


class StoredOutput:
    """An export in an object store, as a `TaskOutput`.

    What failed attempts leave has the run's number in its name, and is removed when the run is published.
    """

    advice = "the executors need the same access to it as the driver, and the package obstore"

    def __init__(self, location: Location, run: int) -> None:
        self.name = location.name
        self._location = location
        self._run = run

    def refusal(self) -> str | None:
        """Why this process cannot write to it; None if it can."""
        try:
            ObjectStore(self._location).check_writing()
        except OSError as error:
            return f"it cannot be written ({error.strerror or error})"
        except (MissingPartError, UsageError) as error:
            return f"it cannot be written ({error})"
        return None

    def open(self, attempt: int, scratch: ConfinedPath) -> ConfinedPath:
        """A folder of the task."""
        del attempt
        return scratch / "files"

    def file_name(self, run: int) -> str:
        """What names of files begin with: the random part is of this attempt."""
        return f"part-{run:05}-{random_part()}"

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        """Write files to the store. Raises OutputError."""
        try:
            DeliverFiles(self._location)(into, files)
        except OSError as error:
            raise OutputError(f"cannot write {self.name}: {error.strerror or error}") from error

    def path_of(self, into: ConfinedPath, file: WrittenFile) -> str:
        """Its path in the export."""
        del into
        return file.path

    def take(self, partial: ConfinedPath, path: str, table: str) -> str:
        """The same path. Raises OutputError if it is not that of a table's file of this run."""
        del partial
        if not is_table_file(path, table) or run_of(path) != self._run:
            raise OutputError(f"a task of Spark wrote {path}, which is not a file of run {self._run} into {self.name}")
        return path

    def clear(self, partial: ConfinedPath) -> None:
        """Nothing to do: the run removes them when it is published."""
