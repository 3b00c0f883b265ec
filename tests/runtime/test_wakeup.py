"""Signals that come in another thread, as just before a wait of the main one: no system call is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from kafkasniff.runtime.wakeup import wait_readable, woken_by_signals

PATIENCE = 60
PROGRAM = """
import os, signal, sys, threading, time
from kafkasniff.{module} import {name} as wait
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)
wait({argument})
"""


@pytest.mark.parametrize(
    ("module", "name", "argument"),
    [
        ("runtime.wakeup", "wait_readable", "0"),
        ("capture.formats.bytestream", "open_path", "'/dev/stdin'"),
    ],
)
def test_a_signal_ends_a_wait_for_a_pipe(module: str, name: str, argument: str) -> None:
    program = PROGRAM.format(module=module, name=name, argument=argument)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        process.terminate()
        try:
            assert process.wait(PATIENCE) == 7
        finally:
            process.kill()


def test_data_and_its_end_are_readable() -> None:
    read, write = os.pipe()
    timer = threading.Timer(0.05, os.write, (write, b"x"))
    timer.start()
    wait_readable(read)
    assert os.read(read, 9) == b"x"
    timer.join()
    os.close(write)
    wait_readable(read)
    os.close(read)


def test_the_descriptor_of_somebody_else_is_kept() -> None:
    mine, other = os.pipe(), os.pipe()
    os.set_blocking(mine[1], False)
    os.set_blocking(other[1], False)
    signal.set_wakeup_fd(other[1])
    try:
        with woken_by_signals(mine[1]):
            pass
        assert signal.set_wakeup_fd(-1) == other[1]
        with woken_by_signals(mine[1]):
            assert signal.set_wakeup_fd(mine[1]) == mine[1]
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(-1)
        for end in (*mine, *other):
            os.close(end)
