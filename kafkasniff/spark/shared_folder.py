"""Whether the executors reach the output folder of the driver.

Tasks write their files below it, and the driver moves them: a folder of the same name on another disk would be noticed
only after the whole run. The driver therefore puts a file with a random name into `.partial`, and tasks look for it:
before the run as many as can run at once, and in the run each one before it writes, since executors may join later.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SharedFolder", "check_executors", "share"]

ADVICE: Final = "the driver and all executors need the output folder under the same path, on a shared file system"
HOSTS: Final = 3
"""Hosts that a message names."""


class SharedFolder:
    """The folder `.partial` of a run, for tasks."""

    def __init__(self, path: Path, marker: str) -> None:
        self.path = path
        self._marker = marker

    def open(self) -> ConfinedPath:
        """The folder, in a task. Raises OutputError if it is not that of the driver."""
        reason = self.refusal()
        if reason is not None:
            raise OutputError(f"{self.path.parent}: {reason} on {socket.gethostname()}: {ADVICE}")
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


def check_executors(spark: SparkSession, folder: SharedFolder, tasks: int) -> None:
    """Raises OutputError if an executor does not reach the folder. `tasks`: about as many as run at once."""
    ids = spark.range(0, tasks, 1, tasks)
    found = ids.mapInArrow(_Look(folder), "host string, reason string").where("reason is not null").collect()
    if found:
        reasons = sorted({f"{row['reason']} on {row['host']}" for row in found})
        more = f" and {len(reasons) - HOSTS} more" if len(reasons) > HOSTS else ""
        raise OutputError(f"{folder.path.parent}: {', '.join(reasons[:HOSTS])}{more}: {ADVICE}")


class _Look:
    """Looks for the folder, in a task."""

    def __init__(self, folder: SharedFolder) -> None:
        self._folder = folder

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reason = self._folder.refusal()
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"host": pa.array([socket.gethostname()], pa.string()), "reason": pa.array([reason], pa.string())}
            )
