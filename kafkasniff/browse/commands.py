"""Commands of kafkasniff that show or write what the explorer shows, run as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.text.printable import printable

__all__ = ["Commands", "run_command"]

WAIT_SECONDS: Final = 0.1
"""Interval at which a command is checked: has it ended, or should it?"""
_OUTPUTS: Final = "name it .jsonl, .pcapng or .pcap, or for Parquet tables a folder: end it with /"


class Commands(msgspec.Struct, frozen=True):
    """Commands for the captures in the explorer."""

    captures: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    """Options that decide how captures are read, as given by the user."""
    selection: tuple[str, ...] = ()
    """Options that select exchanges, as given by the user."""

    def decode(self, connection: int, correlation_id: int) -> list[str]:
        """Show one exchange with its bodies."""
        chosen = (f"--connection={connection}", f"--correlation-id={correlation_id}")
        return self._with_captures("decode", "-v", *self.reading, *chosen)

    def write(self, path: str, expression: str) -> list[str]:
        """Write what the list shows; the name determines the format. Raises UsageError."""
        if not self.captures:
            raise UsageError("there is no capture that can be read again")
        if not path or os.path.lexists(path):
            raise UsageError(f"{path} exists: give another name" if path else _OUTPUTS)
        selection = [*self.selection, *([f"--filter={expression}"] if expression else [])]
        start = [*self.reading, *selection, "-q"]
        if path.endswith("/"):
            return self._with_captures("export", *start, f"--output={path}")
        if path.lower().endswith(".jsonl"):
            return self._with_captures("decode", *start, "--format=json", f"--output={path}")
        if path.lower().endswith((".pcapng", ".pcap")):
            return self._with_captures("decode", *start, f"--write-matching={path}")
        raise UsageError(f"{path}: {_OUTPUTS}")

    def _with_captures(self, *words: str) -> list[str]:
        names = [f"./{name}" if name.startswith("-") else name for name in self.captures]
        return ["kafkasniff", *words, *names]


def run_command(command: list[str], *, stopped: Callable[[], bool]) -> str | None:
    """Run a command of kafkasniff until its end, or until `stopped`. Returns the error, escaped, or None.

    A process, since it may take as long as reading the captures, and would slow the screen down.
    """
    arguments = [sys.executable, "-m", *command]
    silent = subprocess.DEVNULL
    with subprocess.Popen(arguments, stdin=silent, stdout=silent, stderr=subprocess.PIPE) as process:
        while True:
            try:
                _, said = process.communicate(timeout=WAIT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if stopped():
                    process.terminate()
    lines = said.decode("utf-8", "replace").splitlines()
    if process.returncode == 0:
        return None
    return printable(lines[-1]) if lines else f"exit code {process.returncode}"
