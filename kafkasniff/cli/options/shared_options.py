"""Single options that several commands share, and how their values are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
from click.core import ParameterSource

from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkasniff.analysis.detectors import Finding, Severity
    from kafkasniff.enrich.hosts import Hosts
    from kafkasniff.redact.payload import Payload


Command = TypeVar("Command", bound=Callable[..., Any])
_Value = TypeVar("_Value")


def stacked(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """The command with options, listed in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def refuse_options(reason: str, *, other_than: Collection[str] = (), among: Collection[str] | None = None) -> None:
    """Raise UsageError, such as `--jobs REASON`, if one of the current command's options was given.

    `other_than`: parameters that have an effect; `among`: only these have none.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in other_than or (among is not None and name not in among):
            continue
        if context.get_parameter_source(name) in {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}:
            raise UsageError(f"{parameter.opts[-1]} {reason}")


def read_value(option: str, read: Callable[[str], _Value], text: str) -> _Value:
    """What `read` makes of the value of an option. Its UsageError names the option."""
    try:
        return read(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def read_option_file(path: str, most: int) -> bytes:
    """At most `most` bytes of a file that an option names. Raises UsageError."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"cannot read {path}: {reason or error}") from error


# Answers as text or JSON.

_PARQUET_ENDS: Final = (".parquet", ".pq")
SEVERITIES: Final = ("error", "warning", "note")
"""`detectors.SEVERITIES`, repeated here so that the detectors are imported only when needed."""

_Decorator = Callable[[Any], Any]

output_option: Final[_Decorator] = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE instead of stdout."
)
color_option: Final[_Decorator] = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="When to colour text."
)
traceback_option: Final[_Decorator] = click.option(
    "-v", "--verbose", count=True, help="Show the traceback of an internal error."
)
wide_option: Final[_Decorator] = click.option("--wide", is_flag=True, help="Show all columns of tables, however wide.")
quiet_option: Final[_Decorator] = click.option(
    "-q", "--quiet", is_flag=True, help="No progress and no notes on stderr."
)


def format_option(json: str = "one JSON object") -> _Decorator:
    """`--format`, as `form`; `json`: what JSON output is."""
    return click.option(
        "--format", "form", type=click.Choice(["text", "json"]), default="text", help=f"Text, or {json}."
    )


def table_form(wanted: str | None, output: str | None) -> str:
    """The format of a table: as requested, else Parquet for FILE.parquet, else text. Raises UsageError."""
    to_file = output is not None and output != "-"
    if wanted is None and to_file and str(output).endswith(_PARQUET_ENDS):
        return "parquet"
    if wanted == "parquet" and not to_file:
        raise UsageError("--format parquet needs a file: -o FILE.parquet")
    return wanted or "text"


def fail_on_option(default: Severity | Literal["never"]) -> _Decorator:
    """`--fail-on`: how severe a finding must be for exit code 1."""
    return click.option(
        "--fail-on",
        type=click.Choice([*SEVERITIES, "never"]),
        default=default,
        show_default=True,
        help="Exit with code 1 if a finding is at least this severe.",
    )


def fails(findings: Iterable[Finding], fail_on: str) -> bool:
    """Whether a finding is at least as severe as `--fail-on`."""
    return fail_on != "never" and any(
        SEVERITIES.index(finding.severity) <= SEVERITIES.index(fail_on) for finding in findings
    )


def presentation_options(command: Command) -> Command:
    """The last options of a command: --color, -v, -q."""
    return stacked(command, [color_option, traceback_option, quiet_option])


# `--definitions`: APIs that Apache Kafka does not have, or has in other versions.

_DEFINITIONS_HELP = "Add APIs defined in DIR; or automq, inkless, redpanda (repeatable)."


def definitions_option(command: Command) -> Command:
    """The option, which takes effect before anything is decoded."""
    return click.option(
        *("--definitions", "definitions"),
        multiple=True,
        metavar="DIR",
        expose_value=False,
        is_eager=True,
        callback=_use_definitions,
        help=_DEFINITIONS_HELP,
    )(command)


