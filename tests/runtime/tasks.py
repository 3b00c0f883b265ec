"""What the tests of worker processes run there: importing this takes no time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from kafkasniff.errors import OutputError


def echo(task: str, end: Any) -> None:
    while True:
        end.send((task, os.getpid(), end.recv()))


def leave(task: int, end: Any) -> None:
    os._exit(task)


def crash(number: int, end: Any) -> None:
    os.kill(os.getpid(), number)


def doubled(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def failing(kind: str) -> None:
    if kind == "ours":
        raise OutputError("no")
    if kind == "disk":
        raise OSError(28, "No space left on device")
    if kind == "memory":
        bytearray(1 << 62)
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
