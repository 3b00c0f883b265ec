"""Worker processes: what they say is heard, what they raise is raised, and none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.errors import KafkasniffError, OutOfMemoryError, OutputError
from kafkasniff.runtime.worker_processes import Background, Workers
from tests.capture.waiting import until
from tests.runtime.tasks import crash, doubled, echo, failing, leave, signalled, sleeping

ROOT = Path(__file__).resolve().parents[2]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_answer_and_end_with_the_block() -> None:
    with Workers(echo, ["a", "b"]) as workers:
        assert len(workers) == 2
        found: dict[int, Any] = {}
        for worker in (0, 1):
            workers.send(worker, worker * 10)
        while len(found) < 2:
            found.update(workers.messages(without=found))
    assert {worker: (task, said) for worker, (task, _, said) in found.items()} == {0: ("a", 0), 1: ("b", 10)}
    assert not any(alive(pid) for _, pid, _ in found.values())


def test_a_worker_that_dies_silently() -> None:
    with Workers(leave, [7]) as workers, pytest.raises(KafkasniffError, match="ended with code 7"):
        list(workers.messages(120))
    with Workers(crash, [signal.SIGSEGV]) as workers, pytest.raises(KafkasniffError, match="was ended by SIGSEGV"):
        list(workers.messages(120))


def test_a_result() -> None:
    call = Background(doubled, 21)
    number, pid = call.result()
    assert number == 42
    assert pid != os.getpid()
    assert not alive(pid)


def test_signals_are_for_others() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    call = Background(signalled, None)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert call.result() == "alive"


@pytest.mark.parametrize(
    ("kind", "error", "expected"),
    [
        ("ours", OutputError, "^no$"),
        ("disk", OSError, "No space left on device"),
        ("bug", KafkasniffError, "ValueError: a bug"),
        ("killed", OutOfMemoryError, "was killed"),
        ("memory", OutOfMemoryError, "ran out of memory"),
    ],
)
def test_failures(kind: str, error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=expected):
        Background(failing, kind).result()


def wait_for(path: Path) -> int:
    until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def test_nobody_waits_any_more(tmp_path: Path) -> None:
    call = Background(sleeping, str(tmp_path / "pid"))
    pid = wait_for(tmp_path / "pid")
    assert not call.done
    call.close()
    assert not alive(pid)


def check_end(code: str, *arguments: str, pid: Path) -> None:
    """A worker of a program ends if that is killed. `pid`: the file into which the worker writes its number."""
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        worker = wait_for(pid)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not alive(worker))


@pytest.mark.extended
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    code = """
        import sys, time
        from kafkasniff.runtime.worker_processes import Background
        from tests.runtime.tasks import sleeping

        Background(sleeping, sys.argv[1])
        time.sleep(60)
    """
    check_end(code, str(tmp_path / "pid"), pid=tmp_path / "pid")
