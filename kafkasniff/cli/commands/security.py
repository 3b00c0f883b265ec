"""`kafkasniff security`: who connects as whom, and what is insecure about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.answer_options import (
    fail_on_option,
    fails,
    format_option,
    output_option,
    presentation_options,
)
from kafkasniff.cli.options.option_groups import framing_options
from kafkasniff.cli.options.sections import SectionedCommand
from kafkasniff.cli.running.sources import Sources, take_captures
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from kafkasniff.analysis.security import SecurityView

__all__ = ["security_command"]

MAX_WIDTH: Final = 100
"""Longer lines of prose are hard to read."""


@click.command("security", cls=SectionedCommand)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@format_option()
@output_option
@fail_on_option("never")
@framing_options
@presentation_options
@click.pass_obj
def security_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Show who connects as whom: addresses, principals, SASL, TLS, certificates, denied access.

    Passwords and tokens are never shown. In encrypted connections without --keylog, only the TLS handshake is visible.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    taken = take_captures(environment, captures)
    divided = Sources(taken, ())

    from kafkasniff.analysis.security import SecurityView
    from kafkasniff.cli.output import Output

    view = SecurityView()
    with Output(environment, options["output"], inputs=taken) as output:
        broken = _read(environment, taken, options, view, quiet=quiet)
        identities, findings, sources = view.identities(), view.findings(), tuple(map(name_of, captures))
        if options["form"] == "json":
            from kafkasniff.cli.render.check_text import finding_object
            from kafkasniff.cli.render.security_text import identity_object

            output.write_json(
                {
                    "sources": list(sources),
                    "broken": broken,
                    "connections": view.connections,
                    "identities": [identity_object(one) for one in identities],
                    "findings": [finding_object(one) for one in findings],
                    "notes": view.notes(),
                }
            )
        else:
            from kafkasniff.cli.render.security_text import security_text

            text = security_text(
                identities,
                findings,
                divided.heading(sources),
                captures=divided.capture_arguments(captures),
                connections=view.connections,
                width=output.width(MAX_WIDTH),
                coloured=output.coloured(options["color"]),
            )
            output.write_text(text)
    if not quiet:
        for note in view.notes():
            environment.say(note)
    if fails(findings, options["fail_on"]):
        return Exit.FINDINGS
    return Exit.BROKEN if broken else Exit.OK


def _read(
    environment: Environment, captures: tuple[str, ...], options: dict[str, Any], view: SecurityView, *, quiet: bool
) -> bool:
    """Read all captures into `view`; returns whether one of them is broken."""
    from kafkasniff.capture import open_captures
    from kafkasniff.cli.options.option_groups import framing_arguments, key_arguments
    from kafkasniff.cli.running.pipeline import shown_parts, summary_line
    from kafkasniff.cli.running.progress import Progress, wants_progress
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.enrich import Catalog, Enricher

    arguments = {**framing_arguments(options), **key_arguments(options)}
    inspector = Inspector(records="skip", exchanges=True, connections=True, memory=options["memory"], **arguments)
    enricher = Enricher(Catalog(), summary=inspector.summary)
    enricher.limit_memory(inspector.memory)
    inspector.count_beside(enricher)
    with open_captures(captures, stdin=environment.stdin) as source:
        shows = wants_progress(environment, to_terminal=False, quiet=quiet)
        for part in shown_parts(source, Progress(environment, source) if shows else None):
            for events in inspector.feed_slices(part):
                enricher.feed(events)
                view.feed(events)
        for events in inspector.close_slices():
            enricher.feed(events)
            view.feed(events)
        broken: bool = source.broken
    if not quiet:
        environment.say(summary_line(inspector.summary))
    return broken
