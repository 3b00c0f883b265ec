"""`kafkasniff decode`: captures to text or JSON lines."""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.hosts_option import hosts_option, take_hosts
from kafkasniff.cli.line_making import begin_lines, lines_are_made
from kafkasniff.cli.options import (
    FilterOptions,
    OutputOptions,
    filter_options,
    framing_arguments,
    inspector_arguments,
    inspector_options,
    key_arguments,
    make_catalog,
    make_predicate,
    make_renderer,
    make_selector,
    make_sink,
    output_options,
    reads_twice,
    records_wanted,
    split_options,
    topic_ids_option,
    verbosity_options,
)
from kafkasniff.cli.payload_options import payload_options, take_payload
from kafkasniff.cli.sources import take_captures
from kafkasniff.cli.usual_jobs import usual_jobs
from kafkasniff.cli.write_matching import (
    Selected,
    check_writing,
    write_matching_option,
    write_selected,
    written_line,
)

if TYPE_CHECKING:
    from kafkasniff.capture import CaptureSource
    from kafkasniff.capture.read_ahead import ReadAhead
    from kafkasniff.cli.jobs import Jobs
    from kafkasniff.cli.pipeline import LineSink, Sink
    from kafkasniff.lines_ahead import LinesAhead

__all__ = ["decode_command"]

SWITCH_SECONDS: Final = 0.0005
"""How long a thread waits for the interpreter's lock before it is asked for: calls of the kernel take about as long."""


