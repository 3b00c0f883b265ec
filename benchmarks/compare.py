"""kafkasniff beside tshark on the same captures: `python -m benchmarks.compare --help`.

Whole processes, run in turn (ours, theirs, ours, …) so that what else the machine does hits both. Reported are medians:
CPU time (user and system), wall time, and the highest resident set. The output of both goes to a file of one folder.
Before anything is timed, both are asked how many requests they see; it should be the same number.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.generate import DATA

MODES: Final = {
    "text": "one line per message: `decode` and `-Y kafka`",
    "json": "every body decoded: `decode --format json` and `-T ek`",
}
MIN_RUNS: Final = 5


@dataclasses.dataclass(frozen=True)
class Run:
    """One process: seconds of CPU and wall clock, bytes resident at its highest, bytes written."""

    cpu: float
    wall: float
    resident: int
    written: int


def ours(capture: Path, mode: str) -> list[str]:
    command = [sys.executable, "-m", "kafkasniff", "decode", "--quiet", str(capture)]
    return [*command, "--format", "json"] if mode == "json" else [*command, "--color", "never"]


def theirs(capture: Path, mode: str, ports: Sequence[int]) -> list[str]:
    command = ["tshark", "-n", "-r", str(capture)]
    for port in ports:
        command += ["-d", f"tcp.port=={port},kafka"]
    return [*command, "-Y", "kafka", *(["-T", "ek"] if mode == "json" else [])]


def timed(command: Sequence[str], output: Path) -> Run:
    """Run `command` with its output in `output`."""
    with output.open("wb") as out:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
        assert process.stderr is not None
        # Until the process has closed its end: no more than warnings comes here.
        told = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.stderr.close()
        process.returncode = os.waitstatus_to_exitcode(status)
    # 4: the capture was cut, as recorded ones are.
    if process.returncode not in {0, 4}:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}: {told.decode(errors='replace')}")
    return Run(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * 1024, output.stat().st_size)


def requests_of(capture: Path, ports: Sequence[int], scratch: Path) -> tuple[int, int]:
    """How many requests each of them sees."""
    timed(ours(capture, "json"), scratch)
    with scratch.open("rb") as lines:
        mine = sum(line.startswith(b'{"type":"request"') for line in lines)
    # Only requests have a version on the wire.
    timed([*theirs(capture, "text", ports), "-T", "fields", "-e", "kafka.api_version"], scratch)
    versions = scratch.read_text().replace("\n", ",").split(",")
    return mine, sum(map(bool, versions))


def compare(capture: Path, mode: str, ports: Sequence[int], runs: int, scratch: Path) -> dict[str, object]:
    """Time both on one capture; a row of the table."""
    commands = {"kafkasniff": ours(capture, mode), "tshark": theirs(capture, mode, ports)}
    found: dict[str, list[Run]] = {name: [] for name in commands}
    for command in commands.values():
        # Once for the page cache and for compiled Python files.
        timed(command, scratch)
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(timed(command, scratch))
    row: dict[str, object] = {"capture": capture.name, "bytes": capture.stat().st_size, "mode": mode, "runs": runs}
    for name, results in found.items():
        row[name] = {
            "cpu_s": round(statistics.median(run.cpu for run in results), 3),
            "cpu_min_s": round(min(run.cpu for run in results), 3),
            "wall_s": round(statistics.median(run.wall for run in results), 3),
            "resident_mb": round(max(run.resident for run in results) / 1e6, 1),
            "written_mb": round(results[-1].written / 1e6, 1),
        }
    for figure in ("cpu", "wall"):
        both = [statistics.median(getattr(run, figure) for run in found[name]) for name in commands]
        row[f"{figure}_ratio"] = round(both[0] / both[1], 3)
    return row


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    told = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True).stdout
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tshark": told.splitlines()[0],
        "load_before": round(os.getloadavg()[0], 2),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "captures", nargs="*", type=Path, help="captures of benchmarks.generate (default: all there are)"
    )
    parser.add_argument("--runs", type=int, default=MIN_RUNS, help="runs of each, at least 5 for figures to be quoted")
    parser.add_argument(
        "--modes", default=",".join(MODES), help="; ".join(f"{key}: {what}" for key, what in MODES.items())
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the captures and of results.json")
    options = parser.parse_args()
    if shutil.which("tshark") is None:
        parser.error("tshark is not installed")
    modes = options.modes.split(",")
    if unknown := set(modes) - set(MODES):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}")
    captures = options.captures or sorted(options.data.glob("*.pcap"))
    if not captures:
        parser.error("no captures: run `python -m benchmarks.generate` first")
    results: dict[str, object] = {"machine": machine()}
    rows = []
    different = False
    print("| capture | MB | mode | CPU s (tshark) | CPU ratio | wall s (tshark) | wall ratio | peak MB (tshark) |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        scratch = Path(folder) / "output"
        for capture in captures:
            ports = json.loads(capture.with_suffix(".json").read_text())["ports"]
            mine, other = requests_of(capture, ports, scratch)
            if mine != other:
                different = True
                print(f"{capture.name}: kafkasniff sees {mine} requests, tshark {other}", file=sys.stderr)
            for mode in modes:
                row = compare(capture, mode, ports, options.runs, scratch)
                rows.append({**row, "requests": mine, "requests_tshark": other})
                print(_line(row), flush=True)
    results["rows"] = rows
    (options.data / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    if different:
        raise SystemExit(1)


def _line(row: dict[str, object]) -> str:
    mine, other = row["kafkasniff"], row["tshark"]
    assert isinstance(mine, dict)
    assert isinstance(other, dict)
    assert isinstance(row["bytes"], int)
    cells = [
        row["capture"],
        f"{row['bytes'] / 1e6:.1f}",
        row["mode"],
        f"{mine['cpu_s']} ({other['cpu_s']})",
        row["cpu_ratio"],
        f"{mine['wall_s']} ({other['wall_s']})",
        row["wall_ratio"],
        f"{mine['resident_mb']} ({other['resident_mb']})",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
