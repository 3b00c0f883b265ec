"""`kafkasniff export`: captures to Parquet tables."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import (
    TABLES,
    decoding_arguments,
    discard_state_option,
    filter_options,
    inspector_options,
    key_arguments,
    make_catalog,
    make_export_options,
    make_predicate,
    no_summary_option,
    reads_twice,
    rows_line,
    take_filters,
    topic_ids_option,
)
from kafkasniff.cli.options.record_options import (
    payload_options,
    registry_options,
    row_values,
    say_problems,
    schemas_of_tasks,
    take_payload,
    take_schemas,
)
from kafkasniff.cli.options.shared_options import refuse_options, traceback_option
from kafkasniff.cli.running.sources import take_captures, usual_jobs
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.cli.output import Progress
    from kafkasniff.enrich import Catalog
    from kafkasniff.filters import Predicate
    from kafkasniff.tables.exports.captures import OnBadCapture
    from kafkasniff.tables.exports.manifest import Manifest
    from kafkasniff.tables.exports.options import ExportOptions
    from kafkasniff.tables.exports.run import Result

    Register = Callable[[str, Manifest], None]

OF_TABLES: Final = frozenset(
    {
        *("tables", "records", "no_bodies", "no_json", "engine", "master", "conf", "lake_name", "iceberg_name"),
        *("makes_delta", "jobs"),
        *("discard_state", "on_bad", "registry", "schemas", "compact", "keep"),
    }
)
"""Options that spans do not have."""
OF_COMPACTION: Final = frozenset(
    {"output", "form", "compact", "keep", "memory", "quiet", "verbose", "iceberg_name", "makes_delta"}
)

SKIPPED_NAMED: Final = 10
"""Skipped captures that are named on stderr; the table `problems` has all of them."""


@click.command("export", cls=SectionedCommand)
@click.argument("captures", nargs=-1, metavar="CAPTURE...")
@click.option(
    "-o", "--output", required=True, metavar="DIR", help="Folder or address for the tables; with --format otlp, a URL."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "otlp"]),
    default="parquet",
    help="parquet: tables; otlp: OpenTelemetry spans and metrics, sent to -o, such as http://localhost:4318 [default:"
    " parquet].",
)
@click.option(
    "--tables",
    default=",".join(TABLES),
    metavar="NAMES",
    help=f"Tables to write, separated by commas [default: {', '.join(TABLES)}].",
)
@click.option(
    "--records/--no-records", default=False, help="Also include records in the bodies; they have a table of their own."
)
@click.option("--no-bodies", is_flag=True, help="Do not decode bodies; columns that need them are null.")
@click.option("--no-json", is_flag=True, help="Leave the columns request_body and response_body null.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    help="Engine that writes the tables [default: local].",
)
@click.option("--master", metavar="URL", help="Spark master, with --engine spark [default: this machine, all cores].")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Spark property, with --engine spark (repeatable).")
@click.option(
    "--table",
    "lake_name",
    metavar="NAME",
    help="Also write lakehouse tables CATALOG.DATABASE.NAME_exchanges and so on, with --engine spark.",
)
@click.option(
    "--register",
    "iceberg_name",
    metavar="NAME",
    help="Add the files to Iceberg tables CATALOG.NAMESPACE.NAME_exchanges and so on; needs no Spark.",
)
@click.option(
    "--delta",
    "makes_delta",
    is_flag=True,
    help="Make a Delta table of each table's folder, such as DIR/exchanges; needs no Spark.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Number of processes; the rows are the same [default: by size and cores].",
)
@click.option(
    "--on-bad-capture",
    "on_bad",
    type=click.Choice(["fail", "skip", "quarantine"]),
    default="fail",
    help="What to do about captures that are empty or not captures: end the run, skip them until the next run, or skip"
    " them for good [default: fail].",
)
@click.option(
    "--compact", is_flag=True, help="Instead of reading captures, join the files of each date and sort their rows."
)
@click.option("--keep", metavar="DURATION", help="With --compact: remove dates that are over for longer, such as 30d.")
@discard_state_option
@inspector_options
@payload_options
@filter_options
@topic_ids_option
@registry_options
@traceback_option
@no_summary_option
@click.pass_obj
def export_command(environment: Environment, /, captures: tuple[str, ...], output: str, **options: Any) -> int:
    """Decode captures into a folder of Parquet tables, partitioned by day.

    Run it again when there are new captures: it skips captures that are already exported and continues their
    connections. An interrupted run resumes where it stopped.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    compacts, keep = options.pop("compact"), options.pop("keep")
    if compacts:
        refuse_options("has no effect with --compact", other_than=OF_COMPACTION)
        return _compact(environment, output, keep, options, quiet=quiet)
    if keep is not None:
        raise UsageError("--keep needs --compact")
    if not captures:
        raise UsageError("name a capture")
    filters = take_filters(options)
    predicate = make_predicate(filters)
    schemas_elsewhere = schemas_of_tasks(options["registry"], options["schemas"], environment.environ)
    schemas = take_schemas(options, environment.environ)
    if options.pop("form") == "otlp":
        refuse_options("applies to tables, not to --format otlp", among=OF_TABLES)
        from kafkasniff.cli.running.otlp_export import export_spans

        taken = take_captures(environment, captures, by_name=True)
        payload = take_payload(options)
        return export_spans(environment, taken, output, options, predicate=predicate, payload=payload, quiet=quiet)
    wanted = make_export_options(
        options["tables"],
        options,
        filters,
        predicate,
        bodies=not (options["no_bodies"] or options["no_json"]),
        headers=options["no_bodies"],
        records=options["records"],
        payload=take_payload(options),
    )
    from kafkasniff.tables.exports.target import check_output

    check_output(output)  # before Spark starts
    jobs: int | None = options.pop("jobs")
    discard_state: bool = options.pop("discard_state")
    on_bad: OnBadCapture = options.pop("on_bad")
    engine, master, conf = options.pop("engine"), options.pop("master"), options.pop("conf")
    lake_name: str | None = options.pop("lake_name")
    # Before captures are read, which may take hours.
    registers = _registers(options, wanted.tables)
    values = row_values(schemas, predicate)
    if engine == "spark":
        if predicate is not None:
            raise UsageError("--engine spark does not support filters: filter the tables")
        if jobs is not None:
            raise UsageError("--engine spark does not support --jobs: set the number of cores with --master")
        if "-" in captures:
            raise UsageError("--engine spark cannot read stdin: its tasks read captures on several machines")
        properties = _properties(conf)
        keys = key_arguments(options).get("keys")
        from kafkasniff.cli.environment import allow_pandas
        from kafkasniff.cli.output import TaskProgress, wants_progress

        allow_pandas()
        from kafkasniff.spark import export as spark_export
        from kafkasniff.spark.lakehouse import LakeTables
        from kafkasniff.spark.session import tracker_of
        from kafkasniff.spark.shipping import ready_session

        given = make_catalog(options).given
        # Starting Java takes longer than to see that there is nothing to do.
        if lake_name is None and (done := spark_export.unchanged(captures, output, wanted)) is not None:
            return _report(environment, done, output, registers, quiet=quiet)
        # The session ends with this process.
        spark = ready_session(master, **properties)
        lake = None if lake_name is None else LakeTables(spark, lake_name, wanted.tables, lasting=True)
        watched = wants_progress(environment, to_terminal=False, quiet=quiet)
        with TaskProgress(environment, tracker_of(spark) if watched else None):
            result = spark_export.export(
                spark,
                captures,
                output,
                wanted,
                given=given,
                keys=keys,
                memory=options["memory"],
                discard_state=discard_state,
                on_bad=on_bad,
                lake=lake,
                schemas=schemas_elsewhere,
            )
        return _report(environment, result, output, registers, quiet=quiet)
    if master is not None or conf or lake_name is not None:
        raise UsageError("--master, --conf and --table need --engine spark")
    captures = take_captures(environment, captures, by_name=True)
    key_arguments(options)  # report an unreadable file before the folder is made
    # A filter on topics needs their names when it is evaluated: then captures are read twice, if they can be.
    names_first = _needs_topic_names(predicate) and reads_twice(None, captures)

    from kafkasniff.cli.output import Progress, wants_progress
    from kafkasniff.cli.running.pipeline import learn_names
    from kafkasniff.tables.exports.run import export
    from kafkasniff.tables.exports.shard import Hooks

    shows = wants_progress(environment, to_terminal=False, quiet=quiet)
    shown: list[Progress] = []

    def part() -> None:
        for progress in shown:
            progress.update()

    def learn(catalog: Catalog, paths: Sequence[str]) -> None:
        learn_names(
            environment,
            catalog,
            paths,
            decoding_arguments(options),
            progress=shows,
        )

    hooks = Hooks(
        opened=(lambda source: shown.append(Progress(environment, source))) if shows else None,
        part=part,
        stdin=environment.stdin,
    )
    # The search for cycles before tables are finalised need not go through all that was imported.
    gc.freeze()
    try:
        result = export(
            captures,
            output,
            wanted,
            given=make_catalog(options).given,
            predicate=predicate,
            learn=learn if names_first else None,
            jobs=_usual(captures, wanted) if jobs is None else jobs,
            hooks=hooks,
            keylog=options["keylog"],
            discard_state=discard_state,
            memory=options["memory"],
            on_bad=on_bad,
            values=values,
        )
    finally:
        for progress in shown:
            progress.clear()
    say_problems(environment, values)
    return _report(environment, result, output, registers, quiet=quiet)


