"""A capture that grows while it is looked at: a file that a pipe or a live capture is written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, cast

from kafkasniff.browse.commands import program
from kafkasniff.runtime.signals import ENDS_WITH_STDIN
from kafkasniff.text.printable import printable

MAX_GROWN: Final = 2 << 30
"""Maximum size in bytes of the file; the rest of the pipe, or of live traffic, is not written."""
LOOK_SECONDS: Final = 0.05
"""How often to look for new bytes."""
START_SECONDS: Final = 30.0
"""How long a live capture may take to open its file."""
COPY_BYTES: Final = 1 << 20
"""Maximum number of bytes that are copied at a time."""


class GrowingCapture(ABC):
    """A file that another thread or process appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_full = False
        """It has reached its maximum size."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether nothing further will be appended."""

    @property
    def state(self) -> str:
        """Text for the status line."""
        size = f"{self.path.stat().st_size / 1e6:,.1f} MB"
        if self.is_full:
            return f"{size}: that is the maximum, nothing further is read"
        return "" if self.is_over else f"live, {size}"

    def follow(self, stopped: Callable[[], bool]) -> BinaryIO:
        """A stream of its bytes, whose reads wait for more; it ends with the capture, or when `stopped`."""
        # It has what `open_captures` uses of a pipe.
        return cast("BinaryIO", _Following(self, stopped))

    @abstractmethod
    def close(self) -> None:
        """End the capture."""


class _Following:
    def __init__(self, capture: GrowingCapture, stopped: Callable[[], bool]) -> None:
        self._capture = capture
        self._stopped = stopped
        self._file = capture.path.open("rb", buffering=0)

    def read1(self, most: int) -> bytes:
        while True:
            is_over = self._capture.is_over
            data = self._file.read(most)
            if data:
                return data
            if is_over or self._stopped():
                self._file.close()
                return b""
            time.sleep(LOOK_SECONDS)

    read = read1


class CopiedPipe(GrowingCapture):
    """A copy of a pipe in a temporary file. A thread copies until the pipe ends or the file is full."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._folder = tempfile.mkdtemp(prefix="kafkasniff-")
        super().__init__(Path(self._folder) / "stdin")
        self._pipe = pipe
        self._file = self.path.open("wb", buffering=0)
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """The pipe has ended."""
        return not self._thread.is_alive()

    def _copy(self) -> None:
        read = getattr(self._pipe, "read1", self._pipe.read)
        while not self.is_full:
            data = read(min(COPY_BYTES, MAX_GROWN - self._file.tell()))
            if not data:
                return
            self._file.write(data)
            self.is_full = self._file.tell() >= MAX_GROWN

    def close(self) -> None:
        """Remove the file; the thread ends with the process, or with the pipe."""
        shutil.rmtree(self._folder, ignore_errors=True)


class LiveCapture(GrowingCapture):
    """The file of a process that captures. `folder`: removed at the end, None: the file is kept."""

    def __init__(self, command: list[str], path: Path, folder: Path | None) -> None:
        super().__init__(path)
        self._folder = folder
        self._last_line = b""
        pipe, environment = subprocess.PIPE, {**os.environ, ENDS_WITH_STDIN: "1"}
        self._process = subprocess.Popen(
            program(command), stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, env=environment
        )
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._listen, self._watch)]

    @property
    def is_over(self) -> bool:
        """The process has ended."""
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while it runs."""
        return self._process.poll()

    @property
    def state(self) -> str:
        """As above, with the last message of the process, such as that packets were lost."""
        said = printable(self._last_line.decode("utf-8", "replace").removeprefix("kafkasniff: "), backslashes=False)
        return " · ".join(part for part in (super().state, said) if part)

    def begin(self) -> bool:
        """Wait until it captures; False if it has ended instead, which `said` explains. Starts no threads."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and not self.is_over:
            if self.path.exists() and self.path.stat().st_size:
                return True
            time.sleep(LOOK_SECONDS)
        self.close()
        return False

    def watch(self) -> None:
        """Begin to observe its size and its messages, in threads."""
        for thread in self._threads:
            thread.start()

    @property
    def said(self) -> str:
        """The last message of the process, once it has ended."""
        if self._threads[0].ident is None:
            self._listen()
        return self._last_line.decode("utf-8", "replace").strip()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_line = line.strip()

    def _watch(self) -> None:
        while not self.is_over:
            time.sleep(LOOK_SECONDS)
            if self.path.exists() and self.path.stat().st_size >= MAX_GROWN:
                self.is_full = True
                self._process.terminate()
                return

    def close(self) -> None:
        """End the process, and remove a temporary file."""
        if not self.is_over:
            self._process.terminate()
        self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
