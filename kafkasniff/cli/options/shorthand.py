"""Short command lines that users of tcpdump, tshark and HTTPie type: a bare file, `-r FILE`, `-i IF`, `--json`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

import click

__all__ = ["unknown_command", "with_command", "with_options"]

_READ: Final = "-r"
_INTERFACE: Final = "-i"
_JSON: Final = "--json"


def with_command(arguments: Sequence[str], commands: Iterable[str]) -> list[str]:
    """The arguments, with the implied command inserted if they begin with none.

    `FILE…`, `DIR…`, `-` and `-r FILE` imply decode; `-i INTERFACE` implies live.
    """
    found = list(arguments)
    if not found or found[0] in commands:
        return found
    first = found[0]
    if first == _READ:
        return ["decode", *found[1:]]
    if first.startswith(_READ) and not first.startswith("--"):
        return ["decode", first[len(_READ) :], *found[1:]]
    if first.startswith(_INTERFACE) and not first.startswith("--"):
        return ["live", *found]
    if first == "-" or (not first.startswith("-") and os.path.exists(first)):
        return ["decode", *found]
    return found


def with_options(command: click.Command | None, arguments: Sequence[str]) -> list[str]:
    """The arguments with `--json` as `--format json` and `-r FILE` as FILE, if the command does not define these."""
    params = [] if command is None else command.params
    options = {option for one in params for option in one.opts if isinstance(one, click.Option)}
    formats = "--format" in options and _JSON not in options
    reads = _READ not in options and any(isinstance(one, click.Argument) and one.nargs == -1 for one in params)
    found: list[str] = []
    for at, one in enumerate(arguments):
        if one == "--":
            return found + list(arguments[at:])
        if formats and one == _JSON:
            found.append("--format=json")
        elif not (reads and one == _READ):
            found.append(one)
    return found


def unknown_command(first: str, commands: Iterable[str]) -> str:
    """The message for a first word that is neither a command nor a file."""
    import difflib

    near = difflib.get_close_matches(first, list(commands), 1)
    if near:
        return f"no such command: {first}. Did you mean {near[0]}?"
    return f"no such command, and no such file: {first}"
