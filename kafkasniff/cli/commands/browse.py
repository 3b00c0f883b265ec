"""`kafkasniff browse`: an explorer of captures in the terminal."""

from __future__ import annotations

from collections.abc import Container, Mapping
from importlib.util import find_spec
from typing import Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.filter_options import FilterOptions, take_predicate
from kafkasniff.cli.options.option_groups import (
    framing_arguments,
    key_arguments,
    make_catalog,
    reading_options,
    reads_twice,
)
from kafkasniff.cli.options.sections import SectionedCommand
from kafkasniff.cli.running.sources import take_captures
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of

__all__ = ["browse_command"]

_READING: Final = frozenset({"ports", "max_frame", "keylog", "memory", "topic_ids"})
"""The options among `reading_options` that decide how captures are read."""


@click.command("browse", cls=SectionedCommand)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@reading_options
@click.pass_obj
def browse_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Look around in captures: list exchanges, open bodies and bytes, filter. Needs a terminal; `?` shows the keys.

    Captures are read again when you open an exchange, so stdin and pipes cannot be browsed. Secrets are never shown.
    """
    if find_spec("textual") is None:
        raise UsageError("browse needs the package textual: pip install 'kafkasniff[browse]'")
    if not environment.stdout_tty:
        raise UsageError("browse needs a terminal; `kafkasniff decode` writes to files and pipes")
    again = {"reading": _words(options, _READING), "selection": _words(options, frozenset(FilterOptions._fields))}
    taken = take_captures(environment, captures)
    if not reads_twice(None, taken):
        raise UsageError("browse reads captures again, so it cannot read stdin or a pipe")
    predicate = take_predicate(options)
    catalog = make_catalog(options)

    def arguments() -> dict[str, Any]:
        return {**framing_arguments(options), **key_arguments(options), "memory": options["memory"]}

    arguments()  # an invalid key log is reported before the screen opens

    from kafkasniff.browse.commands import Commands
    from kafkasniff.browse.reading import CaptureReading
    from kafkasniff.browse.saved_filters import SavedFilters, filters_file
    from kafkasniff.browse.screen.app import Explorer

    saved = SavedFilters(filters_file(environment.environ))
    reading = CaptureReading(taken, arguments, catalog)
    title = ", ".join(map(name_of, captures))
    app = Explorer(reading, predicate, title=title, commands=Commands(captures, **again), saved=saved)
    with environment.interrupts.stopping(app.exit):
        app.run()
    if app.return_code:
        return Exit.INTERNAL
    return Exit.BROKEN if app.broken else Exit.OK


def _words(options: Mapping[str, Any], names: Container[str]) -> tuple[str, ...]:
    """The given options with these names, as words of a command line."""
    words: list[str] = []
    for parameter in browse_command.params:
        value = options[parameter.name] if parameter.name in names else None
        if not value:
            continue
        option = parameter.opts[-1]
        words += (
            [option] if value is True else [f"{option}={one}" for one in (value if parameter.multiple else [value])]
        )
    return tuple(words)
