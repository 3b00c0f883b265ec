"""`--hosts FILE`: names and racks of addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kafkasniff.enrich.hosts import Hosts

__all__ = ["hosts_option", "take_hosts"]

_HELP = "Read names of addresses from FILE, as in /etc/hosts, optionally followed by rack=NAME (docs/hosts.md)."

_Command = TypeVar("_Command", bound=Callable[..., Any])


def hosts_option(command: _Command) -> _Command:
    """Add the option."""
    return click.option("--hosts", metavar="FILE", help=_HELP)(command)


def take_hosts(options: dict[str, Any]) -> Hosts | None:
    """The contents of the file, removed from `options`; None without one. Raises UsageError."""
    path = options.pop("hosts")
    if path is None:
        return None
    from kafkasniff.enrich.hosts import Hosts

    return Hosts.load(path)
