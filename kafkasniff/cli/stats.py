"""`kafkasniff stats`: what is in captures and exports, on one screen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.options import (
    FilterOptions,
    filter_options,
    framing_arguments,
    framing_options,
    key_arguments,
    make_catalog,
    make_predicate,
    reads_twice,
    split_options,
    topic_ids_option,
)
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.analysis.overview import Answer, Overview
    from kafkasniff.filters import Predicate
    from kafkasniff.rows.resolve import Names

__all__ = ["stats_command"]

TOP: Final = 10
"""Rows of each list on the screen."""
FILE_WIDTH: Final = 120
"""Columns of a file."""
MIN_WIDTH: Final = 60
MAX_WIDTH: Final = 160

_TIMES: Final = ("first", "last")


@click.command("stats")
@click.argument("sources", nargs=-1, required=True, metavar="CAPTURE|DIR...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="A screen, or one object.")
@click.option("-o", "--output", metavar="FILE", help="Write there, not to stdout.")
@click.option("--top", type=click.IntRange(1), metavar="N", help=f"Rows of each list [default: {TOP}; with json, all].")
@click.option("--no-records", is_flag=True, help="Leave records alone: faster, but without their sizes.")
@framing_options
@filter_options
@topic_ids_option
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours in text.")
@click.option("-v", "--verbose", count=True, help="Say where an internal error is.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
@click.pass_obj
def stats_command(environment: Environment, /, sources: tuple[str, ...], **options: Any) -> int:
    """Say what is in captures, or in exports (folders): brokers, clients, APIs, topics, groups, errors, problems.

    Several captures are one timeline, as for decode. Filters are for captures.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    filters = split_options(FilterOptions, options)
    predicate = make_predicate(filters)
    folders = [one for one in sources if one != "-" and os.path.isdir(one)]
    captures = tuple(one for one in sources if one not in folders)
    if predicate is not None and folders:
        raise UsageError(f"filters are for captures, and {folders[0]} is a folder: filter when it is exported")
    if "-" in captures and environment.stdin_tty:
        raise UsageError("stdin is a terminal: pipe a capture into it")
    form, top = options.pop("form"), options.pop("top")
    output, colour = options.pop("output"), options.pop("color")

    from kafkasniff.analysis.overview import Overview
    from kafkasniff.cli.output import Output

    overview = Overview()
    if options["no_records"]:
        overview.has("records")  # nobody misses it
    with Output(environment, output, inputs=captures) as stream:
        reading = _Captures(environment, overview, options, predicate, quiet=quiet)
        for folder in folders:
            _read_export(overview, folder, records=not options["no_records"])
        if captures:
            reading.read(captures)
        answer = overview.answer(names=reading.names, **_rows(form, top))
        terminal = stream.is_stdout and environment.stdout_tty
        if form == "json":
            stream.write(_json(answer, sources, broken=reading.broken, terminal=terminal))
        else:
            from kafkasniff.cli.stats_text import stats_text

            width = min(max(environment.width, MIN_WIDTH), MAX_WIDTH) if stream.is_stdout else FILE_WIDTH
            coloured = environment.colour(colour, to_stdout=stream.is_stdout)
            text = stats_text(answer, sources, width=width, coloured=coloured)
            stream.write(text.encode(environment.encoding if stream.is_stdout else "utf-8", "replace"))
        if not quiet:
            for note in answer.notes:
                environment.say(note)
    if reading.interrupt is not None:
        if not quiet:
            environment.say("interrupted: this is what was read until then")
        raise reading.interrupt
    return Exit.BROKEN if reading.broken else Exit.OK


def _rows(form: str, top: int | None) -> dict[str, int]:
    """The argument `top` of `Overview.answer`: JSON has all that there are, within that one's bound."""
    if top is None:
        return {} if form == "json" else {"top": TOP}
    return {"top": top}


def _read_export(overview: Overview, folder: str, *, records: bool) -> None:
    """Give an overview the rows of an export. Raises CaptureError, UsageError."""
    from kafkasniff.analysis.export import Export

    export = Export.open(folder)
    if "exchanges" not in export.tables:
        raise UsageError(f"{folder} has no table exchanges, which stats are made of")
    for table, reading in overview.reads().items():
        # Of keys that are missing there are no sizes, and of hashes wrong ones.
        if table in export.tables and (table != "records" or (records and export.has_payload)):
            overview.has(table)
            for batch in export.batches(table, reading):
                overview.update(batch, table)


