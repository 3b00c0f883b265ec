"""`python -m benchmarks.targets --base PYTHON`: the kernel's targets, two checkouts in turn on the same captures.

`PYTHON` is the interpreter of the environment in which the older checkout is installed (editable). Whole processes are
measured from outside, base and new in turn, in one process each (`--jobs 1`). The least CPU time of all runs counts.
Bodies alone are measured inside a process, without reading the capture.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.bodies import bodies_of, equal_share
from benchmarks.checkout_work import Wanted
from benchmarks.generate import DATA, Capture, captures
from benchmarks.machine import hardware, load_average, today
from benchmarks.measures import DECODE, EXPORT
from benchmarks.pcap_files import write_beginning
from benchmarks.results_page import PAGE, write_section
from benchmarks.tables import against, table
from benchmarks.timing import Run, in_turn

SECTION: Final = "kernel-targets"
WORK: Final = Path(__file__).with_name("checkout_work.py")
FORMS: Final = ("A", "B", "C", "C-deep", "mixed", "start")

TITLES: Final = {
    "json": "`decode --format json`",
    "records": "`export --tables records`",
    "bodies": "bodies alone: decode and render",
    "library": "`kafkasniff.read`, bodies as dicts",
    "start": "first line (`decode --count 1`)",
}
TARGETS: Final[dict[str, dict[str, float | None]]] = {
    "json": {"A": 0.45, "C": None, "C-deep": None, "mixed": None},
    "records": {"A": 0.55, "B": 0.55, "C-deep": None, "mixed": None},
    "bodies": {"C": 0.15, "C-deep": None, "mixed": None},
    "library": {"C": 0.6, "C-deep": None, "mixed": None},
    "start": {"start": 1.0},
}
"""By measure and form: CPU time of the new checkout divided by that of the base; None: measured without a target."""

START_RUNS: Final = 15
"""Least number of runs of what takes a tenth of a second."""


class Checkout(NamedTuple):
    """One of the two."""

    name: str
    python: str
    folder: Path
    """The version of its package."""
    has_kernel: bool

    def command(self, *words: str) -> list[str]:
        # -P: without it the current folder, which is a checkout too, would be imported instead.
        return [self.python, "-P", *words]

    def kafkasniff(self, *words: str) -> list[str]:
        return self.command("-m", "kafkasniff", *words)

    def revision(self) -> str:
        """Its commit, marked as dirty if files differ from it."""
        command = ["git", "-C", str(self.folder), "describe", "--always", "--dirty", "--exclude=*"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or "no commit"


@dataclasses.dataclass(frozen=True)
class Row:
    """One measure on one capture."""

    measure: str
    form: str
    base: float
    new: float
    """CPU seconds."""
    note: str = ""

    def cells(self) -> list[str]:
        ratio = self.new / self.base
        digits = 3 if self.base < 1 else 2
        figures = [f"{seconds:.{digits}f}" for seconds in (self.base, self.new)]
        return [TITLES[self.measure], self.form, *figures, f"{ratio:.2f}", *self._target(ratio), self.note]

    def _target(self, ratio: float) -> list[str]:
        return against(round(ratio, 2), TARGETS[self.measure][self.form])


def checkout(name: str, python: str) -> Checkout:
    """Raises SystemExit where kafkasniff cannot be imported."""
    done = subprocess.run([python, "-P", str(WORK), "about"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: {python}: {done.stderr.strip()[-800:]}")
    printed = json.loads(done.stdout)
    # Without bytecode, where Python may not write it, each process compiles what it imports.
    compiling = [python, "-P", "-m", "compileall", "-qq", printed["folder"]]
    subprocess.run(compiling, stdout=subprocess.DEVNULL, check=False)
    return Checkout(name, python, Path(printed["folder"]), printed["kernel"])


class Bench:
    """Measures both checkouts in a folder of its own."""

    def __init__(self, checkouts: Sequence[Checkout], folder: Path, runs: int) -> None:
        self._checkouts = checkouts
        self._folder = folder
        self._run = folder / "run"
        self._runs = runs

    def row(self, measure: str, capture: Capture) -> Row:
        """Raises CommandFailedError."""
        makers: dict[str, Callable[[Capture], Row]] = {
            "json": self._json,
            "records": self._records,
            "bodies": self._bodies,
            "library": self._library,
            "start": self._start,
        }
        return makers[measure](capture)

    def _turns(
        self, command: Callable[[Checkout], list[str]], look: Callable[[Path], object], runs: int
    ) -> tuple[dict[str, list[Run]], dict[str, list[Any]]]:
        """All runs of both, and the result of `look` for the folder after each."""
        seen: dict[str, list[Any]] = {one.name: [] for one in self._checkouts}

        def note(name: str, folder: Path, number: int) -> None:
            del number
            seen[name].append(look(folder))

        commands = {one.name: command(one) for one in self._checkouts}
        return in_turn(commands, self._run, runs, note), seen

    def _row(self, measure: str, capture: Capture, runs: dict[str, list[Run]], note: str = "") -> Row:
        base, new = (min(run.cpu for run in runs[one.name]) for one in self._checkouts)
        return Row(measure, capture.form, base, new, note)

    def _json(self, capture: Capture) -> Row:
        words = ["decode", *DECODE["json"], "--quiet", "--jobs", "1", str(capture.path)]
        runs, digests = self._turns(lambda one: one.kafkasniff(*words), _digest, self._runs)
        same = len({digest for found in digests.values() for digest in found}) == 1
        return self._row("json", capture, runs, "same output" if same else "other output")

    def _records(self, capture: Capture) -> Row:
        output = self._run / "export"
        words = ["export", "--output", str(output), *EXPORT["records"], "--quiet", "--jobs", "1", str(capture.path)]
        runs, sizes = self._turns(lambda one: one.kafkasniff(*words), _parquet, self._runs)
        base, new = (sizes[one.name][-1] for one in self._checkouts)
        return self._row("records", capture, runs, f"{base / 1e6:.2f} MB before, {new / 1e6:.2f} MB now")

    def _bodies(self, capture: Capture) -> Row:
        path = self._folder / "bodies"
        count, share = write_bodies(capture.path, path)
        words = [str(WORK), "bodies", str(path)]
        _, printed = self._turns(lambda one: one.command(*words), _printed, 1)
        path.unlink()
        base, new = (min(one["seconds"] for one in printed[name.name]) for name in self._checkouts)
        skipped = " and ".join(f"{printed[one.name][0]['skipped']:,} ({one.name})" for one in self._checkouts)
        each = f"{1e6 * base / count:.2f} and {1e6 * new / count:.2f} µs each"
        note = f"{count:,} bodies, {share:.1%} equal to an earlier one; {each}; skipped: {skipped}"
        return Row("bodies", capture.form, base, new, note)

    def _library(self, capture: Capture) -> Row:
        words = [str(WORK), "read", str(capture.path)]
        runs, printed = self._turns(lambda one: one.command(*words), _printed, self._runs)
        base, new = (printed[one.name][0] for one in self._checkouts)
        same = "same messages and fields" if base == new else f"{base} before, {new} now"
        return self._row("library", capture, runs, f"{new['messages']:,} messages, {same}")

    def _start(self, capture: Capture) -> Row:
        words = ["decode", *DECODE["text"], "--quiet", "--count", "1", str(capture.path)]
        runs, _ = self._turns(lambda one: one.kafkasniff(*words), lambda _: None, max(START_RUNS, self._runs))
        return self._row("start", capture, runs)


def _digest(folder: Path) -> str:
    with (folder / "output").open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _parquet(folder: Path) -> int:
    """Bytes of all tables."""
    return sum(path.stat().st_size for path in (folder / "export").rglob("*.parquet"))


def _printed(folder: Path) -> Any:
    return json.loads((folder / "output").read_text())


def write_bodies(capture: Path, path: Path) -> tuple[int, float]:
    """Write the bodies of a capture for `checkout_work`; returns their number and `equal_share`."""
    bodies = bodies_of(capture)
    kinds = {kind: index for index, kind in enumerate(dict.fromkeys(body.kind for body in bodies))}
    whole, places = bytearray(), []
    for body in bodies:
        start = len(whole)
        whole += body.bytes()
        places.append((kinds[body.kind], start, len(whole)))
    wanted: Wanted = (bytes(whole), list(kinds), places)
    path.write_bytes(pickle.dumps(wanted))
    return len(bodies), equal_share(bodies)


def section(rows: Sequence[Row], machine: Sequence[str]) -> str:
    """Markdown."""
    head = ("work", "form", "base, s", "new, s", "ratio", "target", "met", "besides")
    parts = ["## The kernel's targets", "\n".join(f"- {line}" for line in machine), READING.strip()]
    return "\n\n".join([*parts, table(head, [row.cells() for row in rows])])


READING: Final = """
CPU seconds, the least of all runs; the two checkouts took turns on the same capture. All figures are of whole
processes, except *bodies alone*: these are decoded and rendered in one process that has them in memory, by Python where
the kernel does not read them. *Same output*: the JSON lines of both are equal to the byte. *Skipped*: bodies with more
to report (error codes, problems). kafkasniff decodes such messages again from the header on; that time is not in here.

