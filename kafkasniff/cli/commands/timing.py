"""`kafkasniff timing`: where the time of exchanges was spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Interrupted
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import (
    framing_arguments,
    key_arguments,
    make_catalog,
    make_predicate,
    reading_options,
    reads_twice,
    take_filters,
)
from kafkasniff.cli.options.shared_options import (
    format_option,
    hosts_option,
    output_option,
    presentation_options,
    take_hosts,
    wide_option,
)
from kafkasniff.cli.running.sources import CaptureRun, divide_sources, open_export
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.render.timing_text import TimingAnswer
    from kafkasniff.engine.message_table import PairColumns
    from kafkasniff.enrich.hosts import Hosts
    from kafkasniff.filters import Predicate
    from kafkasniff.timing import Timed

SLOWEST: Final = 5
"""Exchanges listed in the text, without --slowest."""
MAX_SLOWEST: Final = 1000
BY: Final = ("api", "version", "broker", "client", "address", "topic", "connection")


@click.command("timing", cls=SectionedCommand)
@click.argument("sources", nargs=-1, required=True, metavar="CAPTURE|DIR...")
@click.option(
    "--by", multiple=True, metavar="WHAT", help=f"Break down by {', '.join(BY)} (repeatable, comma lists) [api]."
)
@click.option("--each", is_flag=True, help="Show each exchange; implied by --exchange N.")
@click.option(
    "--slowest", type=click.IntRange(0, MAX_SLOWEST), default=SLOWEST, metavar="N", help="List the N slowest exchanges."
)
@click.option(
    "--request-log",
    "logs",
    multiple=True,
    metavar="FILE",
    help="Add the broker's own times from its request log of the same traffic (repeatable).",
)
@format_option("JSON")
@output_option
@reading_options
@hosts_option
@wide_option
@presentation_options
@click.pass_obj
def timing_command(environment: Environment, /, sources: tuple[str, ...], **options: Any) -> int:
    """Show where time went: client, network, broker, throttling, and waits that requests ask for.

    Shows totals, or one exchange with --exchange N (numbers as in decode). Exports (folders) hold less detail than
    captures. Filters apply to captures only.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    filters = take_filters(options)
    predicate = make_predicate(filters)
    each = options.pop("each") or bool(filters.exchange)
    divided = divide_sources(environment, sources, filtered=predicate is not None)
    captures, folders = divided
    sources = tuple(map(name_of, sources))
    if folders and each:
        raise UsageError(f"--each is for captures, and {folders[0]} is a folder")
    by, hosts = _dimensions(options.pop("by")), take_hosts(options)
    logs = options.pop("logs")
    if logs and (each or predicate is not None):
        raise UsageError("--request-log adds times of all exchanges: filters and --each do not apply")
    form, output, colour, slowest = (options.pop(name) for name in ("form", "output", "color", "slowest"))

    from kafkasniff.analysis.timing import Timing, TimingParameters
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.render.timing_text import TimingAnswer

    timing = Timing(TimingParameters(by=by))
    answer = TimingAnswer(timing, slowest=slowest)
    with Output(environment, output, inputs=captures) as stream:
        for folder in folders:
            answer.exports += 1
            answer.no_bodies += not _read_export(answer, folder)
        reading = _Captures(environment, answer, options, predicate, quiet=quiet)
        page = _TimingOutput(stream, form, colour, wide=options["wide"], hosts=hosts)
        for path in logs:
            _read_log(answer, path)
        if captures:
            reading.read(captures, page.each if each else None)
        if not each:
            page.whole(answer, sources, divided.heading(sources), broken=reading.broken)
    if not quiet:
        for note in answer.notes():
            environment.say(note)
    return reading.exit_code(examined=page.shown or timing.parts["counts"].table().num_rows)


def _dimensions(given: Iterable[str]) -> Any:
    """The values of --by. Raises UsageError."""
    names = [word.strip() for one in given for word in one.split(",") if word.strip()] or ["api"]
    for name in names:
        if name not in BY:
            raise UsageError(f"--by: {name!r} is not one of {', '.join(BY)}")
    return tuple(dict.fromkeys(names))


def _read_log(answer: TimingAnswer, path: str) -> None:
    """Take the broker's times of a request log, and not its exchanges. Raises CaptureError, UsageError."""
    from kafkasniff.capture import open_captures

    before = sum(sums[0] for sums in answer.logged.values())
    with open_captures([path]) as source:
        for part in source:
            answer.take_notes(part.notes)
    if sum(sums[0] for sums in answer.logged.values()) == before:
        raise UsageError(f"--request-log: {path} has no exchanges of a request log")
    answer.joined = True


def _read_export(answer: TimingAnswer, folder: str) -> bool:
    """Read the rows of an export; returns whether they have bodies. Raises CaptureError, UsageError."""
    from kafkasniff.analysis.columns import column

    export = open_export(folder, "timing needs")
    has_bodies = rows = False
    for table, reading in answer.timing.reads().items():
        for batch in export.batches(table, reading):
            bodies = column(batch, "request_body")
            rows = rows or bool(len(bodies))
            has_bodies = has_bodies or bodies.null_count < len(bodies)
            answer.timing.update(batch, table)
    for table, reading in answer.encrypted.reads().items():
        for batch in export.batches(table, reading):
            answer.encrypted.update(batch, table)
    return has_bodies or not rows


