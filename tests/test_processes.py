"""Worker processes: what they say is heard, what they raise is raised, and none is left."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kafkasniff.errors import CaptureError, KafkasniffError
from kafkasniff.processes import Workers, can_fork

STARTS = ["spawn", *(["fork"] if can_fork() else [])]


def echo(task: str, end: Any) -> None:
    while True:
        end.send((task, os.getpid(), end.recv()))


def fail(task: Exception, end: Any) -> None:
    raise task


def leave(task: int, end: Any) -> None:
    os._exit(task)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("start", STARTS)
def test_workers_answer_and_end_with_the_block(start: Any) -> None:
    with Workers(echo, ["a", "b"], start=start) as workers:
        assert len(workers) == 2
        found: dict[int, Any] = {}
        for worker in (0, 1):
            workers.send(worker, worker * 10)
        while len(found) < 2:
            found.update(workers.messages(without=found))
    assert {worker: (task, said) for worker, (task, _, said) in found.items()} == {0: ("a", 0), 1: ("b", 10)}
    assert not any(alive(pid) for _, pid, _ in found.values())


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("error", "told"), [(CaptureError("no capture"), "no capture"), (ValueError("x"), "a worker process failed: Value")]
)
def test_what_a_worker_raises(start: Any, error: Exception, told: str) -> None:
    with Workers(fail, [error], start=start) as workers, pytest.raises(KafkasniffError, match=told):
        list(workers.messages(60))


@pytest.mark.parametrize("start", STARTS)
def test_a_worker_that_is_gone_without_a_word(start: Any) -> None:
    with Workers(leave, [7], start=start) as workers, pytest.raises(KafkasniffError, match="ended with code 7"):
        list(workers.messages(120))