def _registers(options: dict[str, Any], tables: Iterable[str]) -> list[Register]:
    """What takes the files of an export into lakehouse tables, by the options. Raises as their classes do."""
    found: list[Register] = []
    name = options.pop("iceberg_name")
    if name is not None:
        from kafkasniff.tables.lakehouse import IcebergTables

        found.append(IcebergTables(name, tables).register)
    if options.pop("makes_delta"):
        from kafkasniff.tables.lakehouse import DeltaTables

        found.append(DeltaTables().register)
    return found


def _compact(environment: Environment, output: str, keep: str | None, options: dict[str, Any], *, quiet: bool) -> Exit:
    """Join the files of an export, and say what that did."""
    from datetime import timedelta

    from kafkasniff.analysis.compaction import compact
    from kafkasniff.analysis.sql.database import MEMORY
    from kafkasniff.filters import parse_duration
    from kafkasniff.runtime.addresses import name_of
    from kafkasniff.sinks.summaries.phrases import amount

    kept = None if keep is None else timedelta(microseconds=parse_duration(keep) // 1000)
    done = compact(output, keep=kept, memory=options["memory"] or MEMORY)
    for register in _registers(options, done.manifest.tables):
        register(output, done.manifest)
    if not quiet:
        name = name_of(output)
        if not done.before:
            environment.say(f"nothing to do: the files of {name} are joined already")
        else:
            dates = f"; removed {', '.join(done.removed)}" if done.removed else ""
            environment.say(
                f"{done.before:,} file{'' if done.before == 1 else 's'} of {amount(done.bytes_before)} became "
                f"{done.after:,} of {amount(done.bytes_after)} in {name}{dates}"
            )
    return Exit.OK


def _report(
    environment: Environment, result: Result, output: str, registers: Sequence[Register], *, quiet: bool
) -> Exit:
    """Register the files of a run if wanted, and say what it did; returns its exit code."""
    from kafkasniff.runtime.addresses import name_of

    for register in registers:
        # Also if there is nothing new: an earlier command may have been killed before.
        register(output, result.manifest)
    for notice in (*result.skipped[:SKIPPED_NAMED], *result.notices):
        environment.say(notice)
    if not quiet:
        environment.say(_summary(result, name_of(output)))
    return Exit.BROKEN if result.broken else Exit.OK


def _usual(captures: Sequence[str], wanted: ExportOptions) -> int:
    """Each process reads all captures, which is most of the work if no bodies are decoded."""
    return 1 if wanted.reads_headers else usual_jobs(captures)


def _needs_topic_names(predicate: Predicate | None) -> bool:
    if predicate is None:
        return False
    from kafkasniff.filters import needs_topic_names

    return needs_topic_names(predicate)


def _properties(conf: tuple[str, ...]) -> dict[str, str]:
    """Spark properties by name. Raises UsageError."""
    pairs = [one.partition("=") for one in conf]
    wrong = [text for text, (name, separator, _) in zip(conf, pairs, strict=True) if not separator or not name]
    if wrong:
        raise UsageError(f"--conf: {wrong[0]} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _summary(result: Result, output: str) -> str:
    from kafkasniff.cli.running.pipeline import summary_line

    count = len(result.skipped)
    skipped = f"{count:,} capture{'' if count == 1 else 's'} skipped; " if count else ""
    if not result.new:
        return f"{skipped}nothing to do: {output} already has {'the others' if count else 'these captures'}"
    resumed = "resumed an interrupted run; " if result.resumed else ""
    return f"{resumed}{skipped}{rows_line(result.rows, output)}: {summary_line(result.summary)}"
