"""`python -m benchmarks.jobs [CAPTURE...]`: one job and several, in turn, on whole captures (forms A, B and C).

Wall clock counts, so the machine has to be idle. Prints a table; the output of all of them has to be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.comparisons import SHARED
from benchmarks.generate import DATA
from benchmarks.machine import hardware, load_average
from benchmarks.measures import DECODE, EXPORT, JOBS_TARGET, ours
from benchmarks.tables import against, table
from benchmarks.timing import in_turn

WORK: Final = ("text", "json", "records")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="*", type=Path, default=[DATA / f"{form}.pcap" for form in SHARED])
    parser.add_argument("--work", action="append", choices=[*DECODE, *EXPORT], help=f"may be repeated {WORK}")
    parser.add_argument("--jobs", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--runs", type=int, default=5, help="[%(default)s]")
    options = parser.parse_args()
    print(f"{hardware()}; load {load_average()}\n")
    rows: list[list[object]] = []
    for capture in options.captures:
        for work in options.work or WORK:
            rows.append(compared(capture, work, options.jobs, options.runs))
            print(*rows[-1], flush=True)
    head = [
        "capture",
        "work",
        "wall s, one",
        f"wall s, {options.jobs}",
        "ratio",
        "target",
        "met",
        "CPU ratio",
        "peak MB",
    ]
    print(f"\n{table([*head, 'same output'], rows)}")


def compared(capture: Path, work: str, jobs: int, runs: int) -> list[object]:
    """A row of the table: least and median of the runs, the ratio of the medians."""
    written: set[bytes] = set()

    def digest(name: str, folder: Path, number: int) -> None:
        del name, number
        if work in DECODE:
            with (folder / "output").open("rb") as file:
                written.add(hashlib.file_digest(file, "blake2b").digest())

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        commands = {str(count): ours(capture, work, folder, jobs=count) for count in (1, jobs)}
        single, several = in_turn(commands, folder, runs, digest).values()
    walls = [[run.wall for run in found] for found in (single, several)]
    ratio = statistics.median(walls[1]) / statistics.median(walls[0])
    cpu = min(run.cpu for run in several) / min(run.cpu for run in single)
    return [
        *(capture.stem, work),
        *(f"{min(found):.2f}-{statistics.median(found):.2f}" for found in walls),
        *(f"{ratio:.2f}", *against(ratio, JOBS_TARGET), f"{cpu:.2f}"),
        f"{max(run.resident for run in several) / 1e6:.0f}",
        "" if work not in DECODE else "yes" if len(written) == 1 else "**no**",
    ]


if __name__ == "__main__":
    main()
