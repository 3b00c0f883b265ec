"""How time grows with packets, and memory with traffic: `python -m benchmarks.growth --help`, README.md.

Time is that of `decode` on longer and longer beginnings of the same capture. Memory is looked at while traffic of
which there is too much for any memory is written to `decode -`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.generate import DATA, Capture, captures
from benchmarks.growth_report import section
from benchmarks.growth_runs import Endless, Sample, Step
from benchmarks.growth_traffic import Traffic, churn, idle, one_connection, unanswered
from benchmarks.machine import compile_package, hardware, load_average, today, versions
from benchmarks.measures import KAFKASNIFF, ours
from benchmarks.pcap_files import write_beginning
from benchmarks.processes import TOLD_BYTES, CommandFailedError
from benchmarks.results_page import PAGE, write_section
from benchmarks.timing import in_turn, median

SECTION: Final = "growth"
RESULTS: Final = "growth.json"
TIMED: Final = ("B", "C")
"""Forms whose beginnings are timed."""

LEAST_MB: Final = 1
START_BYTES: Final = 2_000
"""A nearly empty beginning, which measures the start."""

SAMPLE_S: Final = 0.2
LIMIT_S: Final = 4 * 3600
"""Seconds after which a run is given up."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Settings(msgspec.Struct, frozen=True):
    """Amounts of traffic."""

    largest_mb: int = 256
    """Size of the largest beginning that is timed, in MB."""
    runs: int = 3
    """Runs for each beginning."""
    connections: int = 1_000_000
    """Short connections, one after the other."""
    bytes_of: float = 10.0
    """GB of one connection."""
    idle: int = 10_000
    """Connections."""
    idle_minutes: int = 50
    """Less than an hour, after which kafkasniff takes connections for closed."""
    unanswered: int = 1_000_000
    """Requests."""


QUICK: Final = Settings(
    largest_mb=2, runs=1, connections=20_000, bytes_of=0.1, idle=2_000, idle_minutes=2, unanswered=100_000
)


class Results(msgspec.Struct):
    """The content of `growth.json`."""

    machine: list[str]
    made_by: str
    settings: Settings
    versions: str
    steps: list[Step] = []
    endless: list[Endless] = []


def endless(settings: Settings) -> dict[str, Callable[[], Traffic]]:
    """Traffic for stdin, by name."""
    return {
        f"{settings.connections:,} short connections": lambda: churn(settings.connections),
        f"one connection of {settings.bytes_of:g} GB": lambda: one_connection(int(settings.bytes_of * 1e9)),
        f"{settings.idle:,} idle connections": lambda: idle(settings.idle, settings.idle_minutes),
        f"{settings.unanswered:,} requests without an answer": lambda: unanswered(settings.unanswered),
    }


def feed(name: str, traffic: Traffic) -> Endless:
    """Write all of `traffic` to `kafkasniff decode -` and look at its memory meanwhile. Raises CommandFailedError."""
    command = [*KAFKASNIFF, "decode", "--quiet", "--color", "never", "-"]
    fed, samples, over = 0, [], threading.Event()
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors)
        assert process.stdin is not None

        def sample() -> None:
            if (resident := _resident(process.pid)) is not None:
                samples.append(Sample(time.perf_counter() - begin, fed, resident))

        def watch() -> None:
            while not over.wait(SAMPLE_S):
                sample()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        late = False
        try:
            for piece in traffic.pieces:
                process.stdin.write(piece)
                fed += len(piece)
                if late := time.perf_counter() - begin > LIMIT_S:
                    break
            # It waits for more, however short the run was.
            sample()
            process.stdin.close()
        except BrokenPipeError:
            late = False  # it has ended; the reason is reported below
        except BaseException:
            process.kill()
            raise
        finally:
            if late:
                process.kill()
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - begin
            process.returncode = os.waitstatus_to_exitcode(status)
            over.set()
            watcher.join()
        if late or process.returncode != 0:
            errors.seek(0)
            reported = errors.read()[-TOLD_BYTES:].decode(errors="replace")
            how = f"not over after {LIMIT_S} s" if late else f"exit code {process.returncode}"
            raise CommandFailedError(f"{name}: {how}\n{reported}")
    cpu = usage.ru_utime + usage.ru_stime
    return Endless(name, fed, traffic.packets, traffic.connections, traffic.requests, cpu, wall, samples)


