"""Whole processes, run in turn, and what each of them took."""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.processes import TOLD_BYTES, CommandFailedError

ENDED_WELL: Final = {0, 1, 4}
"""Exit codes of kafkasniff: 1 says that it found something, 4 that a capture was cut, as recorded ones are."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One process: seconds of CPU and wall clock, bytes resident at its highest, bytes written."""

    cpu: float
    wall: float
    resident: int
    written: int


_LAUNCHER: Final = """
import json, os, sys, time
null, output = os.open(os.devnull, os.O_RDONLY), os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
streams = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, output, 1)]
begin = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, file_actions=streams)
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - begin
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024]))
"""
"""Starts a command and waits for it. Linux counts the memory of a process that starts another as the new process's own,
until the command replaces it; this launcher has next to none."""


def timed(command: Sequence[str], output: Path) -> Run:
    """Run `command` with its output in `output`; children that it waited for count. Raises CommandFailedError.

    The highest resident set is that of the largest process.
    """
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(output), *command]
    done = subprocess.run(launcher, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    reported = done.stderr[-TOLD_BYTES:]
    if done.returncode != 0:
        raise CommandFailedError(f"{' '.join(command)}: {reported}")
    code, cpu, wall, resident = json.loads(done.stdout)
    if code not in ENDED_WELL:
        raise CommandFailedError(f"{' '.join(command)}: exit code {code}: {reported}")
    return Run(cpu, wall, resident, output.stat().st_size)


Name = TypeVar("Name", bound=Hashable)


def in_turn(
    commands: Mapping[Name, Sequence[str]], folder: Path, runs: int, *, warm: bool = True
) -> dict[Name, list[Run]]:
    """Each command `runs` times, in turn, so that what else the machine does hits all.

    `warm`: once before, uncounted, for the page cache and for compiled Python files. What commands write goes to
    `folder`, which is empty before each run and removed in the end.
    """
    found: dict[Name, list[Run]] = {name: [] for name in commands}
    try:
        for number in range(0 if warm else 1, runs + 1):
            for name, command in commands.items():
                _empty(folder)
                run = timed(command, folder / "output")
                written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                if number:
                    found[name].append(dataclasses.replace(run, written=written))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def median(runs: Sequence[Run], figure: str) -> float:
    """The median of a figure of `Run`, by its name."""
    return float(statistics.median(getattr(run, figure) for run in runs))


def ratio(ours: Sequence[Run], theirs: Sequence[Run], figure: str) -> float:
    """The ratio of the medians."""
    return median(ours, figure) / median(theirs, figure)
