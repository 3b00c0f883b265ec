"""A server program as a process of the recorder's: started, waited for, shut down."""

from __future__ import annotations

import os
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .distribution import SetupError

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0


class ServerProcess(ABC):
    """One process with a folder and a log of its own; a context manager, or ``start()`` and ``stop()``.

    ``name`` is what it is called in errors. ``start`` raises ``SetupError`` with the end of the log if it does not come
    up; after ``stop`` it can be started again.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.directory = directory
        self.environment: dict[str, str] = {}
        """Variables that the server gets beside those of the recorder."""
        self._name = name
        self._log_read_from = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self.directory / "server.log"

    @property
    def pid(self) -> int | None:
        """Process id of the running server; None before ``start`` and after ``stop``."""
        return None if self._process is None else self._process.pid

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Write what the server needs into its folder; returns its command line."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server that was launched serves requests."""

    def start(self) -> Self:
        """Start the server, return when it serves requests."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start the server, without waiting for it."""
        if self._process is not None:
            raise RuntimeError(f"{self._name} is running already")
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self._prepare()
        self._log_read_from = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._log = self.log_file.open("ab")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment},
        )

    def wait_until_ready(self) -> None:
        """Return when the launched server serves requests; it is stopped if it does not come up (``SetupError``)."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not self._is_ready():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    said = self.log_file.read_text(errors="replace")[-2000:]
                    raise SetupError(f"{self._name} did not start:\n{said}")
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Shut the server down (its process only, by id); killed if it does not end in time."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def kill(self) -> None:
        """End the server without a word to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _said_since_launch(self) -> bytes:
        return self.log_file.read_bytes()[self._log_read_from :]
