"""Calls in a process of their own: their results, their failures, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from kafkasniff.errors import KafkasniffError, OutOfMemoryError, OutputError
from kafkasniff.exports.background import Background

ROOT = Path(__file__).resolve().parents[2]


def doubled(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def failing(kind: str) -> None:
    if kind == "ours":
        raise OutputError("no")
    if kind == "disk":
        raise OSError(28, "No space left on device")
    if kind == "memory":
        np.empty(1 << 62, np.uint8)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("a bug")


def signalled(_: None) -> str:
    """What goes to all processes of a terminal does not end this one."""
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGHUP)
    return "alive"


def sleeping(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_result() -> None:
    call = Background(doubled, 21)
    number, pid = call.result()
    assert number == 42
    assert pid != os.getpid()
    assert not is_alive(pid)


def test_signals_are_for_others() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    call = Background(signalled, None)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert call.result() == "alive"


@pytest.mark.parametrize(
    ("kind", "error", "told"),
    [
        ("ours", OutputError, "^no$"),
        ("disk", OSError, "No space left on device"),
        ("bug", KafkasniffError, "ValueError: a bug"),
        ("killed", OutOfMemoryError, "was killed"),
        ("memory", OutOfMemoryError, "ran out of memory"),
    ],
)
def test_failures(kind: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Background(failing, kind).result()


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(path.read_text())


def test_nobody_waits_any_more(tmp_path: Path) -> None:
    call = Background(sleeping, str(tmp_path / "pid"))
    pid = wait_for(tmp_path / "pid")
    assert not call.done
    call.close()
    assert not is_alive(pid)


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    code = """
        import sys, time
        from kafkasniff.exports.background import Background
        from tests.exports.test_background import sleeping

        Background(sleeping, sys.argv[1])
        time.sleep(60)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "pid")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        pid = wait_for(tmp_path / "pid")
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
