"""Who connects as whom, as text and as objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from kafkasniff.analysis.detectors import Finding
from kafkasniff.analysis.detectors.numbers import Numbers
from kafkasniff.analysis.security import ClientIdentity
from kafkasniff.cli.render.answer_json import answer_object
from kafkasniff.cli.render.check_text import finding_lines, headline, how_to_look
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.report.cells import software
from kafkasniff.report.security_columns import (
    authentication,
    client_certificate,
    principal,
    server_certificate,
    transport,
)
from kafkasniff.text.printable import COLOUR, PLAIN, Paint, display_width, printable, wrapped
from kafkasniff.text.times import rfc3339

__all__ = ["identity_object", "named_identities", "security_text"]


def identity_object(identity: ClientIdentity, numbers: Numbers) -> dict[str, Any]:
    """An identity as in JSON: times as RFC 3339, and numbers as in `decode`."""
    fields: dict[str, Any] = answer_object(identity)
    fields["examples"] = [
        {
            "connection": numbers.connection(connection_id),
            "exchange": numbers.exchange(connection_id, exchange_id),
            "time": rfc3339(time),
        }
        for connection_id, exchange_id, time in identity.examples
    ]
    return fields


def named_identities(identities: Sequence[ClientIdentity], hosts: Hosts | None) -> list[ClientIdentity]:
    """The identities with names in place of addresses, for text."""
    if hosts is None:
        return list(identities)
    return [
        msgspec.structs.replace(one, client_ip=hosts.shown(one.client_ip), broker=hosts.shown(one.broker))
        for one in identities
    ]


def security_text(
    identities: Sequence[ClientIdentity],
    findings: Sequence[Finding],
    heading: str,
    *,
    captures: Sequence[str],
    connections: int,
    width: int,
    coloured: bool,
) -> str:
    """Listeners with their clients, then the findings, below `heading`, which names the sources.

    `captures`: as for `check_text`; `connections`: all that were seen.
    """
    paint = COLOUR if coloured else PLAIN
    shown = sum(one.connections for one in identities)
    lines = [f"{paint.api}{headline(findings) or 'no findings'}{paint.reset} in {heading}"]
    if shown < connections:
        others = connections - shown
        lines.append(
            f"{others:,} of {connections:,} connections are not shown: neither Kafka nor TLS, or too short to say"
        )
    for broker, these in groupby(identities, key=lambda one: one.broker):
        lines += ["", f"{paint.name}{broker}{paint.reset}"]
        for one in these:
            lines += _identity(one, paint, width)
    # Denials are many, and one explanation serves all of them.
    for _, alike in groupby(findings, key=lambda one: (one.meaning, one.advice)):
        lines.append("")
        for number, finding in enumerate(alike):
            lines += finding_lines(finding, paint, width, captures=True, explained=number == 0)
    hints = list(how_to_look([one for finding in findings for one in finding.evidence], captures))
    if hints:
        lines += ["", *(f"{paint.dim}{line}{paint.reset}" for line in hints)]
    return "".join(f"{line}\n" for line in lines)


def _identity(one: ClientIdentity, paint: Paint, width: int) -> Iterator[str]:
    """Who, as whom; with what software; over what; the certificate."""
    count = f"{one.connections:,} connection{'' if one.connections == 1 else 's'}"
    name, outcome = principal(one), authentication(one)
    colour = paint.error if one.authentication == "failed" else ""
    who = [one.client_ip, name] if name else [one.client_ip]
    end = paint.reset if colour else ""
    said = f"{colour}{outcome}{end}"
    counted = f"{paint.dim}{count}{paint.reset}"
    if display_width("  ".join([*who, outcome, count])) + 2 <= width:
        yield "  " + "  ".join([*who, said, counted])
    else:
        yield f"  {one.client_ip}  {counted}"
        if name:
            yield f"    {name}"
        yield from (f"    {colour}{line}{end}" for line in _wrapped(outcome, width))
    parts = [", ".join(map(printable, one.client_ids)), software(one), transport(one)]
    rest = [part for part in parts if part]
    if display_width(joined := " · ".join(rest)) <= width - 4:
        rest = [joined]
    yield from (f"    {line}" for part in rest for line in _wrapped(part, width))
    if one.reason is not None:
        yield from (f"    {colour}{line}{end}" for line in _wrapped(printable(one.reason), width))
    for whose, text in (("", server_certificate(one)), ("client's ", client_certificate(one))):
        if text:
            yield from (f"    {line}" for line in _wrapped(f"{whose}certificate of {text}", width))


def _wrapped(text: str, width: int) -> list[str]:
    return list(wrapped(text, max(width - 4, 20)))
