"""How far Spark has come: one line on stderr that is written over and wiped away at the end, as for what is read."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Final, Protocol, Self

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.progress import BAR_WIDTH, DELAY

__all__ = ["INTERVAL", "TaskProgress"]

INTERVAL: Final = 0.5
"""Seconds between two looks: each asks Java some questions."""
PATIENCE_SECONDS: Final = 5.0
"""How long the end of a run waits for a look that is under way."""


class Stage(Protocol):
    """A stage of a job, as Spark tells of it."""

    @property
    def numTasks(self) -> int:  # noqa: N802 - Spark's name
        """All of its tasks."""

    @property
    def numCompletedTasks(self) -> int:  # noqa: N802 - Spark's name
        """Those that are through."""


class Tracker(Protocol):
    """What Spark's `StatusTracker` can be asked."""

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        """The stages whose tasks run."""

    def getStageInfo(self, stageId: int, /) -> Stage | None:  # noqa: N802, N803 - Spark's names
        """None where it is forgotten."""


class TaskProgress:
    """The line, for as long as its block lasts: a thread asks, since the run waits for Spark."""

    def __init__(self, environment: Environment, tracker: Tracker | None) -> None:
        """`tracker`: None where nothing is to be shown."""
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
        """Show how many tasks of the stages that run are through."""
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
        # What Java's side raises is of many kinds, and no reason to end the run: then there is no line.
        with contextlib.suppress(Exception):
            while not self._over.wait(wait):
                self.update()
                wait = INTERVAL

    def _write(self, text: str) -> None:
        # A terminal that went away ends the show, not the run.
        with contextlib.suppress(OSError, ValueError):
            self._environment.stderr.write(text)
            self._environment.stderr.flush()
