"""`kafkasniff analyze`: questions about the tables of an export, or about captures."""

from __future__ import annotations

import contextlib
import inspect
import os
from typing import TYPE_CHECKING, Any, Literal

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import FilterOptions, make_predicate, reading_options
from kafkasniff.cli.options.shared_options import (
    hosts_option,
    output_option,
    presentation_options,
    read_value,
    stacked,
    table_form,
    take_hosts,
    wide_option,
)
from kafkasniff.cli.running.sources import columns_of, divide_sources, exported
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from click.shell_completion import CompletionItem

    from kafkasniff.analysis import Question
    from kafkasniff.analysis.export import Export
    from kafkasniff.analysis.parameters import Parameter
    from kafkasniff.cli.output import Output
    from kafkasniff.enrich.hosts import Hosts
    from kafkasniff.filters import Predicate


class _Questions(click.Group):
    """One command per question, made from its parameters."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from kafkasniff.analysis import question_names

        return list(question_names())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from kafkasniff.analysis import find_question

        if os.path.exists(cmd_name) and not ctx.resilient_parsing:
            raise UsageError(f"name a question before {name_of(cmd_name)}; `kafkasniff analyze --list` lists them")
        command = _command(find_question(cmd_name))
        if ctx.resilient_parsing:
            # Shell completion.
            from kafkasniff.cli.commands.completion import know_values

            return know_values(command)
        return command

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kafkasniff.cli.options.help_sections import write_examples

        write_examples(self.name, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click's own implementation would import all questions to get their summaries.
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kafkasniff.analysis import questions

        with formatter.section("Questions"):
            formatter.write_dl([(question.name, question.summary) for question in questions()])


@click.group(
    "analyze",
    cls=_Questions,
    invoke_without_command=True,
    subcommand_metavar="QUESTION CAPTURE...|DIR [OPTIONS]",
    options_metavar="",
)
@click.option("--list", "listed", is_flag=True, help="List the questions, one per line.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Format of --list.", show_default=True
)
@click.pass_context
def analyze_command(context: click.Context, /, listed: bool, form: str) -> int:
    """Answer a question about captures, or about the tables of an export (DIR).

    QUESTION --help shows the options of a question.
    """
    environment: Environment = context.obj
    if listed:
        _list(environment, form)
        context.exit(Exit.OK)
    if context.invoked_subcommand is None:
        raise UsageError("analyze: which question? `kafkasniff analyze --list` lists them")
    return Exit.OK


def _list(environment: Environment, form: str) -> None:
    from kafkasniff.analysis import parameters_of, questions

    if form == "json":
        import orjson

        for question in questions():
            parameters = [
                {"name": parameter.name, "help": parameter.help, "default": parameter.default_text}
                for parameter in parameters_of(question)
            ]
            line = {"question": question.name, "summary": question.summary, "parameters": parameters}
            environment.stdout.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        return
    from kafkasniff.cli.output import UNLIMITED
    from kafkasniff.text.printable import wrapped

    names = max(len(question.name) for question in questions()) + 2
    # Where the output is not a terminal, a question stays on one line.
    width = environment.width if environment.stdout_tty else UNLIMITED
    lines = (wrapped(f"{question.name:<{names}}{question.summary}", width, names) for question in questions())
    environment.stdout.write(
        "".join(f"{line}\n" for those in lines for line in those).encode(environment.encoding, "replace")
    )


def _command(question: type[Question[Any]]) -> click.Command:
    from kafkasniff.analysis import parameters_of

    parameters: list[click.Parameter] = [click.Argument(["sources"], nargs=-1, required=True, metavar="CAPTURE...|DIR")]
    parameters += [_option(parameter) for parameter in parameters_of(question)]
    times = "RFC 3339, HH:MM:SS (UTC), or +10s after the first exchange."
    parameters += [
        click.Option(["--since"], metavar="TIME", help=f"Only rows from this time on: {times}"),
        click.Option(["--until"], metavar="TIME", help="Only rows up to and including this time; same formats."),
        click.Option(
            ["--format", "form"],
            type=click.Choice(["text", "json", "parquet"]),
            help="A table, JSON lines, or Parquet [default: text; parquet for FILE.parquet].",
        ),
        click.Option(
            ["--engine"],
            type=click.Choice(["local", "spark"]),
            default="local",
            help="Engine that reads the tables [default: local].",
        ),
        click.Option(["--master"], metavar="URL", help="Spark master, with --engine spark [default: local[*]]."),
    ]

    @click.pass_obj
    def ask(environment: Environment, /, **options: Any) -> int:
        return _ask(environment, question, options)

    # All of it: with the columns it explains the answer.
    text = inspect.cleandoc(question.__doc__ or "")
    shared = [output_option, wide_option, presentation_options, reading_options, hosts_option]
    own = {parameter.name for parameter in parameters}
    # The topic that a question is about, and times of rows, which exports have as well, take precedence over filters.
    parameters += [
        one for one in reversed(getattr(stacked(ask, shared), "__click_params__", [])) if one.name not in own
    ]
    command = _Question(question.name, callback=ask, params=parameters, short_help=question.summary, help=text)
    command.question = question
    return command


class _Question(SectionedCommand):
    """A question, whose help ends with the columns of the answer."""

    question: type[Question[Any]]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Columns"):
            formatter.write_dl(list(self.question().meanings().items()))


def _option(parameter: Parameter) -> click.Option:
    default = parameter.default_text
    text = parameter.help.rstrip(".")
    if parameter.choices:
        text += f": {', '.join(parameter.choices)}"
    text += f" [default: {default}]." if default else "."
    name = f"--{parameter.name.replace('_', '-')}"
    if parameter.kind == "flag":
        return click.Option([name, parameter.name], is_flag=True, default=None, help=text)
    metavar = {"integer": "N", "number": "X", "duration": "DURATION"}.get(parameter.kind, "NAME")
    return click.Option([name, parameter.name], metavar=metavar, multiple=parameter.many, help=text)


def _ask(environment: Environment, question: type[Question[Any]], options: dict[str, Any]) -> int:
    from kafkasniff.analysis import parameters_of

    environment.verbosity = options.pop("verbose")
    sources, engine, master = options.pop("sources"), options.pop("engine"), options.pop("master")
    since, until, quiet = options.pop("since"), options.pop("until"), options.pop("quiet")
    output, colour, wide = options.pop("output"), options.pop("color"), options.pop("wide")
    form = table_form(options.pop("form"), output)
    own = {parameter.name for parameter in parameters_of(question)} | {"since", "until"}
    filters = {name: options.pop(name) for name in FilterOptions._fields if name not in own}
    hosts, predicate = take_hosts(options), make_predicate(FilterOptions(**filters))
    if master is not None and engine != "spark":
        raise UsageError("--master needs --engine spark")
    framing = {name: options.pop(name) for name in ("ports", "max_frame", "keylog", "memory", "topic_ids")}
    captures, folders = divide_sources(environment, sources, filtered=predicate is not None)
    if folders and len(sources) > 1:
        raise UsageError(f"analyze takes captures or one export: {folders[0]} is an export")
    if captures and engine == "spark":
        raise UsageError("--engine spark needs an export: make one with `kafkasniff export --engine spark`")
    if not captures and any(value not in (None, ()) for value in framing.values()):
        named = "--port, --max-frame, --keylog, --memory and --topic-ids"
        raise UsageError(f"{named} are for captures; {name_of(sources[0])} is an export")

    if engine == "spark":
        from kafkasniff.cli.environment import allow_pandas

        allow_pandas()
    from kafkasniff.analysis import make_parameters
    from kafkasniff.analysis.export import Export, answer
    from kafkasniff.cli.output import Output

    given = {name: value for name, value in options.items() if value not in (None, ())}
    accumulator = question(make_parameters(question, given))
    left_out: list[str] = []
    broken = False
    with contextlib.ExitStack() as around:
        directory = sources[0]
        if captures:
            directory, broken = around.enter_context(
                exported(environment, captures, columns_of([accumulator]), framing, predicate, quiet=quiet)
            )
        export = Export.open(directory)
        bounds = [_moment("--since", since, export), _moment("--until", until, export)]
        left_out = export.missing(accumulator)
        if engine == "spark":
            from kafkasniff.spark.queries import answer_export
            from kafkasniff.spark.shipping import ready_session

            accumulator = answer_export(ready_session(master), export, accumulator, *bounds)
        else:
            answer(export, accumulator, *bounds)
        accumulator.hosts = hosts
        result = accumulator.result()
        topics = given.get("topic", ()) if question.name in {"topic", "topics"} else ()
        has_rows = not (result.num_rows or topics) and _has_rows(export, accumulator, bounds)
    if captures:
        from kafkasniff.cli.render.captured_numbers import with_numbers

        result = with_numbers(environment, result, captures, framing, text=form == "text")
    with Output(environment, output, inputs=captures) as stream:
        _write(stream, result, form, colour, question.essential, wide=wide, hosts=hosts)
    missing = accumulator.missing()
    for note in missing:
        environment.say(f"{question.name}: the answer is incomplete: {note}")
    if not quiet:
        for table in left_out:
            what = "keys and values" if table in export.tables else f"table {table}"
            environment.say(f"the export has no {what}: results that need them are missing")
        for note in accumulator.notes():
            if note not in missing:
                environment.say(note)
        if form == "text" and not result.num_rows:
            environment.say(f"{question.name}: nothing found")
    if missing:
        return Exit.UNAVAILABLE
    if broken:
        return Exit.BROKEN
    if result.num_rows or has_rows:
        return Exit.OK
    from kafkasniff.cli.running.nothing_selected import say_nothing, say_topics

    if not captures:
        return say_topics(environment, export, topics, *bounds)
    from kafkasniff.filters import all_of, topic_filter

    asked = all_of([predicate, topic_filter(topics), *_between(since, until)])
    return say_nothing(environment, captures, framing, asked, quiet=quiet, suffices=True)


def _between(since: str | None, until: str | None) -> list[Predicate]:
    """--since and --until as filters."""
    from kafkasniff.filters import Compare, parse_moment

    given: tuple[tuple[str, Literal[">=", "<="], str | None], ...] = (
        ("--since", ">=", since),
        ("--until", "<=", until),
    )
    return [Compare("time", operator, read_value(name, parse_moment, text)) for name, operator, text in given if text]


def _has_rows(export: Export, question: Question[Any], bounds: Sequence[int | None]) -> bool:
    """Whether an export has rows that a question reads."""
    return any(
        batch.num_rows
        for table, reading in question.reads().items()
        if table in export.tables
        for batch in export.batches(table, reading, *bounds)
    )


def _moment(option: str, text: str | None, export: Export) -> int | None:
    """Nanoseconds since 1970 of --since or --until. Raises UsageError."""
    if text is None:
        return None
    from kafkasniff.filters.tree import Moment, parse_moment

    moment = read_value(option, parse_moment, text)
    if not isinstance(moment, Moment):
        return moment
    found = moment.resolve(export.start_ns())
    if found is None:
        raise UsageError(f"{text}: the export has no timestamps to count from")
    return found


def _write(
    stream: Output,
    result: pa.Table,
    form: str,
    colour: str,
    essential: Sequence[str],
    *,
    wide: bool,
    hosts: Hosts | None,
) -> None:
    from kafkasniff.cli.output import UNLIMITED
    from kafkasniff.cli.render.query_result import WRITERS, text_table

    if form != "text":
        WRITERS[form](result.to_reader(), stream)
    elif result.num_rows:
        # Where the output is not a terminal, a row stays on one line.
        width = stream.width(UNLIMITED, wide=wide or not stream.is_terminal)
        coloured = stream.coloured(colour)
        stream.write_text(text_table(result, width=width, coloured=coloured, essential=essential, hosts=hosts))
