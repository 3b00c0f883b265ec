"""`kafkasniff tls`: which TLS connections can be decrypted, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.option_groups import framing_arguments, framing_options, key_arguments
from kafkasniff.cli.options.shared_options import (
    format_option,
    hosts_option,
    output_option,
    presentation_options,
    take_hosts,
)
from kafkasniff.cli.running.sources import take_captures
from kafkasniff.runtime.addresses import name_of

if TYPE_CHECKING:
    from kafkasniff.enrich.hosts import Hosts
    from kafkasniff.tls.keylog import KeyLog
    from kafkasniff.tls.negotiation import Case

MAX_WIDTH: Final = 100
"""Longer lines of prose are hard to read."""
_STATES: Final = {
    "decrypted": "decrypted",
    "damaged": "decrypted in part",
    "encrypted": "not decrypted",
    "failed": "no complete handshake",
    "other": "not Kafka",
}
_READ: Final = ("decrypted", "other")
"""States of connections that no key log or capture would change."""


@click.command("tls", cls=SectionedCommand)
@click.argument("action", type=click.Choice(["doctor"]))
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@format_option()
@output_option
@framing_options
@hosts_option
@presentation_options
@click.pass_obj
def tls_command(environment: Environment, /, captures: tuple[str, ...], **options: Any) -> int:
    """Say which TLS connections of captures are decrypted, why the others are not, and what to do about it.

    The exit code is 1 if a connection is not decrypted, or only in part, or if there is no TLS.
    """
    environment.verbosity, quiet = options.pop("verbose"), options.pop("quiet")
    hosts = take_hosts(options)
    taken = take_captures(environment, captures)

    from kafkasniff.cli.output import Output
    from kafkasniff.cli.render.captured_numbers import read_again
    from kafkasniff.tls.keylog import KeyLog
    from kafkasniff.tls.negotiation import Doctor

    keys: KeyLog = key_arguments(options).get("keys") or KeyLog()
    arguments = {**framing_arguments(options), "keys": keys, "memory": options["memory"]}
    doctor = Doctor()
    with Output(environment, options["output"], inputs=taken) as output:
        for events in read_again(environment, taken, arguments, exchanges=False):
            doctor.feed(events)
        cases = list(doctor.cases())
        if options["form"] == "json":
            output.write_json(
                {
                    "sources": list(map(name_of, captures)),
                    "sessions_with_secrets": keys.sessions,
                    "without_tls": doctor.plain,
                    "not_listed": doctor.further,
                    "cases": [_object(case) for case in cases],
                }
            )
        elif cases:
            width = min(output.width(MAX_WIDTH), MAX_WIDTH)
            output.write_text(_text(cases, keys, hosts, width, coloured=output.coloured(options["color"])))
    if not cases:
        environment.say(f"no TLS: {doctor.plain:,} Kafka connections without it")
        return Exit.NOTHING
    if doctor.further and not quiet:
        environment.say(f"{doctor.further:,} more TLS connections are not listed")
    return Exit.FINDINGS if any(case.state not in _READ for case in cases) else Exit.OK


def _object(case: Case) -> dict[str, Any]:
    import msgspec

    return {**msgspec.structs.asdict(case), "broker": str(case.broker)}


def _text(cases: Sequence[Case], keys: KeyLog, hosts: Hosts | None, width: int, *, coloured: bool) -> str:
    """A paragraph per listener, advice once for all cases that it is for."""
    from itertools import groupby

    from kafkasniff.text.printable import COLOUR, PLAIN, printable, wrapped

    paint = COLOUR if coloured else PLAIN
    whole = sum(case.count for case in cases)
    read = sum(case.count for case in cases if case.state == "decrypted")
    known = keys.sessions
    secrets = f"secrets of {known:,} session{'' if known == 1 else 's'}" if known else "no secrets"
    lines = [
        f"{paint.api}{read:,} of {whole:,} TLS connection{'' if whole == 1 else 's'} decrypted{paint.reset}; "
        f"{secrets} in captures and key log"
    ]
    advised: set[str] = set()
    for broker, these in groupby(cases, key=lambda case: case.broker):
        address = str(broker) if hosts is None else hosts.shown(str(broker))
        lines += ["", f"{paint.name}{address}{paint.reset}"]
        for case in these:
            colour = "" if case.state in _READ else paint.error
            counted = f"{case.count:,} connection{'' if case.count == 1 else 's'}"
            shown = ", ".join(f"conn {number}" for number in case.connections)
            more = " …" if case.count > len(case.connections) else ""
            end = paint.reset if colour else ""
            lines.append(f"  {colour}{_STATES[case.state]}{end}  {counted}  {paint.dim}{shown}{more}{paint.reset}")
            name = None if case.server_name is None else f"for {printable(case.server_name)}"
            seen = [one for one in (case.version, case.cipher, name) if one is not None]
            seen += (f"{number:,} {event.replace('_', ' ')}" for event, number in sorted(case.counts.items()))
            texts = [", ".join(seen), "" if case.reason is None else printable(case.reason)]
            if case.advice is not None and case.advice not in advised:
                advised.add(case.advice)
                texts.append(case.advice)
            lines += (f"    {line}" for text in texts if text for line in wrapped(text, width - 4))
    return "".join(f"{line}\n" for line in lines)
