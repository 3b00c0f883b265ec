"""Progress of a run on stderr: of reading captures, and of the tasks of other processes."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Final, Protocol, Self

from kafkasniff.cli.environment import Environment

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


# Tasks of Spark.

TASK_INTERVAL: Final = 0.5
"""Seconds between updates: each asks Java some questions."""
PATIENCE_SECONDS: Final = 5.0
"""How long the end of a run waits for an update in progress."""


class Stage(Protocol):
    """A stage of a job, as reported by Spark."""

    @property
    def numTasks(self) -> int:  # noqa: N802 - Spark's name
        """Number of its tasks."""

    @property
    def numCompletedTasks(self) -> int:  # noqa: N802 - Spark's name
        """Number of its completed tasks."""


class Tracker(Protocol):
    """The part of Spark's `StatusTracker` used here."""

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        """The stages with running tasks."""

    def getStageInfo(self, stageId: int, /) -> Stage | None:  # noqa: N802, N803 - Spark's names
        """None if Spark has forgotten it."""


class TaskProgress:
    """The line, for the duration of its block; a thread updates it, since the run waits for Spark."""

    def __init__(self, environment: Environment, tracker: Tracker | None) -> None:
        """`tracker`: None if no progress is to be shown."""
        self._environment = environment
        self._tracker = tracker
        self._start = environment.clock()
        self._shown = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="progress")

    def __enter__(self) -> Self:
        if self._tracker is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_SECONDS)
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def update(self) -> None:
        """Show how many tasks of the active stages are complete."""
        assert self._tracker is not None
        found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        stages = [stage for stage in found if stage is not None]
        total = sum(stage.numTasks for stage in stages)
        if not total or self._over.is_set():
            return
        done = sum(stage.numCompletedTasks for stage in stages)
        bar = "#" * (done * BAR_WIDTH // total)
        elapsed = self._environment.clock() - self._start
        self._write(f"\r[{bar:.<{BAR_WIDTH}}] {done} of {total} tasks of this stage, {elapsed:.0f} s\x1b[K")
        self._shown = True

    def _run(self) -> None:
        wait = DELAY
        # Java's side raises many kinds of errors; none is a reason to end the run, only the display.
        with contextlib.suppress(Exception):
            while not self._over.wait(wait):
                self.update()
                wait = TASK_INTERVAL

    def _write(self, text: str) -> None:
        # A terminal that went away ends the display, not the run.
        with contextlib.suppress(OSError, ValueError):
            self._environment.stderr.write(text)
            self._environment.stderr.flush()
