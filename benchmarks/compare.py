"""kafkasniff beside tshark on the same captures: `python -m benchmarks.compare --help`, README.md.

Whole processes, run in turn (ours, theirs, ours, …) so that what else the machine does hits both. Reported are medians.
Before anything is timed, both are asked how many requests they see.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.compare_report import line, section
from benchmarks.comparisons import GROUPS, QUICK, Comparison, Settings, plan
from benchmarks.generate import BY_NAME, DATA, FORMS, captures, made_with
from benchmarks.machine import compile_package, hardware, load_average, today, tshark_version, versions
from benchmarks.processes import CommandFailedError
from benchmarks.results_page import PAGE, write_section

SECTION: Final = "tshark"
RESULTS: Final = "results.json"

ROOM: Final = 8e9
"""Bytes of disk in addition to the captures: the programs' output, above all JSON lines of a whole capture."""


class Results(msgspec.Struct):
    """The content of `results.json`: enough to resume, and to write the section again."""

    machine: list[str]
    made_by: str
    settings: Settings
    versions: str
    captures: dict[str, Any]
    """What each was made with."""
    comparisons: list[Comparison] = []

    def has(self, group: str, form: str) -> bool:
        return any((one.group, one.form) == (group, form) for one in self.comparisons)


USUAL: Final = Settings()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--forms", type=_some(FORMS), default=list(FORMS), help=f"by commas: {', '.join(FORMS)} [all]")
    made.add_argument(
        "--groups", type=_some(GROUPS), default=list(GROUPS), help=f"by commas: {', '.join(GROUPS)} [all]"
    )
    made.add_argument("--runs", type=int, help=f"runs of each command, in turn [{USUAL.runs}]")
    made.add_argument("--start-runs", type=int, help=f"runs of commands that only start up [{USUAL.start_runs}]")
    made.add_argument("--once", action="store_true", help="run each command once: --runs 1 --start-runs 1")
    made.add_argument("--ek-mb", type=int, help=f"of each capture, for what is beside -T ek [{USUAL.ek_mb}]")
    made.add_argument("--jobs-mb", type=int, help=f"of each capture, for --jobs [{USUAL.jobs_mb}]")
    made.add_argument("--resume", action="store_true", help=f"keep what {RESULTS} has")
    made.add_argument("--report-only", action="store_true", help=f"write the section from {RESULTS}, measure nothing")
    made.add_argument("--quick", action="store_true", help="a trial on small captures; nothing is kept")
    made.add_argument("--data", type=Path, default=DATA, help=f"folder of captures and {RESULTS} [benchmarks/data]")
    made.add_argument(
        "--report",
        type=Path,
        default=PAGE,
        help="the page whose section is written; figures for another page are stored with it [benchmarks/RESULTS.md]",
    )
    return made


def _some(known: Sequence[str] | dict[str, str]) -> Any:
    def parse(text: str) -> list[str]:
        found = text.split(",")
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"no such: {', '.join(sorted(unknown))}")
        return found

    return parse


def _settings(options: argparse.Namespace) -> Settings:
    given = dict.fromkeys(("runs", "start_runs"), 1) if options.once else {}
    given |= {name: value for name in Settings.__struct_fields__ if (value := getattr(options, name)) is not None}
    return msgspec.structs.replace(QUICK if options.quick else USUAL, **given)


def _made_by(settings: Settings, options: argparse.Namespace) -> str:
    words = ["python -m benchmarks.compare"]
    for name in Settings.__struct_fields__:
        if getattr(settings, name) != getattr(USUAL, name):
            words.append(f"--{name.replace('_', '-')} {getattr(settings, name)}")
    words += [f"--{name} {','.join(chosen)}" for name in ("forms", "groups") if (chosen := _chosen(options, name))]
    return " ".join(words)


def _chosen(options: argparse.Namespace, name: str) -> list[str]:
    """Empty where all are."""
    found: list[str] = getattr(options, name)
    return [] if len(found) == len({"forms": FORMS, "groups": GROUPS}[name]) else found


def _measure(results: Results, options: argparse.Namespace, data: Path, stored: Path) -> bool:
    """Run all missing comparisons; return whether all succeeded."""
    good = True
    there = captures(data)
    for task in plan(there, data, results.settings):
        if task.group not in options.groups or task.form not in options.forms or results.has(task.group, task.form):
            continue
        try:
            found = task.make()
        except CommandFailedError as error:
            # The other comparisons are still useful, and the page lists only existing figures.
            print(f"{task.group}, {task.form}: {error}", file=sys.stderr)
            good = False
            continue
        results.comparisons.append(found)
        if not options.quick:
            _store(results, stored)
        print(line(found), flush=True)
    return good


def _store(results: Results, path: Path) -> None:
    aside = path.with_suffix(".part")
    aside.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    aside.rename(path)


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    data: Path = (options.data / "quick" if options.quick else options.data).resolve()
    # A separate page has separate figures, too.
    stored = data / RESULTS if options.report == PAGE else options.report.with_suffix(".json").resolve()
    settings = _settings(options)
    if min(getattr(settings, name) for name in Settings.__struct_fields__) < 1:
        made.error("numbers are positive")
    before, good = None, True
    if (options.resume or options.report_only) and not options.quick and stored.exists():
        before = msgspec.json.decode(stored.read_bytes(), type=Results)
    if options.report_only:
        if before is None:
            made.error(f"there is no {stored}")
        results = before
    else:
        if not Path("/proc/self/smaps_rollup").exists():
            made.error("this needs Linux 4.14 or newer: memory is read from /proc")
        try:
            reported = f"{versions()}, {tshark_version()}"
        except FileNotFoundError as error:
            made.error(str(error))
        if not captures(data):
            made.error(f"no captures in {data}: run `python -m benchmarks.generate{' --quick' * options.quick}` first")
        if not options.quick and shutil.disk_usage(data).free < ROOM:
            made.error(f"{data} has less than {ROOM / 1e9:.0f} GB free: name another folder (--data)")
        compile_package()
        results = Results(
            [f"{today()}; load average at the start {load_average():.2f}", hardware(), reported],
            _made_by(settings, options),
            settings,
            reported,
            made_with(data),
        )
        if before is not None:
            if (before.settings, before.versions, before.captures) != (settings, reported, results.captures):
                made.error(f"{stored} was measured with other settings, versions or captures: omit --resume")
            results.comparisons = before.comparisons
        good = _measure(results, options, data, stored)
    if not results.comparisons:
        return 1
    text = section(results.comparisons, results.machine, results.made_by, missing(results.captures))
    if options.quick:
        print(f"\n{text}")
        return int(not good)
    write_section(SECTION, text, options.report)
    print(f"written: {options.report}")
    return int(not good)


def missing(made: dict[str, Any]) -> list[str]:
    """Forms without a capture, except for those that are made only if they are named."""
    return [form for form in FORMS if form not in made and form not in BY_NAME]


if __name__ == "__main__":
    sys.exit(main())
