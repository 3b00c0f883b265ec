"""kafkasniff beside tshark on the same captures: `python -m benchmarks.compare --help`, README.md.

Whole processes, run in turn (tshark, each work, tshark, …) so that what else the machine does hits all of them. Figures
are ratios of medians of CPU time, except for `--jobs 2`: there it is wall time, two jobs to one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from benchmarks.generate import DATA, FORMS, Capture, captures
from benchmarks.pages import (
    PAGE,
    compile_package,
    hardware,
    load_average,
    table,
    today,
    tshark_version,
    versions,
    write_section,
)
from benchmarks.pcap_files import write_beginning
from benchmarks.processes import CommandFailedError
from benchmarks.timing import Run, in_turn, median, ratio

Shown = Literal["lines", "fields", "ek"]
"""What tshark prints: a line per packet of Kafka, columns, or everything as JSON."""

SECTION: Final = "tshark"
COLUMNS: Final = (
    *("frame.time_epoch", "ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport"),
    *("kafka.len", "kafka.api_key", "kafka.api_version", "kafka.correlation_id", "kafka.client_id"),
)
"""The columns of the table `exchanges` that come from packets and message headers."""

LINES: Final = ("C", "C-deep", "E", "mixed")
READ: Final = """
import sys, kafkasniff
for exchange in kafkasniff.read(sys.argv[1]):
    for message in (exchange.request, exchange.response):
        if message is not None and message.body is not None:
            list(message.body.values())
"""


class Work(NamedTuple):
    """What is measured."""

    arguments: tuple[str, ...]
    """Words after `kafkasniff`; `{capture}` and `{output}` are replaced."""
    target: float | None
    """The highest ratio."""
    reference: str = "lines"
    """How tshark is called, or the other work that wall time is compared with."""
    forms: tuple[str, ...] = LINES
    """On which it is measured."""


def _decode(*options: str) -> tuple[str, ...]:
    return ("decode", "--quiet", "--color", "never", *options, "{capture}")


def _export(*options: str) -> tuple[str, ...]:
    return ("export", "--quiet", "--jobs", "1", "--output", "{output}", *options, "{capture}")


WORKS: Final[dict[str, Work]] = {
    "text": Work(_decode(), 0.2, forms=("A", "B", "Bx", *LINES)),
    "CSV": Work(_decode("--format", "csv"), 0.2),
    "JSON lines": Work(_decode("--format", "json"), 0.25),
    "`-v`": Work(_decode("-v"), 0.4),
    "`-vv`": Work(_decode("-vv"), 0.4),
    "text, filter on topic": Work(_decode("--filter", 'topic =~ "1$"'), 0.2),
    "text, filter on client": Work(_decode("--filter", 'client_id =~ "1$"'), 0.2),
    "text, filter on error": Work(_decode("--errors"), 0.2),
    "text, filter on latency": Work(_decode("--slower-than", "2ms"), 0.2),
    "text, filter on record values": Work(_decode("--filter", 'record.value contains "a1"'), 0.35),
    "export, all tables": Work(_export(), 0.5, forms=("A", "B", *LINES)),
    "`kafkasniff.read`": Work(("-c", READ, "{capture}"), 0.6),
    "`--write-matching`": Work(_decode("--errors", "--no-payload", "--write-matching", "{output}.pcapng"), 0.9),
    "headers to Parquet": Work(_export("--tables", "exchanges", "--no-bodies"), 0.06, "fields", ("C",)),
    "records to Parquet": Work(_export("--tables", "records"), 0.2, "ek", ("Bx",)),
    "stats": Work(("stats", "--quiet", "{capture}"), 0.6),
    "check": Work(("check", "--quiet", "{capture}"), 0.6),
    "report": Work(("report", "--quiet", "--output", "{output}.html", "{capture}"), 1.0),
    "timing": Work(("timing", "--quiet", "{capture}"), 0.5),
    "security": Work(("security", "--quiet", "{capture}"), 0.35),
    "audit": Work(("audit", "--quiet", "{capture}"), 0.35),
    "analyze latency": Work(("analyze", "latency", "--quiet", "{capture}"), 0.4),
    **{
        f"{name} with two jobs, wall time": Work((*arguments, "--jobs", "2"), 0.6, name, ("A", "B", "C", "E"))
        for name, arguments in {
            "text": _decode(),
            "JSON lines": _decode("--format", "json"),
            "export, all tables": _export(),
        }.items()
    },
}


class Figure(NamedTuple):
    """One work on one form."""

    work: str
    form: str
    ratio: float
    base: float | None
    """The ratio of the other installation."""
    peak: int
    """Bytes of memory."""


def ours(python: str, work: Work, capture: Path, folder: Path) -> list[str]:
    """Its command line in that interpreter; the output goes to `folder`."""
    command = [word.replace("{capture}", str(capture)) for word in work.arguments]
    command = [word.replace("{output}", str(folder / "made")) for word in command]
    return [python, *command] if command[0] == "-c" else [python, "-m", "kafkasniff", *command]


def theirs(capture: Capture, path: Path, shown: str) -> list[str]:
    """tshark needs the ports of Kafka."""
    command = ["tshark", "-n", "-r", str(path)]
    for port in capture.ports:
        command += ["-d", f"tcp.port=={port},kafka"]
    command += ["-Y", "kafka"]
    if shown == "fields":
        return [*command, "-T", "fields", *(word for column in COLUMNS for word in ("-e", column))]
    return [*command, "-T", "ek"] if shown == "ek" else command


def compare(
    capture: Capture, path: Path, works: Mapping[str, Work], pythons: Mapping[str, str], folder: Path, *, runs: int
) -> list[Figure]:
    """All works on one capture with one way of calling tshark. Raises CommandFailedError.

    `pythons`: the interpreters of the installations by name, `new` and perhaps `base`.
    """
    commands = {}
    for shown in dict.fromkeys(work.reference for work in works.values()):
        if shown in WORKS:
            work = WORKS[shown]
            for name, python in pythons.items():
                commands[shown, name] = ours(python, work, path, folder)
        else:
            commands[shown, "tshark"] = theirs(capture, path, shown)
    for key, work in works.items():
        for name, python in pythons.items():
            commands[key, name] = ours(python, work, path, folder)
    measured: dict[tuple[str, str], list[Run]] = in_turn(commands, folder, runs)
    figures = []
    for key, work in works.items():
        ratios = {}
        for name in pythons:
            if work.reference in WORKS:
                ratios[name] = ratio(measured[key, name], measured[work.reference, name], "wall")
            else:
                ratios[name] = ratio(measured[key, name], measured[work.reference, "tshark"], "cpu")
        peak = max(run.resident for run in measured[key, "new"])
        figures.append(Figure(key, capture.form, ratios["new"], ratios.get("base"), peak))
        print(_line(figures[-1]), flush=True)
    for (shown, name), reference in measured.items():
        if name == "tshark":
            print(f"{capture.form}: tshark, {shown}: {median(reference, 'cpu'):.2f} s of CPU", flush=True)
    return figures


def _line(figure: Figure) -> str:
    base = "" if figure.base is None else f" (base {figure.base:.2f})"
    return f"{figure.form}: {figure.work}: {figure.ratio:.2f}{base}, {figure.peak / 1e6:.0f} MB"


def section(figures: Sequence[Figure], forms: Sequence[str], notes: Sequence[str]) -> str:
    """The page's section; `notes` say on what and how it was measured."""
    cells = {(figure.work, figure.form): figure for figure in figures}
    rows = []
    for name, work in WORKS.items():
        found = [cells.get((name, form)) for form in forms]
        if any(found):
            shown = ["" if figure is None else _cell(figure, work.target) for figure in found]
            peak = max(figure.peak for figure in found if figure is not None)
            target = "" if work.target is None else f"≤ {work.target:g}"
            reference = work.reference if work.reference in WORKS else f"`{' '.join(_reference(work.reference))}`"
            rows.append([name, reference, target, *shown, f"{peak / 1e6:.0f}"])
    head = ["work", "divided by", "target", *(f"`{form}`" for form in forms), "peak MB"]
    parts = ["## Beside tshark", "\n".join(f"- {note}" for note in notes)]
    parts.append(
        "CPU time of the work divided by that of tshark, start-up included; **bold** where the target, which is meant "
        "for whole captures, is missed."
    )
    return "\n\n".join([*parts, table(head, rows)])


