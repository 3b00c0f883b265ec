"""`kafkasniff decode`: captures to text or JSON lines."""

from __future__ import annotations

from typing import Any

import click

from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.options import (
    FilterOptions,
    OutputOptions,
    filter_options,
    framing_arguments,
    inspector_options,
    make_catalog,
    make_inspector,
    make_predicate,
    make_sink,
    output_options,
    reads_twice,
    records_wanted,
    split_options,
    topic_ids_option,
    verbosity_options,
)
from kafkasniff.errors import UsageError

__all__ = ["decode_command"]


@click.command("decode")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@output_options
@inspector_options
@filter_options
@click.option("--two-pass", is_flag=True, help="Read twice, so that names told later are known from the beginning.")
@topic_ids_option
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@verbosity_options
@click.pass_obj
def decode_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Decode captures: pcap or pcapng files, also compressed, in the order given; `-` reads stdin as it comes.

    Several files are one timeline: connections go on from one to the next.
    """
    environment.verbosity = options["verbose"]
    wanted, quiet = split_options(OutputOptions, options), options.pop("quiet")
    predicate = make_predicate(split_options(FilterOptions, options))
    limit, two_pass = options.pop("count"), options.pop("two_pass")
    if "-" in captures and environment.stdin_tty:
        raise UsageError("stdin is a terminal: pipe a capture into it")
    two_pass = reads_twice(two_pass, captures)
    catalog, framing = make_catalog(options), framing_arguments(options)
    inspector = make_inspector(options, records_wanted(wanted), exchanges=predicate is not None)

    from kafkasniff.capture import open_captures
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.pipeline import Pipeline, learn_names, summary_line
    from kafkasniff.cli.progress import Progress, wants_progress
    from kafkasniff.enrich import Enricher

    with open_captures(captures, stdin=environment.stdin) as source:
        with Output(environment, wanted.output, inputs=captures) as output:
            sink = make_sink(environment, output, wanted, captures=len(captures) > 1, names=inspector.names)
            to_terminal = output.is_stdout and environment.stdout_tty
            pipeline = Pipeline(
                environment,
                inspector,
                sink,
                enricher=Enricher(catalog, summary=inspector.summary),
                predicate=predicate,
                limit=limit,
                # Someone may be waiting: at a pipe's other end, or at the terminal.
                flush=sink.flush if "-" in captures or to_terminal else None,
            )
            shows = wants_progress(environment, to_terminal=to_terminal, quiet=quiet)
            try:
                if two_pass:
                    learn_names(environment, catalog, captures, framing, progress=shows)
                pipeline.run(source, Progress(environment, source) if shows else None)
                pipeline.close()
            except Interrupted:
                # What was decoded is whole lines; it goes out before the end is told.
                sink.close()
                if not quiet:
                    environment.say(f"interrupted: {summary_line(inspector.summary)}")
                raise
        if not quiet:
            selected = predicate is not None or limit is not None
            environment.say(summary_line(inspector.summary, pipeline.shown if selected else None))
        return Exit.BROKEN if source.broken else Exit.OK
