"""`kafkasniff audit`: clients that use API versions a Kafka release does not support."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import reading_options, take_predicate
from kafkasniff.cli.options.shared_options import (
    format_option,
    hosts_option,
    output_option,
    presentation_options,
    take_hosts,
)
from kafkasniff.cli.running.sources import divide_sources
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.analysis.questions.versions import ClientVersions, Offers


@click.command("audit", cls=SectionedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="CAPTURE|DIR...")
@click.option(
    "--target",
    metavar="RELEASE",
    help="Release that the brokers will run, such as 4.0. Default: the latest that kafkasniff knows.",
)
@click.option(
    "--from",
    "older",
    metavar="RELEASE",
    help="Also list what the target adds since this release and no client uses yet.",
)
@format_option()
@output_option
@reading_options
@hosts_option
@presentation_options
@click.pass_obj
def audit_command(environment: Environment, /, paths: tuple[str, ...], **options: Any) -> int:
    """Find clients that use API versions a Kafka release no longer has, and what they need.

    Reads captures and folders of `kafkasniff export` together; `-` is a capture on stdin. Filters apply to captures
    only. The exit code is 1 if a client would or might be refused.
    """
    environment.verbosity, quiet = options["verbose"], options["quiet"]
    hosts, predicate = take_hosts(options), take_predicate(options)
    captures, folders = divide_sources(environment, paths, filtered=predicate is not None)

    from kafkasniff.analysis.audit import audit, new_versions
    from kafkasniff.analysis.export import Export, answer
    from kafkasniff.analysis.questions.versions import ClientVersions, Offers, VersionParameters
    from kafkasniff.cli.output import Output
    from kafkasniff.cli.render.audit_text import Audited, json_line, text
    from kafkasniff.cli.running.sources import columns_of, exported
    from kafkasniff.kafka.apis.releases import releases

    versions, offers = ClientVersions(VersionParameters(target=options["target"] or releases()[-1], all=True)), Offers()
    older = None if options["older"] is None else _older(options["older"], versions.release)
    broken = False
    with contextlib.ExitStack() as around:
        if predicate is not None:
            asked = exported(environment, captures, columns_of((versions, offers)), options, predicate, quiet=quiet)
            folder, broken = around.enter_context(asked)
            folders = (folder,)
        for folder in folders:
            export = Export.open(folder)
            answer(export, versions)
            answer(export, offers)
    if captures and predicate is None:
        broken = _read(environment, captures, options, versions, offers, quiet=quiet)
    found = audit(versions, offers)
    new = None if older is None else new_versions(versions.release, older, found.used)
    audited = Audited(versions.release, older, found, new)
    with Output(environment, options["output"], inputs=captures) as output:
        if options["form"] == "json":
            output.write_json_lines(json_line(audited))
        else:
            # Where the output is not a terminal, a client stays on one line.
            width = output.width() if output.is_terminal else None
            output.write_text(text(audited, coloured=output.coloured(options["color"]), hosts=hosts, width=width))
    if not quiet:
        for note in (*versions.notes(), *offers.notes()):
            environment.say(note)
    if found.has_findings:
        return Exit.FINDINGS
    if broken:
        return Exit.BROKEN
    if not found.clients:
        from kafkasniff.cli.running.nothing_selected import say_nothing

        return say_nothing(environment, captures, options, predicate, quiet=quiet)
    return Exit.OK


def _older(text: str, target: str) -> str:
    """The release of --from. Raises UsageError if it is unknown or not older than the target."""
    from kafkasniff.kafka.apis.releases import find_release, releases

    found, order = find_release(text), releases()
    if found is None:
        raise UsageError(f"--from: unknown release {text!r}: known are {order[0]} to {order[-1]}")
    if order.index(found) >= order.index(target):
        raise UsageError(f"--from {found} is not older than --target {target}")
    return found


def _read(
    environment: Environment,
    captures: Sequence[str],
    options: dict[str, Any],
    versions: ClientVersions,
    offers: Offers,
    *,
    quiet: bool,
) -> bool:
    """Read captures into both; returns whether one of them is broken."""
    from kafkasniff.capture import open_captures
    from kafkasniff.cli.options.option_groups import decoding_arguments
    from kafkasniff.cli.output import Progress, wants_progress
    from kafkasniff.cli.running.capture_usage import CaptureUsage
    from kafkasniff.cli.running.pipeline import shown_parts, summary_line
    from kafkasniff.engine.inspector import Inspector

    inspector = Inspector(
        records="skip",
        headers=True,
        connections=True,
        **decoding_arguments(options),
    )
    usage = CaptureUsage(inspector, versions, offers)
    with open_captures(captures, stdin=environment.stdin) as source:
        shows = wants_progress(environment, to_terminal=False, quiet=quiet)
        for part in shown_parts(source, Progress(environment, source) if shows else None):
            usage.feed(part)
        usage.close()
        broken: bool = source.broken
    if not quiet:
        for note in usage.notes():
            environment.say(note)
        environment.say(summary_line(inspector.summary))
    return broken
