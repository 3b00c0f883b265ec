"""Output of data: stdout, or a file that is complete or reported as incomplete; progress on stderr."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Protocol, Self

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import OutputError, UsageError

FILE_MODE: Final = 0o600
"""Mode of created files: they contain wire traffic, which only their owner should read."""
FILE_WIDTH: Final = 120
"""Width of text in columns if the output is a file."""
MIN_WIDTH: Final = 60
MAX_WIDTH: Final = 160
"""Bounds of the width on a terminal."""
UNLIMITED: Final = 10_000
"""Width with --wide: a row stays on one line, however long."""


class Output:
    """A byte stream to stdout (`path` None or `-`) or to a file; raises `OutputError` if it cannot be written.

    As a context manager it reports an incomplete file if an exception passes. Refuses to overwrite one of `inputs`
    (UsageError). A closed pipe raises BrokenPipeError, as usual.
    """

    def __init__(self, environment: Environment, path: str | None = None, inputs: Iterable[str] = ()) -> None:
        self._environment = environment
        self.path = None if path in {None, "-"} else path
        self._stream: BinaryIO = environment.stdout
        if self.path is None:
            return
        for name in inputs:
            if name != "-" and _same_file(name, self.path):
                raise UsageError(f"{self.path} is a capture to be read; name another output")
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._stream = os.fdopen(descriptor, "wb")

    @property
    def is_stdout(self) -> bool:
        """Whether the output is stdout."""
        return self.path is None

    def write(self, data: bytes | memoryview, /) -> None:
        """Write all of `data`."""
        try:
            written = self._stream.write(data)
            # A signal during the wait for a full pipe cuts the write short, which is not an error.
            while written < len(data):
                data = memoryview(data)[written:]
                written = self._stream.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    @property
    def is_terminal(self) -> bool:
        """Whether the output is a terminal."""
        return self.is_stdout and self._environment.stdout_tty

    def width(self, most: int = MAX_WIDTH, *, wide: bool = False) -> int:
        """Columns of a text: those of the terminal within bounds, or FILE_WIDTH; `wide`: the option --wide."""
        if wide:
            return UNLIMITED
        return min(max(self._environment.width, MIN_WIDTH), most) if self.is_stdout else FILE_WIDTH

    def coloured(self, wanted: str) -> bool:
        """Whether to use colour; `wanted`: the option --color."""
        return self._environment.colour(wanted, to_stdout=self.is_stdout)

    @property
    def encoding(self) -> str:
        """Encoding of text."""
        return self._environment.encoding if self.is_stdout else "utf-8"

    def write_text(self, text: str, errors: str = "replace") -> None:
        """Write text; `errors`: what to do with characters that the encoding lacks."""
        self.write(text.encode(self.encoding, errors))

    def write_json(self, value: Any) -> None:
        """Write a value as a line of JSON."""
        import orjson

        self.write_json_lines(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))

    def write_json_lines(self, lines: bytes) -> None:
        """Write lines of JSON; invisible characters are escaped on a terminal."""
        from kafkasniff.text.printable import visible_json

        self.write(visible_json(lines) if self.is_terminal else lines)

    def flush(self) -> None:
        """Flush what was written."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write {self.path or 'to stdout'}: {error.strerror or error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path is None:
            if error is None:
                self.flush()
            return
        try:
            self._stream.close()
        except OSError as failure:
            if error is None:
                self._incomplete()
                raise self._failed(failure) from failure
        if error is not None:
            self._incomplete()

    def _incomplete(self) -> None:
        self._environment.say(f"{self.path} is incomplete")


class WholeFile:
    """A file that appears whole or not at all, for its owner only.

    Refuses to overwrite one of `inputs` (UsageError), and a folder or an unwritable place (OutputError), already at
    construction, so that nobody waits for a result that cannot be stored.
    """

    def __init__(self, path: str, inputs: Iterable[str] = ()) -> None:
        self.path = path
        for name in inputs:
            if name != "-" and _same_file(name, path):
                raise UsageError(f"{path} is a capture to be read; name another output")
        # The target of a link is replaced; devices and pipes are written to.
        self._place = Path(os.path.realpath(path))
        self._aside = not self._place.exists() or self._place.is_file()
        writable = self._place.parent if self._aside else self._place
        if self._place.is_dir():
            raise OutputError(f"cannot write {path}: it is a folder")
        if not writable.exists():
            raise OutputError(f"cannot write {path}: folder {writable} does not exist")
        if not os.access(writable, os.W_OK):
            raise OutputError(f"cannot write {path}: permission denied")

    def write(self, data: bytes) -> None:
        """Write the file. Raises OutputError, and then nothing has changed."""
        place = self._place
        if not self._aside:
            place_aside = place
        else:
            place_aside = place.with_name(f".{place.name}.{os.getpid()}.new")
        try:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if self._aside else 0)
                with os.fdopen(os.open(place_aside, flags, FILE_MODE), "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    if self._aside:
                        os.fsync(stream.fileno())
                if self._aside:
                    place_aside.replace(place)
            except BaseException:
                if self._aside:
                    place_aside.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror or error}") from error


