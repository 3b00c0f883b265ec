"""Captures and exports of a command line: found, and read as rows.

Rows of captures are passed to a consumer as they are read, or exported into a temporary folder that is then queried.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.options.option_groups import (
    TABLES,
    decoding_arguments,
    framing_arguments,
    key_arguments,
    make_catalog,
    reads_twice,
)
from kafkasniff.cli.options.record_options import say_problems
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of
from kafkasniff.runtime.export_manifest import is_export
from kafkasniff.text.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkasniff.analysis import Question
    from kafkasniff.analysis.accumulator import TableReading
    from kafkasniff.analysis.export import Export
    from kafkasniff.analysis.visibility import VisibleTraffic
    from kafkasniff.cli.output import Progress
    from kafkasniff.engine.message_table import Output, PairColumns
    from kafkasniff.engine.roles import WantedBodies
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate
    from kafkasniff.model import Summary
    from kafkasniff.tables.exports.options import ExportOptions
    from kafkasniff.tables.rows.decoded_values import DecodedValues
    from kafkasniff.tables.rows.resolve import LearnedNames


# What CAPTURE|DIR… names: captures, folders of captures, and exports.

MAX_NAMED: Final = 3
"""Arguments of a command that are named in the heading of its output; more are counted."""


class Sources(NamedTuple):
    """The sources, each kind in the order given."""

    captures: tuple[str, ...]
    """Files and `-`; files of a folder are sorted by name."""
    folders: tuple[str, ...]
    """Exports."""

    def heading(self, named: Sequence[str]) -> str:
        """The sources for the heading of a text: the arguments, or how many files they are; JSON has all names."""
        if len(named) <= MAX_NAMED:
            return ", ".join(printable(one) for one in named)
        counts = (len(self.captures), "capture"), (len(self.folders), "export")
        return " and ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)

    def capture_arguments(self, named: Sequence[str]) -> list[str]:
        """The arguments that name captures, for the text of another command; a placeholder for many."""
        found = [name_of(one) for one in named if one not in self.folders]
        return found if len(found) <= MAX_NAMED else ["CAPTURE..."]


def divide_sources(environment: Environment, named: Sequence[str], *, filtered: bool) -> Sources:
    """Separate captures from exports. Raises UsageError if a capture is a terminal, or if an export is to be filtered.

    Raises CaptureError if a folder is neither an export nor contains captures.
    """
    folders = tuple(one for one in named if is_export(one))
    if filtered and folders:
        raise UsageError(f"filters are for captures; {name_of(folders[0])} is an export: filter when exporting")
    return Sources(tuple(_captures(environment, [one for one in named if one not in folders])), folders)


def take_captures(environment: Environment, named: Sequence[str], *, by_name: bool = False) -> tuple[str, ...]:
    """The captures, for a command that takes no exports; `by_name` as in `with_folders`.

    Raises UsageError and CaptureError.
    """
    for one in named:
        if is_export(one):
            raise UsageError(f"{name_of(one)} is an export, not a capture: `kafkasniff stats {name_of(one)}` reads it")
    return tuple(_captures(environment, named, by_name=by_name))


def open_export(folder: str, purpose: str) -> Export:
    """An export that has exchanges; `purpose` ends the error: who needs them. Raises CaptureError, UsageError."""
    from kafkasniff.analysis.export import Export

    export = Export.open(folder)
    if "exchanges" not in export.tables:
        raise UsageError(f"{export.name} has no table exchanges, which {purpose}")
    return export


def _captures(environment: Environment, named: Sequence[str], *, by_name: bool = False) -> list[str]:
    if "-" in named and environment.stdin_tty:
        raise UsageError("stdin is a terminal: pipe a capture into it")
    from kafkasniff.capture.timeline.locations import with_folders

    return with_folders(named, by_name=by_name)


JOB_BYTES: Final = 64 << 20
"""Bytes of captures per process: starting one costs what it saves on some ten megabytes."""
MAX_USUAL_JOBS: Final = 8
"""Each process reads all captures and takes memory of its own."""


def usual_jobs(captures: Sequence[str]) -> int:
    """Number of processes for these captures; 1 if the size of one of them is unknown."""
    total = 0
    for capture in captures:
        try:
            status = os.stat(capture)
        except OSError:
            return 1  # opening it reports the error
        if not stat.S_ISREG(status.st_mode):
            return 1
        total += status.st_size
    return max(1, min(_cores(), total // JOB_BYTES, MAX_USUAL_JOBS))


def _cores() -> int:
    """Cores available to this process; a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Questions and queries about captures: these are exported into a temporary folder, which is then read.
#
# So the answer equals that for an export, however late names are learned, and memory does not grow with the captures.
# Only the tables that are needed are written, and bodies are decoded only if they are needed.

_BODIES: Final = frozenset({"request_body", "response_body"})


