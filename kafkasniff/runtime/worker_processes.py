"""Worker processes: started together, polled in turn, and always stopped at the end of the block that owns them.

A worker runs one function that gets its end of a connection. It ends when the first process does, however that ends: at
the next message that it cannot send or receive.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Container, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from kafkasniff.errors import KafkasniffError, MissingKernelError, OutOfMemoryError, is_out_of_memory
from kafkasniff.native.library import kernel
from kafkasniff.runtime.memory_limits import keep_freed_memory
from kafkasniff.runtime.threads import STOP_SIGNALS, left_to_parent

COLLECTION: Final = (100_000, 50, 100)
"""Thresholds of the search for cycles in a process that decodes: messages hold none."""

PATIENCE_SECONDS: Final = 5.0
"""How long a worker that said its last word may take to end."""

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

Work = Callable[[Any, "Connection[Any, Any]"], None]
"""Function of a worker: takes its task and its end of the connection. Its exceptions reach the first process."""


class Workers:
    """Processes that run `work`, one per task; a context manager that stops all of them at its end.

    They start anew, so tasks and `work` are pickled.
    """

    def __init__(self, work: Work, tasks: list[Any]) -> None:
        self._processes: list[BaseProcess] = []
        self._ends: list[Connection[Any, Any]] = []
        context: Any = multiprocessing.get_context("spawn")  # the stubs' common base knows no `Process`
        try:
            for task in tasks:
                mine, theirs = context.Pipe()
                self._ends.append(mine)
                process = context.Process(target=_live, args=(work, task, theirs), daemon=True)
                resource_tracker.ensure_running()  # when it is started it unblocks signals
                with _signals_blocked():
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

    @property
    def are_heard(self) -> bool:
        """Whether a worker has said something, or is gone."""
        return bool(wait(self._ends, 0))

    def send(self, worker: int, message: object) -> None:
        """Send a message to a worker; KafkasniffError if it is gone."""
        try:
            self._ends[worker].send(message)
        except OSError:
            self._raise_end(worker)

    def messages(self, timeout: float | None = None, *, without: Container[int] = ()) -> Iterator[tuple[int, Any]]:
        """Messages of workers with their numbers, one from each worker that sends one within `timeout` seconds.

        `without`: workers that are finished. Raises the exceptions of workers, KafkasniffError if one is gone without
        reporting.
        """
        ends = {id(end): worker for worker, end in enumerate(self._ends) if worker not in without}
        for end in wait([self._ends[worker] for worker in ends.values()], timeout):
            worker = ends[id(end)]
            try:
                message = self._ends[worker].recv()
            except (EOFError, OSError):
                self._raise_end(worker)
            if isinstance(message, BaseException):
                raise message
            yield worker, message

    def _raise_end(self, worker: int) -> None:
        process = self._processes[worker]
        # Its exception may still be in the pipe.
        with contextlib.suppress(EOFError, OSError):
            while self._ends[worker].poll():
                message = self._ends[worker].recv()
                if isinstance(message, BaseException):
                    raise message
        process.join(PATIENCE_SECONDS)
        raise _end_error(process.exitcode)

    def end(self) -> None:
        """Stop the workers that still run."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for end in self._ends:
            end.close()


class Background(Generic[_Result]):
    """`function(argument)` in a process of its own, both to be pickled.

    The process ends when this one does, whichever way that goes. Raises OSError if no more processes can be started.
    """

    def __init__(self, function: Callable[[_Argument], _Result], argument: _Argument) -> None:
        self._workers = Workers(_call, [(function, argument)])

    @property
    def done(self) -> bool:
        """Whether there is no waiting for the result any more."""
        return self._workers.are_heard

    def result(self) -> _Result:
        """Wait for what the function returns; raises what it raises, and KafkasniffError where its process died."""
        with self._workers as workers:
            (result,) = (message for _, message in workers.messages())
        found: _Result = result
        return found

    def close(self) -> None:
        """End the process, if it has not ended. There is no result any more."""
        self._workers.end()


def _end_error(exitcode: int | None) -> KafkasniffError:
    """What to raise for a worker that ended without a word.

    A SIGKILL that this process did not send nearly always comes from the kernel's out-of-memory killer.
    """
    if exitcode == -signal.SIGKILL:
        return OutOfMemoryError("a worker process was killed (SIGKILL), as the kernel does when memory runs out")
    if exitcode is not None and exitcode < 0:
        return KafkasniffError(f"a worker process was ended by {signal.Signals(-exitcode).name}")
    return KafkasniffError(f"a worker process ended with code {exitcode}")


def _failure(error: Exception) -> Exception:
    """An exception of a worker as the first process raises it: one that pickles, and whose text is for people."""
    if is_out_of_memory(error):
        return OutOfMemoryError("a worker process ran out of memory")
    if isinstance(error, KafkasniffError | OSError):
        return error
    reported = KafkasniffError(f"a worker process failed: {type(error).__name__}: {error}")
    reported.add_note("".join(traceback.format_exception(error)))
    return reported


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """No signal meets a process that is started within the block before it has handlers of its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _live(work: Work, task: Any, end: Connection[Any, Any]) -> None:
    """A worker's whole life."""
    left_to_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    gc.set_threshold(*COLLECTION)
    keep_freed_memory()
    with contextlib.suppress(MissingKernelError):
        kernel().last_words = functools.partial(_report, end)
    try:
        work(task, end)
    except (BrokenPipeError, ConnectionResetError, EOFError):
        return
    except Exception as error:
        with contextlib.suppress(OSError):
            end.send(_failure(error))


def _report(end: Connection[Any, Any], line: str) -> None:
    """A check of the kernel failed in a worker: the first process raises that."""
    with contextlib.suppress(OSError):
        end.send(KafkasniffError(line))
    os._exit(os.EX_SOFTWARE)


def _call(task: tuple[Callable[[Any], Any], Any], end: Connection[Any, Any]) -> None:
    """Call a function, and send its result."""
    end_with_parent()
    function, argument = task
    end.send(function(argument))


def end_with_parent() -> None:
    """Let this worker end with the process that started it, even while it is busy with something else than messages."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_wait_and_end, args=(parent.sentinel,), daemon=True).start()


def _wait_and_end(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
