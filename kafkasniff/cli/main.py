"""Entry point of the command line: finds and runs a command, turns any outcome into an exit code and one line."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import click

import kafkasniff
from kafkasniff.cli.environment import COMPLETION, Environment, Exit, Interrupted, refuse_pandas
from kafkasniff.errors import (
    CaptureError,
    KafkasniffError,
    MissingPartError,
    OutOfMemoryError,
    OutputError,
    UsageError,
    is_out_of_memory,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Short command lines of tcpdump, tshark and HTTPie: a bare file, `-r FILE`, `-i IF`, `-f EXPR`, `--json`.

_POSITIONAL: Final = {"CAPTURE": "r", "BPF": "f"}
"""By what the metavar of an argument contains: the letter of the option that other tools have for it."""
_JSON: Final = "--json"
_CAPTURES_LIVE: Final = re.compile(r"-i.*|-D|--interface(=.*)?|--list-interfaces")
_READS: Final = re.compile(r"-[a-z]*r.*")


def with_command(arguments: Sequence[str], commands: Iterable[str], options: Iterable[str] = ()) -> list[str]:
    """The arguments, with the implied command inserted if they have none. `options`: those that need no command.

    `FILE…`, `DIR…`, `-` and `-r FILE` imply decode, `-i INTERFACE` and `-D` imply live, even after other options.
    """
    found, commands = list(arguments), set(commands)
    if not found or found[0] in commands or found[0] in options:
        return found
    words = found[:1]
    if found[0].startswith("-"):
        # `-e api` names a field.
        if any(word in commands for before, word in pairwise(found) if before != "-e"):
            return found
        words = found
    if any(map(_CAPTURES_LIVE.fullmatch, words)):
        return ["live", *found]
    if any(map(_READS.fullmatch, words)) or any(map(_is_capture, words)):
        return ["decode", *found]
    return found


def _is_capture(word: str) -> bool:
    return word == "-" or os.path.exists(word) or "://" in word or "*" in word or "?" in word


def with_options(command: click.Command | None, arguments: Sequence[str]) -> list[str]:
    """The arguments with `--json` as `--format json`, `-r FILE` as FILE, and `-f EXPR` as a BPF filter.

    `-T json` is `--format json`, too; `-T fields` is text, since `-e` asks for fields.

    Not where the command has an option of this name. Raises UsageError for `-f` where there is no capture, and for
    `-T fields` without fields.
    """
    params = [] if command is None else command.params
    options = {name: option for option in params if isinstance(option, click.Option) for name in option.opts}
    takes = " ".join(one.metavar or "" for one in params if isinstance(one, click.Argument))
    if isinstance(command, click.Group):
        takes = "CAPTURE"
    letters = [letter for what, letter in _POSITIONAL.items() if what in takes and f"-{letter}" not in options]
    flags = [name[1] for name, option in options.items() if len(name) == 2 and (option.is_flag or option.count)]
    # `-r` also joined with its value (`-rFILE`) and with flags (`-qr FILE`).
    before, letter = "|".join(flags), "|".join(letters)
    positional = re.compile(f"(-(?:{before})*)(?:{letter})(.*)", re.S) if letters else None
    found: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return found + list(arguments[at:])
        if argument == "-T" and "--fields" in options:
            found.append("--format")
        elif argument == "fields" and found[-1:] == ["--format"]:
            if not any(word.startswith(("-e", "--fields")) for word in arguments):
                raise click.UsageError("-T fields needs -e NAME, such as -e time -e latency_ms")
            found.append("text")
        elif "--format" in options and _JSON not in options and argument == _JSON:
            found.append("--format=json")
        elif argument == "-f" and "--filter" in options and "f" not in letters and "-f" not in options:
            raise click.UsageError("-f is the capture filter of live; to select exchanges, use -Y EXPR")
        elif positional is not None and (match := positional.fullmatch(argument)):
            found += [word for word in match.groups() if word not in ("", "-")]
        else:
            found.append(argument)
    return found


_MEANT: Final = {
    "--csv": "--format csv",
    "--tsv": "--fields NAMES",
    "--parquet": "export",
    "--client": "--client-id NAME",
    "--group": "--filter 'group_id == \"NAME\"'",
    "--error": "--errors",
    "--limit": "--count NUMBER",
    "--head": "--count NUMBER",
    "-n": "--count NUMBER",
    "--from": "--since TIME",
    "--to": "--until TIME",
    "--key": "--filter 'record.key == \"KEY\"'",
    "--latency": "--slower-than DURATION",
    "--where": "--filter EXPR",
    "--grep": "--filter EXPR",
}
"""Options that other tools have, and what to use instead."""


def unknown_option(name: str, command: click.Command | None) -> str:
    """The message for an option that a command does not have: what is meant, or which commands have it."""
    from kafkasniff.text.printable import suggestion

    wrong = f"no such option: {name}"
    if command is None or isinstance(command, click.Group):
        return f"{wrong}; options follow the command"
    own = {option: one.type for one in command.params for option in one.opts if option.startswith("--")}
    meant = _MEANT.get(name, "")
    option, _, value = meant.partition(" ")
    if meant in _COMMANDS or (option in own and value in getattr(own[option], "choices", (value,))):
        return f"{wrong}; use {meant}"
    context = click.Context(command_line)
    others = {other: command_line.get_command(context, other) for other in _COMMANDS if name.startswith("--")}
    having = [
        other for other, command in others.items() if command and any(name in param.opts for param in command.params)
    ]
    return wrong + (f"; commands that have it: {', '.join(having)}" if having else suggestion(name, (*own, "--help")))


def unknown_command(first: str, commands: Iterable[str]) -> str:
    """The message for a first word that is neither a command nor a file."""
    from kafkasniff.analysis import question_names
    from kafkasniff.text.printable import suggestion

    if first in question_names():
        return f"no such command: {first}; it is a question: kafkasniff analyze {first} CAPTURE"
    hint = suggestion(first, commands)
    return f"no such command: {first}{hint}" if hint else f"no such command, and no such file: {first}"


# Commands, and how they end.

# Name → (module, attribute, summary). A module is imported only when its command is run.
_COMMANDS: Final = {
    "decode": ("kafkasniff.cli.commands.decode", "decode_command", "Decode captures to text or JSON lines."),
    "browse": ("kafkasniff.cli.commands.browse", "browse_command", "Look around in captures, in the terminal."),
    "live": ("kafkasniff.cli.commands.live", "live_command", "Decode live traffic from an interface."),
    "export": ("kafkasniff.cli.commands.export", "export_command", "Write captures to Parquet tables."),
    "audit": ("kafkasniff.cli.commands.audit", "audit_command", "Find clients that a Kafka release would refuse."),
    "stats": ("kafkasniff.cli.commands.stats", "stats_command", "Summarize captures or exports on one screen."),
    "check": ("kafkasniff.cli.commands.check", "check_command", "Find problems, with evidence and advice."),
    "security": (
        "kafkasniff.cli.commands.security",
        "security_command",
        "Show who connects as whom, over TLS and SASL or not.",
    ),
    "report": ("kafkasniff.cli.commands.report", "report_command", "Write an HTML report: overview, findings, charts."),
    "timing": ("kafkasniff.cli.commands.timing", "timing_command", "Show where time went: client, network, broker."),
    "follow": ("kafkasniff.cli.commands.follow", "follow_command", "Follow a record from producer to consumers."),
    "diff": ("kafkasniff.cli.commands.diff", "diff_command", "Compare two captures or exports."),
    "analyze": ("kafkasniff.cli.commands.analyze", "analyze_command", "Answer questions about captures or exports."),
    "sql": ("kafkasniff.cli.commands.sql", "sql_command", "Query captures or exports in SQL."),
    "api": ("kafkasniff.cli.commands.api", "api_command", "Look up the protocol's APIs, versions and fields."),
    "tls": ("kafkasniff.cli.commands.tls", "tls_command", "Say which TLS connections can be decrypted."),
    "schemas": ("kafkasniff.cli.commands.schemas", "schemas_command", "Copy schemas from a registry or captures."),
    "mcp": ("kafkasniff.cli.commands.mcp", "mcp_command", "Answer questions of language models (MCP server)."),
    "wireshark": (
        "kafkasniff.cli.commands.wireshark",
        "wireshark_command",
        "Write a dissector and an interface for Wireshark.",
    ),
    "decode-bytes": (
        "kafkasniff.cli.commands.decode_bytes",
        "decode_bytes_command",
        "Decode one message pasted from a log.",
    ),
    "completion": (
        "kafkasniff.cli.commands.completion",
        "completion_command",
        "Print a completion script for bash, zsh or fish.",
    ),
    "help": ("kafkasniff.cli.commands.help", "help_command", "Explain a command, or filters, TLS and exit codes."),
}
_TABLES: Final = ("pyarrow", "duckdb")
"""The packages of the extra `tables`."""
MEMORY_ADVICE: Final = "give --memory a lower SIZE, use fewer --jobs, or provide more memory"
"""What to do about an out-of-memory error."""
NEEDS_TABLES: Final = "tables, analyses and object stores need pyarrow and duckdb: pip install 'kafkasniff[tables]'"
"""Reported where one of them is first imported, since some commands need it only for some sources."""


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports only the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        if ctx.resilient_parsing:
            # Shell completion.
            from kafkasniff.cli.commands.completion import know_values

            return know_values(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = [name for option in self.get_params(ctx) for name in option.opts]
        return super().parse_args(ctx, with_command(args, _COMMANDS, own))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not ctx.resilient_parsing:
            ctx.fail(unknown_command(args[0], _COMMANDS))
        name, command, rest = super().resolve_command(ctx, args)
        try:
            return name, command, with_options(command, rest)
        except click.UsageError as error:
            if command is not None:
                # Its help is the one to read.
                error.ctx = click.Context(command, info_name=name, parent=ctx)
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click's own implementation would import all commands to get their summaries.
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=summary) for name, (_, _, summary) in _COMMANDS.items()]
        found = [item for item in named if item.value.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in _COMMANDS.items()])


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from kafkasniff.native.library import kernel_note

    click.echo(f"kafkasniff {kafkasniff.__version__} ({kernel_note()})")
    context.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def command_line() -> None:
    """Inspect Apache Kafka's wire traffic: decode captures and live traffic into messages.

    `kafkasniff FILE` and `kafkasniff -r FILE` decode a capture, `kafkasniff -i INTERFACE` captures live. `--json` is
    short for `--format json`.
    """
    from kafkasniff.runtime.memory_limits import keep_freed_memory

    keep_freed_memory()


def run(arguments: Sequence[str], environment: Environment) -> int:
    """Run one command line; returns the exit code. Raises nothing."""
    try:
        # Not `command_line.main`: it maps a broken pipe to an exit code of its own.
        with command_line.make_context("kafkasniff", list(arguments), obj=environment) as context:
            result = command_line.invoke(context)
        code = int(result) if isinstance(result, int) else Exit.OK
        _flush(environment)
    except click.exceptions.Exit as end:
        # --help, --version
        return end.exit_code
    except BrokenPipeError:
        # The reader has seen enough (`| head`): not an error, and there is nobody to report to.
        return Exit.OK
    except Interrupted as interrupt:
        interrupt.accept()
        return interrupt.code
    except (KeyboardInterrupt, click.Abort):
        return Exit.SIGINT
    except click.exceptions.NoArgsIsHelpError as error:
        environment.write_lines(error.format_message().splitlines())
        return Exit.USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "kafkasniff"
        if isinstance(error, click.NoSuchOption):
            message = unknown_option(error.option_name, error.ctx.command if error.ctx else None)
        else:
            message = _RANGE.sub("is not a number", error.format_message())
            # Click's messages begin with a capital and end with a full stop, unlike ours.
            message = message[:1].lower() + message[1:].removesuffix(".")
        environment.say(f"{_one_line(message)} (see `{path} --help`)")
        return Exit.USAGE
    except click.ClickException as error:
        environment.say(_one_line(error.format_message()))
        return Exit.USAGE
    except (KafkasniffError, OSError, MemoryError) as error:
        return _failed(error, environment)
    except Exception as error:  # last resort: a bug becomes one line and its exit code
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _TABLES:
            environment.say(NEEDS_TABLES)
            return Exit.UNAVAILABLE
        _show_traceback(environment)
        hint = "" if environment.verbosity else " (-v shows where)"
        environment.say(f"internal error: {type(error).__name__}: {_one_line(str(error))}{hint}")
        return Exit.INTERNAL
    return code


_RANGE: Final = re.compile("is not a valid (integer|float)( range)?")
"""Click's words for what is not a number."""
_CODES: Final = (
    (UsageError, Exit.USAGE),
    (OutputError, Exit.UNAVAILABLE),
    (MissingPartError, Exit.UNAVAILABLE),
    (CaptureError, Exit.CAPTURE),
    (KafkasniffError, Exit.INTERNAL),
)


