"""One trial: a command over a capture in a process of its own, within limits, and what it took.

A process that goes too far is ended by its limits, so that no trial takes the machine down; what it had taken by then
is what the trial cost at least.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

MEMORY: Final = 4 << 30
"""Bytes of memory of a trial that it may write to. Not its address space, of which V8 reserves far more than it uses
for the charts of `report`."""
FILE_SIZE: Final = 2 << 30
"""Bytes of a file that it writes."""
CPU_SECONDS: Final = 40
"""Twice what a megabyte may take (`climb.MAX_MICROSECONDS`)."""

QUESTIONS: Final = (
    *("batching", "churn", "errors", "fetch-efficiency", "lag", "latency", "metadata-storms", "outstanding", "racks"),
    *("rebalances", "record-sizes", "retries", "slow-brokers", "talkers", "throttling"),
)
"""Those of `analyze` that need no more than a capture."""

OUTPUTS: Final[dict[str, tuple[str, ...]]] = {
    "json": ("decode", "--jobs", "1", "-q", "--format", "json", "{capture}"),
    "text": ("decode", "--jobs", "1", "-q", "-vv", "{capture}"),
    "export": ("export", "--jobs", "1", "-q", "{capture}", "--output", "{folder}/tables"),
    "write-matching": ("decode", "--jobs", "1", "-q", "{capture}", "--write-matching", "{folder}/kept.pcapng"),
    "stats": ("stats", "-q", "{capture}"),
    "check": ("check", "-q", "{capture}"),
    "csv": ("decode", "--jobs", "1", "-q", "--format", "csv", "{capture}"),
    "pattern": ("decode", "--jobs", "1", "-q", "--filter", 'client_id =~ "(a|g|c)+[0-9]+x$"', "{capture}"),
    "report": ("report", "-q", "{capture}", "-o", "{folder}/report.html"),
    "security": ("security", "-q", "{capture}"),
    "timing": ("timing", "-q", "{capture}"),
    "audit": ("audit", "-q", "--target", "4.0", "{capture}"),
    "diff": ("diff", "-q", "{capture}", "{capture}"),
    **{f"analyze-{name}": ("analyze", name, "-q", "{capture}") for name in QUESTIONS},
}
"""The commands, by what they make."""

INTERNAL: Final = 70
"""Exit code after an internal error, EX_SOFTWARE of sysexits.h."""

_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024
_LIMITED: Final = """
import os, resource, runpy, sys
memory, seconds, file = map(int, sys.argv[1:4])
child = os.fork()
if child:
    _, status, usage = os.wait4(child, 0)
    print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
    sys.exit()
null = os.open(os.devnull, os.O_WRONLY)
os.dup2(null, 1)
resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.argv[:4] = ["kafkasniff"]
runpy.run_module("kafkasniff", run_name="__main__", alter_sys=True)
"""
"""The program of a trial: limits first, so that nothing of kafkasniff runs without them.

The highest resident set that the system reports of a process that was executed is at least that of the process that
started it. Hence the fork without an execution, from a process that is small.
"""


class Base(msgspec.Struct, frozen=True):
    """What a command takes over a capture of next to nothing."""

    seconds: float
    rss: int


class Cost(msgspec.Struct, frozen=True):
    """What a command took over a capture."""

    size: int
    """Bytes of the capture."""
    seconds: float
    """CPU seconds of the process and of those that it waited for, without those of the base."""
    rss: int
    """Highest resident set, without that of the base, in bytes."""
    code: int
    """Exit code; below zero the signal that ended it."""

    @property
    def microseconds(self) -> float:
        """CPU time for each byte of the input."""
        return self.seconds * 1e6 / self.size

    @property
    def memory(self) -> float:
        """Bytes of memory for each byte of the input."""
        return self.rss / self.size

    @property
    def broken(self) -> bool:
        """Whether the process ended otherwise than by itself: a limit, or an internal error (exit code 70)."""
        return self.code < 0 or self.code == INTERNAL


class Trial(msgspec.Struct, frozen=True):
    """A command over a capture that can be made again."""

    pair: str
    values: tuple[int, ...]
    output: str
    cost: Cost


def run(data: bytes, output: str, base: Base | None = None, *, cpu_seconds: int = CPU_SECONDS) -> Cost:
    """What `output`, one of OUTPUTS, takes over a capture; without a base, all that it takes."""
    with tempfile.TemporaryDirectory(prefix="kafkasniff-costs-") as name:
        capture = Path(name) / "capture"
        capture.write_bytes(data)
        words = [word.format(capture=capture, folder=name) for word in OUTPUTS[output]]
        return _run(words, len(data), base or Base(0, 0), cpu_seconds)


def _run(words: Sequence[str], size: int, base: Base, cpu_seconds: int) -> Cost:
    command = [sys.executable, "-c", _LIMITED, str(MEMORY), str(cpu_seconds), str(FILE_SIZE), *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    code, seconds, rss = done.stdout.split()
    return Cost(size, max(0.0, float(seconds) - base.seconds), max(0, int(rss) * _RSS_UNIT - base.rss), int(code))


def base_of(output: str) -> Base:
    """What `output` takes over a capture without a packet: the lesser of two runs."""
    empty = bytes.fromhex("d4c3b2a1020004000000000000000000 0000040001000000")
    costs = [run(empty, output) for _ in range(2)]
    return Base(min(cost.seconds for cost in costs), min(cost.rss for cost in costs))
