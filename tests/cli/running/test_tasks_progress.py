from __future__ import annotations

import io
from typing import NamedTuple

from kafkasniff.cli.running import tasks_progress
from kafkasniff.cli.running.progress import BAR_WIDTH
from kafkasniff.cli.running.tasks_progress import TaskProgress
from tests.cli.console import environment


class Stage(NamedTuple):
    numTasks: int  # noqa: N815 - Spark's names
    numCompletedTasks: int  # noqa: N815


class Tracker:
    """Running stages by number. One of them no longer has any information."""

    def __init__(self, *stages: Stage | None) -> None:
        self.stages = stages

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return list(range(len(self.stages)))

    def getStageInfo(self, stage: int, /) -> Stage | None:  # noqa: N802
        return self.stages[stage]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_finished_tasks() -> None:
    clock, stderr, tracker = Clock(), io.StringIO(), Tracker()
    progress = TaskProgress(environment(stderr=stderr, clock=clock), tracker)
    progress.update()
    assert stderr.getvalue() == ""
    clock.now += 12.3
    tracker.stages = (Stage(3, 3), None, Stage(5, 1))
    progress.update()
    bar = "#" * (BAR_WIDTH // 2)
    assert stderr.getvalue() == f"\r[{bar:.<{BAR_WIDTH}}] 4 of 8 tasks of this stage, 12 s\x1b[K"


def test_the_line_is_erased() -> None:
    stderr, tracker = io.StringIO(), Tracker(Stage(2, 1))
    progress = TaskProgress(environment(stderr=stderr), tracker)
    with progress:
        progress.update()
    assert stderr.getvalue().endswith("\x1b[K\r\x1b[K")
    progress.update()
    assert stderr.getvalue().endswith("\x1b[K\r\x1b[K")


def test_nothing_is_shown_without_a_tracker() -> None:
    stderr = io.StringIO()
    with TaskProgress(environment(stderr=stderr), None):
        pass
    assert stderr.getvalue() == ""


def test_errors_of_spark_are_ignored() -> None:
    class Gone(Tracker):
        def __init__(self) -> None:
            super().__init__()
            self.asked = tasks_progress.threading.Event()

        def getActiveStageIds(self) -> list[int]:  # noqa: N802
            self.asked.set()
            raise ConnectionError("Java is gone")

    stderr, gone = io.StringIO(), Gone()
    with TaskProgress(environment(stderr=stderr), gone):
        assert gone.asked.wait(30)
    assert stderr.getvalue() == ""
