"""Progress of Spark: one line on stderr that is updated in place and erased at the end, as for reading."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Final, Protocol, Self

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.running.progress import BAR_WIDTH, DELAY

__all__ = ["INTERVAL", "TaskProgress"]

INTERVAL: Final = 0.5
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
                wait = INTERVAL

    def _write(self, text: str) -> None:
        # A terminal that went away ends the display, not the run.
        with contextlib.suppress(OSError, ValueError):
            self._environment.stderr.write(text)
            self._environment.stderr.flush()
