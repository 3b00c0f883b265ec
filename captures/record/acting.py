"""A client program that stays: it plays one act for each line of its stdin, and reports the end of each."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .distribution import SetupError
from .journal import Entry, read_reports

ACT_TIMEOUT_S = 90.0
END_OF_ACT = "end_of_act"
"""Kind of the report that ends an act; it is not part of the sidecar."""


class ActingClient:
    """A running client program; a context manager. Its stdout and stderr become files of the folder ``work``.

    Raises ``SetupError`` where an act fails or takes too long.
    """

    def __init__(self, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> None:
        self._command = list(command)
        self._environment = {**os.environ, **environment}
        self._reports = work / "stdout"
        self._log = work / "stderr"
        self._read = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._acts: IO[bytes] | None = None

    def __enter__(self) -> Self:
        with self._reports.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                cwd=self._reports.parent,
                env=self._environment,
            )
        self._acts = self._process.stdin
        return self

    def act(self, *words: str) -> list[Entry]:
        """Have the program play an act, named by the first of some words without spaces; returns what it reports."""
        assert self._process is not None
        assert self._acts is not None
        self._acts.write(" ".join(words).encode() + b"\n")
        self._acts.flush()
        deadline = time.monotonic() + ACT_TIMEOUT_S
        told: list[Entry] = []
        while not told or told[-1]["kind"] != END_OF_ACT:
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._log.read_text(encoding="utf-8", errors="replace")
                raise SetupError(f"the client did not get through {words[0]}: {said[-1500:]}")
            time.sleep(0.05)
            told = self._reported()[self._read :]
        self._read += len(told)
        return told

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._acts is not None
        self._acts.close()  # no more acts: the program ends
        try:
            code = self._process.wait(ACT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if error is None and code:
            raise SetupError(f"the client ended with {code}")

    def _reported(self) -> list[Entry]:
        """All whole reports until now: the last line may be half written."""
        text = self._reports.read_text(encoding="utf-8")
        return read_reports(self._reports) if text.endswith("\n") else []
