"""Tables that `live --export` writes in addition to messages: their options, their batches, and their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.cli.environment import Environment, Interrupted
from kafkasniff.cli.options.export_options import TABLES, make_export_options, rows_line
from kafkasniff.cli.options.filter_options import FilterOptions
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from kafkasniff.filters import Predicate
    from kafkasniff.packets import PacketBatch
    from kafkasniff.redact.payload import Payload
    from kafkasniff.tables.exports.live import LiveExport

__all__ = ["export_arguments", "exported", "finished"]

MIN_EVERY_SECONDS: Final = 1.0
"""Minimum of `--export-every`: each commit starts a process and makes some files."""


def export_arguments(
    options: dict[str, Any],
    filters: FilterOptions,
    predicate: Predicate | None,
    seconds_of: Callable[[str | None], float | None],
    *,
    records: bool,
    payload: Payload,
) -> dict[str, Any] | None:
    """Arguments of `LiveExport` from the options for tables, removed from `options`; None without `--export`.

    `seconds_of`: reads a duration. Raises UsageError.
    """
    directory, every = options.pop("directory"), options.pop("every")
    tables, no_bodies, no_json = options.pop("tables"), options.pop("no_bodies"), options.pop("no_json")
    discard_state = options.pop("discard_state")
    if directory is None:
        given_options = (
            ("--discard-state", discard_state),
            ("--export-every", every),
            ("--tables", tables),
            ("--no-bodies", no_bodies),
            ("--no-json", no_json),
        )
        for name, given in given_options:
            if given:
                raise UsageError(f"{name} needs --export DIR")
        return None
    arguments: dict[str, Any] = {"directory": directory, "discard_state": discard_state}
    seconds = seconds_of(every)
    if seconds is not None:
        if seconds < MIN_EVERY_SECONDS:
            raise UsageError(f"--export-every: at least {MIN_EVERY_SECONDS:g} s")
        arguments["every_seconds"] = seconds
    arguments["options"] = make_export_options(
        ",".join(TABLES) if tables is None else tables,
        options,
        filters,
        predicate,
        bodies=not (no_bodies or no_json),
        headers=no_bodies,
        records=records,
        payload=payload,
    )
    return arguments


def exported(environment: Environment, batches: Iterator[PacketBatch], tables: LiveExport) -> Iterator[PacketBatch]:
    """The batches of a source, each after it was added to the tables. Signals are deferred meanwhile."""
    for batch in batches:
        with environment.interrupts.held():
            tables.feed(batch)
        yield batch


def finished(environment: Environment, tables: LiveExport) -> str:
    """Commit the remaining rows; returns their count as text. A first signal is ignored, a second one aborts."""
    try:
        with environment.interrupts.stopping(lambda: None):
            result = tables.close()
    except Interrupted:
        environment.say(f"stopped immediately: {name_of(tables.directory)} lacks the last rows")
        raise
    for notice in result.notices:
        environment.say(notice)
    return rows_line(result.rows, name_of(tables.directory))
