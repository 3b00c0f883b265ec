"""`kafkasniff help`: what several commands have in common, or the help of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand, sections
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_OPERATORS: Final = (
    ("== !=", "equal, not equal"),
    ("< <= > >=", "for numbers, durations, sizes and times"),
    ("=~ !~", "a regular expression matches, does not match; `matches` is =~"),
    ("contains startswith endswith", "for text"),
    ('in ("a", "b"), not in (1, 2)', "one of several, none of several"),
    ("has FIELD, exists(FIELD)", "the field has a value"),
    ("not, and, or, ( )", "or !, && and ||"),
)
_TLS: Final = (
    "A connection is decrypted with its secrets, which either end writes to a key log (SSLKEYLOGFILE format): --keylog "
    "FILE. live reads a key log as it grows. pcapng captures may contain the secrets. The broker's certificate and "
    "private key are not enough."
)
_KEY_LOGS: Final = (
    ("brokers", "attach an agent to the JVM: java -jar extract-tls-secrets.jar PID FILE; it serves all clients"),
    ("Java clients", "the same, or -javaagent:extract-tls-secrets.jar=FILE"),
    ("Python", "the variable SSLKEYLOGFILE=FILE, with ssl.create_default_context"),
    ("Go", "tls.Config.KeyLogWriter"),
    ("Node", "node --tls-keylog=FILE"),
    ("librdkafka", "with a shared OpenSSL, a preloaded library (docs/tls.md)"),
    ("other librdkafka, Rust", "an agent in the broker"),
)
_TLS_END: Final = (
    "`kafkasniff tls doctor CAPTURE --keylog FILE` says which connections are decrypted, and why the others are not.",
    "Decryption needs: pip install 'kafkasniff[tls]'. Without secrets, only handshakes are shown.",
)


def _filters(formatter: click.HelpFormatter) -> None:
    from kafkasniff.filters.expression import KINDS
    from kafkasniff.filters.fields import FIELDS

    formatter.write_text(
        "--filter EXPR selects exchanges: both messages or neither. Several filters, and short forms such as --api or "
        "--errors, are ANDed. If a field has several values, a comparison matches if any value does; != matches if no "
        "value is equal."
    )
    with formatter.section("Operators"):
        formatter.write_dl(_OPERATORS)
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for field in FIELDS.values():
        by_kind.setdefault(field.kind, []).append((field.name, field.meaning))
    for kind, fields in by_kind.items():
        title, forms = f"Fields: {KINDS[kind]}", ""
        if len(title) >= formatter.width:
            # Titles are not wrapped.
            title, _, forms = title.removesuffix(")").partition(" (")
        with formatter.section(title):
            if forms:
                formatter.write_text(forms)
                formatter.write_paragraph()
            formatter.write_dl(fields)
    with formatter.section("In messages and records"):
        formatter.write_dl(
            [
                ("request.PATH, response.PATH", "fields of bodies; `kafkasniff api NAME` lists them"),
                ("record.key, record.value", "also record.offset, record.place, record.timestamp, record.header[NAME]"),
                ("record.value.order.id", "a member of the value, key or header: JSON, or decoded (--registry)"),
            ]
        )
    with formatter.section("Examples"):
        for line in (
            'api == "Fetch" and latency_ms > 100 and topic =~ "^orders"',
            'error in ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT")',
            'client_ip == "10.0.0.5" and request_size >= 1MB',
            'record.value.status == "failed"',
        ):
            formatter.write(f"{'':{formatter.current_indent}}--filter '{line}'\n")


def _json(formatter: click.HelpFormatter) -> None:
    from kafkasniff.sinks.formats import JSON_KEYS

    formatter.write_text(
        "--format json writes one object per line. Bodies have the names of Kafka's protocol in snake_case, which "
        "`kafkasniff api NAME` lists. Keys that begin with _ are not on the wire: they interpret the value next to "
        "them."
    )
    _sections(formatter, {kind: keys.items() for kind, keys in JSON_KEYS.items()})


def _problems(formatter: click.HelpFormatter) -> None:
    from kafkasniff.text.problem_kinds import PROBLEM_KINDS

    formatter.write_text(
        "A problem reports lost, truncated, damaged or odd data. Everything that could be decoded is still shown. "
        "Problems do not change the exit code, except for broken or truncated captures (4)."
    )
    _sections(formatter, {about: kinds.items() for about, kinds in PROBLEM_KINDS.items()})


def _tables(formatter: click.HelpFormatter) -> None:
    from kafkasniff.tables.rows.schemas import COLUMNS, ROWS

    formatter.write_text(
        "The tables that `kafkasniff export` writes. `partitions` and `headers` are the structs in the columns of "
        "these names. Times are UTC, in microseconds. Unknown values are null."
    )
    for table, columns in COLUMNS.items():
        with formatter.section(table):
            formatter.write_text(ROWS[table])
            formatter.write_paragraph()
            formatter.write_dl([(column.name, column.meaning) for column in columns])


def _sections(formatter: click.HelpFormatter, lists: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    for title, rows in lists.items():
        with formatter.section(title):
            formatter.write_dl(list(rows))


def _tls(formatter: click.HelpFormatter) -> None:
    formatter.write_text(_TLS)
    with formatter.section("Who writes a key log"):
        formatter.write_dl(_KEY_LOGS)
    for paragraph in _TLS_END:
        formatter.write_paragraph()
        formatter.write_text(paragraph)


def _exit_codes(formatter: click.HelpFormatter) -> None:
    from kafkasniff.cli.environment import EXIT_CODES, EXIT_ORDER

    formatter.write_dl(EXIT_CODES)
    formatter.write_paragraph()
    formatter.write_text(EXIT_ORDER)


TOPICS: Final[dict[str, tuple[str, Callable[[click.HelpFormatter], None]]]] = {
    "filters": ("The language of --filter: operators, fields, examples.", _filters),
    "json": ("The keys of JSON lines.", _json),
    "problems": ("The kinds of problems.", _problems),
    "tables": ("The columns of exported tables.", _tables),
    "tls": ("How encrypted connections are decrypted.", _tls),
    "exit-codes": ("What the exit codes mean.", _exit_codes),
}
"""Summary and writer of each topic."""


class _Topic(click.ParamType[str]):
    """The name of a command or a topic."""

    name = "topic"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """All that begin like this."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in (*_commands(ctx), *TOPICS) if name.startswith(incomplete)]


