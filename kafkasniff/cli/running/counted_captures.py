"""Reads the captures of a command line into a consumer of rows (`exports.staging`)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.options.option_groups import framing_arguments, key_arguments, make_catalog, reads_twice
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkasniff.analysis.visibility import VisibleTraffic
    from kafkasniff.engine.inspector import Output
    from kafkasniff.engine.pair_columns import PairColumns
    from kafkasniff.engine.wanted_bodies import WantedBodies
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate
    from kafkasniff.model import Summary
    from kafkasniff.tables.exports.options import ExportOptions
    from kafkasniff.tables.rows.resolve import LearnedNames

__all__ = ["CountedCaptures", "Taker", "Together", "say_notes"]

_TABLES: Final = ("exchanges", "records", "connections", "transport", "problems")


class Taker(Protocol):
    """Consumer of rows: an `Overview`, or several consumers."""

    def has(self, table: str) -> None:
        """There is such a table, though it may have no rows."""

    def update(self, batch: pa.RecordBatch, table: str = ...) -> None:
        """Take rows of a table."""

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
        for taker in self._takers:
            taker.update(batch, table)

    @property
    def bodies(self) -> WantedBodies:
        """The bodies that any of them needs."""
        return functools.reduce(operator.or_, (taker.bodies for taker in self._takers))


class CountedCaptures:
    """Passes the rows of captures to an overview or another taker.

    `options` are those of framing and topic ids, and `no_records`; `tables`: the tables needed; `events` also receives
    the inspector's events and the exchanges that are columns.
    """

    def __init__(
        self,
        environment: Environment,
        options: Mapping[str, Any],
        predicate: Predicate | None,
        *,
        quiet: bool,
        tables: tuple[str, ...] = _TABLES,
        events: Callable[[Sequence[Output | PairColumns]], object] | None = None,
    ) -> None:
        self._environment = environment
        self._options = dict(options)
        self._predicate = predicate
        self._quiet = quiet
        self._tables = tables
        self._events = events
        self.names: LearnedNames | None = None
        """Names learned from the captures, after reading."""
        self.summary: Summary | None = None
        """The summary of the run, after reading."""
        self.exchanges = 0
        """Exchanges passed on, if their rows are needed."""
        self.broken = False
        self._captures: tuple[str, ...] = ()
        self._catalog: Catalog | None = None
        self.interrupt: Interrupted | None = None
        """What interrupted the reading."""

    def read(self, captures: tuple[str, ...], overview: Taker) -> None:
        """Read all captures, or until a signal; `overview` takes the rows. Raises CaptureError, UsageError."""
        from kafkasniff.capture import open_captures
        from kafkasniff.cli.running.pipeline import shown_parts
        from kafkasniff.cli.running.progress import Progress, wants_progress
        from kafkasniff.tables.exports.staging import CountedRows

        environment, predicate = self._environment, self._predicate
        options, shows = self._export_options(), wants_progress(environment, to_terminal=False, quiet=self._quiet)
        self._captures, self._catalog = captures, make_catalog(self._options)
        catalog = self._catalog
        if self._names_first(captures):
            from kafkasniff.cli.running.pipeline import learn_names
            from kafkasniff.enrich.learned_facts import LearnedFacts

            # The second reading does not report these facts again.
            catalog.learned_facts = LearnedFacts()
            arguments = {**framing_arguments(self._options), **key_arguments(self._options)}
            arguments["memory"] = self._options["memory"]
            learn_names(environment, catalog, captures, arguments, progress=shows)

        def take(batch: pa.RecordBatch, table: str) -> None:
            if table == "exchanges":
                self.exchanges += batch.num_rows
            overview.update(batch, table)

        rows = CountedRows(
            options,
            take,
            catalog=catalog,
            bodies=overview.bodies,
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

    def end(self) -> None:
        """The answer is written: re-raise the interrupt that ended the reading. Raises Interrupted."""
        if self.interrupt is not None:
            if not self._quiet:
                self._environment.say("interrupted: the result covers only what was read")
            raise self.interrupt

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
            tables = tuple(one for one in tables if one != "records")
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
    from kafkasniff.analysis.detectors.visible_wording import undecoded_line

    for note in (*notes, *map(undecoded_line, visible.unmeasured)):
        environment.say(note)
