"""Tasks of Spark: their process, where they write their files, and what they report to the driver.

Names of files have a random part that only one attempt of a task uses. So attempts that fail, or run twice, do not
disturb each other: the manifest names the files of those that count, and the others are removed with the run.

Each executor is asked before the run: otherwise what one of them lacks would be noticed only after the whole run.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import secrets
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from kafkasniff.errors import MissingPartError, OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.runtime.memory_limits import keep_freed_memory
from kafkasniff.runtime.object_store import ObjectStore
from kafkasniff.runtime.worker_processes import COLLECTION
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.exports.target import DeliverFiles, ExportStore, ExportTarget, random_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# -- their process -----------------------------------------------------------------------------------------------------


@functools.cache
def settle_worker() -> None:
    """Let this process reuse freed memory and search less often for cycles; only its first call has an effect.

    Without it, stage 1 took four to ten percent more CPU time. Workers may later run functions of others, which do not
    depend on either setting.
    """
    chosen = "ARROW_DEFAULT_MEMORY_POOL" in os.environ
    keep_freed_memory()
    if not chosen:
        # Spark imports Arrow before it calls us, so that the variable has no effect any more.
        pa.set_memory_pool(pa.system_memory_pool())
    if gc.get_threshold()[0] < COLLECTION[0]:
        gc.set_threshold(*COLLECTION)
    gc.freeze()


def _serve() -> None:
    """Run pyspark's daemon. A worker that Spark has hung up on ends with a status other than 0.

    pyspark's own daemon prints a traceback when Java closes its connections to workers that may still have output to
    flush, as it does when a session ends. A user would look for what went wrong.
    """
    from pyspark import daemon

    # Workers are forks of this process, and need not import what tasks do.
    importlib.import_module("kafkasniff.spark.table_rows")

    work = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:
        try:
            return work(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    daemon.worker = worker
    daemon.manager()


# -- their output ------------------------------------------------------------------------------------------------------

HOSTS: Final = 3
"""Hosts that a message names."""


class TaskOutput(ABC):
    """The output of a run, for its tasks. Picklable."""

    name: str
    """Path or address of the export, as messages show it."""
    advice: str
    """What executors need."""

    @abstractmethod
    def refusal(self) -> str | None:
        """Why this process cannot write to it; None if it can."""

    @abstractmethod
    def open(self, scratch: ConfinedPath) -> ConfinedPath:
        """The folder for the files of a task; `scratch`: a folder of its own. Raises OutputError."""

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:  # noqa: B027 - they may be there
        """Bring files in this folder to where the driver expects them. Raises OutputError."""

    @staticmethod
    def file_name(run: int) -> str:
        """What the names of an attempt's files begin with."""
        return f"part-{run:05}-{random_part()}"


class SharedFolder(TaskOutput):
    """The folder `.partial` of a run, which the driver and all executors have to share.

    A folder of the same name may be on another disk. So the driver puts a file with a random name into it, and tasks
    look for that: before the run as many as can run at once, and in the run each one before it writes, since executors
    may join later.
    """

    advice = "the driver and all executors need the output folder under the same path, on a shared file system"

    def __init__(self, path: Path, marker: str) -> None:
        self.path = path
        self.name = str(path.parent)
        self._marker = marker

    def open(self, scratch: ConfinedPath) -> ConfinedPath:
        """`.partial` itself. Raises OutputError if it is not that of the driver."""
        del scratch
        reason = self.refusal()
        if reason is not None:
            raise OutputError(f"{self.name}: {reason} on {socket.gethostname()}: {self.advice}")
        return open_own_folder(self.path)

    def refusal(self) -> str | None:
        """Why this process cannot write into the folder of the driver; None if it can."""
        try:
            with contextlib.closing(open_own_folder(self.path)) as folder:
                if not (folder / self._marker).exists():
                    return "it is another folder"
                written = folder / f"{self._marker}-{secrets.token_hex(8)}"
                written.create().close()
                written.remove_file()
        except FileNotFoundError:
            return "it does not exist"
        except OSError as error:
            return f"it cannot be written ({error.strerror or error})"
        except UsageError as error:
            return f"it cannot be used ({error})"
        return None


def share(partial: ConfinedPath) -> SharedFolder:
    """Mark the folder of a run. Raises OSError."""
    marker = f"driver-{secrets.token_hex(16)}"
    (partial / marker).create().close()
    # Tasks may run on other machines, which have the folder under the same path.
    return SharedFolder(Path(os.path.abspath(partial.path)), marker)


class StoredOutput(TaskOutput):
    """An export in an object store: tasks write final objects."""

    advice = "the executors need the same access to it as the driver, and the package obstore"

    def __init__(self, location: Location) -> None:
        self.name = location.name
        self._location = location

    def refusal(self) -> str | None:
        """Why this process cannot write to it; None if it can."""
        try:
            ObjectStore(self._location).check_writing()
        except OSError as error:
            return f"it cannot be written ({error.strerror or error})"
        except (MissingPartError, UsageError) as error:
            return f"it cannot be written ({error})"
        return None

    def open(self, scratch: ConfinedPath) -> ConfinedPath:
        """A folder of the task."""
        return scratch / "files"

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        """Write files to the store. Raises OutputError."""
        try:
            DeliverFiles(self._location)(into, files)
        except OSError as error:
            raise OutputError(f"cannot write {self.name}: {error.strerror or error}") from error


def output_of(target: ExportTarget) -> TaskOutput:
    """What the tasks of the current run write to. Raises OutputError if it cannot be written."""
    if isinstance(target, ExportStore):
        return StoredOutput(target.location)
    with target.output():
        return share(target.partial)


def check_executors(spark: SparkSession, output: TaskOutput, tasks: int) -> None:
    """Raises OutputError if an executor does not reach the output. `tasks`: about as many as run at once."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reason = output.refusal()
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"host": pa.array([socket.gethostname()], pa.string()), "reason": pa.array([reason], pa.string())}
            )

    ids = spark.range(0, tasks, 1, tasks)
    found = ids.mapInArrow(look, "host string, reason string").where("reason is not null").collect()
    if found:
        reasons = sorted({f"{row['reason']} on {row['host']}" for row in found})
        more = f" and {len(reasons) - HOSTS} more" if len(reasons) > HOSTS else ""
        raise OutputError(f"{output.name}: {', '.join(reasons[:HOSTS])}{more}: {output.advice}")


class TaskReport(msgspec.Struct):
    """What a task wrote of ended, or of open, connections; MessagePack on its way to the driver."""

    part: int
    """The number of the task."""
    open: bool
    """Rows of connections that were still open when the captures ended."""
    files: dict[str, list[WrittenFile]]
    """The files of each table."""
    days: dict[str, dict[int, int]]
    """Rows of each table by day (`TablePartitions`)."""
    schema_problems: list[str] = []
    """Why keys and values could not be decoded (`DecodedValues.problems`)."""


@contextlib.contextmanager
def own_folder() -> Iterator[ConfinedPath]:
    """A folder of the task on a disk for temporary files, deleted with the task."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    place = local if os.path.isdir(local) else None
    with (
        tempfile.TemporaryDirectory(prefix="kafkasniff-", dir=place) as folder,
        contextlib.closing(open_own_folder(folder)) as opened,
    ):
        yield opened


if __name__ == "__main__":
    _serve()
