"""`kafkasniff report`: an HTML page about captures and exports."""

from __future__ import annotations

import gc
import os
from typing import Any, Final

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import reading_options, take_predicate
from kafkasniff.cli.options.shared_options import hosts_option, quiet_option, take_hosts, traceback_option
from kafkasniff.cli.running.sources import divide_sources, open_export
from kafkasniff.errors import MissingExtraError, UsageError
from kafkasniff.runtime.addresses import name_of
from kafkasniff.runtime.memory_limits import release_freed_memory

DEFAULT_PAGE: Final = "report.html"


@click.command("report", cls=SectionedCommand)
@click.argument("sources", nargs=-1, required=True, metavar="CAPTURE|DIR...")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help=f"Write the page to FILE; `-` is stdout. Default: {DEFAULT_PAGE}, unless that exists.",
)
@reading_options
@hosts_option
@traceback_option
@quiet_option
@click.pass_obj
def report_command(environment: Environment, /, sources: tuple[str, ...], **options: Any) -> int:
    """Write an HTML report of captures or exports (folders).

    The page needs no network and no other file. It shows an overview, findings, latencies and errors over time,
    topics, clients, groups, who connects as whom, and the messages of single connections. Several captures form one
    timeline, as in decode. Filters apply to captures only.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    predicate = take_predicate(options)
    captures, folders = divide_sources(environment, sources, filtered=predicate is not None)
    output, hosts = options.pop("output"), take_hosts(options)
    named = output is not None
    if not named:
        output = DEFAULT_PAGE
        if os.path.lexists(output):
            raise UsageError(f"{output} exists: to replace it, or to write to another file, use -o FILE")
    if output == "-" and environment.stdout_tty:
        raise UsageError("the report cannot be written to a terminal: name a file with -o")
    _need_parts()

    from kafkasniff.analysis.detectors.finding import Numbers
    from kafkasniff.cli.output import Output, WholeFile
    from kafkasniff.cli.running.sources import CountedCaptures, say_notes
    from kafkasniff.report.contents import Gathering
    from kafkasniff.report.page import page_of
    from kafkasniff.tables.rows.exchanges import capture_name

    exports = [open_export(folder, "the report needs") for folder in folders]
    file = None if output == "-" else WholeFile(output, inputs=captures)
    gathering = Gathering()
    numbers = Numbers()
    reading = CountedCaptures(
        environment,
        {**options, "no_records": False},
        predicate,
        quiet=quiet,
        events=numbers.feed,
    )
    for export in exports:
        gathering.read(export)
    if captures:
        reading.read(captures, gathering)
    # Findings and charts need much memory at once: the engine goes first, then the partial answers.
    _release()
    contents = gathering.contents(reading.names)
    del gathering
    _release()
    names = [capture_name(name_of(source)) or "" for source in sources]
    page = page_of(contents, names, broken=reading.broken, hosts=hosts, numbers=numbers)
    if file is not None:
        file.write(page)
        if not named and not quiet:
            environment.say(f"wrote {output}")
    else:
        with Output(environment) as stream:
            stream.write(page)
    if not quiet:
        say_notes(environment, contents.notes, contents.answer.visibility)
    return reading.exit_code(examined=contents.answer.exchanges.exchanges)


def _release() -> None:
    """Give back the memory of what is no longer needed: much of it refers to itself."""
    gc.collect()
    release_freed_memory()


def _need_parts() -> None:
    """Raise MissingExtraError if a library of the page is missing: before hours of reading, not after them."""
    from importlib.util import find_spec

    for module, package in (("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")):
        if find_spec(module) is None:
            raise MissingExtraError("report", package, "report")