def _use_definitions(context: click.Context, _option: click.Parameter, names: Sequence[str]) -> None:
    if not names or context.resilient_parsing:
        return
    from kafkasniff.errors import UsageError
    from kafkasniff.kafka.apis.dissectors import api, check_definitions
    from kafkasniff.kafka.schema.codes import DEFINITIONS, api_files, definition_folder, vendors

    for name in names:
        folder = definition_folder(name)
        if not folder.is_dir():
            raise UsageError(f"--definitions: {name} is neither a folder nor a vendor ({', '.join(vendors())})")
        problems = check_definitions(folder).problems
        if problems:
            more = f" (and {len(problems) - 1} more: kafkasniff api --check {name})" if len(problems) > 1 else ""
            raise UsageError(f"--definitions: {problems[0]}{more}")
    # Worker processes need it, too. A process has one dialect: what it has read so far of APIs is forgotten.
    os.environ[DEFINITIONS] = os.pathsep.join(os.path.abspath(name) if os.path.isdir(name) else name for name in names)
    api_files.cache_clear()
    api.cache_clear()


# `--hosts FILE`: names and racks of addresses.

_HOSTS_HELP = "Read names of addresses from FILE, as in /etc/hosts, optionally followed by rack=NAME (docs/hosts.md)."


def hosts_option(command: Command) -> Command:
    """Add the option."""
    return click.option("--hosts", metavar="FILE", help=_HOSTS_HELP)(command)


def take_hosts(options: dict[str, Any]) -> Hosts | None:
    """The contents of the file, removed from `options`; None without one. Raises UsageError."""
    path = options.pop("hosts")
    if path is None:
        return None
    from kafkasniff.enrich.hosts import Hosts

    return Hosts.load(path)


# `--memory`, an option of every command that decodes captures, and the limits of `sql`.

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,15})([kmg]?)(?:i?b)?", re.IGNORECASE)


def memory_of(text: str) -> int:
    """Bytes of a size such as 512M or 2G; units are powers of 1,024. Raises ValueError if it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2].lower()]


def _parse_size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    from kafkasniff.runtime.memory_limits import MIN_MEMORY

    try:
        size = memory_of(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a size: give a number of bytes, or one with K, M or G") from None
    if size < MIN_MEMORY:
        raise click.BadParameter(f"{value} is too small: {MIN_MEMORY >> 20}M is the minimum")
    return size


MEMORY: Final[Callable[[Any], Any]] = click.option(
    "--memory",
    metavar="SIZE",
    callback=_parse_size,
    help="Memory limit for incomplete data, such as 512M or 2G. Excess is dropped and reported [default: 1G].",
)


def query_limits(command: Command) -> Command:
    """Limits of a query in SQL."""
    return stacked(
        command,
        [
            click.option(
                "--query-memory",
                metavar="SIZE",
                callback=_parse_size,
                help="Memory limit of the query, such as 512M or 2G. Excess goes to a temporary folder [default: 1G].",
            ),
            click.option(
                "--query-disk",
                metavar="SIZE",
                callback=_parse_size,
                help="Limit for what the query keeps in the temporary folder [default: 10G].",
            ),
        ],
    )


# `--write-matching FILE`, and which files it can write.

_COMPRESSED: Final = (".gz", ".zst", ".lz4")


def write_matching_option(command: Command) -> Command:
    """Add the option."""
    return click.option(
        "-w",
        "--write-matching",
        metavar="FILE",
        help="Also write FILE (pcapng, or pcap by its name) with the packets of all connections of messages shown. "
        "In pcapng, each packet that completes a message has a comment with its line. "
        "Secrets are removed, and so is payload with --no-payload. With -q, messages are printed only if -o is given.",
    )(command)


def check_writing(path: str, captures: Sequence[str], payload: Payload) -> None:
    """Raise UsageError if the option cannot be used with these captures or this payload."""
    from kafkasniff.library import can_be_read_twice

    once = next((name for name in captures if not can_be_read_twice(name)), None)
    if once is not None:
        raise UsageError(
            f"--write-matching reads captures twice, and {'stdin' if once == '-' else once} can be read only once"
        )
    if payload.form == "hashed":
        raise UsageError("--write-matching preserves all lengths, which hashes would change: use --no-payload to blank")
    if path == "-":
        raise UsageError("--write-matching needs the name of a file")
    if path.lower().endswith(_COMPRESSED):
        raise UsageError(f"--write-matching does not compress: name the file without {os.path.splitext(path)[1]}")
    for name in captures:
        try:
            same = os.path.samefile(name, path)
        except OSError:
            continue  # one of them does not exist
        if same:
            raise UsageError(f"{path} is a capture to be read; name another file")
