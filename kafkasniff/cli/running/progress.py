"""Progress of reading: one line on stderr that is updated in place and erased at the end."""

from __future__ import annotations

import contextlib
from typing import Final, Protocol

from kafkasniff.cli.environment import Environment

__all__ = ["INTERVAL", "Progress", "wants_progress"]

INTERVAL: Final = 0.1
"""Seconds between updates: smooth to the eye, negligible cost."""
DELAY: Final = 0.5
"""Seconds before the first update: shorter runs need none."""
BAR_WIDTH: Final = 30


class ProgressSource(Protocol):
    """The source that is read."""

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""

    @property
    def bytes_total(self) -> int | None:
        """None if unknown."""


def wants_progress(environment: Environment, *, to_terminal: bool, quiet: bool) -> bool:
    """Whether anybody would see it, and it would not mix with lines of data."""
    return environment.stderr_tty and not to_terminal and not quiet


class Progress:
    """The progress line of one source."""

    def __init__(self, environment: Environment, source: ProgressSource) -> None:
        self._environment = environment
        self._source = source
        self._start = environment.clock()
        self._next = self._start + DELAY
        self._shown = False

    def update(self) -> None:
        """Update the line if it is time to. Cheap."""
        now = self._environment.clock()
        if now < self._next:
            return
        self._next = now + INTERVAL
        read, total = self._source.bytes_read, self._source.bytes_total
        rate = read / max(now - self._start, 1e-9)
        if total:
            share = min(read / total, 1.0)
            done = round(share * BAR_WIDTH)
            left = (total - read) / rate if rate else 0
            text = f"[{'#' * done}{'.' * (BAR_WIDTH - done)}] {share:4.0%} {_megabytes(rate)}/s, {left:.0f} s left"
        else:
            text = f"{_megabytes(read)} read, {_megabytes(rate)}/s"
        self._write(f"\r{text}\x1b[K")
        self._shown = True

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        # A terminal that went away ends the display, not the run.
        with contextlib.suppress(OSError, ValueError):
            self._environment.stderr.write(text)
            self._environment.stderr.flush()


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
