"""Signals: waits that they end, and which of them end a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from kafkasniff.runtime.threads import STOP_SIGNALS, honoured_signals, ignored_hangup, woken_by_signals

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


@pytest.mark.extended
@pytest.mark.parametrize(
    ("module", "name", "argument"),
    [("runtime.threads", "wait_readable", "0"), ("capture.formats.reader", "open_path", "'/dev/stdin'")],
)
def test_a_signal_ends_a_wait_for_a_pipe(module: str, name: str, argument: str) -> None:
    program = PROGRAM.format(module=module, name=name, argument=argument)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        process.terminate()
        try:
            assert process.wait(PATIENCE) == 7
        finally:
            process.kill()


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


ASK = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"


def child_ignores() -> bool:
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
    return asked.stdout == "True\n"


def test_a_closed_terminal_ends_a_run_like_the_others() -> None:
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} == set(STOP_SIGNALS)
    assert honoured_signals() == STOP_SIGNALS
    with ignored_hangup():
        assert set(honoured_signals()) == {signal.SIGINT, signal.SIGTERM}


@pytest.mark.extended
def test_child_processes_ignore_it_and_this_process_does_not() -> None:
    """As Spark's Java is started: it lives until the driver ends it."""

    def mine(*_: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGHUP, mine)
    try:
        assert not child_ignores()
        with ignored_hangup():
            assert child_ignores()
        assert signal.getsignal(signal.SIGHUP) is mine
    finally:
        signal.signal(signal.SIGHUP, before)


def test_threads_change_no_handlers() -> None:
    reported: list[bool] = []

    def within() -> None:
        with ignored_hangup():
            reported.append(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)

    thread = threading.Thread(target=within)
    thread.start()
    thread.join(60)
    assert reported == [False]
