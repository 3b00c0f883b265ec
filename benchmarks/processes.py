"""What a command and everything it starts take: time, CPU, memory, disk. Linux: all of it is read from /proc.

Who started whom is looked up in each sample. Meanwhile this process is the one that orphans are handed to (prctl(2),
PR_SET_CHILD_SUBREAPER), so that the kernel's account of finished children, which the CPU time comes from, has all of
them, however they were started and ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Final, Literal

INTERVAL_S: Final = 0.2
REST_FACTOR: Final = 25
"""The sampler rests at least this many times as long as a sample took: the kernel reads page tables for it, which takes
tens of milliseconds for a large process. That slows down a run on all cores, but not a run on one of them."""
DISK_INTERVAL_S: Final = 2.0
ORPHANS_S: Final = 30.0
"""How long processes may outlive the command; Java takes a moment to end."""

TOLD_BYTES: Final = 4_000
"""How much of what a failed command said last is shown."""

PR_SET_CHILD_SUBREAPER: Final = 36
TICKS: Final = os.sysconf("SC_CLK_TCK")

Role = Literal["main", "jvm", "workers"]
ROLES: Final[tuple[Role, ...]] = ("main", "jvm", "workers")
"""The command's own process, Java, and all others."""


class CommandFailedError(Exception):
    """A command ended with another exit code than 0, or not in time; the message holds the end of what it said."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of memory; what processes share is divided among them (PSS)."""

    total: int = 0
    anonymous: int = 0
    """Without pages of files, which the system may drop."""

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.total + other.total, self.anonymous + other.anonymous)


@dataclasses.dataclass(frozen=True)
class Usage:
    """What one run took. Seconds and bytes."""

    wall_s: float
    cpu_s: float
    """User and system, of all processes: as the kernel accounts them, or as sampled where that is more."""
    cpu_by_role: dict[Role, float]
    """The same time as last sampled: it lacks the last 0.2 s of each process."""
    peak: int
    """Highest sum over all processes at one moment."""
    peak_anonymous: int
    peak_by_role: dict[Role, int]
    """Highest sum of each role, not all at one moment."""
    largest: dict[Role, int]
    """Highest of a single process."""
    disk: int
    """Highest size of the folder on the disk."""
    samples: int


@dataclasses.dataclass(frozen=True)
class Process:
    """One process at one moment."""

    pid: int
    started: int
    """Together with the pid, it distinguishes a process from a later one with the same number."""
    parent: int
    cpu_s: float


def processes() -> dict[int, Process]:
    """All processes of the machine, by pid."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := read_process(int(name))) is not None:
            found[process.pid] = process
    return found


def read_process(pid: int) -> Process | None:
    """None for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program is in brackets and may contain anything.
    fields = text[text.rindex(")") + 2 :].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS
    return Process(pid, int(fields[19]), int(fields[1]), cpu_s)


def memory(pid: int) -> Memory:
    """Nothing for a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return Memory()
    found = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) * 1024
    return Memory(found.get("Pss", 0), found.get("Pss_Anon", 0) + found.get("Pss_Shmem", 0))


def disk_bytes(folder: Path) -> int:
    """What all files below `folder` take on the disk."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(directory, name), follow_symlinks=False).st_blocks * 512
    return total


