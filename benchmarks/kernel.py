"""`python -m benchmarks.kernel CAPTURE…`: JSON lines with the native kernel and without it, on the same captures.

Prints a table of CPU seconds of whole processes (`decode --format json --jobs 1`), the least of the runs, and of bodies
alone, decoded and rendered without headers and lines. For two checkouts: `benchmarks.targets`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.targets import WORK, write_bodies
from kafkasniff.native import kernel

SWITCHES: Final = {False: "0", True: "1"}
"""KAFKASNIFF_KERNEL without the kernel and with it."""


def environment(*, native: bool) -> dict[str, str]:
    """Environment of a process with or without the kernel."""
    return {**os.environ, "KAFKASNIFF_KERNEL": SWITCHES[native]}


def process_seconds(capture: Path, *, native: bool) -> float:
    """CPU of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "kafkasniff", "decode", "-q", "--format", "json", "--jobs", "1", str(capture)]
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment(native=native), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def bodies_seconds(path: Path, *, native: bool) -> float:
    """CPU of decoding and rendering the bodies that `write_bodies` wrote, without starting and reading them."""
    command = [sys.executable, str(WORK), "bodies", str(path)]
    done = subprocess.run(command, capture_output=True, env=environment(native=native), check=True)
    printed: dict[str, Any] = json.loads(done.stdout)
    return float(printed["seconds"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__)
    parser.add_argument("captures", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if kernel() is None:
        raise SystemExit("the native kernel is not there")
    print("| capture | MB | Python, s | kernel, s | ratio | bodies | Python, µs | kernel, µs | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for capture in options.captures:
        runs: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(options.runs):
            for native, taken in runs.items():
                taken.append(process_seconds(capture, native=native))
        seconds = {native: min(taken) for native, taken in runs.items()}
        row = [capture.stem, f"{capture.stat().st_size / 1e6:,.0f}", f"{seconds[False]:.2f}", f"{seconds[True]:.2f}"]
        row.append(f"{seconds[True] / seconds[False]:.2f}")
        with tempfile.TemporaryDirectory(prefix="kafkasniff-kernel-") as folder:
            path = Path(folder) / "bodies"
            count, _ = write_bodies(capture, path)
            row.append(f"{count:,}")
            if count:
                micro = [1e6 * bodies_seconds(path, native=native) / count for native in (False, True)]
                row += [f"{micro[0]:.2f}", f"{micro[1]:.2f}", f"{micro[1] / micro[0]:.2f}"]
            else:
                row += ["", "", ""]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
