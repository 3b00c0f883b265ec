"""Work that other threads may do before its result is needed.

It pays off if most of the work releases the interpreter's lock: the kernel, decompression libraries, reads.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Self, TypeVar


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
