"""A person at a terminal: reads what a full-screen view draws there, and types."""

from __future__ import annotations

import os
import pty
import re
import termios
import threading
import time

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
