"""Both engines of `kafkasniff export` on captures of growing size: `python -m benchmarks.scale --help`, README.md.

Each run is a fresh process with a folder of its own, over captures that were read just before, so that both engines
find them in memory as far as that goes. What the tables hold is summed up and has to be the same in all runs over the
same captures; where it is not, the run says so and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

import kafkasniff
from benchmarks.cluster_estimate import Cluster
from benchmarks.event_log import CONF, read_event_log
from benchmarks.exported import contents, differences
from benchmarks.generate import DATA
from benchmarks.pages import compile_package, hardware, today
from benchmarks.processes import CommandFailedError, measure
from benchmarks.scale_captures import FILE_MB, Form, captures, is_there
from benchmarks.scale_report import Engine, Measurement, page
from benchmarks.scale_traffic import BASE_MB

REPORT: Final = Path(__file__).parent / "SCALE.md"
RESULTS: Final = "results.json"
ENGINES: Final[tuple[Engine, ...]] = ("local", "spark")
LIMIT_S: Final = 12 * 3600
"""Seconds after which a run is given up."""

ROOM: Final = 6
"""Bytes of disk that a run may take for each byte of its captures: staged rows, shuffles, blocks that are kept, and the
tables. Asked for before anything is written."""

READ_BYTES: Final = 1 << 24


class Results(msgspec.Struct):
    """The content of `results.json`: enough to resume, and to write the page again."""

    form: Form
    settings: list[str]
    """Everything else that changes the figures: passed options, and versions."""
    runs: list[Measurement] = []


def command(engine: Engine, inputs: Sequence[object], work: Path, cores: int, options: argparse.Namespace) -> list[str]:
    """The export that is measured; all that it writes is below `work`."""
    line = [
        sys.executable,
        "-m",
        "kafkasniff",
        "export",
        *map(str, inputs),
        "--output",
        str(work / "export"),
        "--quiet",
    ]
    if engine == "local":
        return [*line, "--jobs", str(cores), *options.option]
    places = {"spark.eventLog.dir": (work / "events").as_uri(), "spark.local.dir": str(work / "spark")}
    line += ["--engine", "spark", "--master", f"local[{cores}]"]
    for setting in [*(f"{name}={value}" for name, value in {**CONF, **places}.items()), *options.conf]:
        line += ["--conf", setting]
    return [*line, *options.option]


def run(
    engine: Engine, paths: Sequence[Path], cores: int, options: argparse.Namespace, address: str | None = None
) -> Measurement:
    """One export, measured. Raises CommandFailedError.

    `address`: where the captures in `paths` are read from, if not there.
    """
    work: Path = options.data / f"{engine}-{len(paths)}x-{cores}"
    shutil.rmtree(work, ignore_errors=True)
    for name in ("events", "spark", "tmp"):
        (work / name).mkdir(parents=True)
    size = _read(paths)
    load = os.getloadavg()[0]
    try:
        usage = measure(
            command(engine, paths if address is None else [address], work, cores, options),
            work,
            limit_s=LIMIT_S,
            # What goes to temporary folders counts, too.
            env={**os.environ, "TMPDIR": str(work / "tmp")},
            # Else helper threads and Java would use the others.
            cores=cores,
        )
        log = read_event_log(work / "events") if engine == "spark" else None
        return Measurement(engine, size, len(paths), cores, usage, contents(work / "export"), load, log)
    finally:
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)


def _read(paths: Sequence[Path]) -> int:
    """Read all files once; returns their size."""
    size = 0
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while part := file.read(READ_BYTES):
                size += len(part)
    return size


def lacking(data: Path, new_captures: int, largest: int) -> str | None:
    """Why there is not room enough in `data`: for captures to be made, and for a run over `largest` bytes of them."""
    wanted = new_captures + ROOM * largest
    free = shutil.disk_usage(data).free
    if free >= wanted:
        return None
    return (
        f"{data} has {free / 1e9:.1f} GB free; {new_captures / 1e9:.1f} GB of captures and a run over "
        f"{largest / 1e9:.1f} GB may take {wanted / 1e9:.1f} GB: name another folder (--data) or smaller --sizes"
    )


def machine() -> list[str]:
    """What the figures were taken on."""
    return [
        today(),
        hardware(),
        *versions(),
    ]


def versions() -> list[str]:
    """What is measured, and what it runs on."""
    try:
        spark = f"pyspark {importlib.metadata.version('pyspark')}"
    except importlib.metadata.PackageNotFoundError:
        spark = "no pyspark"
    return [f"kafkasniff {kafkasniff.__version__}, Python {platform.python_version()}, {spark}, {_java()}"]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else "java"
    try:
        reported = subprocess.run([program, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return "no Java but what pyspark brings"
    return reported.splitlines()[0].replace('"', "")


def words(found: Measurement) -> str:
    """A run in one line."""
    usage = found.usage
    rows = ", ".join(f"{table.rows:,} {name}" for name, table in found.tables.items())
    return (
        f"{found.gb:.2f} GB, {found.engine}, {found.cores} cores: {usage.wall_s:.1f} s, {usage.cpu_s:.1f} s of CPU, "
        f"{usage.peak / 1e6:,.0f} MB at most; {rows}"
    )


def _wanted(options: argparse.Namespace, sizes: Sequence[int]) -> Iterator[tuple[int, int, Engine]]:
    """Files, cores and engine of each run: engines in turn, so that what else the machine does hits both."""
    for count in sizes:
        for cores in options.cores:
            for engine in options.engines:
                yield count, cores, engine


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _engines(text: str) -> list[str]:
    found = text.split(",")
    if unknown := set(found) - set(ENGINES):
        raise argparse.ArgumentTypeError(f"no such engine: {', '.join(sorted(unknown))}")
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--sizes", type=_numbers, default=[1, 2, 4, 8], help="GB of captures, by commas [1,2,4,8]")
    made.add_argument("--cores", type=_counts, default=[1, 2], help="--jobs and local[K], by commas [1,2]")
    made.add_argument("--engines", type=_engines, default=[*ENGINES], help="local, spark, or both by a comma [both]")
    made.add_argument("--data", type=Path, default=DATA / "scale", help="folder for captures and runs")
    made.add_argument("--report", type=Path, default=REPORT, help="the page to write [benchmarks/SCALE.md]")
    made.add_argument("--file-mb", type=float, default=FILE_MB, help=f"size of a file [{FILE_MB}]")
    made.add_argument("--base-mb", type=float, default=BASE_MB, help=f"traffic before it is repeated [{BASE_MB}]")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark property; repeatable")
    made.add_argument("--option", action="append", default=[], help="handed on to export, as --option=--no-bodies")
    made.add_argument("--resume", action="store_true", help="keep the runs that results.json in the data folder has")
    made.add_argument("--keep", action="store_true", help="keep what runs write")
    made.add_argument("--terabytes", type=float, default=10, help="of the estimate [10]")
    fields = ", ".join(f"{field.name}={field.default:g}" for field in dataclasses.fields(Cluster))
    made.add_argument(
        "--cluster", action="append", default=[], metavar="NAME=VALUE", help=f"of the estimate; repeatable [{fields}]"
    )
    return made


def _made_by(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """The command without the folders, which are this machine's own."""
    words = ["python -m benchmarks.scale"]
    for name, value in vars(options).items():
        if name in {"data", "report", "resume", "keep"} or (value == vars(defaults)[name] and name != "sizes"):
            continue
        option = f"--{name.replace('_', '-')}"
        if name in {"conf", "option", "cluster"}:
            words += [f"{option}={one}" for one in value]
        elif isinstance(value, list):
            words.append(f"{option} {','.join(format(one, 'g') if name == 'sizes' else str(one) for one in value)}")
        else:
            words.append(f"{option} {value}")
    return " ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    if not Path("/proc/self/smaps_rollup").exists():
        made.error("this needs Linux 4.14 or newer: memory is read from /proc")
    try:
        cluster = msgspec.convert(dict(one.split("=", 1) for one in options.cluster), Cluster, strict=False)
    except ValueError as error:
        made.error(f"--cluster: {error}")
    options.data = options.data.resolve()
    options.data.mkdir(parents=True, exist_ok=True)
    form = Form(int(options.file_mb * 1e6), int(options.base_mb * 1e6), options.seed)
    sizes = sorted({max(1, round(size * 1e9 / form.file_bytes)) for size in options.sizes})
    folder = options.data / "captures"
    new = 0 if is_there(folder, sizes[-1], form) else sizes[-1] * form.file_bytes
    if reason := lacking(options.data, new, sizes[-1] * form.file_bytes):
        made.error(reason)
    paths = captures(folder, sizes[-1], form)
    stored = options.data / RESULTS
    results = Results(form, [*versions(), *options.conf, *options.option])
    if options.resume and stored.exists():
        before = msgspec.json.decode(stored.read_bytes(), type=Results)
        if (before.form, before.settings) != (results.form, results.settings):
            made.error(f"{stored} was measured with other settings: omit --resume")
        results.runs = before.runs
    compile_package()
    failed = False
    for count, cores, engine in _wanted(options, sizes):
        if any((one.files, one.cores, one.engine) == (count, cores, engine) for one in results.runs):
            continue
        try:
            found = run(engine, paths[:count], cores, options)
        except CommandFailedError as error:
            # The others are still useful, and the page lists only existing figures.
            print(error, file=sys.stderr)
            failed = True
            continue
        print(words(found), flush=True)
        for other in results.runs:
            if other.files == count and (unlike := differences(other.tables, found.tables)):
                failed = True
                print(f"not the same rows as {other.engine} on {other.cores} cores:", *unlike, sep="\n  ", flush=True)
        results.runs.append(found)
        stored.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    if not results.runs:
        return 1
    text = page(
        results.runs,
        machine(),
        cluster=cluster,
        captures_gb=options.terabytes * 1000,
        made_by=_made_by(options, made.parse_args([])),
    )
    options.report.write_text(text)
    print(f"written: {options.report}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