def _failed(error: KafkasniffError | OSError | MemoryError, environment: Environment) -> Exit:
    """Print one line for an exception that is not a bug; returns the exit code."""
    if is_out_of_memory(error):
        # Whatever could not be read or written, memory is the cause to fix.
        _show_traceback(environment)
        message = str(error) if isinstance(error, OutOfMemoryError) else "out of memory"
        environment.say(f"{message}: {MEMORY_ADVICE}")
        return Exit.UNAVAILABLE
    for kind, code in _CODES:
        if isinstance(error, kind):
            environment.say(_one_line(str(error)))
            return code
    # Read errors are handled where they happen; what reaches this place is a write error.
    reason = error.strerror if isinstance(error, OSError) else None
    environment.say(f"cannot write: {_one_line(reason or str(error))}")
    return Exit.UNAVAILABLE


def _show_traceback(environment: Environment) -> None:
    """With `-v`, print the traceback of the current exception."""
    if not environment.verbosity:
        return
    import traceback

    # Its last line may quote text from the wire.
    environment.write_lines(traceback.format_exc().splitlines())


def _flush(environment: Environment) -> None:
    """Flush stdout after a command; raises OutputError if that fails."""
    try:
        environment.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error


def _one_line(text: str) -> str:
    """Joins lines: messages may span several, or quote text that does."""
    return " ".join(text.split())


def main() -> None:
    """The console script: runs the command line and ends the process."""
    if COMPLETION in os.environ:
        from kafkasniff.cli.commands.completion import complete

        sys.exit(complete(command_line, os.environ[COMPLETION]))
    # NumPy's linear algebra would start a thread per core, and nothing here uses it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Messages live as long as their batch and hold no cycles: the default thresholds cost a third of the run.
    gc.set_threshold(400_000, 50, 100)
    refuse_pandas()
    environment = Environment.of_process()
    with environment.interrupts.installed():
        code = run(sys.argv[1:], environment)
    _discard_output()
    # The process ends: skip the interpreter's final collection, a twelfth of a short run.
    gc.freeze()
    sys.exit(code)


def _discard_output() -> None:
    """Discard what stdout still buffers, so that the interpreter does not try to write it again at exit."""
    if sys.stdout is None:
        return
    with contextlib.suppress(OSError, ValueError):
        try:
            sys.stdout.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