The target of records is out of reach at this compression: writing Parquet and starting up take more than 0.55 of the
base (docs/performance.md, *Missed targets*).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; print the table or write it to the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.targets", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", required=True, metavar="PYTHON", help="Python of the environment of the base")
    parser.add_argument("--new", metavar="PYTHON", default=sys.executable, help="that of the other [this one]")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the captures [benchmarks/data]")
    parser.add_argument("--runs", type=int, default=3, help="[3]")
    parser.add_argument("--most-mb", type=_sizes, metavar="SIZES", help="only the first MB of captures: N, or FORM=N,…")
    parser.add_argument("--forms", help=f"by commas: {', '.join(FORMS)} [those that are there]")
    parser.add_argument("--work", help=f"by commas: {', '.join(TITLES)} [all]")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    options = parser.parse_args(arguments)
    forms = FORMS if options.forms is None else options.forms.split(",")
    work = list(TITLES) if options.work is None else options.work.split(",")
    if unknown := (set(forms) - set(FORMS)) | (set(work) - set(TITLES)):
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    most_mb: dict[str, int] = options.most_mb or {}
    if options.runs < 1:
        parser.error("numbers are positive")
    there = captures(options.data)
    if missing := [form for form in forms if form not in there]:
        parser.error(f"not in {options.data}: {', '.join(missing)}: run `python -m benchmarks.generate` first")
    checkouts = [checkout("base", options.base), checkout("new", options.new)]
    if checkouts[0].folder == checkouts[1].folder:
        parser.error(f"both import {checkouts[0].folder}")
    machine = [f"{today()}; load average at the start {load_average():.2f}", hardware()]
    for one in checkouts:
        machine.append(f"{one.name}: {one.revision()}, {'with' if one.has_kernel else 'without'} the native kernel")
    rows = []
    with tempfile.TemporaryDirectory(prefix="kafkasniff-targets-") as folder:
        bench = Bench(checkouts, Path(folder), options.runs)
        taken = {form: _beginning(there[form], most_mb.get(form), Path(folder)) for form in forms}
        sizes = ", ".join(f"{form} {one.path.stat().st_size / 1e6:.1f} MB" for form, one in taken.items())
        machine.append(f"captures: {sizes}; {options.runs} runs")
        for measure in work:
            for form in forms:
                if form in TARGETS[measure]:
                    rows.append(bench.row(measure, taken[form]))
                    print(" | ".join(rows[-1].cells()), file=sys.stderr, flush=True)
    text = section(rows, [*machine, f"Made by `{_command(options)}`"])
    if options.write:
        write_section(SECTION, text, PAGE)
        print(f"written: {PAGE}")
    else:
        print(text)
    return 0


