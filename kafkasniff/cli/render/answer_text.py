"""Answers of `check`, `security` and `stats` as text: findings, who connects as whom, and the overview.

All text from the wire goes through `word` or `printable`. Empty columns are omitted.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from kafkasniff.analysis.detectors import SEVERITIES, Detectors, Evidence, Finding
from kafkasniff.analysis.detectors.finding import Numbers
from kafkasniff.analysis.detectors.undecoded import UndecodedTraffic, all_clear, visibility_lines
from kafkasniff.analysis.detectors.wording import plural
from kafkasniff.analysis.overview.answer import ConnectionTotals, ErrorStats, OverviewAnswer
from kafkasniff.analysis.parameters import parameters_of
from kafkasniff.analysis.security import ClientIdentity, SecurityView
from kafkasniff.analysis.visibility import VisibleTraffic
from kafkasniff.cli.render.answer_json import answer_object
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.model import Endpoint
from kafkasniff.report.answer_tables import (
    AnswerTable,
    ReportColumn,
    authentication,
    client_certificate,
    count_of,
    first_exchange,
    meaning_of,
    overview_tables,
    principal,
    server_certificate,
    software,
    spans_days,
    transport,
)
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import COLOUR, PLAIN, Paint, display_width, printable, wrapped
from kafkasniff.text.times import clock_time, date_of, duration, rfc3339

SHOWN: Final = 5
"""Pieces of evidence, and different notes, shown in the text; JSON has all."""
INDENT: Final = "         "
"""Width of the longest severity, plus two."""


def named_findings(findings: Sequence[Finding], hosts: Hosts | None) -> list[Finding]:
    """The findings with names in place of addresses, for text."""
    if hosts is None:
        return list(findings)
    return [
        msgspec.structs.replace(
            finding,
            **{name: hosts.shown(getattr(finding, name)) for name in ("title", "meaning", "advice")},
            evidence=tuple(msgspec.structs.replace(each, note=hosts.shown(each.note)) for each in finding.evidence),
        )
        for finding in findings
    ]


def severity_paint(paint: Paint, severity: str) -> str:
    """The colour of a severity."""
    return {"error": paint.error, "warning": paint.warn}.get(severity, paint.dim)


def headline(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 warning, 3 notes`."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(plural(counts[one], one) for one in SEVERITIES if counts[one])


def check_text(
    findings: Sequence[Finding],
    heading: str,
    visible: VisibleTraffic | None = None,
    *,
    captures: Sequence[str],
    filtered: bool = False,
    width: int,
    coloured: bool,
) -> str:
    """The findings, worst first, below `heading`, which names the sources.

    `captures`: arguments with which `decode` shows the same numbers; without captures exchanges have none. `visible`:
    how much of the traffic was decoded, without which there is no all-clear; `filtered`: the traffic was selected by
    filters.
    """
    paint = COLOUR if coloured else PLAIN
    found = headline(findings) or all_clear(visible, filtered=filtered)
    lines = [f"{paint.api}{found}{paint.reset} in {heading}"]
    if not any(finding.detector == UndecodedTraffic.name for finding in findings):
        lines += [f"{paint.warn}{line}{paint.reset}" for line in visibility_lines(visible)]
    lines += _findings_below([[finding] for finding in findings], paint, width, captures)
    return "".join(f"{line}\n" for line in lines)


def _findings_below(
    groups: Iterable[Sequence[Finding]], paint: Paint, width: int, captures: Sequence[str]
) -> Iterator[str]:
    """Findings, those of a group without repeating what they mean, and how to look at their evidence."""
    shown: list[Evidence] = []
    for alike in groups:
        yield ""
        for number, finding in enumerate(alike):
            yield from finding_lines(finding, paint, width, captures=bool(captures), explained=number == 0)
            shown += finding.evidence
    hints = list(how_to_look(shown, captures)) if captures else []
    if not captures and shown:
        hints = [
            "connection_id and exchange_id are the key of the export's tables; "
            "decode --exchange CONNECTION_ID/EXCHANGE_ID CAPTURE... shows an exchange"
        ]
    if hints:
        yield from ("", *(f"{paint.dim}{line}{paint.reset}" for line in hints))


def how_to_look(shown: Sequence[Evidence], captures: Sequence[str]) -> Iterator[str]:
    """Commands that show the exchanges and connections named above."""
    names = " ".join(shlex.quote(printable(capture)) for capture in captures)
    if any(evidence.exchange is not None for evidence in shown):
        yield f"To look at #N: kafkasniff decode -v {names} --exchange N"
    if any(evidence.exchange is None and evidence.connection is not None for evidence in shown):
        yield f"To look at conn N: kafkasniff decode -v {names} --connection N"


def finding_lines(
    finding: Finding, paint: Paint, width: int, *, captures: bool, explained: bool = True
) -> Iterator[str]:
    """A finding as lines of text; `explained`: with its meaning and advice."""
    colour = severity_paint(paint, finding.severity)
    first, *rest = _wrapped(finding.title, width)
    yield f"{colour}{finding.severity:<9}{paint.reset}{paint.api}{first}{paint.reset}"
    yield from (f"{INDENT}{paint.api}{line}{paint.reset}" for line in rest)
    if explained:
        yield from (f"{INDENT}{line}" for line in _wrapped(finding.meaning, width))
        yield from (f"{INDENT}{line}" for line in _wrapped(f"Try: {finding.advice}", width))
    seen = _seen(finding, captures=captures)
    yield from (f"{INDENT}{paint.dim}{line}{paint.reset}" for line in _wrapped(f"{finding.detector}: {seen}", width))


def _wrapped(text: str, width: int) -> list[str]:
    """Lines between the indent and the right margin; names that are too long for one line stay whole."""
    return list(wrapped(text, max(width - len(INDENT), 20)))


def _seen(finding: Finding, *, captures: bool) -> str:
    """Time span and exchanges of a finding."""
    parts = []
    if finding.first is not None:
        when = f"{date_of(finding.first)} {clock_time(finding.first)[:-3]}"
        if finding.last is not None and finding.last != finding.first:
            same = date_of(finding.last) == date_of(finding.first)
            when = f"{when} to {'' if same else f'{date_of(finding.last)} '}{clock_time(finding.last)[:-3]}"
        parts.append(f"{when} UTC")
    parts += _places(finding.evidence, finding.title, captures=captures)
    if finding.count > len(finding.evidence) and finding.evidence:
        parts.append("and more")
    return "; ".join(parts) or "evidence not kept"


def _places(evidence: Sequence[Evidence], title: str, *, captures: bool) -> list[str]:
    """Places of the evidence, grouped by note, with at least one place per note.

    A note that all share and that is part of the title is omitted.

    `#12, #15 and 3 more (NOT_LEADER_OR_FOLLOWER)`
    """
    noted: dict[str, Counter[str]] = {}
    for one in evidence:
        place = _place(one, captures=captures)
        noted.setdefault("" if place == one.note else one.note, Counter())[place] += 1
    if len(noted) == 1 and next(iter(noted)) in title:
        noted = dict(zip([""], noted.values(), strict=True))
    room = max(SHOWN - len(noted), 0)
    lines: list[str] = []
    for note, places in list(noted.items())[:SHOWN]:
        kept = list(places.items())[: 1 + room]
        room -= len(kept) - 1
        text = ", ".join(place if times == 1 else f"{place} ({times:,} times)" for place, times in kept)
        rest = len(places) - len(kept)
        lines.append(f"{text}{f' and {rest:,} more' if rest else ''}{f' ({note})' if note else ''}")
    if len(noted) > SHOWN:
        lines.append(f"and {len(noted) - SHOWN:,} more")
    return lines


def _place(evidence: Evidence, *, captures: bool) -> str:
    if evidence.exchange is not None:
        return f"#{evidence.exchange}"
    if evidence.connection is not None:
        return f"conn {evidence.connection}"
    # Rows of an export have no numbers: show the key of the tables.
    if evidence.exchange_id is not None:
        return f"connection_id {evidence.connection_id} exchange_id {evidence.exchange_id}"
    if captures and evidence.note:
        return evidence.note  # an attempt to connect: decode numbers only connections that carried data
    return f"connection_id {evidence.connection_id}"


def list_text(detectors: Detectors, *, width: int, coloured: bool) -> str:
    """The detectors, with their current thresholds."""
    paint = COLOUR if coloured else PLAIN
    lines: list[str] = []
    for detector in detectors.detectors:
        lines += wrapped(f"{paint.api}{detector.name}{paint.reset}  {detector.summary}", width, 8)
        for parameter in parameters_of(type(detector)):
            setting = f"{parameter.name}={_value(detector.parameters, parameter)}"
            first, *rest = wrapped(parameter.help, max(width - 26, 20))
            lines.append(f"    {paint.name}{setting:<20}{paint.reset}  {first}")
            lines += [f"{'':26}{line}" for line in rest]
    return "".join(f"{line}\n" for line in lines)


def _value(thresholds: Any, parameter: Any) -> str:
    """A threshold in the syntax of `--set`."""
    value = getattr(thresholds, parameter.name)
    return msgspec.structs.replace(parameter, default=value).default_text or str(value)


def list_objects(detectors: Detectors) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [
        {
            "name": detector.name,
            "summary": detector.summary,
            "thresholds": {
                parameter.name: _value(detector.parameters, parameter) for parameter in parameters_of(type(detector))
            },
        }
        for detector in detectors.detectors
    ]


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
        msgspec.structs.replace(
            identity, client_ip=hosts.shown(identity.client_ip), broker=hosts.shown(identity.broker)
        )
        for identity in identities
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
    shown = sum(identity.connections for identity in identities)
    lines = [f"{paint.api}{headline(findings) or 'no findings'}{paint.reset} in {heading}"]
    if shown < connections:
        others = connections - shown
        lines.append(
            f"{others:,} of {connections:,} connections are not shown: neither Kafka nor TLS, or too short to say"
        )
    for broker, these in groupby(identities, key=lambda one: one.broker):
        lines += ["", f"{paint.name}{broker}{paint.reset}"]
        for client_identity in these:
            lines += _identity(client_identity, paint, width)
    # Denials are many, and one explanation serves all of them.
    alike = (list(some) for _, some in groupby(findings, key=lambda finding: (finding.meaning, finding.advice)))
    lines += _findings_below(alike, paint, width, captures)
    return "".join(f"{line}\n" for line in lines)


def _identity(one: ClientIdentity, paint: Paint, width: int) -> Iterator[str]:
    """Who, as whom; with what software; over what; the certificate."""
    count = plural(one.connections, "connection")
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
        yield from (f"    {colour}{line}{end}" for line in _indented(outcome, width))
    parts = [", ".join(map(printable, one.client_ids)), software(one), transport(one)]
    rest = [part for part in parts if part]
    if display_width(joined := " · ".join(rest)) <= width - 4:
        rest = [joined]
    yield from (f"    {line}" for part in rest for line in _indented(part, width))
    if one.reason is not None:
        yield from (f"    {colour}{line}{end}" for line in _indented(printable(one.reason), width))
    for whose, text in (("", server_certificate(one)), ("client's ", client_certificate(one))):
        if text:
            yield from (f"    {line}" for line in _indented(f"{whose}certificate of {text}", width))


def _indented(text: str, width: int) -> list[str]:
    return list(wrapped(text, max(width - 4, 20)))


def stats_text(
    answer: OverviewAnswer,
    findings: Sequence[Finding],
    sources: str,
    *,
    width: int,
    coloured: bool,
    hosts: Hosts | None = None,
    security: SecurityView | None = None,
    top: int = 10,
) -> str:
    """The screen, `width` columns wide, with ANSI codes if `coloured`.

    `sources`: its first line; `hosts`: names of addresses; `security`: of captures, shown with `top` rows per list.
    """
    from kafkasniff.cli.render.tables import screen_text

    identities = [] if security is None else security.identities()
    tables = overview_tables(answer, identities, _error_columns(spans_days(answer)), top=top, hosts=hosts)
    tables.append(AnswerTable("findings", "Findings", findings, _FINDINGS, answer.more.get("findings", 0), hosts=hosts))
    return screen_text(_heading(answer, sources), tables, width=width, coloured=coloured)


def _heading(answer: OverviewAnswer, sources: str) -> list[str]:
    """Lines about the sources as a whole."""
    lines = [sources]
    if answer.first is not None and answer.last is not None:
        begins, ends = f"{date_of(answer.first)} {clock_time(answer.first)}", clock_time(answer.last)
        if date_of(answer.first) != date_of(answer.last):
            ends = f"{date_of(answer.last)} {ends}"
        lines.append(f"{begins} to {ends} UTC, {duration(answer.last - answer.first)}")
    counts = answer.exchanges
    lines.append(
        f"{plural(counts.exchanges, 'exchange')}: {plural(counts.requests, 'request')} of "
        f"{amount(counts.request_bytes)}, {plural(counts.responses, 'response')} of {amount(counts.response_bytes)}; "
        f"{counts.with_errors:,} with errors, {counts.unanswered:,} unanswered"
        + (f", {counts.lost:,} with responses missing from the capture" if counts.lost else "")
    )
    if answer.connections is not None:
        lines += _connection_lines(answer.connections)
    lines += [
        f"{plural(failed.connects, 'connect')} to {Endpoint(failed.address, failed.port)} {failed.outcome}, "
        f"{plural(failed.packets, 'packet')}"
        for failed in answer.failed_connects
    ]
    if (left := answer.more["failed_connects"]) > 0:
        lines.append(f"and connects to {plural(left, 'other endpoint')} failed (--top)")
    return lines + visibility_lines(answer.visibility)


def _connection_lines(counts: ConnectionTotals) -> list[str]:
    kinds = [f"{counts.kafka:,} Kafka"]
    kinds += [
        f"{number:,} {kind}"
        for number, kind in ((counts.not_kafka, "not Kafka"), (counts.undecided, "undecided"))
        if number
    ]
    streams = f"{plural(counts.connections, 'connection')} ({', '.join(kinds)}), {plural(counts.packets, 'packet')}"
    if counts.retransmits:
        streams += f", {plural(counts.retransmits, 'retransmit')}"
    skipped = f"{amount(counts.bytes_skipped)} skipped"
    if counts.bytes_pending:
        skipped += f" ({amount(counts.bytes_pending)} of frames truncated at the end)"
    parts = [f"{amount(counts.bytes_decoded)} decoded", skipped, f"{amount(counts.bytes_lost)} lost"]
    for size, kind in ((counts.bytes_repeated, "repeated"), (counts.bytes_ignored, "ignored")):
        if size:
            parts.append(f"{amount(size)} {kind}")
    return [streams, f"bytes: {', '.join(parts)}"]


def _error_columns(days: bool) -> list[ReportColumn]:
    def error(row: ErrorStats) -> str:
        """Two lines: the meaning, and the first exchange with the error."""
        name = "" if row.code is None or not row.name or not row.meaning else f"{row.name}: "
        return f"{name}{meaning_of(row)}\n{first_exchange(row, days=days)}"

    return [
        ReportColumn("code", lambda row: "" if row.code is None else str(row.code), number=True),
        ReportColumn("count", count_of("count"), number=True),
        ReportColumn("meaning, and first occurrence", error),
    ]


_FINDINGS: Final = [
    ReportColumn("severity", lambda row: row.severity),
    # Titles of findings are safe to print.
    ReportColumn("finding (see kafkasniff check)", lambda row: row.title),
]