def _resident(pid: int) -> int | None:
    """Bytes; None when the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None


def time_beginnings(capture: Capture, folder: Path, settings: Settings) -> list[Step]:
    """`decode` on beginnings of a capture, each twice as long as the one before. Raises CommandFailedError."""
    size = capture.path.stat().st_size
    sizes = [START_BYTES]
    at = LEAST_MB * 1_000_000
    while at <= min(settings.largest_mb * 1_000_000, size):
        sizes.append(at)
        at *= 2
    folder.mkdir(parents=True, exist_ok=True)
    steps = []
    for wanted in sizes:
        path = folder / f"{capture.form}-{wanted}.pcap"
        packets = write_beginning(capture.path, path, wanted)
        runs = in_turn({"text": ours(path, "text")}, folder / "run", settings.runs)["text"]
        steps.append(Step(capture.form, path.stat().st_size, packets, median(runs, "cpu"), median(runs, "resident")))
        path.unlink()
        print(f"{capture.form}, {packets:,} packets: {steps[-1].cpu_s:.2f} s of CPU", flush=True)
    return steps


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reported = {
        "largest_mb": "of the beginnings that are timed",
        "runs": "of each beginning",
        "connections": "short ones, one after the other",
        "bytes_of": "GB of one connection",
        "idle": "connections that say nothing any more",
        "idle_minutes": "by the packets' clock",
        "unanswered": "requests without an answer",
    }
    for name, text in reported.items():
        default = getattr(Settings(), name)
        made.add_argument(f"--{name.replace('_', '-')}", type=type(default), help=f"{text} [{default:g}]")
    made.add_argument("--resume", action="store_true", help=f"keep what {RESULTS} has")
    made.add_argument("--report-only", action="store_true", help=f"write the section from {RESULTS}, measure nothing")
    made.add_argument("--quick", action="store_true", help="a trial with little traffic; nothing is kept")
    made.add_argument("--data", type=Path, default=DATA, help=f"folder of captures and {RESULTS} [benchmarks/data]")
    made.add_argument(
        "--report",
        type=Path,
        default=PAGE,
        help="the page whose section is written; figures for another page are stored with it [benchmarks/RESULTS.md]",
    )
    return made


def _measure(results: Results, data: Path, store: Callable[[], None]) -> bool:
    """Run all missing measurements; return whether all succeeded."""
    good = True
    there = captures(data)
    try:
        for form in TIMED:
            if form in there and all(step.form != form for step in results.steps):
                results.steps += time_beginnings(there[form], data / "growth", results.settings)
                store()
    except CommandFailedError as error:
        print(error, file=sys.stderr)
        good = False
    for name, make in endless(results.settings).items():
        if any(one.name == name for one in results.endless):
            continue
        try:
            found = feed(name, make())
        except CommandFailedError as error:
            # The other measurements are still useful, and the page lists only existing figures.
            print(error, file=sys.stderr)
            good = False
            continue
        results.endless.append(found)
        store()
        print(f"{name}: {found.cpu_s:.1f} s of CPU, {found.peak / 1e6:,.0f} MB at most", flush=True)
    return good


def _made_by(settings: Settings) -> str:
    words = ["python -m benchmarks.growth"]
    for name in Settings.__struct_fields__:
        if (value := getattr(settings, name)) != getattr(Settings(), name):
            words.append(f"--{name.replace('_', '-')} {value:g}")
    return " ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    data: Path = (options.data / "quick" if options.quick else options.data).resolve()
    # A separate page has separate figures, too.
    stored = data / RESULTS if options.report == PAGE else options.report.with_suffix(".json").resolve()
    given = {name: value for name in Settings.__struct_fields__ if (value := getattr(options, name)) is not None}
    settings = msgspec.structs.replace(QUICK if options.quick else Settings(), **given)
    if any(getattr(settings, name) <= 0 for name in Settings.__struct_fields__):
        made.error("numbers are positive")
    before, good = None, True
    if (options.resume or options.report_only) and not options.quick and stored.exists():
        before = msgspec.json.decode(stored.read_bytes(), type=Results)
    if options.report_only:
        if before is None:
            made.error(f"there is no {stored}")
        results = before
    else:
        if not Path("/proc/self/statm").exists():
            made.error("this needs Linux: memory is read from /proc")
        data.mkdir(parents=True, exist_ok=True)
        compile_package()
        machine = [f"{today()}; load average at the start {load_average():.2f}", hardware(), versions()]
        results = Results(machine, _made_by(settings), settings, versions())
        if before is not None:
            if (before.settings, before.versions) != (settings, results.versions):
                made.error(f"{stored} was measured with other settings or versions: omit --resume")
            results.steps, results.endless = before.steps, before.endless

        def store() -> None:
            if not options.quick:
                aside = stored.with_suffix(".part")
                aside.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
                aside.rename(stored)

        good = _measure(results, data, store)
    if not results.steps and not results.endless:
        return 1
    text = section(results.steps, results.endless, results.machine, results.made_by)
    if options.quick:
        print(f"\n{text}")
    else:
        write_section(SECTION, text, options.report)
        print(f"written: {options.report}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
