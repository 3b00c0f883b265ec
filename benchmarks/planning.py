"""How long the driver of a run plans many captures in an object store that takes its time.

    python -m benchmarks.planning --objects 1000,10000,100000 --delay 20

For each number of objects a store on this machine (`delayed_store.py`), a session of Spark and its driver are new. The
driver does what `export --engine spark` does before it reads packets: list, have tasks look at all captures, sort out
and plan. Executors are processes of their own (`local-cluster`), so that their work is not counted as the driver's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from benchmarks.delayed_store import CAPTURE, CREDENTIALS, address_of, delayed_store
from benchmarks.pages import hardware, today
from kafkasniff.capture.timeline.locations import list_captures
from kafkasniff.spark.options import SPLIT_BYTES
from kafkasniff.spark.session import get_session
from kafkasniff.spark.source import PlannedCaptures, look_at_captures, parts_of, plan_looked_at
from kafkasniff.tables.exports.captures import Exported, new_captures, sort_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Step(NamedTuple):
    """What a step of planning took."""

    name: str
    wall_s: float
    python_s: float
    """CPU time of the driver's Python."""
    java_s: float
    """CPU time of the driver's Java."""


class Planned(msgspec.Struct):
    """One measurement."""

    objects: int
    tasks: int
    """Tasks that read packets afterwards."""
    python_mb: float
    """The highest memory of the driver's Python."""
    java_mb: float
    steps: list[Step] = []


class DriverClock:
    """Measures steps of the driver that follow each other."""

    def __init__(self, spark: SparkSession) -> None:
        self.java: int = spark.sparkContext._jvm.ProcessHandle.current().pid()  # type: ignore[union-attr]
        self._last = self._now()

    def _now(self) -> tuple[float, float, float]:
        fields = Path(f"/proc/{self.java}/stat").read_text().rpartition(")")[2].split()
        return time.monotonic(), time.process_time(), (int(fields[11]) + int(fields[12])) * TICK_S

    def step(self, name: str) -> Step:
        """The step that ends now."""
        before, self._last = self._last, self._now()
        return Step(name, *(now - then for now, then in zip(self._last, before, strict=True)))


def plan(spark: SparkSession, address: str) -> Planned:
    """Plan as an export does, and measure it."""
    # The executors start before, as they have in a session that runs other queries, too.
    spark.range(0, 64, 1, 4).mapInArrow(lambda batches: batches, "id bigint").collect()
    clock = DriverClock(spark)
    files = list_captures([address], by_name=True)
    steps = [clock.step("listing")]
    looked_at = look_at_captures(spark, files, SPLIT_BYTES, Exported())
    steps.append(clock.step("looking, in tasks"))
    by_path = {one.file.path: one for one in looked_at}
    new = new_captures(sort_out((one.look for one in looked_at), "fail", None).good, [])
    # All objects hold the same bytes, of which an export would read one.
    assert len(new) == 1
    captures = PlannedCaptures(spark, plan_looked_at(list(by_path.values())))
    captures.notes()
    steps.append(clock.step("sorting out, plan, notes"))
    parts = parts_of(captures.plan, SPLIT_BYTES)
    captures.packets().schema  # noqa: B018 - the tasks' input is handed to Java
    steps.append(clock.step("parts to tasks"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    status = Path(f"/proc/{clock.java}/status").read_text()
    java_peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return Planned(len(files), len(parts), peak, java_peak, steps)


def _in_process(pipe: Connection, objects: int, delay: float, executors: int) -> None:
    os.environ |= CREDENTIALS
    with delayed_store(objects, delay, CAPTURE.read_bytes()) as (port, stopped):
        spark = get_session(f"local-cluster[{executors},1,1024]")
        try:
            pipe.send((plan(spark, address_of(port)), stopped()))
        finally:
            spark.stop()


def measure(objects: int, delay: float, executors: int) -> tuple[Planned, dict[str, int]]:
    """Plan in a process of its own. Raises RuntimeError if that fails."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_in_process, args=(there, objects, delay, executors))
    process.start()
    there.close()
    try:
        found: tuple[Planned, dict[str, int]] = here.recv()
    except EOFError:
        raise RuntimeError(f"planning {objects} objects failed") from None
    finally:
        process.join()
    return found


def report(found: Planned, requests: dict[str, int]) -> str:
    """A measurement as text."""
    per_object = "CPU of the driver an object"
    total = sum(step.python_s + step.java_s for step in found.steps)
    lines = [
        f"{found.objects:,} objects, read by {found.tasks:,} tasks; requests: {requests}",
        f"  {'':26} {'wall':>8} {'Python':>8} {'Java':>8}",
        *(f"  {step.name:26} {step.wall_s:7.2f}s {step.python_s:7.2f}s {step.java_s:7.2f}s" for step in found.steps),
        f"  {per_object:26} {total / found.objects * 1000:7.3f}ms",
        f"  {'peak memory':26} {'':8} {found.python_mb:6.0f}MB {found.java_mb:6.0f}MB",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", default="1000,10000", help="numbers of objects, separated by commas")
    parser.add_argument("--delay", type=float, default=20.0, help="milliseconds before each answer")
    parser.add_argument("--executors", type=int, default=2)
    options = parser.parse_args()
    print("\n".join([today(), hardware()]))
    for objects in map(int, options.objects.split(",")):
        print(report(*measure(objects, options.delay / 1000, options.executors)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
