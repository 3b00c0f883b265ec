from __future__ import annotations

import pytest

from benchmarks.driver import DriverWork, task_ms
from benchmarks.planning import Step


def test_a_task_costs_what_more_tasks_take() -> None:
    few, some, many = (DriverWork(tasks, Step("", 9.0, 1.0 + tasks / 1000, 15.0)) for tasks in (50, 400, 1050))
    assert task_ms([many, few, some]) == task_ms([few, many]) == pytest.approx(1.0)
