"""How long a line takes: from the capture time that it shows to its arrival on the other end of a pipe."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.live_loads import Load, Offered
from benchmarks.live_run import listening
from benchmarks.live_tools import Kafkasniff, Tool

CHUNK: Final = 1 << 20
REST_S: Final = 3.0
"""Seconds after the load; lines that arrive later are not counted."""

DAY_NS: Final = 86_400 * 10**9

# What each form shows as time, with the rest of a line of a message.
TEXT: Final = re.compile(
    rb"(\d\d):(\d\d):(\d\d)\.(\d{6})  \S+ (?:\xe2\x86\x92|\xe2\x86\x90) \S+ +(?![a-z][a-z0-9-]*: )\S"
)
JSON: Final = re.compile(rb'\{"type":"(?:request|response)".*?"time":"([^"]+?)(?:\.(\d{9}))?Z"')
TSHARK_TEXT: Final = re.compile(rb"\s*\d+ (\d+)\.(\d{9}) ")
TSHARK_JSON: Final = re.compile(rb'\{.*?"frame_frame_time_epoch":"(\d+)\.(\d{9})"')


@dataclasses.dataclass(frozen=True)
class Latency:
    """Delays of one run in milliseconds."""

    tool: str
    load: str
    offered: Offered
    lines: int
    """Lines of messages; tshark shows the messages of one packet in one line."""
    median_ms: float | None
    """None where no line came."""
    p99_ms: float | None
    most_ms: float | None
    load_before: float


class LineTimes:
    """Records the delay of each line of a message in `delays_ns`, from the data read from a pipe and its times."""

    def __init__(self, tool: Tool) -> None:
        shapes = {"text": TEXT, "json": JSON}
        self._shape = (shapes if isinstance(tool, Kafkasniff) else {"text": TSHARK_TEXT, "json": TSHARK_JSON})[
            tool.form
        ]
        self._rest = b""
        self.delays_ns: list[int] = []

    def take(self, data: bytes, now_ns: int) -> None:
        """Whole lines came with their line feed."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if found := self._shape.match(line):
                self.delays_ns.append(self._delay(found, now_ns))

    def _delay(self, found: re.Match[bytes], now_ns: int) -> int:
        if self._shape is TEXT:
            hours, minutes, seconds, micros = map(int, found.groups())
            shown = ((hours * 60 + minutes) * 60 + seconds) * 10**9 + micros * 1000
            # The line says the time of day only; a line may be read on the next day.
            return (now_ns - shown + DAY_NS // 2) % DAY_NS - DAY_NS // 2
        if self._shape is JSON:
            moment = datetime.datetime.fromisoformat(found[1].decode() + "+00:00")
            return now_ns - (int(moment.timestamp()) * 10**9 + int(found[2] or 0))
        return now_ns - (int(found[1]) * 10**9 + int(found[2]))


def measure_latency(tool: Tool, load: Load, folder: Path) -> Latency:
    """Run a program with its standard output at a pipe. Raises LoadError, SetupError, ToolError."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tool").mkdir(parents=True)
    average = os.getloadavg()[0]
    times = LineTimes(tool)
    try:
        with load.prepared(folder) as running, _read_by(times) as output:
            with listening(tool, running.target, folder / "tool", output, load.limit_s + REST_S) as started:
                running.start()
                running.wait()
                time.sleep(REST_S)
                started.stop()
            offered = running.offered()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    median, late, most = percentiles(times.delays_ns)
    return Latency(tool.name, load.name, offered, len(times.delays_ns), median, late, most, average)


def percentiles(delays_ns: Iterable[int]) -> tuple[float, float, float] | tuple[None, None, None]:
    """Median, 99th percentile and highest, in milliseconds; None without any."""
    delays = np.fromiter(delays_ns, np.float64) / 1e6
    if not len(delays):
        return None, None, None
    median, late = np.percentile(delays, (50, 99))
    return float(median), float(late), float(delays.max())


@contextlib.contextmanager
def _read_by(times: LineTimes) -> Iterator[int]:
    """The end of a pipe to write to; a thread reads the other, until all who write have closed it."""
    read, write = os.pipe()

    def follow() -> None:
        while data := os.read(read, CHUNK):
            times.take(data, time.time_ns())

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    try:
        yield write
    finally:
        os.close(write)
        reader.join()
        os.close(read)