class Sampler:
    """Follows a process and all that it started, from another thread, until `stop`.

    The first look is taken at once; what is over before that was not seen, and its peak is 0.
    """

    def __init__(self, root: int, folder: Path, before: Set[tuple[int, int]] | None) -> None:
        """`before`: pid and start of children that we had already; all other children are orphans of the root's.

        None where others start children meanwhile: then orphans count that were seen while they were none.
        """
        self._root = root
        self._before = before
        self._folder = folder
        self._cpu: dict[tuple[int, int], tuple[Role, float]] = {}
        self._peak = self._peak_anonymous = self._disk = self._samples = 0
        self._peaks: dict[Role, int] = dict.fromkeys(ROLES, 0)
        self._largest: dict[Role, int] = dict.fromkeys(ROLES, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._disk = max(self._disk, disk_bytes(self._folder))

    def usage(self, wall_s: float, cpu_s: float) -> Usage:
        by_role: dict[Role, float] = dict.fromkeys(ROLES, 0.0)
        for role, seconds in self._cpu.values():
            by_role[role] += seconds
        return Usage(
            wall_s,
            # A program may have the kernel reap its children without accounting for them (SIGCHLD ignored).
            max(cpu_s, sum(by_role.values())),
            by_role,
            self._peak,
            self._peak_anonymous,
            self._peaks,
            self._largest,
            self._disk,
            self._samples,
        )

    def family(self) -> list[Process]:
        """The root and its current descendants, including those whose parent has ended."""
        every = processes()
        ours: dict[int, bool] = {self._root: True}

        def is_ours(process: Process) -> bool:
            if process.pid not in ours:
                ours[process.pid] = False  # whatever /proc says meanwhile: no circle
                key = (process.pid, process.started)
                parent = every.get(process.parent)
                ours[process.pid] = (
                    key in self._cpu
                    or (self._before is not None and process.parent == os.getpid() and key not in self._before)
                    or (parent is not None and is_ours(parent))
                )
            return ours[process.pid]

        return [process for process in every.values() if is_ours(process)]

    def _run(self) -> None:
        disk_at = 0.0
        while True:
            begun = time.thread_time()
            self._sample()
            # Walking a folder of many files takes longer than the rest.
            if time.monotonic() >= disk_at:
                self._disk = max(self._disk, disk_bytes(self._folder))
                disk_at = time.monotonic() + DISK_INTERVAL_S
            if self._over.wait(max(INTERVAL_S, REST_FACTOR * (time.thread_time() - begun))):
                return

    def _sample(self) -> None:
        totals: dict[Role, Memory] = dict.fromkeys(ROLES, Memory())
        for process in self.family():
            key = (process.pid, process.started)
            role = self._role(process.pid) or self._cpu.get(key, ("workers", 0.0))[0]
            self._cpu[key] = (role, process.cpu_s)
            takes = memory(process.pid)
            totals[role] += takes
            self._largest[role] = max(self._largest[role], takes.total)
        for role, takes in totals.items():
            self._peaks[role] = max(self._peaks[role], takes.total)
        everything = sum(totals.values(), Memory())
        self._peak = max(self._peak, everything.total)
        self._peak_anonymous = max(self._peak_anonymous, everything.anonymous)
        self._samples += 1

    def _role(self, pid: int) -> Role | None:
        """None for a process that is ending: its program is no longer known."""
        if pid == self._root:
            return "main"
        try:
            # In every sample: Spark's launcher is a shell that becomes Java.
            program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except (FileNotFoundError, ProcessLookupError):
            return None
        return "jvm" if program == "java" else "workers"


def measure(
    command: Sequence[str],
    folder: Path,
    *,
    limit_s: float,
    env: dict[str, str] | None = None,
    cores: int | None = None,
) -> Usage:
    """Run `command` until it and all it started are over. What it says goes to files in `folder`, which is watched.

    `cores`: how many of this machine's they may use, by default all. Raises CommandFailedError.
    """
    reported = folder / "stderr"
    with orphans_come_here(), reported.open("wb") as errors, (folder / "stdout").open("wb") as output:
        mine = {(one.pid, one.started) for one in processes().values() if one.parent == os.getpid()}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        with on_cores(cores):
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=env, start_new_session=True
            )
        sampler = Sampler(child.pid, folder, mine)
        late = False
        try:
            child.wait(limit_s)
            wall = time.perf_counter() - begin
        except BaseException as error:
            for process in sampler.family():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            child.wait()
            late = isinstance(error, subprocess.TimeoutExpired)
            if not late:
                raise
        finally:
            wait_for_orphans(sampler)
            sampler.stop()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if late or child.returncode != 0:
        how = f"not over after {limit_s:.0f} s" if late else f"exit code {child.returncode}"
        end = reported.read_bytes()[-TOLD_BYTES:].decode(errors="replace")
        raise CommandFailedError(f"{' '.join(command)}: {how}\n{end}")
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return sampler.usage(wall, cpu_s)


@contextlib.contextmanager
def on_cores(count: int | None) -> Iterator[None]:
    """Within the block this thread, and all that it starts, run on at most this many cores; None: on all."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


@contextlib.contextmanager
def orphans_come_here() -> Iterator[None]:
    """Within the block this process is the one that orphans of its children are handed to. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        yield
    finally:
        library.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def wait_for_orphans(sampler: Sampler) -> None:
    """Until all that the command started is over and accounted for; what does not end by itself is killed."""
    deadline = time.monotonic() + ORPHANS_S
    while left := [process for process in sampler.family() if process.parent == os.getpid()]:
        for process in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.05)
