"""`kafkasniff live` beside tshark while the load rises: `python -m benchmarks.live_load --help`, README.md.

Needs Linux, root, iproute2, tcpreplay, and tshark where it is compared. Everything happens in a network namespace that
is gone with the process; nothing is sent to, or seen of, the machine's own network. Each run is bounded in time.

A load is NAME=RATE,RATE…: `C` replays many connections of small messages (packets a second), `A` large segments
(megabytes a second); `small` and `large` are clients of librdkafka, with one record a request or large batches (records
a second, or `max`).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import live_captures
from benchmarks.generate import DATA
from benchmarks.live_captures import MaterialError
from benchmarks.live_latency import Latency, measure_latency
from benchmarks.live_loads import Clients, Load, LoadError, Replay
from benchmarks.live_network import NetworkError, leave_for_own_network, program
from benchmarks.live_report import section
from benchmarks.live_run import STOP_S, Result, ToolError, run
from benchmarks.live_tools import TOOLS, Tool, make_tools
from benchmarks.machine import compile_package, hardware, load_average, today, versions
from benchmarks.results_page import PAGE, write_section
from captures.record.distribution import SetupError, kafka_jars, python_with
from captures.record.programs import CONFLUENT

FORMS: Final = ("C", "A", "small", "large")
LOADS: Final = ("C=5000,10000,20000,40000,80000", "A=10,50,100,200", "small=500,2000,max", "large=max")
DEFAULT_TOOLS: Final = "text,json,write,tshark,tshark-ek"
LINE_TOOLS: Final = {"text", "json", "tshark", "tshark-ek"}
"""What prints lines of messages."""

SECTION: Final = "live-load"
RESULTS: Final = "live_load.json"
PACKETS_AN_EXCHANGE: Final = 3
"""Packets of an exchange in form C: request, response, acknowledgement."""

PACKETS_A_HANDSHAKE: Final = 3
LATENCY_CONNECTIONS: Final = 20
ROOM: Final = 4e9
"""Bytes of disk beside the captures: what programs print, above all `-T ek`, and tshark's packets."""

Step = tuple[str, float | None]
"""Form and rate of a load."""


class Results(msgspec.Struct):
    """The content of `live_load.json`: enough to write the section again."""

    machine: list[str]
    notes: list[str]
    made_by: str
    runs: list[Result] = []
    latencies: list[Latency] = []


def _steps(text: str) -> list[Step]:
    """Raises ArgumentTypeError."""
    form, equals, rates = text.partition("=")
    if form not in FORMS or not equals:
        raise argparse.ArgumentTypeError(f"{text}: a load is one of {', '.join(FORMS)}, then =RATE,RATE…")
    found: list[Step] = []
    for rate in rates.split(","):
        if rate == "max" and form in {"small", "large"}:
            found.append((form, None))
            continue
        try:
            number = float(rate)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"{text}: {rate} is not a rate")
        found.append((form, number))
    return found


def _tools(text: str) -> list[str]:
    found = text.split(",")
    if unknown := set(found) - set(TOOLS):
        raise argparse.ArgumentTypeError(f"no such program: {', '.join(sorted(unknown))}")
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.live_load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--loads", type=_steps, nargs="*", default=[_steps(one) for one in LOADS], help=f"[{' '.join(LOADS)}]"
    )
    made.add_argument(
        "--tools", type=_tools, default=_tools(DEFAULT_TOOLS), help=f"{', '.join(TOOLS)} [{DEFAULT_TOOLS}]"
    )
    made.add_argument("--runs", type=int, default=3, help="of each program under each load, in turn [3]")
    made.add_argument("--seconds", type=float, default=10, help="how long a load lasts [10]")
    made.add_argument("--drain", type=float, default=30, help="seconds after the load to catch up [30]")
    made.add_argument(
        "--latency-rate", type=float, default=200, help="requests/s for the delay of a line; 0: none [200]"
    )
    made.add_argument("--latency-seconds", type=float, default=20, help="[20]")
    made.add_argument("--connections", type=int, default=2000, help="of form C [2000]")
    made.add_argument("--base-mb", type=int, default=20, help="of form A, recorded once and then copied [20]")
    brokers = "librdkafka's mock cluster, whose versions tshark knows, or Apache Kafka (needs Java)"
    made.add_argument("--broker", choices=("mock", "real"), default="mock", help=f"for clients: {brokers} [mock]")
    made.add_argument("--option", action="append", default=[], help="handed on to `live`, as --option=--port=9092")
    made.add_argument(
        "--tshark-option", action="append", default=[], help="handed on to tshark, as --tshark-option=-B64"
    )
    made.add_argument("--data", type=Path, default=DATA, help=f"folder for captures, runs and {RESULTS}")
    made.add_argument(
        "--report", type=Path, default=PAGE, help="the page whose section is written [benchmarks/RESULTS.md]"
    )
    made.add_argument("--report-only", action="store_true", help=f"write the section from {RESULTS}, measure nothing")
    return made