def _same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        # One of them does not exist, so they are not the same.
        return False


INTERVAL: Final = 0.1
"""Seconds between updates: smooth to the eye, negligible cost."""
DELAY: Final = 0.5
"""Seconds before the first update: shorter runs need none."""
BAR_WIDTH: Final = 30


class ProgressSource(Protocol):
    """The source that is read."""

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""

    @property
    def bytes_total(self) -> int | None:
        """None if unknown."""


def wants_progress(environment: Environment, *, to_terminal: bool, quiet: bool) -> bool:
    """Whether anybody would see it, and it would not mix with lines of data."""
    return environment.stderr_tty and not to_terminal and not quiet


class Progress:
    """The progress line of one source."""

    def __init__(self, environment: Environment, source: ProgressSource) -> None:
        self._environment = environment
        self._source = source
        self._start = environment.clock()
        self._next = self._start + DELAY
        self._shown = False

    def update(self) -> None:
        """Update the line if it is time to. Cheap."""
        now = self._environment.clock()
        if now < self._next:
            return
        self._next = now + INTERVAL
        read, total = self._source.bytes_read, self._source.bytes_total
        rate = read / max(now - self._start, 1e-9)
        if total:
            share = min(read / total, 1.0)
            done = round(share * BAR_WIDTH)
            left = (total - read) / rate if rate else 0
            text = f"[{'#' * done}{'.' * (BAR_WIDTH - done)}] {share:4.0%} {_megabytes(rate)}/s, {left:.0f} s left"
        else:
            text = f"{_megabytes(read)} read, {_megabytes(rate)}/s"
        self._write(f"\r{text}\x1b[K")
        self._shown = True

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        # A terminal that went away ends the display, not the run.
        with contextlib.suppress(OSError, ValueError):
            self._environment.stderr.write(text)
            self._environment.stderr.flush()


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


# Tasks of Spark.

TASK_INTERVAL: Final = 0.5
"""Seconds between updates: each asks Java some questions."""
PATIENCE_SECONDS: Final = 5.0
"""How long the end of a run waits for an update in progress."""


class Stage(Protocol):
    """A stage of a job, as reported by Spark."""

    @property
    def numTasks(self) -> int:  # noqa: N802 - Spark's name
        """Number of its tasks."""

    @property
    def numCompletedTasks(self) -> int:  # noqa: N802 - Spark's name
        """Number of its completed tasks."""


class Tracker(Protocol):
    """The part of Spark's `StatusTracker` used here."""

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        """The stages with running tasks."""

    def getStageInfo(self, stageId: int, /) -> Stage | None:  # noqa: N802, N803 - Spark's names
        """None if Spark has forgotten it."""


class TaskProgress:
    """The line, for the duration of its block; a thread updates it, since the run waits for Spark."""

    def __init__(self, environment: Environment, tracker: Tracker | None) -> None:
        """`tracker`: None if no progress is to be shown."""
        self._environment = environment
        self._tracker = tracker
        self._start = environment.clock()
        self._shown = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="progress")

    def __enter__(self) -> Self:
        if self._tracker is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_SECONDS)
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def update(self) -> None:
        """Show how many tasks of the active stages are complete."""
        assert self._tracker is not None
        found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        stages = [stage for stage in found if stage is not None]
        total = sum(stage.numTasks for stage in stages)
        if not total or self._over.is_set():
            return
        done = sum(stage.numCompletedTasks for stage in stages)
        bar = "#" * (done * BAR_WIDTH // total)
        elapsed = self._environment.clock() - self._start
        self._write(f"\r[{bar:.<{BAR_WIDTH}}] {done} of {total} tasks of this stage, {elapsed:.0f} s\x1b[K")
        self._shown = True

    def _run(self) -> None:
        wait = DELAY
        # Java's side raises many kinds of errors; none is a reason to end the run, only the display.
        with contextlib.suppress(Exception):
            while not self._over.wait(wait):
                self.update()
                wait = TASK_INTERVAL

    def _write(self, text: str) -> None:
        # A terminal that went away ends the display, not the run.
        with contextlib.suppress(OSError, ValueError):
            self._environment.stderr.write(text)
            self._environment.stderr.flush()
