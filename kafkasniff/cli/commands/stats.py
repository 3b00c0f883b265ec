"""`kafkasniff stats`: a summary of captures and exports on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import reading_options, take_predicate
from kafkasniff.cli.options.shared_options import (
    format_option,
    hosts_option,
    output_option,
    presentation_options,
    take_hosts,
    wide_option,
)
from kafkasniff.cli.running.sources import CountedCaptures, Together, divide_sources, open_export, say_notes
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from kafkasniff.analysis.detectors import Detectors, Finding
    from kafkasniff.analysis.detectors.finding import Numbers
    from kafkasniff.analysis.overview import Overview, OverviewAnswer
    from kafkasniff.analysis.security import SecurityView

TOP: Final = 10
"""Rows per list on the screen."""


@click.command("stats", cls=SectionedCommand)
@click.argument("sources", nargs=-1, required=True, metavar="CAPTURE|DIR...")
@format_option()
@output_option
@click.option("--top", type=click.IntRange(1), metavar="N", help=f"Rows per list [default: {TOP}; with json, all].")
@click.option("--no-records", is_flag=True, help="Do not decode records: faster, but without record sizes.")
@reading_options
@hosts_option
@wide_option
@presentation_options
@click.pass_obj
def stats_command(environment: Environment, /, sources: tuple[str, ...], **options: Any) -> int:
    """Summarize captures or exports (folders): brokers, clients, APIs, topics, groups, errors, problems.

    Several captures form one timeline, as in decode. Filters apply to captures only. The summary shows who connects as
    whom; `security` shows more. It ends with findings; `check` explains them.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    predicate = take_predicate(options)
    divided = divide_sources(environment, sources, filtered=predicate is not None)
    captures, folders = divided
    sources = tuple(map(name_of, sources))
    hosts = take_hosts(options)
    form, top = options.pop("form"), options.pop("top")
    output, colour = options.pop("output"), options.pop("color")

    from kafkasniff.analysis.detectors import Detectors
    from kafkasniff.analysis.detectors.finding import Numbers
    from kafkasniff.analysis.overview import Overview
    from kafkasniff.analysis.security import SecurityView, security_findings
    from kafkasniff.cli.output import Output

    detectors, security, numbers = Detectors(), SecurityView(), Numbers()
    overview = Overview(detectors)
    if options["no_records"]:
        overview.has("records")  # do not report it as missing
    with Output(environment, output, inputs=captures) as stream:
        taker = Together(overview, detectors, security)
        reading = CountedCaptures(environment, options, predicate, quiet=quiet, events=numbers.feed)
        for folder in folders:
            _read_export(overview, detectors, security, folder, records=not options["no_records"])
        if captures:
            reading.read(captures, taker)
        answer = overview.answer(names=reading.names, **_rows(form, top))
        findings = detectors.findings(reading.names)
        answer.notes += [f"findings: {note}" for note in detectors.notes()]
        insecure = security_findings(findings)
        shown = _rows(form, top).get("top", len(findings))
        answer.more["findings"] = max(len(findings) - shown, 0)
        findings = findings[:shown]
        if form == "json":
            result = _json(answer, findings, sources, broken=reading.broken)
            result["security"] = _security(security, insecure, numbers, top)
            stream.write_json(result)
        else:
            from kafkasniff.cli.render.answer_text import stats_text

            heading, width, coloured = (
                divided.heading(sources),
                stream.width(wide=options["wide"]),
                stream.coloured(colour),
            )
            text = stats_text(
                answer,
                findings,
                heading,
                security=security,
                top=top or TOP,
                width=width,
                coloured=coloured,
                hosts=hosts,
            )
            stream.write_text(text)
        if not quiet:
            say_notes(environment, answer.notes + security.notes(), answer.visibility)
    return reading.exit_code(examined=answer.exchanges.exchanges)


def _rows(form: str, top: int | None) -> dict[str, int]:
    """The argument `top` of `Overview.answer`: for JSON all rows, up to its own bound."""
    if top is None:
        return {} if form == "json" else {"top": TOP}
    return {"top": top}


def _read_export(
    overview: Overview, detectors: Detectors, security: SecurityView, folder: str, *, records: bool
) -> None:
    """Pass the rows of an export to all three. Raises CaptureError, UsageError."""
    export = open_export(folder, "stats needs")
    for table, reading in overview.reads().items():
        # Without keys and values there are no sizes, and with hashes wrong ones.
        if table in export.tables and (table != "records" or (records and export.has_payload)):
            overview.has(table)
            for batch in export.batches(table, reading):
                overview.update(batch, table)
    detectors.read(export)
    security.read(export)


def _json(answer: OverviewAnswer, findings: Sequence[Finding], sources: Sequence[str], *, broken: bool) -> Any:
    from kafkasniff.cli.render.answer_json import answer_object, brief, head

    return {**head(sources, broken=broken), **answer_object(answer), "findings": brief(findings)}


def _security(view: SecurityView, findings: Sequence[Finding], numbers: Numbers, top: int | None) -> dict[str, Any]:
    """The security view as in JSON, its lists cut at `top`."""
    from kafkasniff.cli.render.answer_json import brief
    from kafkasniff.cli.render.answer_text import identity_object

    identities = view.identities()
    return {
        "identities": [identity_object(identity, numbers) for identity in identities[:top]],
        "findings": brief(findings[:top]),
        "more": {"identities": len(identities[top:] if top else ()), "findings": len(findings[top:] if top else ())},
        "notes": view.notes(),
    }
