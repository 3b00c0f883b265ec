"""What stands on a command line as CAPTURE|DIR…: captures, and folders that `export` wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import UsageError

__all__ = ["Sources", "divide_sources"]


class Sources(NamedTuple):
    """Captures, `-` among them, and folders, each in the order in which they were named."""

    captures: tuple[str, ...]
    folders: tuple[str, ...]


def divide_sources(environment: Environment, named: Sequence[str], *, filtered: bool) -> Sources:
    """Tell captures from folders. Raises UsageError where a terminal is a capture, or a folder was to be filtered."""
    folders = tuple(one for one in named if one != "-" and os.path.isdir(one))
    captures = tuple(one for one in named if one not in folders)
    if filtered and folders:
        raise UsageError(f"filters are for captures, and {folders[0]} is a folder: filter when it is exported")
    if "-" in captures and environment.stdin_tty:
        raise UsageError("stdin is a terminal: pipe a capture into it")
    return Sources(captures, folders)
