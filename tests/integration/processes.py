"""The processes of a run, with their output in its folder: client programs and `kafkasniff live`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from captures.record.distribution import SetupError

ROOT = Path(__file__).resolve().parents[2]

LIVE_TIMEOUT_S = 30

OWN_STATE = {"live-behind", "live-caught-up"}
"""Problems of the watcher, not of the watched programs: on a busy machine, it may fail to keep up for a moment. The
comparisons would then report what it skipped."""


class ClientError(SetupError):
    """A client program failed or did not finish."""


@contextmanager
def process(command: Sequence[str], folder: Path, name: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with output to `NAME.out` and `NAME.err`; ended, by force if necessary, when the block ends."""
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, env={**os.environ, **environment}
        )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
            started.wait()


@contextmanager
def live(folder: Path, ports: Sequence[int], *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kafkasniff live` on the ports, from the moment it listens; interrupted like by Ctrl-C when the block ends."""
    bpf = " or ".join(f"tcp port {port}" for port in ports)
    # A test's folder belongs to root, and so may the Python.
    stays = ["--keep-root"] if os.geteuid() == 0 else []
    command = [sys.executable, "-m", "kafkasniff", "live", *stays, "-i", "lo", "--format", "json", *options, bpf]
    with process(command, folder, "live") as running:
        deadline = time.monotonic() + LIVE_TIMEOUT_S
        while "listening on lo" not in (folder / "live.err").read_text(encoding="utf-8"):
            if running.poll() is not None or time.monotonic() > deadline:
                raise SetupError(f"kafkasniff live does not listen: {tail(folder / 'live.err')}")
            time.sleep(0.02)
        yield running
        running.send_signal(signal.SIGINT)
        running.wait(LIVE_TIMEOUT_S)


def finished(running: subprocess.Popen[bytes], folder: Path, name: str, timeout_s: float) -> None:
    """Wait for a process that must exit with 0. Raises SetupError with its output."""
    try:
        code = running.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise SetupError(f"{name} did not end: {tail(folder / f'{name}.err')}") from None
    if code != 0:
        raise SetupError(f"{name} ended with {code}: {tail(folder / f'{name}.err')}")


def tail(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")[-2000:]


def write(file: Path, facts: dict[str, Any]) -> None:
    file.write_text(json.dumps(facts, indent=1), encoding="utf-8")
