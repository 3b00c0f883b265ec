"""The live targets of the native kernel: `python -m benchmarks.live_targets --help`, README.md.

`replay`: small messages of many connections (form C), replayed at rising rates. A rate is held when no packet is lost,
every request is shown, nothing is skipped, and the lag is at most a second. `clients`: librdkafka sends one
record a request as fast as it can; the figure is the share of requests shown.

Needs Linux, root, iproute2 and tcpreplay. Everything happens in a network namespace that is gone with the process. The
program has one core of its own, and the senders have the others.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.generate import DATA
from benchmarks.live_captures import MaterialError, small
from benchmarks.live_load import end_by_signal, machine
from benchmarks.live_loads import Clients, Load, LoadError, Replay
from benchmarks.live_network import NetworkError, leave_for_own_network
from benchmarks.live_report import PROMPT_S, is_complete
from benchmarks.live_run import Result, ToolError, run
from benchmarks.live_tools import Tool, make_tools
from benchmarks.machine import compile_package
from benchmarks.results_page import write_section
from benchmarks.tables import table
from captures.record.distribution import SetupError, python_with
from captures.record.programs import CONFLUENT

SECTION: Final = "live-targets"
RATES: Final = "20000,40000,80000,120000,160000,200000,250000,300000"
TARGET_RATE: Final = 200_000.0
"""Packets a second that have to be held."""
TARGET_SHOWN: Final = 1.0

HEAD: Final = ("work", "program", "packets/s", "lost", "shown", "lag s", "CPU s", "CPU µs/packet", "held")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.live_targets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("work", nargs="*", choices=("replay", "clients", []), help="[both]")
    made.add_argument("--formats", default="text,json", help="[text,json]")
    made.add_argument("--rates", default=RATES, help=f"packets/s of `replay`, rising [{RATES}]")
    made.add_argument("--seconds", type=float, default=10, help="how long a load lasts [10]")
    made.add_argument("--drain", type=float, default=15, help="seconds after it to catch up in [15]")
    made.add_argument("--connections", type=int, default=2000, help="of `replay` [2000]")
    made.add_argument("--all-rates", action="store_true", help="continue after a rate that is not held")
    made.add_argument("--option", action="append", default=[], help="passed to `live`, as --option=--buffer=256")
    made.add_argument("--data", type=Path, default=DATA, help="folder for captures and runs")
    made.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    return made


def separate_cores() -> int | None:
    """A core for the program; this process and all that it starts keep to the others. None where there is one only."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return None
    os.sched_setaffinity(0, set(cores[1:]))
    return cores[0]


def row(found: Result) -> list[object]:
    """A line of the table."""
    reported, offered = found.reported, found.offered
    shown = (reported.requests or 0) / offered.requests if offered.requests else 1.0
    # 100% means all of them.
    share = "100%" if reported.requests == offered.requests else f"{min(shown, 0.9999) if shown < 1 else shown:.2%}"
    return [
        found.load,
        found.tool,
        f"{offered.packets / offered.seconds:,.0f}",
        "?" if reported.lost is None else f"{reported.lost + offered.lost_before:,}",
        f"{share} of {offered.requests:,}",
        f"{'' if found.caught_up else '>'}{found.behind_s:.1f}",
        f"{found.usage.cpu_s:.1f}",
        f"{found.usage.cpu_s / max(1, offered.packets) * 1e6:.2f}",
        "yes" if is_held(found) else "no",
    ]


def is_held(found: Result) -> bool:
    """Whether nothing of a load was lost on its way or in the program, skipped, or late."""
    return is_complete(found) and not found.offered.lost_before


def verdicts(runs: Sequence[Result]) -> list[str]:
    """A line for each target and program."""
    lines = []
    for tool in dict.fromkeys(found.tool for found in runs):
        replays = sorted((found for found in runs if (found.tool, found.form) == (tool, "C")), key=_rate)
        if replays:
            held = _highest_held(replays)
            met = "yes" if held >= TARGET_RATE else "no"
            lines.append(f"{tool}: {held:,.0f} packets/s held; target ≥ {TARGET_RATE:,.0f}: {met}")
        for found in runs:
            if (found.tool, found.form) == (tool, "small"):
                shown = (found.reported.requests or 0) / max(1, found.offered.requests)
                met = "yes" if shown >= TARGET_SHOWN else "no"
                lines.append(f"{tool}: {shown:.2%} of requests from librdkafka shown; target 100%: {met}")
    return lines


def _rate(found: Result) -> float:
    return found.rate or 0.0


def _highest_held(replays: Sequence[Result]) -> float:
    """The offered packets/s of the highest rate that was held together with all lower rates."""
    held = 0.0
    for found in replays:
        if not is_held(found):
            break
        held = found.offered.packets / found.offered.seconds
    return held


def _loads(options: argparse.Namespace, rates: Sequence[float], work: Sequence[str], python: str) -> list[Load]:
    """Raises MaterialError."""
    loads: list[Load] = []
    if "replay" in work:
        folder = options.data / "live"
        folder.mkdir(parents=True, exist_ok=True)
        material = small(folder, int(max(rates) * options.seconds), options.connections)
        loads += [Replay("C", rate, options.seconds, material) for rate in rates]
    if "clients" in work:
        loads.append(Clients("small", None, options.seconds, python))
    return loads


def measure(
    tools: Sequence[Tool], loads: Sequence[Load], folder: Path, drain_s: float, *, all_rates: bool = False
) -> Iterator[Result]:
    """Runs of each program, rates in order; those above one that was not held only with `all_rates`.

    Raises LoadError, SetupError, ToolError.
    """
    core = separate_cores()
    for tool in tools:
        beyond = False
        for load in loads:
            if beyond and load.form == "C" and not all_rates:
                continue
            found = run(tool, load, folder, drain_s, core)
            beyond = beyond or not is_held(found)
            yield found


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    options.data = options.data.resolve()
    work = options.work or ["replay", "clients"]
    try:
        rates = sorted(float(rate) for rate in options.rates.split(","))
    except ValueError:
        made.error(f"--rates {options.rates}: numbers with commas between them")
    if min(*rates, options.seconds, options.drain, options.connections) <= 0:
        made.error("--rates, --seconds, --drain and --connections must be positive")
    if set(options.formats.split(",")) - {"text", "json"}:
        made.error("--formats: text, json, or both")
    compile_package()
    runs: list[Result] = []
    try:
        # Before the namespace: it may have to be downloaded.
        python = python_with(*CONFLUENT) if "clients" in work else sys.executable
        reported = machine()
        leave_for_own_network()
        tools = make_tools(options.formats.split(","), options.option, [])
        loads = _loads(options, rates, work, python)
        for found in measure(tools, loads, options.data / "live" / "run", options.drain, all_rates=options.all_rates):
            runs.append(found)
            print("  ".join(map(str, row(found))), flush=True)
    except (LoadError, MaterialError, NetworkError, SetupError, ToolError) as error:
        made.error(str(error))
    lines = verdicts(runs)
    print(*lines, sep="\n")
    if options.write:
        facts = "\n".join(
            f"- {line}" for line in (*reported, f"{PROMPT_S:g} s of lag at most; the program has its own core")
        )
        text = [
            "## Live: the kernel's targets",
            facts,
            table(HEAD, map(row, runs)),
            "\n".join(f"- {line}" for line in lines),
        ]
        write_section(SECTION, "\n\n".join(text))
    return int(any(line.endswith(": no") for line in lines))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_by_signal)
    sys.exit(main())
