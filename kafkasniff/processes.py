"""Worker processes: started together, heard in turn, and gone when the block that has them ends, whichever way.

A worker's whole life is one function that is given its end of a connection. It ends by itself when the first process
does, whichever way that goes: at the next message that nobody takes or sends.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Container, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final, Literal, Self

from kafkasniff.errors import KafkasniffError, OutOfMemoryError, is_out_of_memory
from kafkasniff.native.allocation import keep_freed_memory
from kafkasniff.stop_signals import STOP_SIGNALS, left_to_parent

__all__ = ["Work", "Workers", "can_fork", "failure", "gone_error", "signals_blocked"]

PATIENCE_SECONDS: Final = 5.0
"""How long a worker may take to end when it is told to."""

Work = Callable[[Any, "Connection[Any, Any]"], None]
"""What a worker does with its task and its end of the connection. Whatever it raises is raised in the first process."""


def can_fork() -> bool:
    """Whether workers can begin as copies of this process, with all that it has in memory."""
    return "fork" in multiprocessing.get_all_start_methods()


class Workers:
    """Processes that do `work`, one for each task; a context manager, at whose end none is left.

    `start`: as copies of this process ("fork"), or anew ("spawn": tasks and `work` are pickled then).
    """

    def __init__(self, work: Work, tasks: list[Any], *, start: Literal["fork", "spawn"]) -> None:
        self._processes: list[BaseProcess] = []
        self._ends: list[Connection[Any, Any]] = []
        context: Any = multiprocessing.get_context(start)  # the stubs' common base knows no `Process`
        try:
            for task in tasks:
                mine, theirs = context.Pipe()
                self._ends.append(mine)
                # A copy has all connections of this process: left open, none of them would ever be heard to end.
                inherited = list(self._ends) if start == "fork" else []
                process = context.Process(target=_live, args=(work, task, theirs, inherited), daemon=True)
                if start == "spawn":
                    resource_tracker.ensure_running()  # when it is started it unblocks signals
                with signals_blocked():
                    process.start()
                theirs.close()
                self._processes.append(process)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __len__(self) -> int:
        return len(self._ends)

    def send(self, worker: int, message: object) -> None:
        """Say something to a worker; KafkasniffError where it is gone."""
        try:
            self._ends[worker].send(message)
        except OSError:
            self._gone(worker)

    def messages(self, timeout: float | None = None, *, without: Container[int] = ()) -> Iterator[tuple[int, Any]]:
        """What workers say, each with its number, one message of each that says something within `timeout` seconds.

        `without`: those that have nothing more to say. Raises what a worker raised, KafkasniffError where one is gone
        without a word.
        """
        ends = {id(end): worker for worker, end in enumerate(self._ends) if worker not in without}
        for end in wait([self._ends[worker] for worker in ends.values()], timeout):
            worker = ends[id(end)]
            try:
                message = self._ends[worker].recv()
            except (EOFError, OSError):
                self._gone(worker)
            if isinstance(message, BaseException):
                raise message
            yield worker, message

    def _gone(self, worker: int) -> None:
        process = self._processes[worker]
        # What it raised may still be there to be heard.
        with contextlib.suppress(EOFError, OSError):
            while self._ends[worker].poll():
                message = self._ends[worker].recv()
                if isinstance(message, BaseException):
                    raise message
        process.join(PATIENCE_SECONDS)
        raise gone_error(process.exitcode)

    def end(self) -> None:
        """End what still runs."""
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        for process in self._processes:
            process.join(PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        for end in self._ends:
            end.close()


def gone_error(exitcode: int | None) -> KafkasniffError:
    """What to raise for a worker that ended without a word.

    A SIGKILL that this process did not send is the kernel's out-of-memory killer in nearly all cases.
    """
    if exitcode == -signal.SIGKILL:
        return OutOfMemoryError("a worker process was killed (SIGKILL), as the kernel does when memory runs out")
    return KafkasniffError(f"a worker process ended with code {exitcode}")


def failure(error: Exception) -> Exception:
    """An exception of a worker as the first process raises it: one that pickles, and whose text is for people."""
    if is_out_of_memory(error):
        return OutOfMemoryError("a worker process ran out of memory")
    if isinstance(error, KafkasniffError | OSError):
        return error
    told = KafkasniffError(f"a worker process failed: {type(error).__name__}: {error}")
    told.add_note("".join(traceback.format_exception(error)))
    return told


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """No signal meets a process that is started within the block before it has handlers of its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _live(work: Work, task: Any, end: Connection[Any, Any], inherited: list[Connection[Any, Any]]) -> None:
    """A worker's whole life."""
    left_to_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    gc.set_threshold(100_000, 50, 100)
    keep_freed_memory()
    for other in inherited:
        other.close()
    try:
        work(task, end)
    except (BrokenPipeError, ConnectionResetError, EOFError):
        return
    except Exception as error:
        with contextlib.suppress(OSError):
            end.send(failure(error))
