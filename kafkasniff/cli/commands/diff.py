"""`kafkasniff diff`: compares two captures or exports, such as before and after a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import reading_options, take_predicate
from kafkasniff.cli.options.shared_options import (
    format_option,
    hosts_option,
    output_option,
    presentation_options,
    take_hosts,
    wide_option,
)
from kafkasniff.cli.running.sources import divide_sources, open_export
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkasniff.analysis.accumulator import TableReading
    from kafkasniff.analysis.comparison.answer import ComparisonAnswer
    from kafkasniff.analysis.comparison.side import Side
    from kafkasniff.cli.running.sources import CountedCaptures
    from kafkasniff.engine.roles import WantedBodies
    from kafkasniff.filters import Predicate

TOP: Final = 20
"""Rows per list on the screen."""


@click.command("diff", cls=SectionedCommand)
@click.argument("before", metavar="CAPTURE|DIR")
@click.argument("after", metavar="CAPTURE|DIR")
@format_option()
@output_option
@click.option(
    "--only",
    multiple=True,
    metavar="LIST",
    help="Compare only these lists: versions, rates, latency, sizes, errors, topics, batching, clients, brokers "
    "(repeatable, comma lists).",
)
@click.option(
    "--min-change",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="Report numbers that change by at least this much.",
)
@click.option(
    "--min-count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Report entries that only one side has if they occur at least N times.",
)
@click.option(
    "--significance",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    metavar="P",
    help="Accepted probability of a false difference, per list.",
)
@click.option("--all", "everything", is_flag=True, help="Also show what did not change (json always does).")
@click.option("--top", type=click.IntRange(1), metavar="N", help=f"Rows per list [default: {TOP}; with json, all].")
@reading_options
@hosts_option
@wide_option
@presentation_options
@click.pass_obj
def diff_command(environment: Environment, /, before: str, after: str, **options: Any) -> int:
    """Compare two captures or exports (folders), such as before and after a change.

    Reports differences that are statistically significant and large enough to matter: versions, rates, latencies,
    sizes, errors, topics, batching, clients and brokers. The exit code is 1 if there are any. Filters apply to captures
    only.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    predicate = take_predicate(options)
    both = [divide_sources(environment, (source,), filtered=predicate is not None) for source in (before, after)]
    if before == after == "-":
        raise UsageError("stdin can be read only once: name one capture")
    sections, hosts = _sections(options.pop("only")), take_hosts(options)

    from kafkasniff.analysis.comparison.compare import compare
    from kafkasniff.analysis.comparison.inference import Thresholds
    from kafkasniff.cli.output import Output

    thresholds = Thresholds(
        min_change=options["min_change"] / 100,
        significance=options["significance"],
        min_count=options["min_count"],
    )
    captures = [capture for sources in both for capture in sources.captures]
    with Output(environment, options["output"], inputs=captures) as output:
        sides = [
            _read(environment, source, sources.captures, options, predicate, quiet=quiet)
            for source, sources in zip((before, after), both, strict=True)
        ]
        names = (name_of(before), name_of(after))
        answer = compare(
            sides[0].side,
            sides[1].side,
            thresholds,
            [name for name in sections if all(name in one.known for one in sides)],
            [note for one in sides for note in one.notes(sections)],
        )
        broken = any(one.broken for one in sides)
        if options["form"] == "json":
            output.write_json(_json(answer, names, thresholds, options["top"], broken=broken))
        else:
            from kafkasniff.cli.render.diff_text import diff_text

            text = diff_text(
                answer,
                names,
                top=options["top"] or TOP,
                everything=options["everything"],
                hosts=hosts,
                width=output.width(wide=options["wide"]),
                coloured=output.coloured(options["color"]),
            )
            output.write_text(text)
    if not quiet:
        for note in answer.notes:
            environment.say(note)
    if any(answer.differences.values()):
        code = Exit.FINDINGS
    else:
        code = Exit.BROKEN if broken else Exit.OK
    # Two sides without exchanges have no differences, and are not the same for that.
    for one, name in zip(sides, names, strict=True):
        if not (one.side.exchanges or one.broken):
            code = one.reading.say_nothing(name)
    return code


def _sections(given: Sequence[str]) -> tuple[str, ...]:
    """The lists of --only, in their order; all lists without it. Raises UsageError."""
    from kafkasniff.analysis.comparison.answer import SECTIONS

    wanted = [name.strip() for one in given for name in one.split(",")]
    for name in wanted:
        if name not in SECTIONS:
            raise UsageError(f"--only: no list is called {name!r}; the lists are {', '.join(SECTIONS)}")
    return tuple(name for name in SECTIONS if not wanted or name in wanted)


class _Read:
    """One side, read."""

    def __init__(self, side: Side, source: str, reading: CountedCaptures, *, bodies: bool = True) -> None:
        self.side = side
        self.reading = reading
        self.broken = reading.broken
        self._source = source
        self._bodies = bodies

    @property
    def known(self) -> tuple[str, ...]:
        """Lists that can be compared."""
        from kafkasniff.analysis.comparison.answer import SECTIONS
        from kafkasniff.analysis.comparison.compare import OF_BODIES

        return SECTIONS if self._bodies else tuple(name for name in SECTIONS if name not in OF_BODIES)

    def notes(self, sections: Sequence[str]) -> list[str]:
        """Notes on lists that were requested and cannot be compared."""
        unknown = [name for name in sections if name not in self.known]
        if not unknown:
            return []
        return [f"not compared: {', '.join(unknown)}: {self._source} was exported with headers alone (--no-bodies)"]


def _read(
    environment: Environment,
    source: str,
    captures: tuple[str, ...],
    options: dict[str, Any],
    predicate: Predicate | None,
    *,
    quiet: bool,
) -> _Read:
    """Read one side: captures, or else the export `source`. Raises CaptureError, UsageError."""
    from kafkasniff.analysis.comparison.side import Side
    from kafkasniff.cli.running.sources import CountedCaptures

    side = Side()
    reading = CountedCaptures(environment, options, predicate, quiet=quiet, tables=("exchanges",))
    if not captures:
        export = open_export(source, "diff compares")
        for batch in export.batches("exchanges", side.reads()):
            side.update(batch)
        return _Read(side, export.name, reading, bodies=export.has_bodies)
    reading.read(captures, _SideFeed(side))
    if reading.interrupt is not None:
        # Half a side would differ in everything: no result.
        raise reading.interrupt
    side.names = reading.names
    return _Read(side, name_of(source), reading)


class _SideFeed:
    """Passes rows of captures to a side."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def has(self, table: str) -> None:
        """Everything compared comes from one table."""

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        """Add rows."""
        self._side.update(batch, table)

    def reads(self) -> Mapping[str, TableReading]:
        """The columns that are compared."""
        return {"exchanges": self._side.reads()}

    @property
    def bodies(self) -> WantedBodies:
        """Bodies are not needed."""
        from kafkasniff.engine.roles import NO_BODY

        return NO_BODY


def _json(
    answer: ComparisonAnswer, sources: Sequence[str], thresholds: Any, top: int | None, *, broken: bool
) -> dict[str, Any]:
    from kafkasniff.cli.render.answer_json import answer_object
    from kafkasniff.tables.rows.exchanges import capture_name

    result: dict[str, Any] = answer_object(answer)
    for name, source in zip(("before", "after"), sources, strict=True):
        result[name] = {"source": capture_name(source), **result[name]}
    if top is not None:
        result = {
            key: value[:top] if isinstance(value, list) and key != "notes" else value for key, value in result.items()
        }
    return {"broken": broken, **answer_object(thresholds), **result}
