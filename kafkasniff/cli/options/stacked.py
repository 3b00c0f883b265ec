"""Several options as one decorator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = ["Command", "stacked"]

Command = TypeVar("Command", bound=Callable[..., Any])


def stacked(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """The command with options, listed in their order."""
    for option in reversed(options):
        command = option(command)
    return command
