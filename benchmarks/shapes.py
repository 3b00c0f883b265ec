"""Both engines of `kafkasniff export` on captures of unusual shapes: `python -m benchmarks.shapes --help`, README.md.

The traffic, the runs and the comparison of their rows are those of `benchmarks.scale`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import scale
from benchmarks.delayed_store import CREDENTIALS, address_of, delayed_store
from benchmarks.exported import differences
from benchmarks.generate import DATA
from benchmarks.pages import PAGE, compile_package, load_average, table, write_section
from benchmarks.processes import CommandFailedError
from benchmarks.scale_captures import Form, captures
from benchmarks.scale_report import MB, Measurement

SECTION: Final = "shapes"
CORES: Final = (1, 2)
DELAY_S: Final = 0.02
BASE_BYTES: Final = 100_000_000
"""Traffic before it is repeated."""

NOTES: Final = f"""
The traffic of `benchmarks.scale`; the first shape is the one there, in files of a quarter of the size. Every shape has
about as many bytes.

- *Many small files*: one per 100 kB.
- *One long connection* carries 90% of the bytes, all of them record batches.
- *Object store*: files of 1 MB, which a server on this machine hands out {DELAY_S * 1000:g} ms after each request.

*Speed-up* is that of two cores over one; a run on one core cannot use the other. *Longest tasks* is the sum over
Spark's stages of the longest task of each: no number of cores makes a run shorter than that. All runs over a shape have
the same rows, column by column. With 100 MB, most of Spark's time is its start; docs/spark.md has the long connection
with 2 and 4 GB.
"""


class Shape(NamedTuple):
    """Captures, and how they are read."""

    name: str
    file_parts: int
    """Number of files."""
    hot_share: float | None = None
    stored: bool = False
    """Whether they are read from an object store."""


def shapes(size: int) -> list[Shape]:
    """All shapes, for captures of `size` bytes."""
    return [
        Shape("as in scale", 4),
        Shape("many small files", max(4, size // 100_000)),
        Shape("one long connection", 4, hot_share=0.9),
        Shape("object store", max(4, size // 1_000_000), stored=True),
    ]


class Shaped(NamedTuple):
    """A run over captures of a shape."""

    shape: str
    run: Measurement


@contextmanager
def served(paths: Sequence[Path]) -> Iterator[str]:
    """The address of a store that holds these files and takes its time."""
    with delayed_store(len(paths), DELAY_S, *(path.read_bytes() for path in paths)) as (port, _):
        yield address_of(port)


def runs_over(shape: Shape, size: int, options: argparse.Namespace) -> Iterator[Measurement]:
    """A run for each engine and number of cores. Raises CommandFailedError."""
    # The handshakes of all connections have to fit into the first file.
    form = Form(size // shape.file_parts, min(size, BASE_BYTES))
    if shape.hot_share is not None:
        form = dataclasses.replace(form, hot_share=shape.hot_share)
    paths = captures(options.data / shape.name.replace(" ", "-"), shape.file_parts, form)
    for cores in CORES:
        for engine in scale.ENGINES:
            if shape.stored:
                with served(paths) as address:
                    yield scale.run(engine, paths, cores, options, address)
            else:
                yield scale.run(engine, paths, cores, options, str(paths[0].parent / "*.pcap"))


def section(found: Sequence[Shaped], machine: Sequence[str], made_by: str) -> str:
    """Markdown; `machine` and `made_by` say where and how the figures were taken."""
    head = ["shape", "MB", "files", "engine", "cores", "wall s", "speed-up", "CPU s", "peak MB", "disk MB"]
    rows = [_row(one, found) for one in found]
    return "\n\n".join(
        [
            "## Exports of other shapes",
            "\n".join(f"- {line}" for line in (*machine, f"Made by `{made_by}`")),
            NOTES.strip(),
            table([*head, "tasks", "task s", "longest tasks s"], rows),
        ]
    )


def _row(one: Shaped, found: Sequence[Shaped]) -> list[object]:
    shape, run = one
    single = next(
        (other.run for other in found if (other.shape, other.run.engine, other.run.cores) == (shape, run.engine, 1)),
        None,
    )
    speed_up = "" if single is None or single is run else f"{single.usage.wall_s / run.usage.wall_s:.2f}"
    stages = [] if run.log is None else run.log.stages
    return [
        shape,
        f"{run.captures_bytes / MB:,.0f}",
        f"{run.files:,}",
        run.engine,
        run.cores,
        f"{run.usage.wall_s:.1f}",
        speed_up,
        f"{run.usage.cpu_s:.1f}",
        f"{run.usage.peak / MB:,.0f}",
        f"{run.usage.disk / MB:,.0f}",
        *(
            [
                f"{sum(stage.tasks for stage in stages):,}",
                f"{sum(stage.run_ms for stage in stages) / 1000:.1f}",
                f"{sum(stage.longest_ms for stage in stages) / 1000:.1f}",
            ]
            if stages
            else [""] * 3
        ),
    ]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.shapes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--mb", type=int, default=100, help="MB of captures of each shape [100]")
    made.add_argument("--data", type=Path, default=DATA / "shapes", help="folder for captures and runs")
    made.add_argument("--report", type=Path, default=PAGE, help="the page whose section is written")
    made.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark property; repeatable")
    made.add_argument("--option", action="append", default=[], help="handed on to export, as --option=--no-bodies")
    made.add_argument("--keep", action="store_true", help="keep what runs write")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    size = options.mb * 1_000_000
    options.data = options.data.resolve()
    options.data.mkdir(parents=True, exist_ok=True)
    every = shapes(size)
    if reason := scale.lacking(options.data, len(every) * size, size):
        made.error(reason)
    machine = [*scale.machine(), f"load average at the start {load_average():.2f}"]
    compile_package()
    os.environ |= CREDENTIALS
    found: list[Shaped] = []
    failed = False
    for shape in every:
        first: Measurement | None = None
        try:
            for run in runs_over(shape, size, options):
                first = first or run
                found.append(Shaped(shape.name, run))
                print(f"{shape.name}, {scale.words(run)}", flush=True)
                if unlike := differences(first.tables, run.tables):
                    failed = True
                    print(f"not the same rows as {first.engine}:", *unlike, sep="\n  ", flush=True)
        except CommandFailedError as error:
            print(error, file=sys.stderr)
            failed = True
    if failed:
        return 1
    made_by = " ".join(["python -m benchmarks.shapes", *(f"--conf={one}" for one in options.conf), *options.option])
    write_section(SECTION, section(found, machine, f"{made_by} --mb {options.mb}"), options.report)
    print(f"written: {options.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
