"""`kafkasniff check`: problems in captures and exports, with evidence and advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
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
from kafkasniff.cli.running.sources import divide_sources
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from kafkasniff.analysis.detectors import Detectors, Finding
    from kafkasniff.analysis.visibility import VisibleTraffic

MAX_WIDTH: Final = 120
"""Maximum width: longer lines are hard to read."""


@click.command("check", cls=SectionedCommand)
@click.argument("sources", nargs=-1, metavar="CAPTURE|DIR...")
@format_option()
@output_option
@fail_on_option("warning")
@click.option("--only", multiple=True, metavar="DETECTOR", help="Run only these detectors (repeatable, comma lists).")
@click.option("--skip", multiple=True, metavar="DETECTOR", help="Skip these detectors (repeatable, comma lists).")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="DETECTOR.FIELD=VALUE",
    help="Change a threshold, such as late-answers.late=5s (repeatable); --list shows all.",
)
@click.option("--list", "listed", is_flag=True, help="List the detectors and their thresholds.")
@reading_options
@hosts_option
@presentation_options
@click.pass_obj
def check_command(environment: Environment, /, sources: tuple[str, ...], **options: Any) -> int:
    """Find problems in captures or exports (folders): findings by severity, with evidence and advice.

    Several captures form one timeline, as in decode. Filters apply to captures only. The exit code is 1 if a finding
    is at least as severe as --fail-on.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    predicate, hosts = take_predicate(options), take_hosts(options)
    names = {key: [name for one in options.pop(key) for name in one.split(",")] for key in ("only", "skip")}

    from kafkasniff.analysis.detectors import Detectors
    from kafkasniff.cli.output import Output

    detectors = Detectors(**names, settings=options.pop("settings"))
    if options.pop("listed"):
        return _list(environment, detectors, options)
    if not sources:
        raise click.UsageError("missing argument 'CAPTURE|DIR...'")
    divided = divide_sources(environment, sources, filtered=predicate is not None)
    captures, folders = divided
    capture_arguments, sources = divided.capture_arguments(sources), tuple(map(name_of, sources))

    from kafkasniff.analysis.detectors.finding import Numbers
    from kafkasniff.analysis.detectors.registry import tables_for
    from kafkasniff.analysis.export import Export
    from kafkasniff.cli.running.sources import CountedCaptures, say_notes

    numbers = Numbers()
    with Output(environment, options["output"], inputs=captures) as stream:
        reading = CountedCaptures(
            environment,
            options,
            predicate,
            quiet=quiet,
            tables=tables_for(detectors),
            events=numbers.feed,
        )
        for folder in folders:
            detectors.read(Export.open(folder))
        if captures:
            reading.read(captures, detectors)
        findings = numbers.numbered(detectors.findings(reading.names))
        notes, visible = detectors.notes(), detectors.visible()
        if options["form"] == "json":
            stream.write_json(_json(findings, notes, sources, visible, broken=reading.broken))
        else:
            from kafkasniff.cli.render.answer_text import check_text, named_findings

            text = check_text(
                named_findings(findings, hosts),
                divided.heading(sources),
                visible,
                captures=capture_arguments,
                filtered=predicate is not None,
                width=stream.width(MAX_WIDTH),
                coloured=stream.coloured(options["color"]),
            )
            stream.write_text(text)
    if not quiet:
        say_notes(environment, notes, visible)
    if predicate is None:
        from kafkasniff.analysis.detectors.undecoded import UndecodedTraffic

        # Skipping this detector accepts traffic that cannot be decoded, but not its absence.
        accepted = UndecodedTraffic.name in names["skip"] and visible.share is not None
        examined = bool(findings or accepted or visible.bytes_decoded or not visible.known)
    else:
        examined = reading.exchanges > 0
    return reading.exit_code(examined=examined, failed=fails(findings, options["fail_on"]))


def _list(environment: Environment, detectors: Detectors, options: dict[str, Any]) -> int:
    """`--list`: the selected detectors, with their current thresholds."""
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.render.answer_text import list_objects, list_text

    with Output(environment, options["output"]) as stream:
        if options["form"] == "json":
            stream.write_json(list_objects(detectors))
        else:
            coloured = stream.coloured(options["color"])
            stream.write_text(list_text(detectors, width=stream.width(MAX_WIDTH), coloured=coloured))
    return Exit.OK


def _json(
    findings: Sequence[Finding],
    notes: Sequence[str],
    sources: Sequence[str],
    visible: VisibleTraffic,
    *,
    broken: bool,
) -> dict[str, Any]:
    from kafkasniff.analysis.detectors import SEVERITIES
    from kafkasniff.cli.render.answer_json import answer_object, head

    return {
        **head(sources, broken=broken),
        "counts": {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES},
        "findings": answer_object(findings),
        "notes": list(notes),
        "visibility": answer_object(visible),
    }
