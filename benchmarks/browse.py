"""`browse`: how fast it reads a capture, and how its list behaves with ten million exchanges.

    python -m benchmarks.browse CAPTURE [--exchanges 10000000]

The exchanges of the capture are repeated until there are this many, each time later than before. A key press is
measured until the screen has been drawn for the first time, and until it stays as it is: a thread sorts, or looks for
a row far away, and the screen answers meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from textual.pilot import Pilot

from kafkasniff.browse.index import CHUNK, NAMES, ExchangeIndex
from kafkasniff.browse.packed_columns import PackedColumn, pack
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.exchange_list import ExchangeList
from kafkasniff.cli.running.browsing import collect_often
from kafkasniff.runtime.memory_limits import keep_freed_memory, release_freed_memory

REPEATS = 20
KEYS = ("j", "space", "G", "k", "g", "]", "n", "s", "r", "t", "l", "h", "b")
RARE = 1_000_001
"""The row that has a connection of its own: a jump to another one of it looks at all rows, in vain."""


class _Measured(Explorer):
    """Notes when it draws."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.drawn: list[float] = []

    def _display(self, *arguments: Any) -> None:
        super()._display(*arguments)
        self.drawn.append(time.perf_counter())


class _Filled(CaptureReading):
    """An index that is there already instead of captures."""

    def fill(self, index: ExchangeIndex, *_: object, **__: object) -> bool:  # type: ignore[override]
        """Show nothing: the benchmark replaces the index."""
        index.is_complete = True
        return False


@contextlib.contextmanager
def _timed(label: str, size: int = 0) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rate = f", {size / 1e6 / cpu:.0f} MB per second of CPU" if size else ""
    print(f"{label}: {wall * 1000:,.0f} ms, CPU {cpu * 1000:,.0f} ms{rate}", flush=True)


def _peak() -> int:
    """Peak memory of the process, in MB; on Linux, since `_new_peak`."""
    try:
        [peak] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1000 if sys.platform == "linux" else 10**6)
    return int(peak) * 1024 // 10**6


def _new_peak() -> None:
    """Return freed memory to the system and measure the peak anew, on Linux."""
    release_freed_memory()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _index(path: Path) -> ExchangeIndex:
    index, reading = ExchangeIndex(), CaptureReading((str(path),), dict)
    with _timed(f"index of {path.name}", path.stat().st_size):
        reading.fill(index, None, stopped=lambda: False, progress=lambda _read, _total: None)
    for share in (0.0, 0.5, 1.0):
        row = index.row(int(share * (len(index) - 1)))
        with _timed(f"look at an exchange {share:.0%} into the capture"):
            reading.look(index, row, stopped=lambda: False)
    print(f"{len(index):,} exchanges, peak {_peak():,} MB")
    _new_peak()
    return index


def _repeated(index: ExchangeIndex, count: int) -> ExchangeIndex:
    """An index with the same words and connections."""
    made = ExchangeIndex()
    made._words, made._code_of, made._connections = index._words, index._code_of, index._connections
    parts = {name: list(index.numbers(name)) for name in ("packet", "time")}
    packets = max(int(part.max()) for part in parts["packet"])
    duration = int(parts["time"][-1].max()) - int(parts["time"][0].min())
    del parts
    for turn in itertools.count():
        # One chunk at a time: otherwise these numbers would be most of the memory that is measured.
        for chunk in zip(*(index.numbers(name) for name in NAMES), strict=True):
            whole = dict(zip(NAMES, chunk, strict=True))
            whole["packet"] += turn * packets
            whole["time"] += turn * duration
            made._append(whole, np.arange(min(len(whole["time"]), count - len(made))))
        if len(made) >= count:
            break
    made.is_complete = True
    return made


async def _press(made: ExchangeIndex) -> None:
    app = _Measured(_Filled((), dict), title="benchmark")
    async with app.run_test(size=(160, 48)) as pilot:
        await app.workers.wait_for_complete()
        rows = app.query_one(ExchangeList)
        with _timed("open the list"):
            rows.show(made)
            app._refresh_rows()
            await pilot.pause()
        await app.workers.wait_for_complete()
        await pilot.pause()
        for key in KEYS:
            await _measure(app, pilot, key)
        rare = made._chunks[RARE // CHUNK]["connection"]
        made._chunks[RARE // CHUNK]["connection"] = _with_rare(rare, RARE % CHUNK, made)
        rows.move_to(int(np.flatnonzero(rows._order == RARE)[0]))
        await pilot.pause()
        await _measure(app, pilot, "]", f"] in vain, sorted by {rows.column}")


def _with_rare(column: PackedColumn, at: int, made: ExchangeIndex) -> PackedColumn:
    """The same column with a connection in one row that no other row has."""
    numbers = column.numbers()
    rare = max(made._connections) + 1
    made._connections[rare] = made._connections[int(numbers[at])]
    numbers[at] = rare
    return pack(numbers, None)


async def _measure(app: _Measured, pilot: Pilot[None], key: str, label: str = "") -> None:
    firsts: list[float] = []
    lasts: list[float] = []
    cpus: list[float] = []
    for _ in range(REPEATS):
        app.drawn.clear()
        began, cpu = time.perf_counter(), time.thread_time()
        await pilot.press(key)
        await app.workers.wait_for_complete()
        await pilot.pause()
        cpus.append((time.thread_time() - cpu) * 1000)
        # Nothing is drawn if nothing has changed, as at the end of the list.
        drawn = [(one - began) * 1000 for one in app.drawn] or [0.0]
        firsts.append(drawn[0])
        lasts.append(drawn[-1])
    print(
        f"key {label or key:<6} first drawn after: median {median(firsts):5.1f} ms, longest {max(firsts):5.1f} ms;"
        f" last: {median(lasts):5.1f} ms, {max(lasts):5.1f} ms; CPU of the screen's thread {median(cpus):5.1f} ms",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.browse", description=__doc__)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--exchanges", type=int, default=10_000_000)
    options = parser.parse_args(arguments)
    # As the command does.
    collect_often()
    keep_freed_memory()
    made = _repeated(_index(options.capture), options.exchanges)
    columns = (column.values for chunk in made._chunks for column in chunk.values())
    # Those with a stride of 0 repeat one number.
    size = sum(values.nbytes for values in columns if values.strides != (0,))
    print(f"{len(made):,} exchanges, {size / len(made):.1f} bytes each, peak {_peak():,} MB")
    _new_peak()
    for column in ("time", "latency", "api", "subject", "client"):
        with _timed(f"sort by {column}"):
            made.order(column)
    asyncio.run(_press(made))
    print(f"peak {_peak():,} MB")


if __name__ == "__main__":
    main()
