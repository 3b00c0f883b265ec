"""Commands of kafkasniff that show or write what the explorer shows, run as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from kafkasniff.errors import UsageError
from kafkasniff.text.printable import printable

__all__ = ["Commands", "Done", "program", "run_command"]

WAIT_SECONDS: Final = 0.1
"""Interval at which a command is checked: has it ended, or should it?"""
FINDINGS, BROKEN = 1, 4
"""Exit codes of commands that have done what they were asked: with findings, or with a broken capture."""
_OUTPUTS: Final = "name it .jsonl, .pcapng or .pcap, or for Parquet tables a folder: end it with /"


class Commands(msgspec.Struct, frozen=True):
    """Commands for the captures in the explorer."""

    captures: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    """Options that decide how captures are read, as given by the user."""
    selection: tuple[str, ...] = ()
    """Options that select exchanges, as given by the user."""
    lasting: bool = True
    """The captures are not removed at the end."""
    exports: tuple[str, ...] = ()
    """Exports, instead of captures."""

    def browse(self) -> list[str]:
        """Show the same list."""
        return self._with_captures("browse", *self.reading, *self.selection)

    def decode(self, connection: int, correlation_id: int) -> list[str]:
        """Show one exchange with its bodies."""
        chosen = (f"--connection={connection}", f"--correlation-id={correlation_id}")
        return self._with_captures("decode", "-v", *self.reading, *chosen)

    def write(self, path: str, expression: str) -> list[str]:
        """Write what the list shows; the name determines the format. Raises UsageError."""
        if not self.captures:
            raise UsageError("only captures can be written, not an export")
        start = self._selected(expression)
        if not path or os.path.lexists(path):
            raise UsageError(f"{path} exists: give another name" if path else _OUTPUTS)
        if path.endswith("/"):
            return self._with_captures("export", *start, f"--output={path}")
        if path.lower().endswith(".jsonl"):
            return self._with_captures("decode", *start, "--format=json", f"--output={path}")
        if path.lower().endswith((".pcapng", ".pcap")):
            return self._with_captures("decode", *start, f"--write-matching={path}")
        raise UsageError(f"{path}: {_OUTPUTS}")

    def report(self, name: str, expression: str) -> list[str]:
        """Report on the listed exchanges: by `check`, as JSON, or by another command, as text."""
        form = "--format=json" if name == "check" else "--color=never"
        return self._with_captures(name, *self._selected(expression), form)

    def _selected(self, expression: str) -> list[str]:
        """The options that select what the list shows."""
        return [*self.reading, *self.selection, *([f"--filter={expression}"] if expression else []), "-q"]

    def _with_captures(self, *words: str) -> list[str]:
        names = [f"./{name}" if name.startswith("-") else name for name in (*self.captures, *self.exports)]
        return ["kafkasniff", *words, *names]


class Done(NamedTuple):
    """How a command ended."""

    output: bytes
    wrong: str | None = None
    """What went wrong, escaped."""
    broken: bool = False
    """A capture is broken: all that can be read of it was read."""


def program(command: list[str]) -> list[str]:
    """A command of kafkasniff as a process. `-P`: it imports no modules from the current folder."""
    return [sys.executable, "-P", "-m", *command]


def run_command(
    command: list[str], *, stopped: Callable[[], bool], width: int | None = None, folder: str | None = None
) -> Done:
    """Run a command of kafkasniff until its end, or until `stopped`.

    `width`: columns of what it prints; `folder`: for its temporary files.

    A process, since it may take as long as reading the captures, and would slow the screen down.
    """
    environment = dict(os.environ)
    environment |= {} if width is None else {"COLUMNS": str(width)}
    environment |= {} if folder is None else {"TMPDIR": folder}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        program(command), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
    ) as process:
        while True:
            try:
                output, said = process.communicate(timeout=WAIT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if stopped():
                    process.terminate()
    broken = process.returncode == BROKEN
    if broken or process.returncode in {0, FINDINGS}:
        return Done(output, None, broken)
    lines = said.decode("utf-8", "replace").splitlines()
    return Done(output, printable(lines[-1]) if lines else f"exit code {process.returncode}")
