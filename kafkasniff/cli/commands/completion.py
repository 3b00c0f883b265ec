"""Shell completion: `kafkasniff completion SHELL` prints a script that asks `kafkasniff` itself for suggestions.

Click implements both. Values are suggested by a parameter's metavar, so that no command has to declare them twice. They
are looked up only during completion, with as few imports as possible, because somebody waits at a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from kafkasniff.cli.environment import COMPLETION, Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand

PROGRAM: Final = "kafkasniff"
SHELLS: Final = ("bash", "zsh", "fish")

_HELP: Final = """Print a script that lets a shell complete commands, options and values.

\b
bash: eval "$(kafkasniff completion bash)" in ~/.bashrc
zsh:  eval "$(kafkasniff completion zsh)" in ~/.zshrc, after compinit
fish: kafkasniff completion fish > ~/.config/fish/completions/kafkasniff.fish
"""

MAX_SUGGESTIONS: Final = 500
"""Suggestions per list; every actual list has fewer."""


def complete(command_line: click.Command, instruction: str) -> int:
    """Answer a shell on stdout; `instruction` is the value of `COMPLETION`. Returns the exit code."""
    from click.shell_completion import shell_complete

    try:
        return shell_complete(command_line, {}, PROGRAM, COMPLETION, instruction)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        # The command says what it needs when it is run; a shell would print it in the middle of a prompt.
        return 1


@click.command("completion", cls=SectionedCommand, help=_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(context: click.Context, *, shell: str) -> int:
    """Print a shell's script."""
    from click.shell_completion import get_completion_class

    environment: Environment = context.obj
    made = get_completion_class(shell)
    assert made is not None
    script = made(context.find_root().command, {}, PROGRAM, COMPLETION).source()
    environment.stdout.write(script.encode())
    return Exit.OK


def know_values(command: click.Command) -> click.Command:
    """Make a command's free-text parameters suggest values for their metavar. Returns the command."""
    for parameter in command.params:
        metavar = parameter.metavar
        if metavar in COMPLETED and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = COMPLETED[metavar]
    return command


class _NameChoice(click.types.StringParamType):
    """One of a list of names."""

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str] | Mapping[str, str]], *, several: bool = False) -> None:
        """`names`: the names, or a mapping to a short description; `several`: accepts comma lists."""
        self._names = names
        self._several = several

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Everything before the last comma is kept.
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
    from kafkasniff.kafka.apis.dissectors import api, api_keys

    return {found.name: found.summary for key in api_keys() if (found := api(key)) is not None}


def _releases() -> Iterable[str]:
    from kafkasniff.kafka.apis.releases import releases

    return reversed(releases())


def _fields() -> Iterable[str]:
    from kafkasniff.filters.fields import FIELDS

    return FIELDS


def _tables() -> Iterable[str]:
    from kafkasniff.cli.options.option_groups import TABLES

    return TABLES


def _lists() -> Iterable[str]:
    from kafkasniff.analysis.comparison.answer import SECTIONS

    return SECTIONS


def _interfaces() -> Iterable[str]:
    import socket

    return [name for _, name in socket.if_nameindex()]


def _parts() -> Iterable[str]:
    from kafkasniff.cli.commands.timing import BY

    return BY


def _detectors() -> Iterable[str]:
    from kafkasniff.analysis.detectors.registry import detector_names

    return detector_names()


_FILES: Final = click.Path()
_FOLDERS: Final = click.Path(file_okay=False)

COMPLETED: Final[Mapping[str | None, click.ParamType[Any]]] = {
    "CAPTURE...": _FILES,
    "[CAPTURE...]": _FILES,
    "CAPTURE...|DIR": _FILES,
    "CAPTURE...|DIR|-": _FILES,
    "[QUERY] CAPTURE...|DIR...": _FILES,
    "CAPTURE|DIR": _FILES,
    "CAPTURE|DIR...": _FILES,
    "FILE": _FILES,
    "DIR": _FOLDERS,
    "URL|DIR": _FOLDERS,
    "NAME|KEY": _NameChoice(_apis, several=True),
    "[NAME|KEY]": _NameChoice(_apis),
    "RELEASE": _NameChoice(_releases),
    "EXPR": _NameChoice(_fields),
    "NAMES": _NameChoice(_tables, several=True),
    "LIST": _NameChoice(_lists, several=True),
    "DETECTOR": _NameChoice(_detectors, several=True),
    "WHAT": _NameChoice(_parts, several=True),
    "INTERFACE": _NameChoice(_interfaces, several=True),
}
"""Suggestions by metavar."""
