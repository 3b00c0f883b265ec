"""One program under one load: started, given the load, waited for until it has caught up, stopped, and measured."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.live_network import listeners
from benchmarks.live_tools import Reported, Target, Tool
from benchmarks.processes import Sampler, Usage, orphans_come_here, wait_for_orphans

ROOT: Final = Path(__file__).resolve().parent.parent
START_S: Final = 60.0
STOP_S: Final = 30.0
"""How long a program may take to end when it is asked to, before it is killed."""

SETTLE_S: Final = 0.5
"""Between the moment that it listens and the load."""

LOOK_S: Final = 0.05
CPU_LOOK_S: Final = 0.5
"""Less often, since for that all processes are looked at."""

QUIET_S: Final = 1.5
"""It has caught up when it wrote nothing for this long."""

IDLE_CPU: Final = 0.1
"""And used no more of a core than this at any sample."""


class ToolError(Exception):
    """A program did not start to listen; the message has its output."""


@dataclasses.dataclass(frozen=True)
class Offered:
    """What a load contained."""

    seconds: float
    packets: int
    """That reached the interface."""
    lost_before: int
    """Packets that were to be sent and did not reach it, or that it dropped before anybody saw them."""
    requests: int


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one run. Seconds and bytes."""

    tool: str
    offered: Offered
    reported: Reported
    usage: Usage
    behind_s: float
    """How long after the end of the load it was still at work: wrote, or took CPU time."""
    caught_up: bool
    """False: it was stopped while it still wrote, and `reported` is what it had come to."""
    killed: bool
    """It did not end when it was asked to."""


@dataclasses.dataclass
class Started:
    """A program that listens."""

    process: subprocess.Popen[bytes]
    sampler: Sampler
    begun: float
    killed: bool = False

    def stop(self) -> tuple[int, float]:
        """Ask it to end, end it if it does not; its exit code and the CPU seconds of it and all that it waited for."""
        pid = self.process.pid
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + STOP_S
        while not (ended := _has_ended(pid)) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        if not ended:
            self.killed = True
            for process in self.sampler.family():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode, usage.ru_utime + usage.ru_stime


def _has_ended(pid: int) -> bool:
    """Without taking its exit code away."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@contextlib.contextmanager
def listening(
    tool: Tool, target: Target, folder: Path, output: int, limit_s: float, *, core: int | None = None
) -> Iterator[Started]:
    """A program that listens on the target's interface, its standard output at `output`, stderr in `folder/errors`.

    `core`: the one that it runs on; None: those of this process. It ends by itself `limit_s` after it has begun to
    listen, whatever becomes of us. When the block ends it is over, by force if it was not stopped. Raises ToolError.
    """
    before = listeners(target.interface)
    with orphans_come_here(), (folder / "errors").open("wb") as errors:
        begun = time.monotonic()
        process = subprocess.Popen(
            tool.command(target, folder, START_S + SETTLE_S + limit_s),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(folder)},  # tshark's packets, and tables on their way
            start_new_session=True,
        )
        if core is not None:
            os.sched_setaffinity(process.pid, {core})  # its threads, which it starts later, inherit this
        started = Started(process, Sampler(process.pid, folder, None), begun)
        try:
            deadline = time.monotonic() + START_S
            while listeners(target.interface) <= before:
                if _has_ended(process.pid) or time.monotonic() > deadline:
                    said = (folder / "errors").read_text(errors="replace")[-1000:]
                    raise ToolError(f"{tool.name} does not listen: {said}")
                time.sleep(LOOK_S)
            time.sleep(SETTLE_S)
            yield started
        finally:
            if process.returncode is None:
                for one in started.sampler.family():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one.pid, signal.SIGKILL)
                process.wait()
            wait_for_orphans(started.sampler)
            started.sampler.stop()


def run(
    tool: Tool,
    target: Target,
    send: Callable[[], Offered],
    folder: Path,
    *,
    limit_s: float,
    drain_s: float,
    core: int | None = None,
) -> Result:
    """Measure a program while `send` sends. `folder` is emptied before and removed in the end; `core` is its own.

    Raises ToolError and what `send` raises.
    """
    shutil.rmtree(folder, ignore_errors=True)
    place = folder / "tool"
    place.mkdir(parents=True)
    output = place / "output"
    try:
        with (
            output.open("wb") as out,
            listening(tool, target, place, out.fileno(), limit_s + STOP_S, core=core) as started,
        ):
            offered = send()
            behind, caught_up = _caught_up(started, output if tool.prints else place, drain_s)
            tool.keep(place)
            _, cpu_s = started.stop()
            wall = time.monotonic() - started.begun
        reported = tool.reported(output, (place / "errors").read_text(errors="replace"), place)
        usage = started.sampler.usage(wall, cpu_s)
        return Result(tool.name, offered, reported, usage, behind, caught_up, started.killed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _caught_up(started: Started, written: Path, limit_s: float) -> tuple[float, bool]:
    """Wait until it is quiet: how long it was at work until then, in seconds, and whether it is."""
    begin = last = looked = time.monotonic()
    size, cpu = _bytes(written), _cpu(started)
    while last - begin < limit_s:
        time.sleep(LOOK_S)
        now = time.monotonic()
        if (found := _bytes(written)) != size:
            size, last = found, now
        if now - looked >= CPU_LOOK_S:
            before, cpu = cpu, _cpu(started)
            # It may work at something that it has yet to write.
            if cpu - before > IDLE_CPU * (now - looked):
                last = now
            looked = now
        if now - last >= QUIET_S:
            return last - begin, True
    return last - begin, False


def _cpu(started: Started) -> float:
    return sum(process.cpu_s for process in started.sampler.family())


def _bytes(written: Path) -> int:
    """Length of a file, or of all files of a folder."""
    if written.is_file():
        return written.stat().st_size
    total = 0
    for directory, _, names in os.walk(written):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(directory, name), follow_symlinks=False).st_size
    return total
