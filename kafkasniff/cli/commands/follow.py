"""`kafkasniff follow`: the way of a record from its producer to every consumer."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import framing_options, topic_ids_option
from kafkasniff.cli.options.record_options import (
    payload_options,
    registry_options,
    row_values,
    take_payload,
    take_schemas,
)
from kafkasniff.cli.options.shared_options import (
    format_option,
    hosts_option,
    output_option,
    presentation_options,
    take_hosts,
)
from kafkasniff.cli.running.sources import divide_sources
from kafkasniff.errors import UsageError
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from kafkasniff.analysis.follow import WaysFound

COUNT: Final = 10
"""Records shown, without --count."""
MAX_COUNT: Final = 1000
_FRAMING: Final = ("ports", "max_frame", "keylog", "memory", "topic_ids")


@click.command("follow", cls=SectionedCommand)
@click.argument("sources", nargs=-1, required=True, metavar="CAPTURE...|DIR")
@click.option("--key", metavar="TEXT", help="Records with this key: text, or hex: and hex digits.")
@click.option("--offset", metavar="PLACE", help="The record at TOPIC-PARTITION@OFFSET, such as orders-0@17.")
@click.option("--trace", metavar="ID", help="Records with this trace id in their headers.")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only these topics (repeatable; *, ? and []).")
@click.option(
    "-c",
    "--count",
    type=click.IntRange(1, MAX_COUNT),
    default=COUNT,
    show_default=True,
    metavar="N",
    help="Show the first N records.",
)
@format_option()
@output_option
@payload_options
@framing_options
@topic_ids_option
@registry_options
@hosts_option
@presentation_options
@click.pass_obj
def follow_command(environment: Environment, /, sources: tuple[str, ...], **options: Any) -> int:
    """Follow a record from its producer to its broker, and from there to every consumer.

    Shows each step on the wire with its delay: attempts to produce it, acknowledgement, replication, deliveries,
    commits beyond it, and what is not in the capture. Reads captures, or an export (DIR) with records.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    hosts, payload = take_hosts(options), take_payload(options)
    schemas = take_schemas(options, environment.environ)
    framing = {name: options.pop(name) for name in _FRAMING}

    from kafkasniff.analysis.follow.way import Wanted

    wanted = Wanted.parse(options["key"], options["offset"], options["trace"], options["topics"])
    divided = divide_sources(environment, sources, filtered=False)
    captures, folders = divided
    values = row_values(schemas, None, folders)
    if folders and len(sources) > 1:
        raise UsageError(f"follow takes captures or one export: {name_of(folders[0])} is an export")

    from kafkasniff.analysis.export import Export
    from kafkasniff.analysis.follow import READINGS, follow, nothing_found
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.running.sources import exported

    named = tuple(map(name_of, sources))
    broken = False
    with contextlib.ExitStack() as around, Output(environment, options["output"], inputs=captures) as stream:
        folder = folders[0] if folders else ""
        if captures:
            columns = {table: reading.columns for table, reading in READINGS.items()}
            made = exported(environment, captures, columns, framing, None, quiet=quiet, values=values)
            folder, broken = around.enter_context(made)
        export = Export.open(folder)
        followed = follow(export, wanted, options["count"])
        if followed.ways and captures:
            _number(environment, followed, captures, framing)
        if options["form"] == "json":
            from kafkasniff.cli.render.answer_json import follow_object, head

            stream.write_json({**head(named, broken=broken), **follow_object(followed, payload)})
        elif followed.ways:
            from kafkasniff.cli.render.follow_text import follow_text
            from kafkasniff.text.printable import printable

            stream.write_text(
                follow_text(
                    followed,
                    f"{printable(wanted.text)} in {divided.heading(named)}",
                    width=stream.width(),
                    coloured=stream.coloured(options["color"]),
                    payload=payload,
                    hosts=hosts,
                    count=options["count"],
                )
            )
        if followed.dropped and not quiet:
            environment.say(f"too many rows match: the {followed.dropped:,} latest were not looked at")
        if followed.ways:
            return Exit.BROKEN if broken else Exit.OK
        if broken:
            return Exit.BROKEN
        found = nothing_found(export, wanted, followed.records)
    if found is not None or not captures:
        environment.say(found or "no Kafka messages: there are no exchanges")
        return Exit.NOTHING
    from kafkasniff.cli.running.nothing_selected import say_nothing

    return say_nothing(environment, captures, framing, None, quiet=quiet)


def _number(environment: Environment, followed: WaysFound, captures: tuple[str, ...], framing: dict[str, Any]) -> None:
    """Number the steps as `decode` does, if the captures can be read again."""
    from kafkasniff.cli.render.captured_numbers import read_numbers

    numbers = read_numbers(environment, captures, framing)
    for way in followed.ways:
        for step in way.steps:
            step.connection = numbers.connection(step.connection_id)
            step.exchange = numbers.exchange(step.connection_id, step.exchange_id)