def machine() -> list[str]:
    """What the figures are taken on."""
    return [f"{today()}; load average at the start {load_average():.2f}", hardware()]


def _versions(options: argparse.Namespace) -> str:
    reported = [versions()]
    if any(name.startswith("tshark") for name in options.tools):
        reported.append(_first_line("tshark", "--version"))
    if any(form in {"C", "A"} for form, _ in _all(options)):
        reported.append(_first_line("tcpreplay", "--version").partition(" (")[0])
    return ", ".join(reported)


def _first_line(name: str, *arguments: str) -> str:
    done = subprocess.run([program(name), *arguments], capture_output=True, text=True, check=False, timeout=120)
    return (done.stdout or done.stderr).splitlines()[0].rstrip(".")


def _all(options: argparse.Namespace) -> list[Step]:
    return [step for steps in options.loads for step in steps]


def make_loads(options: argparse.Namespace, folder: Path, python: str) -> list[Load]:
    """All loads, with the captures that they need. Raises MaterialError."""
    steps = _all(options)
    highest = {form: max((rate for kind, rate in steps if kind == form and rate), default=0.0) for form in ("C", "A")}
    material = {}
    if highest["C"]:
        material["C"] = live_captures.small(folder, int(highest["C"] * options.seconds), options.connections)
    if highest["A"]:
        size = highest["A"] * 1e6 * options.seconds
        material["A"] = live_captures.large(folder, options.base_mb, size, python)
    return [
        Replay(form, rate, options.seconds, material[form])
        if form in material
        else Clients(form, rate, options.seconds, python, options.broker == "real")
        for form, rate in steps
    ]


def latency_load(options: argparse.Namespace, folder: Path) -> Load:
    """Form C at a moderate rate, with few connections: opening them takes a moment in which there are no messages."""
    rate = options.latency_rate * PACKETS_AN_EXCHANGE
    seconds = options.latency_seconds + LATENCY_CONNECTIONS * PACKETS_A_HANDSHAKE / rate
    return Replay("C", rate, seconds, live_captures.small(folder, int(rate * seconds), LATENCY_CONNECTIONS))


def _turns(loads: Sequence[Load], tools: Sequence[Tool], runs: int) -> Iterator[tuple[Load, Tool]]:
    """Run the programs in turn, so that other load on the machine affects all of them."""
    for _ in range(runs):
        for load in loads:
            for tool in tools:
                yield load, tool


