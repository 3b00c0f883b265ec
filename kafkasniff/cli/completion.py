"""Shell completion: `kafkasniff completion SHELL` prints the script, which asks `kafkasniff` itself what may follow.

Click makes both. What a value may be goes by the metavar of its parameter, so that no command has to say it twice; it
is looked up only while a shell asks, and imports no more than it needs: somebody waits at a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from kafkasniff.cli.environment import Environment, Exit

__all__ = ["COMPLETED", "FREE", "complete", "completion_command", "know_values"]

PROGRAM: Final = "kafkasniff"
SHELLS: Final = ("bash", "zsh", "fish")

_HELP: Final = """Print a script that lets a shell complete commands, options and values.

\b
bash: eval "$(kafkasniff completion bash)" in ~/.bashrc
zsh:  eval "$(kafkasniff completion zsh)" in ~/.zshrc, after compinit
fish: kafkasniff completion fish > ~/.config/fish/completions/kafkasniff.fish
"""

MAX_SUGGESTIONS: Final = 500
"""Of one list; all that there are have fewer."""


def complete(instruction: str) -> int:
    """Answer a shell on stdout; `instruction` is the value of `main.COMPLETION`. Returns the exit code."""
    from click.shell_completion import shell_complete

    from kafkasniff.cli.main import COMPLETION, command_line

    return shell_complete(command_line, {}, PROGRAM, COMPLETION, instruction)


@click.command("completion", help=_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_obj
def completion_command(environment: Environment, *, shell: str) -> int:
    """Print a shell's script."""
    from click.shell_completion import get_completion_class

    from kafkasniff.cli.main import COMPLETION, command_line

    made = get_completion_class(shell)
    assert made is not None
    script = made(command_line, {}, PROGRAM, COMPLETION).source()
    environment.stdout.write(script.encode())
    return Exit.OK


def know_values(command: click.Command) -> click.Command:
    """Let a command's parameters that take any text suggest what their metavar stands for. Returns the command."""
    for parameter in command.params:
        metavar = parameter.metavar
        if metavar in COMPLETED and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = COMPLETED[metavar]
    return command


class _Names(click.types.StringParamType):
    """One of some names."""

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str] | Mapping[str, str]], *, several: bool = False) -> None:
        """`names`: all, or with a word on each; `several`: as many as wanted, with commas between them."""
        self._names = names
        self._several = several

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # What stands in front of the last comma stays.
        before, last = re.fullmatch(r"(.*,|)(.*)", incomplete, re.S).groups() if self._several else ("", incomplete)  # type: ignore[union-attr]
        names = self._names()
        words = names if isinstance(names, Mapping) else dict.fromkeys(names)
        given = before.split(",")
        return [
            CompletionItem(f"{before}{name}", help=word)
            for name, word in list(words.items())[:MAX_SUGGESTIONS]
            if name.lower().startswith(last.lower()) and name not in given
        ]


def _apis() -> dict[str, str]:
    from kafkasniff.kafka.dissectors import api, api_keys

    return {found.name: found.summary for key in api_keys() if (found := api(key)) is not None}


def _releases() -> Iterable[str]:
    from kafkasniff.kafka.releases import releases

    return reversed(releases())


def _fields() -> Iterable[str]:
    from kafkasniff.filters.fields import FIELDS

    return FIELDS


def _tables() -> Iterable[str]:
    from kafkasniff.cli.export_options import TABLES

    return TABLES


def _lists() -> Iterable[str]:
    from kafkasniff.analysis.comparison.answer import SECTIONS

    return SECTIONS


def _interfaces() -> Iterable[str]:
    import socket

    return [name for _, name in socket.if_nameindex()]


def _parts() -> Iterable[str]:
    from kafkasniff.cli.timing import BY

    return BY


def _detectors() -> Iterable[str]:
    from kafkasniff.detectors.registry import detector_names

    return detector_names()


_FILES: Final = click.Path()
_FOLDERS: Final = click.Path(file_okay=False)

COMPLETED: Final[Mapping[str | None, click.ParamType[Any]]] = {
    "CAPTURE...": _FILES,
    "CAPTURE...|DIR": _FILES,
    "CAPTURE|DIR": _FILES,
    "CAPTURE|DIR...": _FILES,
    "FILE": _FILES,
    "DIR": _FOLDERS,
    "NAME|KEY": _Names(_apis, several=True),
    "[NAME|KEY]": _Names(_apis),
    "RELEASE": _Names(_releases),
    "EXPR": _Names(_fields),
    "NAMES": _Names(_tables, several=True),
    "LIST": _Names(_lists, several=True),
    "DETECTOR": _Names(_detectors, several=True),
    "WHAT": _Names(_parts, several=True),
    "INTERFACE": _Names(_interfaces, several=True),
}
"""What may stand for a metavar."""
FREE: Final = frozenset(
    {
        "ADDRESS[:PORT]",
        "BYTES",
        "DETECTOR.FIELD=VALUE",
        "DURATION",
        "HEX|BASE64|-",
        "ID",
        "MIB",
        "N",
        "NAME",
        "NAME=VALUE",
        "NAME[:GROUP]",
        "S",
        "SIZE",
        "TIME",
        "URL",
        "X",
        "[BPF FILTER]",
        "[HOST]:PORT",
    }
)
"""Metavars of text that only the user knows."""
