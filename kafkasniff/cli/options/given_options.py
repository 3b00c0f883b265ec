"""Refuses options that the user gave and that have no effect in a mode of a command."""

from __future__ import annotations

from collections.abc import Collection

import click
from click.core import ParameterSource

from kafkasniff.errors import UsageError

__all__ = ["refuse_options"]


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
