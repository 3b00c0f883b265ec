"""What CAPTURE|DIR… on a command line names: captures, folders of captures, and exports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import UsageError
from kafkasniff.export_manifest import is_export

__all__ = ["Sources", "divide_sources", "take_captures"]


class Sources(NamedTuple):
    """What was named, each kind in the order in which it was named."""

    captures: tuple[str, ...]
    """Files and `-`; those of folders of captures by name."""
    folders: tuple[str, ...]
    """Exports."""


def divide_sources(environment: Environment, named: Sequence[str], *, filtered: bool) -> Sources:
    """Tell captures from exports. Raises UsageError where a terminal is a capture, or an export was to be filtered.

    Raises CaptureError where a folder is neither an export nor has captures.
    """
    folders = tuple(one for one in named if is_export(one))
    if filtered and folders:
        raise UsageError(f"filters are for captures, and {folders[0]} is an export: filter when it is exported")
    return Sources(tuple(_captures(environment, [one for one in named if one not in folders])), folders)


def take_captures(environment: Environment, named: Sequence[str]) -> tuple[str, ...]:
    """The captures that were named to a command that takes no exports. Raises UsageError and CaptureError."""
    for one in named:
        if is_export(one):
            raise UsageError(f"{one} is an export, not a capture: `kafkasniff stats {one}` reads it")
    return tuple(_captures(environment, named))


def _captures(environment: Environment, named: Sequence[str]) -> list[str]:
    if "-" in named and environment.stdin_tty:
        raise UsageError("stdin is a terminal: pipe a capture into it")
    if not any(one != "-" and os.path.isdir(one) for one in named):
        return list(named)
    from kafkasniff.capture.folders import with_folders

    return with_folders(named)
