"""`kafkasniff decode`: captures to text, JSON lines or CSV."""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import (
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
    make_settings,
    output_options,
    reads_twice,
    records_wanted,
    take_filters,
    take_output,
    topic_ids_option,
    verbosity_options,
)
from kafkasniff.cli.options.record_options import (
    make_values,
    payload_options,
    registry_options,
    take_payload,
    take_schemas,
    with_records,
)
from kafkasniff.cli.options.shared_options import check_writing, hosts_option, take_hosts, write_matching_option
from kafkasniff.cli.running.sources import take_captures
from kafkasniff.errors import UsageError
from kafkasniff.model import Exchange, Message
from kafkasniff.redact.payload import SHOWN

if TYPE_CHECKING:
    from kafkasniff.capture import CaptureSource
    from kafkasniff.capture.timeline.source import ReadAhead
    from kafkasniff.cli.running.pipeline import Ordered
    from kafkasniff.cli.running.write_matching import Discarded, Selected, SelectedConnections
    from kafkasniff.engine.lines_ahead import LinesAhead
    from kafkasniff.sinks.lines import FormatSink, OrderedSink

SWITCH_SECONDS: Final = 0.0005
"""How long a thread waits for the interpreter's lock before it is asked for: calls of the kernel take about as long."""


@click.command("decode", cls=SectionedCommand)
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
@registry_options
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    metavar="N",
    help="Use N threads; the output is the same. More than two help only JSON lines without filters; pipes always use "
    "one. [default: 1]",
)
@write_matching_option
@verbosity_options
@click.pass_obj
def decode_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Decode pcap and pcapng files, also compressed, or folders of them; `-` reads stdin as data arrives.

    Log segments of brokers, and logs of brokers and clients (kafka-request.log), are read like captures.

    Several files form one timeline: connections continue from one file to the next.
    """
    environment.verbosity = options["verbose"]
    captures = take_captures(environment, captures)
    payload = take_payload(options)
    schemas = take_schemas(options, environment.environ)
    wanted, quiet = with_records(take_output(options), schemas), options.pop("quiet")
    filters = take_filters(options)
    predicate = make_predicate(filters)
    limit, two_pass, jobs = options.pop("count"), options.pop("two_pass"), options.pop("jobs")
    writing = options.pop("write_matching")
    if writing is not None:
        check_writing(writing, captures, payload)
        if wanted.fields:
            raise UsageError("--fields cannot be combined with --write-matching")
    # With a limit, messages that are not shown any more still select their connections.
    has_lines = writing is None or limit is None
    shows = writing is None or not quiet or wanted.output is not None
    in_lines = payload
    if has_lines and not shows:
        # Nobody sees the lines: the fastest form, and the payload in which the kernel writes most of them.
        wanted, in_lines = OutputOptions("csv"), SHOWN
    # Packets from a pipe arrive slowly, and their lines should be printed at once.
    has_threads = jobs > 1 and writing is None and reads_twice(None, captures)
    two_pass = reads_twice(two_pass, captures)
    hosts = take_hosts(options)
    catalog, framing = make_catalog(options), framing_arguments(options)
    frames = dict(framing)
    framed = {name: options[name] for name in ("ports", "max_frame", "keylog", "memory")}
    framing["memory"] = options["memory"]
    # Read once more only where `--connection` selects nothing.
    explains = bool(filters.connection) and reads_twice(None, captures)
    explaining = {**framing, **key_arguments(options)} if explains else {}
    if two_pass:
        framing |= key_arguments(options)
    records = records_wanted(wanted, predicate)
    arguments = inspector_arguments(options, records, exchanges=predicate is not None or bool(wanted.fields))

    from kafkasniff.capture import open_captures
    from kafkasniff.cli.output import Output, Progress, wants_progress
    from kafkasniff.cli.running.pipeline import Pipeline, begin_lines, learn_names, summary_line
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.enrich import Enricher

    if predicate is None and has_lines and (schemas is None or records != "full"):
        arguments["renderer"] = make_renderer(wanted, in_lines)
    inspector = Inspector(**arguments, frames=bool(wanted.hex))
    values = make_values(schemas, records, predicate, payload, inspector.summary)
    with open_captures(captures, stdin=environment.stdin) as opened, ExitStack() as threads:
        source: CaptureSource | ReadAhead = opened
        with Output(environment, wanted.output, inputs=captures) as output:
            names: Mapping[str, str] = inspector.names
            if hosts is not None:
                names = ChainMap(dict(hosts.names), inspector.names)
            several = len(captures) > 1
            settings = make_settings(
                environment,
                output,
                wanted,
                captures=several,
                names=names,
                payload=in_lines,
                secrets=arguments["show_secrets"],
            )
            open_sink, to_terminal = wanted.format.open, settings.terminal
            ordered: Ordered | None = None
            connections: SelectedConnections | None = None
            selected: Selected | None = None
            target: Output | Discarded = output
            lines: OrderedSink | FormatSink
            late: OrderedSink | None = None
            if writing is not None:
                from kafkasniff.cli.running.write_matching import Discarded, Selected, SelectedConnections

                target = output if shows else Discarded()
                connections = SelectedConnections(every=predicate is None)
                inspector.report_ends(connections.ended)
            if (predicate is None and has_lines) or wanted.fields:
                lines = sink = open_sink(target, settings)
            else:
                from kafkasniff.sinks.lines import OrderedSink

                lines = ordered = late = OrderedSink(open_sink(target, settings), limit)
                sink = late.inner
                if connections is not None:
                    selected = ordered = Selected(late, limit, connections)
            # Someone may be waiting: at a pipe's other end, or at the terminal.
            flush = lines.flush if "-" in captures or to_terminal else None
            enricher = Enricher(catalog, summary=inspector.summary)
            selector = make_selector(predicate, holds=not wanted.fields)
            ahead: LinesAhead | None = None
            if has_threads:
                source = _read_ahead(threads, opened)
                # Packets that are taken ahead count, though a limited run may not come to them.
                if limit is None:
                    # In text each line depends on those before it. With a filter, messages are selected when reported.
                    count = jobs - 1 if wanted.format.lines_ahead and predicate is None else 0
                    ahead = _lines_ahead(threads, count)
            run = Pipeline(
                environment,
                inspector,
                lines if ordered is None else ordered,
                enricher=enricher,
                selector=selector,
                limit=None if selected is not None else limit,
                counts=Exchange if wanted.fields else Message,
                flush=flush,
                ordered=ordered,
                values=values,
            )
            if (
                has_lines
                and values is None
                and not wanted.fields
                and begin_lines(
                    inspector,
                    sink,
                    enricher,
                    wanted,
                    settings,
                    renderer=arguments.get("renderer"),
                    filtered=None if predicate is None or selector is None else (predicate, selector),
                    left=None if limit is None else run.left,
                    ahead=ahead,
                )
            ):
                run.lines = lines if selected is None else selected
                if selected is not None and connections is not None:
                    inspector.report_selected(connections.add)
            progress = wants_progress(environment, to_terminal=to_terminal, quiet=quiet)
            try:
                if two_pass:
                    learn_names(environment, catalog, captures, framing, progress=progress)
                run.run(source, Progress(environment, source) if progress else None)
                run.close()
            except Interrupted:
                # The decoded lines are complete; write them before reporting the interruption.
                lines.close()
                if not quiet:
                    environment.say(f"interrupted: {summary_line(inspector.summary)}")
                raise
        prefix = ""
        if writing is not None and connections is not None:
            from kafkasniff.cli.running.write_matching import write_selected, written_line

            written = write_selected(
                environment,
                writing,
                captures,
                connections,
                frames,
                catalog=catalog,
                secrets=arguments["show_secrets"],
                payload=not payload.hides,
                memory=inspector.memory,
                progress=progress,
            )
            prefix = f"{written_line(environment, written, writing)}: "
        if not quiet:
            shown = None if predicate is None and limit is None else run.shown if selected is None else selected.shown
            environment.say(prefix + summary_line(inspector.summary, shown, "exchanges " if wanted.fields else ""))
            if late is not None and late.late:
                environment.say(
                    f"{late.late:,} requests are shown with their responses: too many lines waited for them"
                )
            if late is not None and late.dropped:
                environment.say(f"{late.dropped:,} requests are not shown: too many of them waited for their responses")
        if source.broken:
            return Exit.BROKEN
        # Without a filter, problems show what the captures hold.
        if run.shown or run.tokens or (predicate is None and inspector.summary.problems):
            return Exit.OK
        if explains:
            from kafkasniff.cli.render.captured_numbers import connection_notes

            seen = inspector.summary.connections
            notes = connection_notes(environment, filters.connection, captures, explaining, seen)
            environment.say("; ".join(notes))
            return Exit.NOTHING
        from kafkasniff.cli.running.nothing_selected import say_nothing

        return say_nothing(
            environment,
            captures,
            framed,
            predicate,
            quiet=quiet,
            summary=inspector.summary,
            catalog=catalog,
        )


def _read_ahead(within: ExitStack, source: CaptureSource) -> ReadAhead:
    """Have a thread read captures ahead."""
    from kafkasniff.capture.timeline.source import ReadAhead
    from kafkasniff.runtime.threads import Threads

    within.callback(sys.setswitchinterval, sys.getswitchinterval())
    sys.setswitchinterval(SWITCH_SECONDS)
    return ReadAhead(source, within.enter_context(Threads(1, "reading")))


def _lines_ahead(within: ExitStack, count: int) -> LinesAhead:
    """Threads that follow connections and make lines."""
    from kafkasniff.engine.lines_ahead import LinesAhead
    from kafkasniff.runtime.threads import Threads

    return LinesAhead(*(within.enter_context(Threads(*one)) for one in ((count, "lines"), (1, "following"))))