def _sizes(text: str) -> dict[str, int]:
    """Megabytes by form; a number is for all."""
    given = dict.fromkeys(FORMS, text) if "=" not in text else dict(part.split("=", 1) for part in text.split(","))
    if not given.keys() <= set(FORMS) or not all(size.isdecimal() and int(size) for size in given.values()):
        raise argparse.ArgumentTypeError(f"{text}: N, or FORM=N,… with forms of {', '.join(FORMS)}")
    return {form: int(size) for form, size in given.items()}


def _beginning(capture: Capture, most_mb: int | None, folder: Path) -> Capture:
    """At most this much of a capture."""
    if most_mb is None or capture.path.stat().st_size <= most_mb * 1_000_000:
        return capture
    path = folder / f"{capture.form}.pcap"
    return capture._replace(path=path, packets=write_beginning(capture.path, path, most_mb * 1_000_000))


def _command(options: argparse.Namespace) -> str:
    """As it can be given again; the base's place is the reader's own."""
    words = ["python -m benchmarks.targets --base BASE/.venv/bin/python"]
    words += [f"--{name} {value}" for name in ("forms", "work") if (value := getattr(options, name)) is not None]
    if options.most_mb is not None:
        words.append("--most-mb " + ",".join(f"{form}={size}" for form, size in options.most_mb.items()))
    return " ".join([*words, f"--runs {options.runs}"])


if __name__ == "__main__":
    sys.exit(main())