@click.command("decode")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@output_options
@inspector_options
@payload_options
@filter_options
@click.option(
    "--two-pass", is_flag=True, help="Read the captures twice, so that names learned late apply from the start."
)
@topic_ids_option
@hosts_option
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Threads where the native kernel writes all lines, else processes; the output is the same. stdin and pipes "
    "are read by one. [default: 1 where the kernel writes lines, else by size and cores]",
)
@write_matching_option
@verbosity_options
@click.pass_obj
def decode_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Decode pcap and pcapng files, also compressed, or folders of them; `-` reads stdin as data arrives.

    Several files form one timeline: connections continue from one file to the next.
    """
    environment.verbosity = options["verbose"]
    captures = take_captures(environment, captures)
    payload = take_payload(options)
    wanted, quiet = split_options(OutputOptions, options), options.pop("quiet")
    filters = split_options(FilterOptions, options)
    predicate = make_predicate(filters)
    limit, two_pass, jobs = options.pop("count"), options.pop("two_pass"), options.pop("jobs")
    writing = options.pop("write_matching")
    if writing is not None:
        check_writing(writing, captures, payload)
        jobs = 1
    if jobs is None:
        # One thread takes the least CPU time where the kernel writes the lines.
        jobs = 1 if lines_are_made(wanted, payload, predicate, limited=limit is not None) else usual_jobs(captures)
    is_threaded = (
        jobs > 1
        and predicate is None
        and reads_twice(None, captures)
        and lines_are_made(wanted, payload, None, limited=limit is not None)
    )
    two_pass = reads_twice(two_pass, captures)
    hosts = take_hosts(options)
    catalog, framing = make_catalog(options), framing_arguments(options)
    frames = dict(framing)
    framing["memory"] = options["memory"]
    # Read once more only where `--connection` selects nothing.
    explains = bool(filters.connection) and not quiet and reads_twice(None, captures)
    again = {**framing, **key_arguments(options)} if explains else {}
    if two_pass:
        framing |= key_arguments(options)
    arguments = inspector_arguments(options, records_wanted(wanted, predicate), exchanges=predicate is not None)

    from kafkasniff.capture import open_captures
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.pipeline import Pipeline, learn_names, summary_line
    from kafkasniff.cli.progress import Progress, wants_progress
    from kafkasniff.enrich import Enricher
    from kafkasniff.inspector import Inspector

    if predicate is None and writing is None:
        arguments["renderer"] = make_renderer(wanted, payload)
    # Which connections are written is told at their ends.
    inspector = Inspector(**arguments, connections=writing is not None)
    with open_captures(captures, stdin=environment.stdin) as opened, ExitStack() as threads:
        source: CaptureSource | ReadAhead = opened
        with Output(environment, wanted.output, inputs=captures) as output:
            names: Mapping[str, str] = inspector.names
            if hosts is not None:
                names = ChainMap(dict(hosts.names), inspector.names)
            sink = make_sink(environment, output, wanted, captures=len(captures) > 1, names=names, payload=payload)
            to_terminal = output.is_stdout and environment.stdout_tty
            # Someone may be waiting: at a pipe's other end, or at the terminal.
            flush = sink.flush if "-" in captures or to_terminal else None
            run: Pipeline | Jobs
            selected: Selected | None = None
            target: Sink = sink
            if writing is not None:
                selected = target = Selected(None if quiet and wanted.output is None else sink, limit)
            if not is_threaded and _is_shared(jobs, captures):
                from kafkasniff.cli.jobs import Jobs

                run = Jobs(
                    environment,
                    jobs,
                    arguments,
                    sink,
                    output,
                    catalog=catalog,
                    summary=inspector.summary,
                    names=inspector.names,
                    predicate=predicate,
                    limit=limit,
                    flush=flush,
                )
            else:
                enricher = Enricher(catalog, summary=inspector.summary)
                selector = make_selector(predicate)
                lines: LineSink | None = None
                ahead: LinesAhead | None = None
                if is_threaded:
                    ahead, source = _threads(threads, jobs, wanted, opened)
                if writing is None and begin_lines(
                    inspector,
                    sink,
                    enricher,
                    wanted,
                    payload,
                    renderer=arguments.get("renderer"),
                    captures=len(captures) > 1,
                    terminal=to_terminal,
                    filtered=None if predicate is None or selector is None else (predicate, selector),
                    limited=limit is not None,
                    ahead=ahead,
                ):
                    lines = sink
                run = Pipeline(
                    environment,
                    inspector,
                    target,
                    enricher=enricher,
                    selector=selector,
                    limit=None if selected else limit,
                    flush=flush,
                    ended=selected.ended if selected else None,
                    lines=lines,
                )
            shows = wants_progress(environment, to_terminal=to_terminal, quiet=quiet)
            try:
                if two_pass:
                    learn_names(environment, catalog, captures, framing, progress=shows)
                run.run(source, Progress(environment, source) if shows else None)
                run.close()
            except Interrupted:
                # What was decoded is whole lines; it goes out before the end is told.
                sink.close()
                if not quiet:
                    environment.say(f"interrupted: {summary_line(inspector.summary)}")
                raise
        told = ""
        if writing is not None and selected is not None:
            written = write_selected(
                environment,
                writing,
                captures,
                selected,
                frames,
                catalog=catalog,
                secrets=arguments["show_secrets"],
                payload=not payload.hides,
                memory=inspector.memory,
                progress=shows,
            )
            told = f"{written_line(environment, written, writing)}: "
        if not quiet:
            shown = None if predicate is None and limit is None else run.shown if selected is None else selected.shown
            environment.say(told + summary_line(inspector.summary, shown))
            if explains and not shown:
                from kafkasniff.cli.connection_note import connection_notes

                seen = inspector.summary.connections
                for note in connection_notes(environment, filters.connection, captures, again, seen):
                    environment.say(note)
        return Exit.BROKEN if run.is_broken(source) else Exit.OK


def _threads(
    within: ExitStack, jobs: int, wanted: OutputOptions, source: CaptureSource
) -> tuple[LinesAhead, ReadAhead]:
    """Threads that read captures and make lines ahead, as many as there are jobs besides this one."""
    from kafkasniff.capture.read_ahead import ReadAhead
    from kafkasniff.lines_ahead import LinesAhead
    from kafkasniff.threads import Threads

    before = sys.getswitchinterval()
    within.callback(sys.setswitchinterval, before)
    sys.setswitchinterval(SWITCH_SECONDS)
    reading, feeding = (within.enter_context(Threads(1, name)) for name in ("reading", "feeding"))
    # Of text each line depends on those before it.
    lines = within.enter_context(Threads(jobs - 1 if wanted.form == "json" else 0, "lines"))
    return LinesAhead(lines, feeding), ReadAhead(source, reading)


def _is_shared(jobs: int, captures: tuple[str, ...]) -> bool:
    """Whether several processes decode: not where packets come by and by, since each waits for the others' lines."""
    if jobs == 1 or not reads_twice(None, captures):
        return False
    from kafkasniff.processes import can_fork

    return can_fork()
