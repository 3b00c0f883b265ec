"""Every command keeps to 3 CPU seconds and bounded memory for a megabyte of hostile input."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.fuzz.costs.pairs import PAIRS
from tests.fuzz.costs.streams import overhead_connections

pytestmark = pytest.mark.extended

MEMORY: Final = 4 << 30
"""Bytes of memory of a command that it may write to. Not its address space, of which V8 reserves far more than it uses
for the charts of `report`."""
FILE_SIZE: Final = 2 << 30
CPU_SECONDS: Final = 10

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
"""Limits first, so that nothing of kafkasniff runs without them.

The highest resident set that the system reports of a process that was executed is at least that of the process that
started it. Hence the fork without an execution, from a process that is small.
"""


class Cost(NamedTuple):
    """What a command took over a capture."""

    seconds: float
    """CPU seconds of the process and of those that it waited for."""
    rss: int
    """Highest resident set in bytes."""
    code: int
    """Exit code; below zero the signal that ended it."""


def cost_of(data: bytes, output: str) -> Cost:
    """What `output`, one of OUTPUTS, takes over a capture."""
    with tempfile.TemporaryDirectory(prefix="kafkasniff-costs-") as folder:
        capture = Path(folder) / "capture"
        capture.write_bytes(data)
        words = [word.format(capture=capture, folder=folder) for word in OUTPUTS[output]]
        command = [sys.executable, "-c", _LIMITED, str(MEMORY), str(CPU_SECONDS), str(FILE_SIZE), *words]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
        )
    code, seconds, rss = done.stdout.split()
    return Cost(float(seconds), int(rss) * _RSS_UNIT, int(code))


FAMILIES: Final = (
    *("topics-errors", "clients-errors", "attempts-endpoints", "segments-overlaps", "members-groups"),
    *("leaders-topics", "connections-unanswered", "producers-batches", "gaps-outstanding", "segments-holes"),
)
"""Hostile inputs that no decompression makes longer."""
EACH_SIZE: Final = 1 << 17
MOST_SECONDS: Final = 3.0
"""CPU time for a megabyte."""
MOST_RSS: Final = 256 << 20
"""Memory beside that of a few exchanges."""


@functools.cache
def little(command: str) -> Cost:
    """What a command takes over a few exchanges: `report` draws charts of any, with a browser's engine."""
    output = next(name for name, words in OUTPUTS.items() if words[0] == command)
    return cost_of(overhead_connections(2_000, 1), output)


@pytest.mark.parametrize(("number", "output"), enumerate(OUTPUTS), ids=list(OUTPUTS))
def test_every_command_keeps_to_3_s_for_a_megabyte(number: int, output: str) -> None:
    """Each with every other input, questions with one, since a process takes longer to start than to read it."""
    few = little(OUTPUTS[output][0])
    names = FAMILIES[number % 10 :: 10] if output.startswith("analyze-") else FAMILIES[number % 2 :: 2]
    made = {name: PAIRS[name](EACH_SIZE) for name in names}
    costs = {name: cost_of(data, output) for name, data in made.items()}
    assert {name: found.code for name, found in costs.items() if found.code not in {0, 1}} == {}
    seconds = sum(found.seconds - few.seconds for found in costs.values())
    assert seconds * 1e6 < MOST_SECONDS * sum(map(len, made.values())), costs
    assert max(found.rss for found in costs.values()) - few.rss < MOST_RSS, costs