def columns_of(questions: Iterable[Question[Any]]) -> dict[str, list[str]]:
    """The tables that questions read, and their columns."""
    found: dict[str, list[str]] = {}
    for question in questions:
        for table, reading in question.reads().items():
            found.setdefault(table, []).extend(reading.columns)
    return found


@contextlib.contextmanager
def exported(
    environment: Environment,
    captures: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    options: dict[str, Any],
    predicate: Predicate | None,
    *,
    quiet: bool,
    jobs: int | None = None,
    values: DecodedValues | None = None,
) -> Iterator[tuple[str, bool]]:
    """A temporary export of the tables with the needed `columns`, and whether a capture is broken.

    `options` are those of framing and topic ids; `predicate` selects exchanges; `jobs`: processes, None: by size;
    `values`: decodes keys and values. Raises CaptureError, OutputError, UsageError.
    """
    from kafkasniff.cli.output import Progress, wants_progress
    from kafkasniff.cli.running.pipeline import learn_names, summary_line
    from kafkasniff.filters import needs_records, needs_topic_names
    from kafkasniff.tables.exports.options import ExportOptions
    from kafkasniff.tables.exports.run import export
    from kafkasniff.tables.exports.shard import Hooks

    arguments = framing_arguments(options)
    # Filters on records look at those in bodies.
    records = predicate is not None and needs_records(predicate)
    wanted = ExportOptions(
        tables=tuple(dict.fromkeys([*columns, *(["exchanges"] if records else [])])),
        bodies=records or not _BODIES.isdisjoint(columns.get("exchanges", ())),
        records=records,
        ports=tuple(sorted(set(arguments.pop("ports")))),
        **arguments,
    )
    key_arguments(options)  # report an unreadable file before anything is written
    names_first = predicate is not None and needs_topic_names(predicate) and reads_twice(None, tuple(captures))
    given = make_catalog(options).given
    shown: list[Progress] = []
    shows = wants_progress(environment, to_terminal=False, quiet=quiet)

    def part() -> None:
        for progress in shown:
            progress.update()

    def learn(catalog: Catalog, paths: Sequence[str]) -> None:
        known = decoding_arguments(options)
        learn_names(environment, catalog, paths, known, progress=shows)

    hooks = Hooks(
        opened=(lambda source: shown.append(Progress(environment, source))) if shows else None,
        part=part,
        stdin=environment.stdin,
    )
    with tempfile.TemporaryDirectory(prefix="kafkasniff-") as folder:
        place = Path(folder) / "tables"
        try:
            result = export(
                captures,
                place,
                wanted,
                given=given,
                jobs=usual_jobs(captures) if jobs is None else jobs,
                hooks=hooks,
                predicate=predicate,
                learn=learn if names_first else None,
                keylog=options["keylog"],
                memory=options["memory"],
                values=values,
                columns=columns.get("exchanges", ()),
            )
        finally:
            for progress in shown:
                progress.clear()
        say_problems(environment, values)
        if not quiet:
            environment.say(summary_line(result.summary))
        yield str(place), result.broken


# Rows of the captures of a command line, passed to a consumer (`exports.counted`).


class Taker(Protocol):
    """Consumer of rows: an `Overview`, or several consumers."""

    def has(self, table: str) -> None:
        """There is such a table, though it may have no rows."""

    def update(self, batch: pa.RecordBatch, table: str = ...) -> None:
        """Take rows of a table."""

    def reads(self) -> Mapping[str, TableReading]:
        """The tables, and the columns that are needed of them."""

    @property
    def bodies(self) -> WantedBodies:
        """The bodies that are needed as JSON."""


