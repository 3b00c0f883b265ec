"""`--memory`, an option of every command that decodes captures, and the limits of `sql`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import click

from kafkasniff.cli.options.stacked import Command, stacked

__all__ = ["MEMORY", "memory_of", "query_limits"]

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"([0-9]{1,15})([kmg]?)(?:i?b)?", re.IGNORECASE)


def memory_of(text: str) -> int:
    """Bytes of a size such as 512M or 2G; units are powers of 1,024. Raises ValueError if it is not a size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2].lower()]


def _parse(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    from kafkasniff.runtime.memory_limits import MIN_MEMORY

    try:
        size = memory_of(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a size: give a number of bytes, or one with K, M or G") from None
    if size < MIN_MEMORY:
        raise click.BadParameter(f"{value} is too small: {MIN_MEMORY >> 20}M is the minimum")
    return size


MEMORY: Final[Callable[[Any], Any]] = click.option(
    "--memory",
    metavar="SIZE",
    callback=_parse,
    help="Memory limit for incomplete data, such as 512M or 2G. Excess is dropped and reported [default: 1G].",
)


def query_limits(command: Command) -> Command:
    """Limits of a query in SQL."""
    return stacked(
        command,
        [
            click.option(
                "--query-memory",
                metavar="SIZE",
                callback=_parse,
                help="Memory limit of the query, such as 512M or 2G. Excess goes to a temporary folder [default: 1G].",
            ),
            click.option(
                "--query-disk",
                metavar="SIZE",
                callback=_parse,
                help="Limit for what the query keeps in the temporary folder [default: 10G].",
            ),
        ],
    )
