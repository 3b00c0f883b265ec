"""Findings as text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from kafkasniff.analysis.detectors import SEVERITIES, Detectors, Evidence, Finding
from kafkasniff.analysis.detectors.undecoded import UndecodedTraffic
from kafkasniff.analysis.detectors.visible_wording import all_clear, visibility_lines
from kafkasniff.analysis.parameters import parameters_of
from kafkasniff.analysis.visibility import VisibleTraffic
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.text.printable import COLOUR, PLAIN, Paint, printable, wrapped
from kafkasniff.text.times import clock_time, date_of

__all__ = [
    "check_text",
    "finding_lines",
    "headline",
    "how_to_look",
    "list_objects",
    "list_text",
    "named_findings",
    "severity_paint",
]

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
            one,
            **{name: hosts.shown(getattr(one, name)) for name in ("title", "meaning", "advice")},
            evidence=tuple(msgspec.structs.replace(each, note=hosts.shown(each.note)) for each in one.evidence),
        )
        for one in findings
    ]


def severity_paint(paint: Paint, severity: str) -> str:
    """The colour of a severity."""
    return {"error": paint.error, "warning": paint.warn}.get(severity, paint.dim)


def headline(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 warning, 3 notes`."""
    counts = Counter(finding.severity for finding in findings)
    parts = [f"{counts[one]:,} {one}{'' if counts[one] == 1 else 's'}" for one in SEVERITIES if counts[one]]
    return ", ".join(parts)


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
    for finding in findings:
        lines += ["", *finding_lines(finding, paint, width, captures=bool(captures))]
    shown = [one for finding in findings for one in finding.evidence]
    hints = list(how_to_look(shown, captures)) if captures else []
    if not captures and shown:
        hints = [
            "connection_id and exchange_id are the key of the export's tables; "
            "decode --exchange CONNECTION_ID/EXCHANGE_ID CAPTURE... shows an exchange"
        ]
    if hints:
        lines += ["", *(f"{paint.dim}{line}{paint.reset}" for line in hints)]
    return "".join(f"{line}\n" for line in lines)


def how_to_look(shown: Sequence[Evidence], captures: Sequence[str]) -> Iterator[str]:
    """Commands that show the exchanges and connections named above."""
    names = " ".join(shlex.quote(printable(one)) for one in captures)
    if any(one.exchange is not None for one in shown):
        yield f"To look at #N: kafkasniff decode -v {names} --exchange N"
    if any(one.exchange is None and one.connection is not None for one in shown):
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
        for one in parameters_of(type(detector)):
            setting = f"{one.name}={_value(detector.parameters, one)}"
            first, *rest = wrapped(one.help, max(width - 26, 20))
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
            "thresholds": {one.name: _value(detector.parameters, one) for one in parameters_of(type(detector))},
        }
        for detector in detectors.detectors
    ]
