"""`kafkasniff security`: who connects as whom, and what is insecure about it."""

from __future__ import annotations

from typing import Any, Final

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import reading_options, take_predicate
from kafkasniff.cli.options.shared_options import (
    fail_on_option,
    fails,
    format_option,
    hosts_option,
    output_option,
    presentation_options,
    take_hosts,
)
from kafkasniff.cli.running.sources import Sources, take_captures
from kafkasniff.runtime.addresses import name_of

MAX_WIDTH: Final = 100
"""Longer lines of prose are hard to read."""


@click.command("security", cls=SectionedCommand)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@format_option()
@output_option
@fail_on_option("never")
@reading_options
@hosts_option
@presentation_options
@click.pass_obj
def security_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Show who connects as whom: addresses, principals, SASL, TLS, certificates, denied access.

    Passwords and tokens are never shown. In encrypted connections without --keylog, only the TLS handshake is visible.
    Filters select connections by their exchanges.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    predicate, hosts = take_predicate(options), take_hosts(options)
    taken = take_captures(environment, captures)
    divided = Sources(taken, ())

    from kafkasniff.analysis.detectors import Detectors
    from kafkasniff.analysis.detectors.causes import effects_of
    from kafkasniff.analysis.detectors.finding import Numbers
    from kafkasniff.analysis.detectors.registry import SECURITY, tables_for
    from kafkasniff.analysis.security import SecurityView
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.running.sources import CountedCaptures, Together

    detectors, view, numbers = Detectors((*SECURITY, *effects_of(SECURITY))), SecurityView(), Numbers()
    with Output(environment, options["output"], inputs=taken) as output:
        reading = CountedCaptures(
            environment,
            options,
            predicate,
            quiet=quiet,
            tables=tables_for(detectors),
            events=numbers.feed,
        )
        reading.read(taken, Together(detectors, view))
        identities, sources = view.identities(), tuple(map(name_of, captures))
        # Effects are named in the finding of their cause.
        found = [finding for finding in detectors.findings(reading.names) if finding.detector in SECURITY]
        findings = numbers.numbered(found)
        notes = [*view.notes(), *detectors.notes()]
        if options["form"] == "json":
            from kafkasniff.cli.render.answer_json import answer_object
            from kafkasniff.cli.render.answer_text import identity_object

            output.write_json(
                {
                    "sources": list(sources),
                    "broken": reading.broken,
                    "connections": view.connections,
                    "identities": [identity_object(identity, numbers) for identity in identities],
                    "findings": answer_object(findings),
                    "notes": notes,
                }
            )
        else:
            from kafkasniff.cli.render.answer_text import named_findings, named_identities, security_text

            text = security_text(
                named_identities(identities, hosts),
                named_findings(findings, hosts),
                divided.heading(sources),
                captures=divided.capture_arguments(captures),
                connections=view.connections,
                width=output.width(MAX_WIDTH),
                coloured=output.coloured(options["color"]),
            )
            output.write_text(text)
    if not quiet:
        from kafkasniff.cli.running.pipeline import summary_line

        for note in notes:
            environment.say(note)
        if reading.summary is not None:
            environment.say(summary_line(reading.summary))
    return reading.exit_code(examined=identities, failed=fails(findings, options["fail_on"]))
