"""`live --browse` under load: `python -m benchmarks.browse_live --minutes 10`, does its memory stay?

Small messages of many connections are sent at a steady rate, as by `live_soak`, while the explorer shows them in a
terminal at the end of its list. The list needs some bytes for each exchange; otherwise, memory must not grow.

Needs Linux, root, iproute2 and tcpreplay. Everything happens in a network namespace that is gone with the process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.generate import DATA
from benchmarks.live_loads import LoadError
from benchmarks.live_network import LISTENS, NetworkError, leave_for_own_network
from benchmarks.live_soak import FLAT, FLAT_BYTES, LOOK_S, QUARTERS, REST_S, SLACK, Sender
from benchmarks.machine import compile_package
from benchmarks.processes import memory, processes
from benchmarks.small_messages import BROKER_PORT
from tests.cli.terminal import terminal

EXCHANGE_BYTES: Final = 32
"""Most that the index may have of each exchange."""
_LISTED: Final = re.compile(rb"[\d,]+/([\d,]+) ")


class Look(NamedTuple):
    """Seconds since the load began, bytes of memory of the explorer and of the process that captures, rows listed."""

    at: float
    explorer: int
    capturing: int
    listed: int


def watch(rate: float, seconds: float, *, connections: int, folder: Path) -> tuple[list[Look], dict[str, int], int]:
    """Looks, what was sent, and the rows that are listed in the end. Raises LoadError."""
    command = [sys.executable, "-m", "kafkasniff", "live", "--browse", "--keep-root", "-i", LISTENS]
    environ = {**os.environ, "TERM": "xterm-256color", "TMPDIR": str(folder), "XDG_CONFIG_HOME": str(folder)}
    looks: list[Look] = []
    listed = 0
    with terminal(*command, f"tcp port {BROKER_PORT}", environ=environ) as screen:
        screen.until(b"live, ")
        [capturing] = [one.pid for one in processes().values() if one.parent == screen.pid]
        screen.press(b"G")
        sender = Sender(folder, rate, seconds, connections)
        try:
            while not sender.over():
                found = _LISTED.findall(screen.drain(LOOK_S))
                listed = int(found[-1].replace(b",", b"")) if found else listed
                at = time.monotonic() - sender.begun
                looks.append(Look(at, memory(screen.pid).total, memory(capturing).total, listed))
                if at > seconds * (1 + SLACK) + 60:
                    raise LoadError(f"sending was not over after {at:.0f} s")
            facts, _ = sender.result()
        finally:
            sender.end()
        found = _LISTED.findall(screen.drain(4 * REST_S))
        listed = int(found[-1].replace(b",", b"")) if found else listed
        screen.press(b"G\r")
        # Bodies are still shown.
        screen.until("▼".encode())
        screen.press(b"q")
        code = screen.exit_code()
        if code:
            raise LoadError(f"the explorer ended with exit code {code}")
    return looks, facts, listed


def summary(looks: Sequence[Look], facts: dict[str, int], listed: int) -> dict[str, object]:
    """Figures, and why the run did not pass, if it did not."""
    end = looks[-1].at
    early, late = (
        [one for one in looks if low * end < one.at <= high * end] for low, high in QUARTERS
    )  # fmt: skip
    explorer = [statistics.median(one.explorer for one in part) for part in (early, late)]
    capturing = [statistics.median(one.capturing for one in part) for part in (early, late)]
    rows = statistics.median(one.listed for one in late) - statistics.median(one.listed for one in early)
    faults = []
    for name, (before, after), allowed in (
        ("the explorer", explorer, rows * EXCHANGE_BYTES),
        ("capturing", capturing, 0),
    ):  # fmt: skip
        if after - before > max(FLAT * before, FLAT_BYTES) + allowed:
            faults.append(f"memory of {name} grew from {before / 1e6:,.0f} to {after / 1e6:,.0f} MB")
    if listed != facts["requests"]:
        faults.append(f"{listed:,} of {facts['requests']:,} exchanges are listed")
    return {
        "seconds": round(end, 1),
        "packets": facts["packets"],
        "exchanges": facts["requests"],
        "listed": listed,
        "explorer_mb": [round(one / 1e6, 1) for one in (*explorer, max(one.explorer for one in looks))],
        "capturing_mb": [round(one / 1e6, 1) for one in (*capturing, max(one.capturing for one in looks))],
        "rows_between": round(rows),
        "minutes": minutes(looks),
        "faults": faults,
    }


def minutes(looks: Sequence[Look]) -> list[dict[str, float]]:
    """Memory in MB, and rows, at the first look of each minute."""
    found: dict[int, Look] = {}
    for one in looks:
        found.setdefault(int(one.at // 60), one)
    return [
        {
            "minute": number,
            "explorer_mb": round(one.explorer / 1e6, 1),
            "capturing_mb": round(one.capturing / 1e6, 1),
            "listed": one.listed,
        }
        for number, one in found.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures: memory in the second quarter, in the last, and the most."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.browse_live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10, help="[10]")
    parser.add_argument("--rate", type=float, default=5_000, help="packets/s [5000]")
    parser.add_argument("--connections", type=int, default=500, help="[500]")
    parser.add_argument("--data", type=Path, default=DATA, help="folder for the run")
    options = parser.parse_args(arguments)
    compile_package()
    folder = options.data.resolve() / "live" / f"browse-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        leave_for_own_network()
        found = watch(options.rate, options.minutes * 60, connections=options.connections, folder=folder)
    except (LoadError, NetworkError) as error:
        parser.error(str(error))
    finally:
        shutil.rmtree(folder)
    made = summary(*found)
    print(json.dumps(made, indent=2))
    return int(bool(made["faults"]))


if __name__ == "__main__":
    sys.exit(main())
