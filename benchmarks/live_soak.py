"""`kafkasniff live` for a long time at a steady rate: `python -m benchmarks.live_soak --minutes 60`, README.md.

Small messages of many connections (form C) are made while they are sent, so that each is sent once and no disk is
needed. What the program prints is read from a pipe and counted. The run passes when no packet was lost, every request
was shown, nothing was skipped, and memory did not grow.

Needs Linux, root, iproute2 and tcpreplay. Everything happens in a network namespace that is gone with the process.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from benchmarks.generate import DATA
from benchmarks.live_load import LoadError, end_by_signal, separate_cores
from benchmarks.live_network import LISTENS, SENDS, NetworkError, counters, leave_for_own_network, program
from benchmarks.live_run import ROOT, ToolError, listening
from benchmarks.live_tools import Kafkasniff, Reported, Target, count_lines, make_tools
from benchmarks.pages import compile_package, hardware, load_average, today
from benchmarks.processes import memory
from benchmarks.small_messages import BROKER_PORT

LOOK_S: Final = 2.0
"""Between two looks at memory."""
TELL_S: Final = 60.0
SAMPLE_S: Final = 0.1
"""The delay of a line is taken so often."""
REST_S: Final = 5.0
"""After the load, for what is still on its way."""
BURST: Final = 20
"""Packets sent in a row."""
SLACK: Final = 0.1
"""A sender may take so much longer than it should."""

WARM: Final = 0.25
"""Part of the run in which memory may grow: caches fill, and every connection is opened."""
FLAT: Final = 0.05
"""Memory is flat when the last quarter of the run has at most so much more of it than the quarter before the half."""
FLAT_BYTES: Final = 8_000_000
"""Or this many bytes more: allocators hold more than is used."""

MAKE: Final = """
import json, sys
from pathlib import Path
from benchmarks.small_messages import write
print(json.dumps(write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
"""


DAY_NS: Final = 86_400 * 10**9
TEXT: Final = re.compile(
    rb"(\d\d):(\d\d):(\d\d)\.(\d{6})  \S+ (?:\xe2\x86\x92|\xe2\x86\x90) \S+ +(?![a-z][a-z0-9-]*: )\S"
)
JSON: Final = re.compile(rb'\{"type":"(?:request|response)".*?"time":"([^"]+?)(?:\.(\d{9}))?Z"')


def delay_ns(line: bytes, now_ns: int) -> int | None:
    """From the capture time that a line of a message shows until now; None for other lines."""
    if found := JSON.match(line):
        moment = datetime.datetime.fromisoformat(found[1].decode() + "+00:00")
        return now_ns - (int(moment.timestamp()) * 10**9 + int(found[2] or 0))
    if found := TEXT.match(line):
        hours, minutes, seconds, micros = map(int, found.groups())
        shown = ((hours * 60 + minutes) * 60 + seconds) * 10**9 + micros * 1000
        # The line says the time of day only; a line may be read on the next day.
        return (now_ns - shown + DAY_NS // 2) % DAY_NS - DAY_NS // 2
    return None


def percentiles(delays_ns: Iterable[int]) -> tuple[float, float, float] | tuple[None, None, None]:
    """Median, 99th percentile and highest, in milliseconds; None without any."""
    delays = np.fromiter(delays_ns, np.float64) / 1e6
    if not len(delays):
        return None, None, None
    median, late = np.percentile(delays, (50, 99))
    return float(median), float(late), float(delays.max())


@dataclasses.dataclass
class Soak:
    """What a run came to."""

    format: str
    seconds: float
    packets: int
    requests: int
    reported: Reported
    exit_code: int
    cpu_s: float
    memory: list[tuple[float, int]]
    """Seconds since the load began, and bytes."""
    delays_ms: tuple[float, float, float] | tuple[None, None, None]
    """Median, 99th percentile and highest."""
    lost_before: int

    def quarters(self) -> tuple[int, int]:
        """Bytes of memory: medians of the second quarter of the run and of the last."""
        end = self.memory[-1][0]
        parts = [[size for at, size in self.memory if low * end < at <= high * end] for low, high in QUARTERS]
        early, late = (statistics.median(part or [self.memory[-1][1]]) for part in parts)
        return int(early), int(late)

    def faults(self) -> list[str]:
        """Why it did not pass."""
        found = []
        if self.reported.lost or self.lost_before:
            found.append(f"{self.reported.lost or 0:,} packets lost, {self.lost_before:,} not delivered")
        if self.reported.requests != self.requests:
            found.append(f"{self.reported.requests or 0:,} of {self.requests:,} requests shown")
        found += [f"{kind}: {count}" for kind, count in self.reported.problems.items() if kind.startswith("live-")]
        early, late = self.quarters()
        if late - early > max(FLAT * early, FLAT_BYTES):
            found.append(f"memory grew from {early / 1e6:,.0f} to {late / 1e6:,.0f} MB")
        if self.exit_code:
            found.append(f"exit code {self.exit_code}")
        return found


QUARTERS: Final = ((WARM, 0.5), (0.75, 1.0))


class Sender:
    """tcpreplay of form C that another process makes meanwhile."""

    def __init__(self, folder: Path, rate: float, seconds: float, connections: int) -> None:
        pipe = folder / "packets.pcap"
        os.mkfifo(pipe)
        wanted = str(int(rate * seconds))
        self._log = (folder / "sender.log").open("wb+")
        self._maker = subprocess.Popen(
            [sys.executable, "-c", MAKE, str(pipe), str(connections), wanted],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        # In bursts, so that it sleeps between them: for an hour it would keep a core busy with looking at the clock.
        pace = ("--pps", f"{rate:g}", "--pps-multi", str(BURST))
        self._sender = subprocess.Popen(
            [program("tcpreplay"), "-i", SENDS, "--quiet", "--no-flow-stats", *pace, str(pipe)],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.begun = time.monotonic()

    def over(self) -> bool:
        return self._sender.poll() is not None

    def result(self) -> tuple[dict[str, int], float]:
        """What was made, and how long sending it took. Raises LoadError."""
        assert self._sender.stdout is not None
        assert self._maker.stdout is not None
        printed = self._sender.stdout.read().decode()
        made = self._maker.stdout.read()
        sent = re.search(r"Actual: (\d+) packets \(\d+ bytes\) sent in ([\d.]+) seconds", printed)
        if self._sender.wait() != 0 or self._maker.wait() != 0 or sent is None:
            self._log.seek(0)
            raise LoadError(f"sending failed: {printed[-500:]} {self._log.read()[-500:].decode(errors='replace')}")
        facts: dict[str, int] = json.loads(made)
        if int(sent[1]) != facts["packets"]:
            raise LoadError(f"tcpreplay sent {sent[1]} of {facts['packets']} packets")
        return facts, float(sent[2])

    def end(self) -> None:
        for process in (self._sender, self._maker):
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._log.close()


class Reader:
    """Counts the lines of a program as they come, and takes the delay of some."""

    def __init__(self, tool: Kafkasniff, pipe: IO[bytes]) -> None:
        self.counted = Reported()
        self.delays_ns: list[int] = []
        self._pipe = pipe
        self._form = tool.form
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        count_lines(self._form, self._lines(), self.counted)

    def _lines(self) -> Iterator[bytes]:
        sample = 0.0
        for line in self._pipe:
            now = time.monotonic()
            if now >= sample and (delay := delay_ns(line, time.time_ns())) is not None:
                self.delays_ns.append(delay)
                sample = now + SAMPLE_S
            yield line

    def join(self) -> None:
        self._thread.join()


def soak(
    form: str, rate: float, seconds: float, *, connections: int, folder: Path, options: Sequence[str] = ()
) -> Soak:
    """Run it; `folder` is emptied before and removed in the end. Raises LoadError and ToolError."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tool").mkdir(parents=True)
    tool = make_tools([form], options)[0]
    assert isinstance(tool, Kafkasniff)
    core = separate_cores()
    limit = seconds * (1 + SLACK) + 60
    read, write = os.pipe()
    sizes: list[tuple[float, int]] = []
    try:
        with contextlib.ExitStack() as stack:
            pipe = stack.enter_context(os.fdopen(read, "rb", 1 << 20))
            target = Target(LISTENS, (BROKER_PORT,))
            started = stack.enter_context(listening(tool, target, folder / "tool", write, limit + REST_S, core=core))
            os.close(write)
            write = -1
            reader = Reader(tool, pipe)
            before = counters(LISTENS)
            sender = Sender(folder, rate, seconds, connections)
            stack.callback(sender.end)
            tell = sender.begun + TELL_S
            while not sender.over():
                now = time.monotonic()
                if now > sender.begun + limit:
                    raise LoadError(f"sending was not over after {limit:.0f} s")
                if started.process.poll() is not None:
                    raise ToolError(f"{form} ended: {(folder / 'tool' / 'errors').read_text()[-500:]}")
                sizes.append((now - sender.begun, memory(started.process.pid).total))
                if now >= tell:
                    tell += TELL_S
                    print(_progress(now - sender.begun, reader, sizes[-1][1]), flush=True)
                time.sleep(LOOK_S)
            facts, took = sender.result()
            arrived = counters(LISTENS) - before
            time.sleep(REST_S)
            code, cpu_s = started.stop()
            reader.join()
        found = tool.said(reader.counted, (folder / "tool" / "errors").read_text(errors="replace"))
        missing = max(0, facts["packets"] - arrived.packets) + arrived.dropped
        return Soak(
            *(form, took, facts["packets"], facts["requests"], found, code, cpu_s, sizes),
            *(percentiles(reader.delays_ns), missing),
        )
    finally:
        if write >= 0:
            os.close(write)
        shutil.rmtree(folder, ignore_errors=True)


def _progress(seconds: float, reader: Reader, size: int) -> str:
    delay = f"{reader.delays_ns[-1] / 1e6:,.0f} ms" if reader.delays_ns else "none yet"
    shown = f"{reader.counted.requests or 0:,} requests shown"
    return f"{seconds / 60:.0f} min: {shown}, {size / 1e6:,.0f} MB, last delay {delay}"


def summary(found: Soak) -> dict[str, Any]:
    """What is printed in the end."""
    early, late = found.quarters()
    return {
        "format": found.format,
        "seconds": round(found.seconds, 1),
        "packets": found.packets,
        "packets_per_s": round(found.packets / found.seconds),
        "requests": found.requests,
        "requests_shown": found.reported.requests,
        "lost": (found.reported.lost or 0) + found.lost_before,
        "problems": found.reported.problems,
        "cpu_us_per_packet": round(found.cpu_s / found.packets * 1e6, 2),
        "memory_mb": {
            "second_quarter": round(early / 1e6, 1),
            "last_quarter": round(late / 1e6, 1),
            "most": round(max(size for _, size in found.memory) / 1e6, 1),
        },
        "delay_ms": {
            name: None if delay is None else round(delay, 1)
            for name, delay in zip(("median", "p99", "most"), found.delays_ms, strict=True)
        },
        "faults": found.faults(),
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.live_soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--minutes", type=float, default=60, help="[60]")
    made.add_argument("--rate", type=float, default=20_000, help="packets/s [20000]")
    made.add_argument("--format", choices=("text", "json"), default="text", help="[text]")
    made.add_argument("--connections", type=int, default=2000, help="[2000]")
    made.add_argument("--option", action="append", default=[], help="passed to `live`, as --option=--memory=256")
    made.add_argument("--data", type=Path, default=DATA, help="folder for the run")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    if min(options.minutes, options.rate, options.connections) <= 0:
        made.error("--minutes, --rate and --connections must be positive")
    compile_package()
    print(f"{today()}; load average at the start {load_average():.2f}", hardware(), sep="\n", flush=True)
    try:
        leave_for_own_network()
        seconds = options.minutes * 60
        # Its own: another run may end, and remove its folder, while this one lasts.
        folder = options.data.resolve() / "live" / f"soak-{os.getpid()}"
        found = soak(
            options.format,
            options.rate,
            seconds,
            connections=options.connections,
            folder=folder,
            options=options.option,
        )
    except (LoadError, NetworkError, ToolError) as error:
        made.error(str(error))
    print(json.dumps(summary(found), indent=2))
    return int(bool(found.faults()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_by_signal)
    sys.exit(main())