def _made_by(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """The command without the folders, which are this machine's own."""
    words = ["python -m benchmarks.live_load"]
    for name, value in vars(options).items():
        if name in {"data", "report", "report_only"} or value == vars(defaults)[name]:
            continue
        option = f"--{name.replace('_', '-')}"
        if name == "loads":
            texts = (
                f"{steps[0][0]}={','.join('max' if rate is None else f'{rate:g}' for _, rate in steps)}"
                for steps in value
            )
            words.append(" ".join([option, *texts]))
        elif name in {"option", "tshark_option"}:
            words += [f"{option}={one}" for one in value]
        else:
            words.append(f"{option} {','.join(value) if isinstance(value, list) else value}")
    return " ".join(words)


def _reported(found: Result) -> str:
    reported, offered = found.reported, found.offered
    shown = reported.kept if reported.kept is not None else reported.requests
    whole = offered.packets if reported.kept is not None else offered.requests
    return (
        f"{found.load}, {found.tool}: {offered.packets / offered.seconds:,.0f} packets/s, {reported.lost} lost, "
        f"{shown} of {whole} shown, {found.behind_s:.1f} s of lag{'' if found.caught_up else ' and not caught up'}, "
        f"{found.usage.cpu_s:.1f} s of CPU, {found.usage.peak / 1e6:,.0f} MB"
    )


def _measure(results: Results, stored: Path, options: argparse.Namespace, folder: Path, python: str) -> bool:
    """All runs; whether all went through."""
    tools = make_tools(options.tools, options.option, options.tshark_option)
    loads = make_loads(options, folder, python)
    each = options.seconds + 5
    count = options.runs * len(loads) * len(tools)
    print(
        f"{count} runs, {count * each / 60:.0f} to {count * (each + options.drain + STOP_S) / 60:.0f} minutes",
        flush=True,
    )
    good = True
    work = folder / "run"
    for load, tool in _turns(loads, tools, options.runs):
        try:
            found = run(tool, load, work, options.drain)
        except (LoadError, NetworkError, SetupError, ToolError) as error:
            # The others are still useful, and the page lists only existing figures.
            print(f"{load.name}, {tool.name}: {error}", file=sys.stderr)
            good = False
            continue
        print(_reported(found), flush=True)
        results.runs.append(found)
        _store(results, stored)
    if options.latency_rate:
        moderate = latency_load(options, folder)
        for _, tool in _turns([moderate], [tool for tool in tools if tool.name in LINE_TOOLS], options.runs):
            try:
                delay = measure_latency(tool, moderate, work)
            except (LoadError, NetworkError, SetupError, ToolError) as error:
                print(f"latency, {tool.name}: {error}", file=sys.stderr)
                good = False
                continue
            delays = f"median {delay.median_ms} ms, 99th percentile {delay.p99_ms} ms"
            print(f"latency, {tool.name}: {delay.lines} lines, {delays}", flush=True)
            results.latencies.append(delay)
            _store(results, stored)
    return good


def _store(results: Results, stored: Path) -> None:
    aside = stored.with_suffix(".part")
    aside.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    aside.rename(stored)


def _check(options: argparse.Namespace) -> str | None:
    """Why nothing can be measured."""
    if not Path("/proc/self/smaps_rollup").exists():
        return "this needs Linux 4.14 or newer: memory is read from /proc"
    if min(options.runs, options.seconds, options.drain, options.connections, options.base_mb) <= 0:
        return "--runs, --seconds, --drain, --connections and --base-mb must be positive"
    rates = [rate or 0.0 for form, rate in _all(options) if form == "A"]
    wanted = max(rates, default=0.0) * 1e6 * options.seconds + ROOM
    free = shutil.disk_usage(options.data).free
    if free < wanted:
        return (
            f"{options.data} has {free / 1e9:.1f} GB free, {wanted / 1e9:.1f} GB may be needed: name another (--data)"
        )
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    options.data = options.data.resolve()
    stored = options.data / RESULTS
    good = True
    if options.report_only:
        if not stored.exists():
            made.error(f"there is no {stored}")
        results = msgspec.json.decode(stored.read_bytes(), type=Results)
    else:
        folder = options.data / "live"
        folder.mkdir(parents=True, exist_ok=True)
        if reason := _check(options):
            made.error(reason)
        compile_package()
        notes = [f"clients against {'Apache Kafka' if options.broker == 'real' else 'librdkafka’s mock cluster'}"]
        try:
            results = Results([*machine(), _versions(options)], notes, _made_by(options, made.parse_args([])))
            # What may have to be downloaded, while there is a network.
            python = python_with(*CONFLUENT) if any(form != "C" for form, _ in _all(options)) else sys.executable
            if options.broker == "real":
                kafka_jars()
            leave_for_own_network()
            good = _measure(results, stored, options, folder, python)
        except (MaterialError, NetworkError, SetupError) as error:
            made.error(str(error))
    if not results.runs and not results.latencies:
        return 1
    write_section(
        SECTION,
        section(results.runs, results.latencies, results.machine, results.notes, results.made_by),
        options.report,
    )
    print(f"written: {options.report}")
    return int(not good)


def end_by_signal(signum: int, _frame: object) -> None:
    """As Ctrl-C does: what was started is ended, too."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_by_signal)
    sys.exit(main())
