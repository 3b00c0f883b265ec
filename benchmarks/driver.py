"""CPU time of Spark's driver for each task of an export.

    python -m benchmarks.driver --mb 20 --shards 8,256
    python -m benchmarks.driver --empty 200,1000,1000,1000,2000

The same captures are exported with few tasks and with many, each time in a new session. Executors are processes of
their own (`local-cluster`), so that their work is not counted as the driver's. With `--empty`, jobs of these numbers
of tasks without work follow each other in one session instead, which shows how Java warms up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.event_log import CONF, read_event_log
from benchmarks.generate import DATA
from benchmarks.pages import hardware, today
from benchmarks.planning import DriverClock, Step
from benchmarks.scale_captures import Form, captures
from kafkasniff.spark.export import export
from kafkasniff.spark.session import get_session
from kafkasniff.tables.exports.options import ExportOptions

FILES: Final = 4


class DriverWork(NamedTuple):
    """What an export took of the driver."""

    tasks: int
    step: Step

    @property
    def cpu_s(self) -> float:
        return self.step.python_s + self.step.java_s


def schedule(counts: Sequence[int], executors: int) -> Iterator[Step]:
    """Jobs of these numbers of tasks without work, in one session."""
    with tempfile.TemporaryDirectory() as events:
        conf = {**CONF, "spark.eventLog.dir": Path(events).as_uri()}
        spark = get_session(f"local-cluster[{executors},1,1024]", **conf)
        try:
            clock = DriverClock(spark)
            for count in counts:
                spark.range(0, count, 1, count).where("id < 0").collect()
                yield clock.step(f"{count:,} tasks")
        finally:
            spark.stop()


def run(paths: Sequence[str], shards: int, split_size: int, executors: int) -> DriverWork:
    """An export with a session of its own."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events"
        events.mkdir()
        conf = {**CONF, "spark.eventLog.dir": events.as_uri()}
        spark = get_session(f"local-cluster[{executors},1,1024]", **conf)
        try:
            clock = DriverClock(spark)
            export(spark, paths, Path(folder) / "tables", ExportOptions(), shards=shards, split_size=split_size)
            step = clock.step(f"{shards} shards")
        finally:
            spark.stop()
        return DriverWork(read_event_log(events).total("tasks"), step)


def measure(paths: Sequence[str], size: int, shards: int, executors: int) -> DriverWork:
    """`run` in a new process, which has a Java of its own; about as many splits as shards."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, paths, shards, max(size // shards, 64 << 10), executors).result()


def task_ms(found: Sequence[DriverWork]) -> float:
    """CPU milliseconds of the driver for each additional task."""
    few, *_, many = sorted(found)
    return (many.cpu_s - few.cpu_s) / (many.tasks - few.tasks) * 1000


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=20, help="MB of captures [20]")
    parser.add_argument("--shards", default="8,256", help="two or more numbers of shards, separated by commas [8,256]")
    parser.add_argument("--executors", type=int, default=2, help="[2]")
    parser.add_argument("--data", type=Path, default=DATA / "driver", help="folder for the captures")
    parser.add_argument("--empty", help="numbers of tasks without work, separated by commas; exports nothing")
    options = parser.parse_args()
    if options.empty:
        print(f"{today()}, {hardware()}", flush=True)
        counts = [int(count) for count in options.empty.split(",")]
        for count, step in zip(counts, schedule(counts, options.executors), strict=True):
            cpu_s = step.python_s + step.java_s
            print(f"{step.name}: CPU of the driver {cpu_s:.1f} s, {cpu_s / count * 1000:.1f} ms a task", flush=True)
        return
    size = options.mb * 1_000_000
    paths = [str(path) for path in captures(options.data, FILES, Form(size // FILES, size))]
    print(f"{today()}, {hardware()}", flush=True)
    found = []
    for shards in options.shards.split(","):
        found.append(measure(paths, size, int(shards), options.executors))
        step = found[-1].step
        print(
            f"{step.name}: {found[-1].tasks:,} tasks, {step.wall_s:.1f} s; CPU of the driver: "
            f"Python {step.python_s:.1f} s, Java {step.java_s:.1f} s",
            flush=True,
        )
    print(f"CPU of the driver for a task: {task_ms(found):.1f} ms")


if __name__ == "__main__":
    main()
