"""The signals that end a run: which are obeyed, and by whom."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from kafkasniff.runtime.stop_signals import STOP_SIGNALS, honoured_signals, ignored_hangup

ASK = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"


def child_ignores() -> bool:
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
    return asked.stdout == "True\n"


def test_a_closed_terminal_ends_a_run_like_the_others() -> None:
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} == set(STOP_SIGNALS)
    assert honoured_signals() == STOP_SIGNALS
    with ignored_hangup():
        assert set(honoured_signals()) == {signal.SIGINT, signal.SIGTERM}


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
