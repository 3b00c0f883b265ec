"""The command line's entrance: finds the command, runs it, turns whatever happens into an exit code and one line."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

import kafkasniff
from kafkasniff.cli.environment import Environment, Exit, Interrupted
from kafkasniff.cli.shorthand import unknown_command, with_command, with_options
from kafkasniff.cli.without_pandas import refuse_pandas
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

__all__ = ["COMPLETION", "command_line", "main", "run"]

# Name → (module, attribute, what it does). The modules are imported when their command is run, the list is not.
_COMMANDS: Final = {
    "decode": ("kafkasniff.cli.decode", "decode_command", "Decode captures to text or JSON lines."),
    "live": ("kafkasniff.cli.live", "live_command", "Decode live traffic from an interface."),
    "export": ("kafkasniff.cli.export", "export_command", "Write captures to Parquet tables."),
    "audit": ("kafkasniff.cli.audit", "audit_command", "Find clients that a Kafka release would refuse."),
    "stats": ("kafkasniff.cli.stats", "stats_command", "Summarize captures or exports on one screen."),
    "check": ("kafkasniff.cli.check", "check_command", "Find problems, with evidence and advice."),
    "report": ("kafkasniff.cli.report", "report_command", "Write an HTML report: overview, findings, charts."),
    "timing": ("kafkasniff.cli.timing", "timing_command", "Show where time went: client, network, broker."),
    "diff": ("kafkasniff.cli.diff", "diff_command", "Compare two captures or exports."),
    "analyze": ("kafkasniff.cli.analyze", "analyze_command", "Answer questions about exported tables."),
    "api": ("kafkasniff.cli.api", "api_command", "Look up the protocol's APIs, versions and fields."),
    "decode-bytes": ("kafkasniff.cli.decode_bytes", "decode_bytes_command", "Decode one message pasted from a log."),
    "completion": (
        "kafkasniff.cli.completion",
        "completion_command",
        "Print a completion script for bash, zsh or fish.",
    ),
}
MEMORY_ADVICE: Final = "give --memory a lower SIZE, use fewer --jobs, or provide more memory"
"""What to do where there is not enough."""
COMPLETION: Final = "_KAFKASNIFF_COMPLETE"
"""The environment variable by which a shell asks what may follow; the name is Click's."""


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        if ctx.resilient_parsing:
            # A shell asks what may follow.
            from kafkasniff.cli.completion import know_values

            return know_values(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_command(args, _COMMANDS))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not ctx.resilient_parsing:
            ctx.fail(unknown_command(args[0], _COMMANDS))
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, with_options(command, rest)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click's own would import all commands to ask them what they do.
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=told) for name, (_, _, told) in _COMMANDS.items()]
        found = [item for item in named if item.value.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, _, told) in _COMMANDS.items()])


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
    from kafkasniff.native.allocation import keep_freed_memory

    keep_freed_memory()


def run(arguments: Sequence[str], environment: Environment) -> int:
    """Run one command line; returns the exit code. Raises nothing."""
    try:
        # Not `command_line.main`: that makes an exit code of its own of a broken pipe.
        with command_line.make_context("kafkasniff", list(arguments), obj=environment) as context:
            result = command_line.invoke(context)
        code = int(result) if isinstance(result, int) else Exit.OK
        _flush(environment)
    except click.exceptions.Exit as end:
        # --help, --version
        return end.exit_code
    except BrokenPipeError:
        # The reader has seen enough (`| head`): not an error, and there is nobody to tell.
        return Exit.OK
    except Interrupted as interrupt:
        return interrupt.code
    except (KeyboardInterrupt, click.Abort):
        return Exit.SIGINT
    except click.exceptions.NoArgsIsHelpError as error:
        environment.write_lines(error.format_message().splitlines())
        return Exit.USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "kafkasniff"
        environment.say(f"{_one_line(error.format_message())} (see `{path} --help`)")
        return Exit.USAGE
    except click.ClickException as error:
        environment.say(_one_line(error.format_message()))
        return Exit.USAGE
    except (KafkasniffError, OSError, MemoryError) as error:
        return _failed(error, environment)
    except Exception as error:  # the last resort: a bug becomes one line and its exit code
        _show_traceback(environment)
        hint = "" if environment.verbosity else " (-v shows where)"
        environment.say(f"internal error: {type(error).__name__}: {_one_line(str(error))}{hint}")
        return Exit.INTERNAL
    return code


_CODES: Final = (
    (UsageError, Exit.USAGE),
    (OutputError, Exit.UNAVAILABLE),
    (MissingPartError, Exit.UNAVAILABLE),
    (CaptureError, Exit.CAPTURE),
    (KafkasniffError, Exit.INTERNAL),
)


def _failed(error: KafkasniffError | OSError | MemoryError, environment: Environment) -> Exit:
    """One line for an exception that is no bug; returns the exit code."""
    if is_out_of_memory(error):
        # Whatever it was that could not be written or read for it, memory is what to do something about.
        _show_traceback(environment)
        told = str(error) if isinstance(error, OutOfMemoryError) else "out of memory"
        environment.say(f"{told}: {MEMORY_ADVICE}")
        return Exit.UNAVAILABLE
    for kind, code in _CODES:
        if isinstance(error, kind):
            environment.say(_one_line(str(error)))
            return code
    # Reading is guarded where it happens; what comes this far could not be written.
    reason = error.strerror if isinstance(error, OSError) else None
    environment.say(f"cannot write: {_one_line(reason or str(error))}")
    return Exit.UNAVAILABLE


def _show_traceback(environment: Environment) -> None:
    """The traceback of what is being handled, with `-v`."""
    if not environment.verbosity:
        return
    import traceback

    # Its last line may quote what came from the wire.
    environment.write_lines(traceback.format_exc().splitlines())


def _flush(environment: Environment) -> None:
    """Hand on what a command left in stdout's buffer; raises OutputError where that fails."""
    try:
        environment.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error


def _one_line(text: str) -> str:
    """Messages may be set in several lines, or quote some."""
    return " ".join(text.split())


def main() -> None:
    """The console script: runs the command line of the process and ends it."""
    if COMPLETION in os.environ:
        from kafkasniff.cli.completion import complete

        sys.exit(complete(os.environ[COMPLETION]))
    # NumPy's linear algebra would start a thread for each core, for work that there is none of here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Messages live as long as their batch and hold no cycles: looking for some all the time took a third of the run.
    gc.set_threshold(400_000, 50, 100)
    refuse_pandas()
    environment = Environment.of_process()
    with environment.interrupts.installed():
        code = run(sys.argv[1:], environment)
    _discard_output()
    # The process ends: the interpreter's own last search for cycles takes a twelfth of a short run.
    gc.freeze()
    sys.exit(code)


def _discard_output() -> None:
    """What stdout still holds could not be written; let the interpreter's end not try it again."""
    if sys.stdout is None:
        return
    with contextlib.suppress(OSError, ValueError):
        try:
            sys.stdout.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
