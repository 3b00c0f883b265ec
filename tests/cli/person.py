"""A person at a terminal: reads what a full-screen view draws there, and types."""

from __future__ import annotations

import io
import os
import pty
import re
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafkasniff.cli.environment import Environment

PATIENCE = 60
"""Seconds until something that never comes is given up."""


class Person:
    """A person at a terminal of 80×24, who reads and types."""

    def __init__(self) -> None:
        self.end, self.program = pty.openpty()
        termios.tcsetwinsize(self.program, (24, 80))
        self.before = termios.tcgetattr(self.program)
        self.seen = b""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.end, 65_536)
            except OSError:
                return
            if not data:
                return
            self.seen += data

    def sees(self, text: str) -> bool:
        """Whether the text was drawn after the last key."""
        return text in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen.decode(errors="replace"))

    def waits_for(self, text: str) -> None:
        """Wait until the text is drawn after the last key."""
        deadline = time.monotonic() + PATIENCE
        while not self.sees(text):
            assert time.monotonic() < deadline, f"{text!r} is never shown: {self.seen[-3000:]!r}"
            time.sleep(0.01)

    def waits_for_bytes(self, data: bytes) -> None:
        deadline = time.monotonic() + PATIENCE
        while data not in self.seen:
            assert time.monotonic() < deadline, f"{data!r} never comes: {self.seen[-3000:]!r}"
            time.sleep(0.01)

    def types(self, keys: str) -> None:
        self.seen = b""
        os.write(self.end, keys.encode())

    def leaves(self) -> None:
        os.close(self.program)
        os.close(self.end)
        self._reading.join(PATIENCE)

    @contextmanager
    def world(self, **options: Any) -> Iterator[Environment]:
        """Where a command runs in this terminal."""
        with (
            open(os.dup(self.program), "rb", buffering=0) as stdin,
            open(os.dup(self.program), "wb", buffering=0) as stdout,
        ):
            given = {"stdin": stdin, "stdout": stdout, "stderr": io.StringIO(), "environ": {"TERM": "xterm"}, **options}
            yield Environment(stdin_tty=True, stdout_tty=True, **given)
