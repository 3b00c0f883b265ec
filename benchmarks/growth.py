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
from typing import Final, NamedTuple

import msgspec
import numpy as np

from benchmarks.generate import DATA, FORMS, Capture, captures
from benchmarks.growth_traffic import Traffic, churn, idle, one_connection, unanswered
from benchmarks.pages import PAGE, compile_package, hardware, load_average, table, today, versions, write_section
from benchmarks.pcap_files import write_beginning
from benchmarks.processes import TOLD_BYTES, CommandFailedError
from benchmarks.timing import in_turn, median

SECTION: Final = "growth"
DECODE: Final = (sys.executable, "-m", "kafkasniff", "decode", "--quiet", "--color", "never")
FLAT: Final = 0.10
TIMED: Final = ("B", "C")
"""Forms whose beginnings are timed."""

LEAST_MB: Final = 1
START_BYTES: Final = 2_000
"""A nearly empty beginning, which measures the start."""

SAMPLE_S: Final = 0.2
LIMIT_S: Final = 4 * 3600
"""Seconds after which a run is given up."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
FIRST: Final = (0.25, 0.5)
"""By what was written: the part of a run whose memory stands for what it had come to by then."""

MB: Final = 1e6
SHARES: Final = (0.1, 0.25, 0.5, 0.75, 1.0)

TIMES: Final = """
`decode` to text on beginnings of the same capture, one process; the first is next to empty and is taken off as what
starting up takes. An exponent of 1 is growth in proportion to the packets.
"""

MEMORY: Final = f"""
`decode -` to text, while traffic is made and written to its stdin: nothing is on disk. Memory is the resident set,
sampled five times per second: the peak until this share of the traffic was written. A run is *flat* if the peak of its
second half is at most {FLAT:.0%} above that of its second quarter.