class _TimingOutput:
    """The output, as text or JSON."""

    def __init__(self, stream: Output, form: str, colour: str, *, wide: bool, hosts: Hosts | None) -> None:
        self._stream = stream
        self._hosts = hosts
        self._json = form == "json"
        self._coloured = stream.coloured(colour)
        self._width = stream.width(wide=wide)
        self.shown = 0
        """Number of exchanges written individually."""

    def each(self, timed: Timed) -> None:
        """Write one exchange."""
        from kafkasniff.cli.render.waterfall import exchange_object, waterfall

        if self._json:
            self._stream.write_json(exchange_object(timed))
        else:
            text = waterfall(timed, self._width, coloured=self._coloured)
            text = text if self._hosts is None else self._hosts.shown(text)
            self._stream.write_text(("\n" if self.shown else "") + text)
        self.shown += 1

    def whole(self, answer: TimingAnswer, sources: tuple[str, ...], heading: str, *, broken: bool) -> None:
        """Write the aggregate; `heading`: the sources as text."""
        if self._json:
            from kafkasniff.cli.render.answer_json import head

            self._stream.write_json({**head(sources, broken=broken), **answer.json()})
            return
        from kafkasniff.cli.render.timing_text import timing_text

        text = timing_text(answer, heading, width=self._width, coloured=self._coloured, hosts=self._hosts)
        self._stream.write_text(text)


class _Captures(CaptureRun):
    """Measures the exchanges of captures."""

    def __init__(
        self,
        environment: Environment,
        answer: TimingAnswer,
        options: dict[str, Any],
        predicate: Predicate | None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(environment, options, predicate, quiet=quiet)
        self._answer = answer

    def read(self, captures: tuple[str, ...], each: Any) -> None:
        """Read all captures, or until a signal; `each`: receives each exchange. Raises CaptureError, UsageError."""
        from kafkasniff.capture import open_captures
        from kafkasniff.cli.output import Progress, wants_progress
        from kafkasniff.cli.running.pipeline import learn_names, shown_parts
        from kafkasniff.engine.inspector import Inspector
        from kafkasniff.enrich import Enricher
        from kafkasniff.filters import Selector, needs_records, needs_topic_names
        from kafkasniff.model import Connection, Exchange, Problem
        from kafkasniff.native.library import kernel
        from kafkasniff.sinks.native_lines import AddedNames
        from kafkasniff.tables.rows.exchange_columns import ExchangeFinder
        from kafkasniff.timing import ExchangeTimes

        environment, predicate = self._environment, self._predicate
        shows = wants_progress(environment, to_terminal=False, quiet=self._quiet)
        self._captures = captures
        catalog = self._catalog = make_catalog(self._options)
        framing, keys = framing_arguments(self._options), key_arguments(self._options)
        framing["memory"] = self._options["memory"]
        by_name = self._answer.by_topic or (predicate is not None and needs_topic_names(predicate))
        if by_name and reads_twice(None, captures):
            learn_names(environment, catalog, captures, {**framing, **keys}, progress=shows)
            keys = key_arguments(self._options)
        records = "full" if predicate is not None and needs_records(predicate) else "batches"
        inspector = Inspector(records=records, connections=True, network="exchanges", **framing, **keys)  # type: ignore[arg-type]
        self.summary = inspector.summary
        by_topic, one_by_one = self._answer.by_topic, predicate is not None or each is not None
        enricher = Enricher(catalog, sessions=by_topic or one_by_one)
        finder: ExchangeFinder | None = None
        if not one_by_one:
            # Topics are counted at once, so their names are needed.
            names = None if by_topic else AddedNames(enricher)
            finder = ExchangeFinder(kernel(), names=names, unnamed=not by_topic)
        selector = Selector(predicate)
        times = ExchangeTimes(inspector, self._answer.timing.dimensions.reads)
        enricher.limit_memory(inspector.memory)
        inspector.count_beside(enricher)
        chosen: set[int] = set()

        def take(events: list[Any]) -> None:
            enricher.feed(events)
            for event in events:
                if isinstance(event, Problem) and event.kind == "memory-bound":
                    self._answer.loss = self._answer.loss or event.detail
            times.take(events)
            if predicate is None:
                self._answer.take_connections(connection for connection in events if isinstance(connection, Connection))
            if predicate is not None:
                chosen.update(exchange.exchange for exchange in selector.feed(events) if isinstance(exchange, Exchange))

        def count(columns: Sequence[PairColumns] = ()) -> None:
            timed = times.finish(columns)
            if timed is None:
                return
            if predicate is not None:
                timed = timed.only(chosen)
                chosen.clear()
            if each is None:
                self._answer.take(timed)
            else:
                for row in range(len(timed)):
                    each(timed.one(row))

        with open_captures(captures, stdin=environment.stdin) as source:
            try:
                for part in shown_parts(source, Progress(environment, source) if shows else None):
                    if predicate is None:
                        self._answer.take_notes(part.notes)
                    with environment.interrupts.held():
                        if selector.start_ns is None:
                            selector.start_ns = _first_time(part)
                        for events, columns in inspector.feed_columns(part, finder):
                            take(events)
                            # Exchanges of a part are counted together, in the order in which they ended.
                            if each is not None or not events:
                                count(columns)
            except Interrupted as interrupt:
                self.interrupt = interrupt
            self.broken = source.broken and self.interrupt is None
        for events in inspector.close_slices():
            if times.is_full:
                count()
            take(events)
        count()
        self._answer.close(catalog)


def _first_time(batch: Any) -> int | None:
    from kafkasniff.model import NO_TIME

    times = batch.time_ns[batch.time_ns != NO_TIME]
    return int(times[0]) if len(times) else None
