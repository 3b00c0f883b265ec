"""The signals that end a run and the waits that they end; threads with work to do before its result is needed.

Signals are the same in every process of a run. SIGHUP is one of them: it is sent when a terminal or an ssh connection
closes, and by default ends a process immediately, with all its buffered output. A signal's handler in Python runs
between two instructions of the main thread. If the signal comes just before that thread waits in the system, or in
another thread, only `signal.set_wakeup_fd` ends the wait.

Threads pay off if most of the work releases the interpreter's lock: the kernel, decompression libraries, reads.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Self, TypeVar

ENDS_WITH_STDIN: Final = "KAFKASNIFF_ENDS_WITH_STDIN"
"""The environment variable that has a process that captures end when its stdin, a pipe, closes: its parent is gone."""
HANGUP: Final = getattr(signal, "SIGHUP", None)
"""None on Windows."""
STOP_SIGNALS: Final = tuple(one for one in (signal.SIGINT, signal.SIGTERM, HANGUP) if one is not None)


def honoured_signals() -> tuple[signal.Signals, ...]:
    """The signals that this run obeys: without SIGHUP if its parent ignored it, as nohup(1) does."""
    return tuple(one for one in STOP_SIGNALS if one != HANGUP or signal.getsignal(one) != signal.SIG_IGN)


def left_to_parent() -> None:
    """Ignore, in a worker process, what a terminal or service sends to all processes: the first one ends the others."""
    for signum in STOP_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


@contextlib.contextmanager
def ignored_hangup() -> Iterator[None]:
    """Programs started within the block ignore SIGHUP permanently, this process only within the block.

    Outside of the main thread, which alone may change handlers, nothing changes.
    """
    if HANGUP is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(HANGUP, signal.SIG_IGN)
    try:
        yield
    finally:
        # None: a handler that was not set by Python and cannot be restored.
        signal.signal(HANGUP, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def woken_by_signals(descriptor: int) -> Iterator[None]:
    """Have every signal write to this descriptor within the block.

    Does nothing outside the main thread, and if someone else has asked for such writes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
    try:
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)


def wait_readable(descriptor: int) -> None:
    """Wait until there is data, or the end of it. Raises what handlers of signals raise."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if waiting.poll(0):
        return
    wake_read, wake_write = os.pipe()
    try:
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        waiting.register(wake_read, select.POLLIN)
        with woken_by_signals(wake_write):
            while descriptor not in dict(waiting.poll()):
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
    finally:
        os.close(wake_read)
        os.close(wake_write)


class ClosedAtExit(ABC):
    """A context manager that yields itself and is closed however its block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds."""


_T = TypeVar("_T")

HERE: Final = 0
"""Number of the thread that requests results; those of `Threads` are numbered from 1."""


RESERVE: Final = 4
"""Tasks queued per thread: it should have work while the requesting thread is busy elsewhere."""


class Task(Generic[_T]):
    """Work that is done once: by the first free thread, or by the one that requests the result.

    `work` takes the number of the thread that runs it.
    """

    __slots__ = ("_begun", "_done", "_error", "_left", "_result", "_work")

    def __init__(self, work: Callable[[int], _T]) -> None:
        self._work: Callable[[int], _T] | None = work
        self._left = False
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._result: _T | None = None
        self._error: BaseException | None = None

    def run(self, thread: int) -> bool:
        """Run it, unless another thread has begun; returns whether it ran here."""
        if not self._begun.acquire(blocking=False):
            return False
        work, self._work = self._work, None
        assert work is not None
        try:
            self._result = work(thread)
        except BaseException as error:
            # Raised to the caller of `result`.
            self._error = error
        self._done.set()
        return True

    @property
    def is_done(self) -> bool:
        """Whether the result is available."""
        return self._done.is_set()

    def leave(self) -> bool:
        """Cancel it; False if it was begun. For the thread that requests results."""
        if self._work is not None and self._begun.acquire(blocking=False):
            self._work, self._left = None, True
        return self._left

    def result(self) -> _T:
        """The result. Raises what the work raised."""
        if not self.run(HERE):
            self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # it is there now


class Threads(ClosedAtExit):
    """Threads that run tasks in order of submission; a context manager that stops them at its end."""

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._lock = threading.Lock()
        self._closed = False
        self._gate = threading.Event()
        self._gate.set()
        self._tasks: SimpleQueue[Task[Any] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"{name}-{number}", daemon=True)
            for number in range(1, count + 1)
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, work: Callable[[int], _T]) -> Task[_T]:
        """Queue a task; the caller has to request its result."""
        task = Task(work)
        self._tasks.put(task)
        return task

    def help(self) -> bool:
        """Run the next task here instead of waiting for another one; False if there are few, or they are held."""
        if not self._gate.is_set() or self._tasks.qsize() <= RESERVE * self.count:
            return False
        try:
            task = self._tasks.get_nowait()
        except Empty:
            return False
        assert task is not None
        task.run(HERE)
        return True

    def hold(self, *, held: bool) -> None:
        """Stop these threads from beginning tasks, or let them resume; callers of `result` do the work meanwhile."""
        with self._lock:
            if held and not self._closed:
                self._gate.clear()
            else:
                self._gate.set()

    def _work(self, number: int) -> None:
        while (task := self._tasks.get()) is not None:
            self._gate.wait()
            task.run(number)
            del task  # its result may be large

    def close(self) -> None:
        """Tasks that were not begun are dropped."""
        self._closed = True
        self.hold(held=False)
        with contextlib.suppress(Empty):
            while True:
                self._tasks.get_nowait()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
