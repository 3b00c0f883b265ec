"""The comparisons of `benchmarks.compare`: which commands run in turn, over which captures, with which measurements."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from benchmarks.generate import Capture
from benchmarks.measures import BESIDE, KAFKASNIFF, Requests, Shown, ours, requests_of, theirs
from benchmarks.pcap_files import write_beginning
from benchmarks.processes import measure
from benchmarks.timing import Run, in_turn

VERSIONS: Final = ("A", "A-new", "B", "B-new", "Bx", "Bx-new", "C", "C-new")
"""Forms that everything is measured on."""

LINES_ONLY: Final = ("B-ipv6", "C-deep", "E", "mixed")
PCAPNG: Final = ("A", "C")
SHARED: Final = ("A", "B", "C")
"""Forms that `--jobs` and the export of all tables are measured on."""

FLAT: Final = ("A", "B", "Bx", "C")
"""Forms of which half is measured, too."""

GROUPS: Final = ("lines", "fields", "ek", "tables", "pcapng", "memory", "jobs", "start")
LIMIT_S: Final = 3600
"""Seconds after which the run with `--jobs` whose memory is watched is given up."""


class Settings(msgspec.Struct, frozen=True):
    """Settings besides the captures that figures depend on."""

    runs: int = 5
    start_runs: int = 15
    ek_mb: int = 48
    """Size of each capture for comparisons with `-T ek`, for which tshark takes minutes."""
    jobs_mb: int = 1000
    """Size of each capture for `--jobs`."""


QUICK: Final = Settings(runs=1, start_runs=2, ek_mb=1, jobs_mb=1)


class Comparison(msgspec.Struct):
    """Commands that were run in turn over one capture."""

    group: str
    form: str
    bytes: int
    packets: int
    whole: bool
    """Not only the beginning of the capture."""
    runs: dict[str, list[Run]]
    """By command: `tshark`, or what it is of ours."""
    requests: Requests | None = None
    same: bool | None = None
    """Whether all runs wrote the same bytes, where they should."""
    peaks: dict[str, int] = {}
    """Highest sum of the memory of all processes in a run of its own, by command (PSS, sampled)."""


class Task(NamedTuple):
    """A comparison that can be made."""

    group: str
    form: str
    make: Callable[[], Comparison]


def plan(captures: Mapping[str, Capture], data: Path, settings: Settings) -> Iterator[Task]:
    """All comparisons that the captures allow, in the order of the page."""
    work = Bench(data, settings)
    shown: Shown
    for form in (*VERSIONS, *LINES_ONLY):
        for shown in BESIDE:
            if form in captures and (shown == "lines" or form not in LINES_ONLY):
                yield Task(shown, form, partial(work.beside_tshark, captures[form], shown))
    for form in SHARED:
        if form in captures:
            yield Task("tables", form, partial(work.tables, captures[form]))
    for form in PCAPNG:
        if form in captures and f"{form}-pcapng" in captures:
            yield Task("pcapng", form, partial(work.formats, captures[form], captures[f"{form}-pcapng"]))
    for form in FLAT:
        if form in captures:
            yield Task("memory", form, partial(work.halves, captures[form]))
    for form in SHARED:
        if form in captures:
            yield Task("jobs", form, partial(work.shared, captures[form]))
    if "start" in captures:
        yield Task("start", "start", partial(work.start, captures["start"]))


class Bench:
    """Makes comparisons in a folder: what commands write is in `data/run`, beginnings of captures in `data/parts`."""

    def __init__(self, data: Path, settings: Settings) -> None:
        self._folder = data / "run"
        self._parts = data / "parts"
        self._settings = settings

    def beside_tshark(self, capture: Capture, shown: Shown) -> Comparison:
        """Our commands that are comparable to one call of tshark."""
        part = self._beginning(capture, self._settings.ek_mb * 1_000_000) if shown == "ek" else capture
        commands: dict[str, list[str]] = {name: ours(part.path, name, self._folder) for name in BESIDE[shown]}
        commands["tshark"] = theirs(part.path, shown, part.ports)
        requests = requests_of(part.path, part.ports, self._folder)
        runs = in_turn(commands, self._folder, self._settings.runs)
        return self._comparison(shown, part, runs, whole=part is capture, requests=requests)

    def tables(self, capture: Capture) -> Comparison:
        """Everything in a capture, as Parquet."""
        commands = {"tables": ours(capture.path, "tables", self._folder)}
        return self._comparison("tables", capture, in_turn(commands, self._folder, self._settings.runs))

    def formats(self, capture: Capture, pcapng: Capture) -> Comparison:
        """The same packets in both formats of capture files."""
        commands = {"pcap": ours(capture.path, "text"), "pcapng": ours(pcapng.path, "text")}
        return self._comparison("pcapng", capture, in_turn(commands, self._folder, self._settings.runs))

    def halves(self, capture: Capture) -> Comparison:
        """Memory on half a capture and on all of it, for everything that is compared with tshark."""
        half = self._beginning(capture, capture.path.stat().st_size // 2)
        commands = {}
        for names in BESIDE.values():
            for name in names:
                commands[f"{name}, half"] = ours(half.path, name, self._folder)
                commands[name] = ours(capture.path, name, self._folder)
        # Time does not matter here.
        runs = in_turn(commands, self._folder, 1, warm=False)
        return self._comparison("memory", capture, runs)

    def shared(self, capture: Capture) -> Comparison:
        """One process and two, to JSON lines; their output is compared."""
        part = self._beginning(capture, self._settings.jobs_mb * 1_000_000)
        commands = {f"--jobs {jobs}": ours(part.path, "json", jobs=jobs) for jobs in (1, 2)}
        written: set[bytes] = set()

        def digest(name: str, folder: Path, number: int) -> None:
            del name, number
            with (folder / "output").open("rb") as file:
                written.add(hashlib.file_digest(file, "blake2b").digest())

        runs = in_turn(commands, self._folder, self._settings.runs, digest)
        peaks = {}
        for name, command in commands.items():
            # A run of its own: sampling memory slows the sampled process.
            self._folder.mkdir(parents=True)
            try:
                peaks[name] = measure(command, self._folder, limit_s=LIMIT_S).peak
            finally:
                shutil.rmtree(self._folder)
        made = self._comparison("jobs", part, runs, whole=part is capture)
        made.same, made.peaks = len(written) == 1, peaks
        return made

    def start(self, capture: Capture) -> Comparison:
        """Whole processes that do next to nothing."""
        commands = {
            "--version": [*KAFKASNIFF, "--version"],
            "--help": [*KAFKASNIFF, "--help"],
            "first line": [*ours(capture.path, "text"), "--count", "1"],
            "all lines, tshark": theirs(capture.path, "lines", capture.ports),
        }
        return self._comparison("start", capture, in_turn(commands, self._folder, self._settings.start_runs))

    def _beginning(self, capture: Capture, size: int) -> Capture:
        """At most this many bytes of a capture; the capture itself if it is not larger."""
        if capture.path.stat().st_size <= size:
            return capture
        self._parts.mkdir(parents=True, exist_ok=True)
        path = self._parts / f"{capture.form}-{size}.pcap"
        # Cheap compared with the runs, so always made anew: the capture may have changed.
        return capture._replace(path=path, packets=write_beginning(capture.path, path, size))

    def _comparison(
        self,
        group: str,
        capture: Capture,
        runs: dict[str, list[Run]],
        *,
        whole: bool = True,
        requests: Requests | None = None,
    ) -> Comparison:
        return Comparison(group, capture.form, capture.path.stat().st_size, capture.packets, whole, runs, requests)