class Together:
    """Passes the same rows to several consumers."""

    def __init__(self, *takers: Taker) -> None:
        self._takers = takers

    def has(self, table: str) -> None:
        """There is such a table."""
        for taker in self._takers:
            taker.has(table)

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Take rows of a table."""
        from kafkasniff.analysis.columns import for_readers

        rows = for_readers(batch)
        for taker in self._takers:
            taker.update(rows, table)

    def reads(self) -> Mapping[str, TableReading]:
        """The tables and columns that any of them needs."""
        from kafkasniff.analysis.accumulator import united

        return united(*(taker.reads() for taker in self._takers))

    @property
    def bodies(self) -> WantedBodies:
        """The bodies that any of them needs."""
        return functools.reduce(operator.or_, (taker.bodies for taker in self._takers))


class CaptureRun:
    """How a command reads captures: what it needs for that, how it ended, and the exit code that follows.

    `options` are those of framing and topic ids.
    """

    def __init__(
        self, environment: Environment, options: Mapping[str, Any], predicate: Predicate | None, *, quiet: bool
    ) -> None:
        self._environment = environment
        self._options = dict(options)
        self._predicate = predicate
        self._quiet = quiet
        self._captures: tuple[str, ...] = ()
        self._catalog: Catalog | None = None
        self.summary: Summary | None = None
        """The summary of the run, after reading."""
        self.broken = False
        self.interrupt: Interrupted | None = None
        """What interrupted the reading."""

    def exit_code(self, *, examined: object, failed: bool = False) -> Exit:
        """The exit code once the answer is written; `examined`: it is about something; `failed`: it has findings.

        Raises Interrupted if a signal ended the reading.
        """
        if self.interrupt is not None:
            if not self._quiet:
                self._environment.say("interrupted: the result covers only what was read")
            raise self.interrupt
        if failed:
            return Exit.FINDINGS
        if self.broken:
            return Exit.BROKEN
        return Exit.OK if examined else self.say_nothing()

    def say_nothing(self, source: str | None = None) -> Exit:
        """Say what the captures hold instead of what was asked for, as `nothing_selected`. Returns the exit code."""
        from kafkasniff.cli.running.nothing_selected import say_nothing

        return say_nothing(
            self._environment,
            self._captures,
            self._options,
            self._predicate,
            quiet=self._quiet,
            summary=self.summary,
            catalog=self._catalog,
            source=source,
        )


class CountedCaptures(CaptureRun):
    """Passes the rows of captures to an overview or another taker.

    `options` may have `no_records`; `tables`: the tables needed; `events` also receives the inspector's events and the
    exchanges that are columns.
    """

    def __init__(
        self,
        environment: Environment,
        options: Mapping[str, Any],
        predicate: Predicate | None,
        *,
        quiet: bool,
        tables: tuple[str, ...] = TABLES,
        events: Callable[[Sequence[Output | PairColumns]], object] | None = None,
    ) -> None:
        super().__init__(environment, options, predicate, quiet=quiet)
        self._tables = tables
        self._events = events
        self.names: LearnedNames | None = None
        """Names learned from the captures, after reading."""
        self.exchanges = 0
        """Exchanges passed on, if their rows are needed."""

    def read(self, captures: tuple[str, ...], overview: Taker) -> None:
        """Read all captures, or until a signal; `overview` takes the rows. Raises CaptureError, UsageError."""
        from kafkasniff.capture import open_captures
        from kafkasniff.cli.output import Progress, wants_progress
        from kafkasniff.cli.running.pipeline import shown_parts
        from kafkasniff.tables.exports.staging import CountedRows

        environment, predicate = self._environment, self._predicate
        options, shows = self._export_options(), wants_progress(environment, to_terminal=False, quiet=self._quiet)
        self._captures, self._catalog = captures, make_catalog(self._options)
        catalog = self._catalog
        if self._names_first(captures):
            from kafkasniff.cli.running.pipeline import learn_names
            from kafkasniff.enrich.catalog import LearnedFacts

            # The second reading does not report these facts again.
            catalog.learned_facts = LearnedFacts()
            learn_names(environment, catalog, captures, decoding_arguments(self._options), progress=shows)

        def take(batch: pa.RecordBatch, table: str) -> None:
            if table == "exchanges":
                self.exchanges += batch.num_rows
            overview.update(batch, table)

        rows = CountedRows(
            options,
            take,
            catalog=catalog,
            bodies=overview.bodies,
            columns=reading.columns if (reading := overview.reads().get("exchanges")) is not None else (),
            predicate=predicate,
            keys=key_arguments(self._options).get("keys"),
            events=self._events,
            memory=self._options["memory"],
        )
        for table in options.tables:
            overview.has(table)
        with open_captures(captures, stdin=environment.stdin) as source:
            try:
                for part in shown_parts(source, Progress(environment, source) if shows else None):
                    with environment.interrupts.held():
                        rows.feed(part)
            except Interrupted as interrupt:
                self.interrupt = interrupt
            self.broken = source.broken and self.interrupt is None
        self.names = rows.end()
        self.summary = rows.summary

    def _export_options(self) -> ExportOptions:
        from kafkasniff.tables.exports.options import ExportOptions

        asks = False
        if self._predicate is not None:
            from kafkasniff.filters import needs_records

            asks = needs_records(self._predicate)
        tables = self._tables
        if self._options.get("no_records"):
            if asks:
                raise UsageError("--filter refers to records, which --no-records skips")
            tables = tuple(table for table in tables if table != "records")
        arguments = framing_arguments(self._options)
        # Filters on records look at those in bodies.
        return ExportOptions(tables=tables, records=asks, ports=tuple(sorted(set(arguments.pop("ports")))), **arguments)

    def _names_first(self, captures: tuple[str, ...]) -> bool:
        """A filter on topics needs their names when it is evaluated; otherwise names are added at the end."""
        if self._predicate is None:
            return False
        from kafkasniff.filters import needs_topic_names

        return needs_topic_names(self._predicate) and reads_twice(None, captures)


def say_notes(environment: Environment, notes: Iterable[str], visible: VisibleTraffic) -> None:
    """Write notes on an answer on stderr, and a line for each kind of traffic that could not be decoded."""
    from kafkasniff.analysis.detectors.undecoded import undecoded_line

    for note in (*notes, *map(undecoded_line, visible.unmeasured)):
        environment.say(note)
