"""`kafkasniff sql`: a query in SQL over captures and exports."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import reading_options, take_predicate
from kafkasniff.cli.options.record_options import registry_options, row_values, take_schemas
from kafkasniff.cli.options.shared_options import (
    output_option,
    presentation_options,
    query_limits,
    table_form,
    wide_option,
)
from kafkasniff.cli.running.sources import divide_sources, exported
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkasniff.analysis.sql.database import Database
    from kafkasniff.cli.output import Output

MAX_QUERY: Final = 1 << 20
"""Maximum size of a query in bytes."""
_STRUCT: Final = re.compile(r"STRUCT\(.*\)")


@click.command("sql", cls=SectionedCommand)
@click.argument("arguments", nargs=-1, metavar="[QUERY] CAPTURE...|DIR...")
@click.option("-f", "--file", "file", metavar="FILE", help="Read the query from FILE (- is stdin).")
@click.option("--list", "lists", is_flag=True, help="List the tables with their columns instead.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "csv", "parquet"]),
    help="A table, JSON lines, CSV, or Parquet [default: text; parquet for FILE.parquet].",
)
@click.option(
    "--views",
    type=click.Choice(["ocsf", "zeek"]),
    help="Also define views with the names of this schema (docs/sql.md).",
)
@output_option
@wide_option
@query_limits
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Processes that decode, and threads of the query [default: by size and cores; one thread].",
)
@reading_options
@registry_options
@presentation_options
@click.pass_obj
def sql_command(environment: Environment, /, arguments: tuple[str, ...], **options: Any) -> int:
    """Query captures and exports in SQL (DuckDB).

    The query can read the tables, but no files, and it can change nothing. Only the tables and columns that it names
    are decoded. Without a query, the command lists the tables.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    predicate = take_predicate(options)
    schemas = take_schemas(options, environment.environ)
    query, named = _query(arguments, environment, options)
    sources = divide_sources(environment, named, filtered=predicate is not None)
    values = row_values(schemas, predicate, sources.folders)
    form = _form(options, lists=query is None)

    from kafkasniff.analysis.export import Export
    from kafkasniff.analysis.sql.database import DISK, MEMORY, Database, SqlLimits
    from kafkasniff.cli.output import Output
    from kafkasniff.tables.rows.schemas import TABLES

    exports = [Export.open(folder) for folder in sources.folders]
    # Captures have all tables.
    tables = TABLES if sources.captures or not exports else [name for export in exports for name in export.tables]
    broken = False
    with contextlib.ExitStack() as around:
        limits = SqlLimits(
            around.enter_context(tempfile.TemporaryDirectory(prefix="kafkasniff-")),
            memory=options["query_memory"] or MEMORY,
            disk=options["query_disk"] or DISK,
            threads=options["jobs"] or 1,
        )
        database = around.enter_context(Database(limits, tables, options["views"]))
        if query is None:
            with Output(environment, options["output"]) as stream:
                _list(stream, database, form)
            return Exit.OK
        if not named:
            raise UsageError("sql: which captures or exports? Name them after the query")
        plan = database.plan(query)
        columns = {table: reading.columns for table, reading in plan.reads.items()}
        if sources.captures and columns:
            made = exported(
                environment,
                sources.captures,
                columns,
                options,
                predicate,
                quiet=quiet,
                jobs=options["jobs"],
                values=values,
            )
            folder, broken = around.enter_context(made)
            exports.append(Export.open(folder))
        from kafkasniff.cli.render.query_result import WRITERS

        result = database.run(plan, exports)
        with Output(environment, options["output"], inputs=sources.captures) as stream:
            rows = WRITERS[form](result, stream, colour=options["color"], wide=options["wide"])
        if form == "text" and not rows and not quiet:
            environment.say("sql: no rows")
        read = rows or not columns or any(rows.count for rows in database.rows.values())
    if broken:
        return Exit.BROKEN
    if read or not sources.captures:
        return Exit.OK
    from kafkasniff.cli.running.nothing_selected import say_nothing

    return say_nothing(environment, sources.captures, options, predicate, quiet=quiet, suffices=True)


def _query(
    arguments: tuple[str, ...], environment: Environment, options: dict[str, Any]
) -> tuple[str | None, tuple[str, ...]]:
    """The query, None to list the tables, and the captures and exports. Raises UsageError."""
    path: str | None = options["file"]
    if path is not None:
        return _text_of(path, environment, arguments), arguments
    place = next((index for index, argument in enumerate(arguments) if not _is_source(argument)), None)
    if options["lists"] or place is None:
        return None, arguments
    return arguments[place], arguments[:place] + arguments[place + 1 :]


def _is_source(argument: str) -> bool:
    return argument == "-" or is_remote(argument) or os.path.lexists(argument)


def _text_of(path: str, environment: Environment, sources: Sequence[str]) -> str:
    """The text of a query in a file. Raises UsageError."""
    if path == "-" and "-" in sources:
        raise UsageError("sql: stdin is either the query or a capture")
    try:
        with contextlib.nullcontext(environment.stdin) if path == "-" else open(path, "rb") as stream:
            text = stream.read(MAX_QUERY + 1).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8") from None
    if len(text) > MAX_QUERY:
        raise UsageError(f"{path} is longer than {MAX_QUERY >> 20} MiB")
    return text


def _form(options: dict[str, Any], *, lists: bool) -> str:
    """The format. Raises UsageError if it does not fit."""
    wanted = table_form(options["form"], options["output"])
    if lists and wanted in {"csv", "parquet"}:
        raise UsageError("sql: the list of tables is text or JSON")
    return wanted


def _list(stream: Output, database: Database, form: str) -> None:
    """The tables with their columns."""
    from kafkasniff.analysis.sql.database import meanings, rows_of

    found = {}
    described = {name: schema_view.rows for name, schema_view in database.schema_views.items()}
    for table, types in database.types().items():
        known = {} if table in described else meanings(table)
        described.setdefault(table, rows_of(table) if known else "")
        found[table] = [{"name": name, "type": kind, "meaning": known.get(name, "")} for name, kind in types.items()]
    if form == "json":
        for table, columns in found.items():
            stream.write_json({"table": table, "rows": described[table], "columns": columns})
        return
    from kafkasniff.cli.output import UNLIMITED
    from kafkasniff.text.printable import wrapped

    width = stream.width(UNLIMITED, wide=not stream.is_terminal)
    lines = []
    for table, columns in found.items():
        lines += ["", *wrapped(f"{table}: {described[table]}", width, 2)]
        shown = [(column["name"], _STRUCT.sub("STRUCT(…)", column["type"]), column["meaning"]) for column in columns]
        names, kinds = (max(len(one[place]) for one in shown) + 2 for place in (0, 1))
        for name, kind, meaning in shown:
            lines += wrapped(f"  {name:<{names}}{kind:<{kinds}}{meaning}", width, names + kinds + 2)
    stream.write_text("".join(f"{line}\n" for line in lines[1:]))
