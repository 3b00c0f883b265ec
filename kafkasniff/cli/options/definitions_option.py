"""`--definitions`: APIs that Apache Kafka does not have, or has in other versions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kafkasniff.cli.options.stacked import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["definitions_option"]

_HELP = "Add APIs defined in DIR; or automq, inkless, redpanda (repeatable)."


def definitions_option(command: Command) -> Command:
    """The option, which takes effect before anything is decoded."""
    return click.option(
        *("--definitions", "definitions"),
        multiple=True,
        metavar="DIR",
        expose_value=False,
        is_eager=True,
        callback=_use,
        help=_HELP,
    )(command)


def _use(context: click.Context, _option: click.Parameter, names: Sequence[str]) -> None:
    if not names or context.resilient_parsing:
        return
    from kafkasniff.errors import UsageError
    from kafkasniff.kafka.apis.dissectors import api, check_definitions
    from kafkasniff.kafka.schema.data_files import DEFINITIONS, api_files, definition_folder, vendors

    for name in names:
        folder = definition_folder(name)
        if not folder.is_dir():
            raise UsageError(f"--definitions: {name} is neither a folder nor a vendor ({', '.join(vendors())})")
        problems = check_definitions(folder).problems
        if problems:
            more = f" (and {len(problems) - 1} more: kafkasniff api --check {name})" if len(problems) > 1 else ""
            raise UsageError(f"--definitions: {problems[0]}{more}")
    # Worker processes need it, too. A process has one dialect: what it has read so far of APIs is forgotten.
    os.environ[DEFINITIONS] = os.pathsep.join(os.path.abspath(one) if os.path.isdir(one) else one for one in names)
    api_files.cache_clear()
    api.cache_clear()
