"""The output folder of the driver, which all executors have to share.

Tasks write their files below `.partial`, each attempt in a folder of its own, and the driver moves them. A folder of
the same name may be on another disk. So the driver puts a file with a random name into it, and tasks look for that:
before the run as many as can run at once, and in the run each one before it writes, since executors may join later.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafkasniff.errors import OutputError, UsageError
from kafkasniff.runtime.confined_files import ConfinedPath, open_own_folder
from kafkasniff.tables.exports.manifest import WrittenFile
from kafkasniff.tables.rows.file_names import is_table_file

__all__ = ["SharedFolder", "share"]

_ATTEMPT: Final = re.compile(r"attempt-\d{1,20}", re.ASCII)


class SharedFolder:
    """The folder `.partial` of a run, as a `TaskOutput`."""

    advice = "the driver and all executors need the output folder under the same path, on a shared file system"

    def __init__(self, path: Path, marker: str) -> None:
        self.path = path
        self.name = str(path.parent)
        self._marker = marker

    def open(self, attempt: int, scratch: ConfinedPath) -> ConfinedPath:
        """The folder of an attempt. Raises OutputError if `.partial` is not that of the driver."""
        del scratch
        reason = self.refusal()
        if reason is not None:
            raise OutputError(f"{self.name}: {reason} on {socket.gethostname()}: {self.advice}")
        return open_own_folder(self.path) / f"attempt-{attempt}"

    def file_name(self, run: int) -> str:
        """What names of files begin with: all attempts use the same ones, in their own folders."""
        return f"part-{run:05}"

    def deliver(self, into: ConfinedPath, files: Sequence[WrittenFile]) -> None:
        """Nothing to do: the driver moves them."""

    def path_of(self, into: ConfinedPath, file: WrittenFile) -> str:
        """Below `.partial`, whose own path need not be UTF-8."""
        return f"{into.name}/{file.path}"

    def take(self, partial: ConfinedPath, path: str, table: str) -> str:
        """Move a file out of its attempt; returns its path in the export. Raises OutputError, and OSError."""
        attempt, _, name = path.partition("/")
        if not _ATTEMPT.fullmatch(attempt) or not is_table_file(name, table):
            raise OutputError(f"a task of Spark wrote {path}, which is not a file of {partial}")
        parts = name.split("/")
        partial.below(attempt, *parts).move_to(partial.below(*parts))
        return name

    def clear(self, partial: ConfinedPath) -> None:
        """Remove the folders of all attempts."""
        for left in partial.names():
            if _ATTEMPT.fullmatch(left):
                (partial / left).remove_tree()

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
