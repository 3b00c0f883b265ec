"""Short command lines of tcpdump, tshark and HTTPie: a bare file, `-r FILE`, `-i IF`, `-f EXPR`, `--json`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import click

__all__ = ["unknown_command", "with_command", "with_options"]

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

    Not where the command has an option of this name. Raises UsageError for `-f` where there is no capture.
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
    for at, one in enumerate(arguments):
        if one == "--":
            return found + list(arguments[at:])
        if one == "-T" and "--fields" in options:
            found.append("--format")
        elif one == "fields" and found[-1:] == ["--format"]:
            found.append("text")
        elif "--format" in options and _JSON not in options and one == _JSON:
            found.append("--format=json")
        elif one == "-f" and "--filter" in options and "f" not in letters and "-f" not in options:
            raise click.UsageError("-f is the capture filter of live; to select exchanges, use -Y EXPR")
        elif positional is not None and (match := positional.fullmatch(one)):
            found += [word for word in match.groups() if word not in ("", "-")]
        else:
            found.append(one)
    return found


def unknown_command(first: str, commands: Iterable[str]) -> str:
    """The message for a first word that is neither a command nor a file."""
    from kafkasniff.text.printable import suggestion

    hint = suggestion(first, commands)
    return f"no such command: {first}{hint}" if hint else f"no such command, and no such file: {first}"