- Short connections open and close, each with a handshake, one exchange and an end.
- The one connection produces and fetches batches of half a megabyte.
- Idle connections have had one exchange; then one other continues for most of an hour of capture time.
- Requests without an answer come on two connections; a broker acknowledges their bytes and says nothing.
"""


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


class Step(NamedTuple):
    """`decode` on a beginning of a capture: medians."""

    form: str
    bytes: int
    packets: int
    cpu_s: float
    resident: float


class Sample(NamedTuple):
    """A look at a process: seconds since its start, bytes that were written to it, bytes resident."""

    after_s: float
    fed: int
    resident: int


class Endless(NamedTuple):
    """A run over traffic from stdin."""

    name: str
    bytes: int
    packets: int
    connections: int
    requests: int
    cpu_s: float
    wall_s: float
    samples: list[Sample]

    @property
    def peak(self) -> int:
        return max((sample.resident for sample in self.samples), default=0)

    def resident_at(self, share: float) -> int | None:
        """The peak until this share of all bytes was written; None if there is no earlier sample."""
        return max((sample.resident for sample in self.samples if sample.fed <= share * self.bytes), default=None)

    def growth(self) -> float | None:
        """How far the peak of the second half is above that of the second quarter; None without samples."""
        low, high = (edge * self.bytes for edge in FIRST)
        first = max((one.resident for one in self.samples if low <= one.fed < high), default=None)
        second = max((one.resident for one in self.samples if one.fed >= high), default=None)
        return None if first is None or second is None else second / first - 1


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
    command = [*DECODE, "-"]
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
        runs = in_turn({"text": [*DECODE, str(path)]}, folder / "run", settings.runs)["text"]
        steps.append(Step(capture.form, path.stat().st_size, packets, median(runs, "cpu"), median(runs, "resident")))
        path.unlink()
        print(f"{capture.form}, {packets:,} packets: {steps[-1].cpu_s:.2f} s of CPU", flush=True)
    return steps


def exponent(steps: Sequence[Step]) -> float | None:
    """The e of CPU time ≈ c · packets^e, start-up taken off: least squares over the logarithms.

    The first step, which is next to empty, is what starting up takes. None for fewer than two others.
    """
    start, *rest = steps
    usable = [(step.packets, step.cpu_s - start.cpu_s) for step in rest if step.cpu_s > start.cpu_s]
    if len(usable) < 2:
        return None
    sizes, times = zip(*usable, strict=True)
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def section(steps: Sequence[Step], endless: Sequence[Endless], notes: Sequence[str]) -> str:
    """Markdown; `notes` say where and how the figures were taken."""
    parts = ["## Growth", "\n".join(f"- {line}" for line in notes)]
    if steps:
        parts += ["### Time over packets", TIMES.strip()]
        for form in dict.fromkeys(step.form for step in steps):
            mine = [step for step in steps if step.form == form]
            power = exponent(mine)
            reported = "too few sizes for an exponent" if power is None else f"exponent **{power:.2f}**"
            parts += [f"`{form}`, {FORMS[form]}: {reported}", _times(mine)]
    if endless:
        parts += ["### Memory over time", MEMORY.strip(), _memory(endless)]
    return "\n\n".join(parts)


def _times(steps: Sequence[Step]) -> str:
    start, rows = steps[0].cpu_s, []
    for step in steps:
        each = max(0.0, step.cpu_s - start) / step.packets * 1e6
        cells = (f"{step.bytes / MB:.3g}", f"{step.packets:,}", f"{step.cpu_s:.2f}")
        rows.append([*cells, "" if step is steps[0] else f"{each:.2f}", f"{step.resident / MB:.0f}"])
    return table(["MB", "packets", "CPU s", "µs a packet", "peak MB"], rows)


def _memory(endless: Sequence[Endless]) -> str:
    rows: list[list[object]] = []
    for one in endless:
        at = [one.resident_at(share) for share in SHARES]
        growth = one.growth()
        rows.append(
            [
                *(one.name, f"{one.bytes / 1e9:.2f}", f"{one.packets:,}", f"{one.connections:,}", f"{one.requests:,}"),
                *(f"{one.wall_s:.0f}", f"{one.cpu_s:.0f}"),
                *("" if resident is None else f"{resident / MB:,.0f}" for resident in at),
                f"{one.peak / MB:,.0f}",
                *(("", "too short to judge") if growth is None else (f"{growth:+.0%}", _verdict(growth))),
            ]
        )
    head = ["traffic", "GB", "packets", "connections", "requests", "wall s", "CPU s"]
    return table([*head, *(f"MB at {share:.0%}" for share in SHARES), "peak MB", "growth", "flat"], rows)


def _verdict(growth: float) -> str:
    return "yes" if growth <= FLAT else "**no**"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    described = {
        "largest_mb": "of the beginnings that are timed",
        "runs": "of each beginning",
        "connections": "short ones, one after the other",
        "bytes_of": "GB of one connection",
        "idle": "connections that say nothing any more",
        "idle_minutes": "by the packets' clock",
        "unanswered": "requests without an answer",
    }
    for name, text in described.items():
        default = getattr(Settings(), name)
        made.add_argument(f"--{name.replace('_', '-')}", type=type(default), help=f"{text} [{default:g}]")
    made.add_argument("--quick", action="store_true", help="a trial with little traffic; the page is not written")
    made.add_argument("--data", type=Path, default=DATA, help="folder of captures [benchmarks/data]")
    made.add_argument("--report", type=Path, default=PAGE, help="the page with the section [benchmarks/RESULTS.md]")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    data: Path = (options.data / "quick" if options.quick else options.data).resolve()
    given = {name: value for name in Settings.__struct_fields__ if (value := getattr(options, name)) is not None}
    settings = msgspec.structs.replace(QUICK if options.quick else Settings(), **given)
    if any(getattr(settings, name) <= 0 for name in Settings.__struct_fields__):
        made.error("numbers are positive")
    if not Path("/proc/self/statm").exists():
        made.error("this needs Linux: memory is read from /proc")
    compile_package()
    notes = [f"{today()}; load average at the start {load_average():.2f}", hardware(), versions()]
    steps: list[Step] = []
    runs: list[Endless] = []
    good = True
    there = captures(data)
    try:
        for form in TIMED:
            if form in there:
                steps += time_beginnings(there[form], data / "growth", settings)
        for name, make in endless(settings).items():
            runs.append(feed(name, make()))
            print(f"{name}: {runs[-1].cpu_s:.1f} s of CPU, {runs[-1].peak / MB:,.0f} MB at most", flush=True)
    except CommandFailedError as error:
        print(error, file=sys.stderr)
        good = False
    if steps or runs:
        text = section(steps, runs, notes)
        if options.quick:
            print(f"\n{text}")
        else:
            write_section(SECTION, text, options.report)
            print(f"written: {options.report}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