def _commands(context: click.Context) -> list[str]:
    parent = context.parent
    assert parent is not None
    assert isinstance(parent.command, click.Group)
    return parent.command.list_commands(parent)


@click.command("help", cls=SectionedCommand)
@click.argument("topic", required=False, metavar="[COMMAND|TOPIC]", type=_Topic())
@click.argument("section", nargs=-1, metavar="[SECTION]")
@click.pass_context
def help_command(context: click.Context, *, topic: str | None, section: tuple[str, ...]) -> int:
    """Show the help of a command, or of a topic: filters, json, problems, tables, tls, exit-codes.

    `kafkasniff help live output` shows one section of the options of `live`, on one screen.
    """
    environment: Environment = context.obj
    environment.stdout.write("".join(f"{line}\n" for line in _lines(context, topic, section)).encode())
    return Exit.OK


def _lines(context: click.Context, topic: str | None, section: tuple[str, ...]) -> Iterator[str]:
    parent = context.parent
    assert parent is not None
    group = parent.command
    assert isinstance(group, click.Group)
    if topic is None:
        yield group.get_help(parent)
        formatter = context.make_formatter()
        with formatter.section("Topics"):
            formatter.write_dl([(name, summary) for name, (summary, _) in TOPICS.items()])
        yield "\n" + formatter.getvalue().rstrip("\n")
        return
    if topic in TOPICS:
        if section:
            raise UsageError(f"{topic} is a topic without sections")
        formatter = context.make_formatter()
        TOPICS[topic][1](formatter)
        yield formatter.getvalue().strip("\n")
        return
    command = group.get_command(parent, topic)
    if command is None:
        from kafkasniff.text.printable import suggestion

        hint = suggestion(topic, (*TOPICS, *_commands(context)), f"the topics are {', '.join(TOPICS)}")
        raise UsageError(f"no such command or topic: {topic}{hint}")
    under = click.Context(command, info_name=topic, parent=parent)
    words = list(section)
    while words and isinstance(command, click.Group) and words[0] in command.list_commands(under):
        # A question.
        command = command.get_command(under, words[0])
        assert command is not None
        under = click.Context(command, info_name=words.pop(0), parent=under)
    yield _section(command, under, " ".join(words)) if words else command.get_help(under)


def _section(command: click.Command, context: click.Context, wanted: str) -> str:
    """A section of a command's options, by the beginning of its title. Raises UsageError."""
    found = dict(sections(command, context))
    title = next((one for one in found if one.lower().startswith(wanted.lower())), None)
    if title is None:
        raise UsageError(f"no such section: {wanted}; `{context.command_path}` has {', '.join(found)}")
    formatter = context.make_formatter()
    with formatter.section(title):
        formatter.write_dl(found[title])
    return formatter.getvalue().rstrip("\n")