class _Captures:
    """Gives an overview the rows of captures."""

    def __init__(
        self,
        environment: Environment,
        overview: Overview,
        options: Mapping[str, Any],
        predicate: Predicate | None,
        *,
        quiet: bool,
    ) -> None:
        self._environment = environment
        self._overview = overview
        self._options = dict(options)
        self._predicate = predicate
        self._quiet = quiet
        self.names: Names | None = None
        """What they told, when they are read."""
        self.broken = False
        self.interrupt: Interrupted | None = None
        """What ended the reading early."""

    def read(self, captures: tuple[str, ...]) -> None:
        """Read them all, or until a signal comes. Raises CaptureError, UsageError."""
        from kafkasniff.capture import open_captures
        from kafkasniff.cli.pipeline import Parts
        from kafkasniff.cli.progress import Progress, wants_progress
        from kafkasniff.exports.counted import CountedRows

        environment, overview, predicate = self._environment, self._overview, self._predicate
        options, shows = self._export_options(), wants_progress(environment, to_terminal=False, quiet=self._quiet)
        catalog = make_catalog(self._options)
        if self._names_first(captures):
            from kafkasniff.cli.pipeline import learn_names

            arguments = {**framing_arguments(self._options), **key_arguments(self._options)}
            learn_names(environment, catalog, captures, arguments, progress=shows)
        rows = CountedRows(
            options,
            overview.update,
            catalog=catalog,
            wants_body=overview.wants_body,
            predicate=predicate,
            keys=key_arguments(self._options).get("keys"),
        )
        for table in options.tables:
            overview.has(table)
        with open_captures(captures, stdin=environment.stdin) as source:
            progress = Progress(environment, source) if shows else None
            parts = Parts()
            try:
                for batch in source:
                    for part in parts.of(batch):
                        with environment.interrupts.held():
                            rows.feed(part)
                        if progress is not None:
                            progress.update()
            except Interrupted as interrupt:
                self.interrupt = interrupt
            finally:
                if progress is not None:
                    progress.clear()
            self.broken = source.broken and self.interrupt is None
        self.names = rows.end()

    def _export_options(self) -> Any:
        from kafkasniff.exports.options import ExportOptions

        asks = False
        if self._predicate is not None:
            from kafkasniff.filters import needs_records

            asks = needs_records(self._predicate)
        tables: tuple[str, ...] = ("exchanges", "records", "connections", "problems")
        if self._options["no_records"]:
            if asks:
                raise UsageError("--filter asks about records, which --no-records leaves out")
            tables = tuple(one for one in tables if one != "records")
        arguments = framing_arguments(self._options)
        # What a filter asks of records it asks of those in bodies.
        return ExportOptions(tables=tables, records=asks, ports=tuple(sorted(set(arguments.pop("ports")))), **arguments)

    def _names_first(self, captures: tuple[str, ...]) -> bool:
        """What names a topic has to be known when a filter asks for it; else names are put in at the end."""
        if self._predicate is None:
            return False
        from kafkasniff.filters import needs_topic_names

        return needs_topic_names(self._predicate) and reads_twice(None, captures)


def _json(answer: Answer, sources: Sequence[str], *, broken: bool, terminal: bool) -> bytes:
    import msgspec
    import orjson

    from kafkasniff.rows.exchanges import capture_name
    from kafkasniff.sinks.printable import visible_json

    told = {"sources": [capture_name(one) for one in sources], "broken": broken, **msgspec.to_builtins(answer)}
    data = orjson.dumps(_with_times(told), option=orjson.OPT_APPEND_NEWLINE)
    return visible_json(data) if terminal else data


def _with_times(value: Any) -> Any:
    """The same with times as RFC 3339."""
    from kafkasniff.sinks.times import rfc3339

    if isinstance(value, dict):
        return {name: rfc3339(one) if name in _TIMES else _with_times(one) for name, one in value.items()}
    return [_with_times(one) for one in value] if isinstance(value, list) else value
