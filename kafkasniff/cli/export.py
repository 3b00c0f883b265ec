"""`kafkasniff export`: captures to Parquet tables."""

from __future__ import annotations

from typing import Any

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options import (
    FilterOptions,
    filter_options,
    inspector_options,
    make_inspector,
    make_predicate,
    split_options,
    verbosity_options,
)

__all__ = ["export_command"]


@click.command("export")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@click.option("-o", "--output", required=True, metavar="DIR", help="The folder for the tables; holds no export yet.")
@click.option("--records/--no-records", default=True, help="Records in the bodies, or only their batches.")
@click.option("--no-bodies", is_flag=True, help="Leave the columns request_body and response_body null.")
@inspector_options
@filter_options
@verbosity_options
@click.pass_obj
def export_command(environment: Environment, /, captures: tuple[str, ...], output: str, **options: Any) -> int:
    """Write the table `exchanges`: one row per request and its response, as Parquet files by day."""
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    records, no_bodies = options.pop("records"), options.pop("no_bodies")
    predicate = make_predicate(split_options(FilterOptions, options))
    inspector = make_inspector(options, "full" if records and not no_bodies else "batches", exchanges=True)

    from kafkasniff.capture import open_captures
    from kafkasniff.cli.pipeline import Pipeline, summary_line
    from kafkasniff.cli.progress import Progress, wants_progress
    from kafkasniff.sinks.parquet import ParquetSink

    with open_captures(captures, stdin=environment.stdin) as source:
        with ParquetSink(output, bodies=not no_bodies) as sink:
            pipeline = Pipeline(environment, inspector, sink, predicate=predicate)
            shows = wants_progress(environment, to_terminal=False, quiet=quiet)
            pipeline.run(source, Progress(environment, source) if shows else None)
            pipeline.close()
            rows = sink.rows
        if not quiet:
            environment.say(f"{rows:,} rows in {output}: {summary_line(inspector.summary)}")
        return Exit.BROKEN if source.broken else Exit.OK
