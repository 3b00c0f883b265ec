"""Where the tasks of a run write their files, and whether the executors reach it.

Each of them is asked before the run: otherwise what one of them lacks would be noticed only after the whole run.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from kafkasniff.errors import OutputError
from kafkasniff.runtime.confined_files import ConfinedPath
from kafkasniff.tables.exports.manifest import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TaskOutput", "check_executors"]

HOSTS: Final = 3
"""Hosts that a message names."""


class TaskOutput(Protocol):
    """The output of a run, for its tasks, and for the driver that made it. Picklable."""

    name: str
    """Path or address of the export, as messages show it."""
    advice: str
    """What executors need."""

    def refusal(self) -> str | None:
        """Why this process cannot write to it; None if it can."""

    def open(self, attempt: int, scratch: ConfinedPath) -> ConfinedPath:
        """The folder for the files of an attempt; `scratch`: a folder of the task. Raises OutputError."""

    def file_name(self, run: int) -> str:
        """What names of files in this folder begin with. Only this attempt uses them if they are final."""

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        """Bring files in this folder to where the driver expects them. Raises OSError."""

    def path_of(self, into: ConfinedPath, file: WrittenFile) -> str:
        """The path of such a file, as the driver gets it."""

    def take(self, partial: ConfinedPath, path: str, table: str) -> str:
        """The path that a file has in the export; in the driver. Raises OutputError if no task may have written it."""

    def clear(self, partial: ConfinedPath) -> None:
        """Remove what attempts have left, as far as the next step of the run needs it; in the driver."""


def check_executors(spark: SparkSession, output: TaskOutput, tasks: int) -> None:
    """Raises OutputError if an executor does not reach the output. `tasks`: about as many as run at once."""
    ids = spark.range(0, tasks, 1, tasks)
    found = ids.mapInArrow(_Look(output), "host string, reason string").where("reason is not null").collect()
    if found:
        reasons = sorted({f"{row['reason']} on {row['host']}" for row in found})
        more = f" and {len(reasons) - HOSTS} more" if len(reasons) > HOSTS else ""
        raise OutputError(f"{output.name}: {', '.join(reasons[:HOSTS])}{more}: {output.advice}")


class _Look:
    """Looks for the output, in a task."""

    def __init__(self, output: TaskOutput) -> None:
        self._output = output

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reason = self._output.refusal()
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"host": pa.array([socket.gethostname()], pa.string()), "reason": pa.array([reason], pa.string())}
            )
