"""A call in a process of its own, for who has no time to wait for it: whoever takes packets from an interface."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Generic, TypeVar

from kafkasniff.processes import failure, gone_error, signals_blocked
from kafkasniff.stop_signals import STOP_SIGNALS

__all__ = ["Background"]

PATIENCE_SECONDS: Final = 5.0
"""How long a process may take to end when it has said its last word."""

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class Background(Generic[_Result]):
    """`function(argument)`, both to be pickled. The process ends when this one does, whichever way that goes.

    Raises OSError where there can be no further process.
    """

    def __init__(self, function: Callable[[_Argument], _Result], argument: _Argument) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(function, argument, theirs), daemon=True)
        # A process takes over what is blocked: no signal reaches it before it can ignore them.
        resource_tracker.ensure_running()  # unblocks them
        with signals_blocked():
            self._process.start()
        theirs.close()

    @property
    def done(self) -> bool:
        """Whether there is no waiting for the result any more."""
        return self._end.poll()

    def result(self) -> _Result:
        """Wait for what the function returns; raises what it raises.

        KafkasniffError where its process died: OutOfMemoryError where that was for lack of memory.
        """
        try:
            told: tuple[_Result, BaseException | None] | None = self._end.recv()
        except EOFError:
            told = None
        self._process.join(PATIENCE_SECONDS)
        code = self._process.exitcode
        self.close()
        if told is None:
            raise gone_error(code)
        result, error = told
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """End the process, if it has not ended. There is no result any more."""
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._end.close()


def _work(function: Callable[[Any], Any], argument: Any, end: Connection) -> None:
    """The process's whole life."""
    # They go to all processes of a terminal or a service: the first one says what becomes of this one.
    for signum in STOP_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.set_threshold(100_000, 50, 100)
    result = error = None
    try:
        result = function(argument)
    except Exception as raised:
        error = failure(raised)
    with contextlib.suppress(OSError):
        end.send((result, error))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    # What it makes is for nobody now.
    os._exit(1)