def _reference(shown: str) -> list[str]:
    return {"lines": ["-Y kafka"], "fields": ["-T fields"], "ek": ["-T ek"]}[shown]


def _cell(figure: Figure, target: float | None) -> str:
    text = f"{figure.ratio:.2f}"
    text = f"**{text}**" if target is not None and figure.ratio > target else text
    return text if figure.base is None else f"{text} (before {figure.base:.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forms", help=f"by commas: {', '.join(FORMS)} [all that are made]")
    parser.add_argument("--work", action="append", choices=list(WORKS), metavar="NAME", help="one of them [all]")
    parser.add_argument("--runs", type=int, default=3, help="runs of each command, in turn [3]")
    parser.add_argument("--mb", type=int, help="only the beginning of each capture")
    parser.add_argument("--base", help="Python of another installation, measured in turn with this one")
    parser.add_argument("--quick", action="store_true", help="a trial on small captures; the page is not written")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of captures [benchmarks/data]")
    parser.add_argument("--report", type=Path, default=PAGE, help="the page with the section [benchmarks/RESULTS.md]")
    options = parser.parse_args(arguments)
    if options.runs < 1 or (options.mb is not None and options.mb < 1):
        parser.error("numbers are positive")
    data: Path = (options.data / "quick" if options.quick else options.data).resolve()
    there = captures(data)
    forms = [form for form in (options.forms.split(",") if options.forms else there) if form in there]
    if not forms:
        parser.error(f"no captures in {data}: run `python -m benchmarks.generate{' --quick' * options.quick}` first")
    try:
        reported = f"{versions()}, {tshark_version()}"
    except FileNotFoundError as error:
        parser.error(str(error))
    compile_package()
    notes = [f"{today()}; load average at the start {load_average():.2f}", hardware(), reported]
    notes.append(f"runs of each command: {options.runs}" + (f", the first {options.mb} MB" if options.mb else ""))
    pythons = {"new": sys.executable} | ({"base": options.base} if options.base else {})
    figures: list[Figure] = []
    good = True
    for form in forms:
        works = {name: WORKS[name] for name in options.work or WORKS if form in WORKS[name].forms}
        path = there[form].path
        if options.mb and path.stat().st_size > options.mb * 1_000_000:
            path = data / f"beginning-of-{path.name}"
            write_beginning(there[form].path, path, options.mb * 1_000_000)
        try:
            if works:
                figures += compare(there[form], path, works, pythons, data / "run", runs=options.runs)
        except CommandFailedError as error:
            # The other forms are still useful, and the page lists only existing figures.
            print(f"{form}: {error}", file=sys.stderr)
            good = False
    if not figures:
        return 1
    text = section(figures, forms, notes)
    if options.quick:
        print(f"\n{text}")
    else:
        write_section(SECTION, text, options.report)
        print(f"written: {options.report}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
