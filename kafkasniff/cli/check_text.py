"""Findings for people, and as objects for programs."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson

from kafkasniff.analysis.parameters import parameters_of
from kafkasniff.analysis.visibility import VisibleTraffic
from kafkasniff.detectors import SEVERITIES, Detectors, Evidence, Finding
from kafkasniff.detectors.undecoded import UndecodedTraffic
from kafkasniff.detectors.visible_wording import all_clear, visibility_lines
from kafkasniff.sinks.paint import COLOUR, PLAIN, Paint
from kafkasniff.sinks.printable import printable
from kafkasniff.sinks.times import clock_time, date_of, rfc3339

__all__ = ["check_text", "finding_object", "headline", "list_json", "list_text", "severity_paint"]

SHOWN: Final = 5
"""Pieces of evidence that the text names, and of different notes; JSON has all."""
INDENT: Final = "         "
"""As wide as the longest severity, and two."""


def finding_object(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it: times as RFC 3339."""
    told: dict[str, Any] = msgspec.to_builtins(finding)
    for one in (told, *told["evidence"]):
        for name in ("first", "last", "time_ns"):
            if name in one:
                one["time" if name == "time_ns" else name] = rfc3339(one.pop(name))
    return told


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
    sources: Sequence[str],
    visible: VisibleTraffic | None = None,
    *,
    captures: bool,
    filtered: bool = False,
    width: int,
    coloured: bool,
) -> str:
    """What was found, worst first. `captures`: there are some, so that exchanges can be looked up by number.

    `visible`: how much of the traffic was looked at, without which no all-clear is given;
    `filtered`: filters selected it.
    """
    paint = COLOUR if coloured else PLAIN
    found = headline(findings) or all_clear(visible, filtered=filtered)
    lines = [f"{paint.api}{found}{paint.reset} in {', '.join(printable(one) for one in sources)}"]
    if not any(finding.detector == UndecodedTraffic.name for finding in findings):
        lines += [f"{paint.warn}{line}{paint.reset}" for line in visibility_lines(visible)]
    for finding in findings:
        lines += ["", *_finding(finding, paint, width, captures=captures)]
    shown = [one for finding in findings for one in finding.evidence]
    hints = list(_how_to_look(shown, sources)) if captures else []
    if not captures and shown:
        hints = ["connection_id and exchange_id are the key of the export's tables"]
    if hints:
        lines += ["", *(f"{paint.dim}{line}{paint.reset}" for line in hints)]
    return "".join(f"{line}\n" for line in lines)


def _how_to_look(shown: Sequence[Evidence], sources: Sequence[str]) -> Iterator[str]:
    """Commands that show the exchanges and connections whose numbers are there."""
    names = " ".join(shlex.quote(printable(one)) for one in sources)
    if any(one.exchange is not None for one in shown):
        yield f"To look at #N: kafkasniff decode -v {names} --exchange N"
    if any(one.exchange is None and one.connection is not None for one in shown):
        yield f"To look at conn N: kafkasniff decode -v {names} --connection N"


def _finding(finding: Finding, paint: Paint, width: int, *, captures: bool) -> Iterator[str]:
    colour = severity_paint(paint, finding.severity)
    first, *rest = _wrapped(finding.title, width) or [""]
    yield f"{colour}{finding.severity:<9}{paint.reset}{paint.api}{first}{paint.reset}"
    yield from (f"{INDENT}{paint.api}{line}{paint.reset}" for line in rest)
    yield from (f"{INDENT}{line}" for line in _wrapped(finding.meaning, width))
    yield from (f"{INDENT}{line}" for line in _wrapped(f"Try: {finding.advice}", width))
    seen = _seen(finding, captures=captures)
    yield from (f"{INDENT}{paint.dim}{line}{paint.reset}" for line in _wrapped(f"{finding.detector}: {seen}", width))


def _wrapped(text: str, width: int) -> list[str]:
    """Lines between the indent and the end of the screen; names that are too long for one stay whole."""
    return textwrap.wrap(text, max(width - len(INDENT), 20), break_long_words=False, break_on_hyphens=False)


def _seen(finding: Finding, *, captures: bool) -> str:
    """When, and which exchanges."""
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
    return "; ".join(parts) or "no evidence is left"


def _places(evidence: Sequence[Evidence], title: str, *, captures: bool) -> list[str]:
    """Where it was seen: places with the same note together, and of each note at least one.

    A note that all have and that is part of the title is left out.

    `#12, #15 and 3 more (NOT_LEADER_OR_FOLLOWER)`
    """
    noted: dict[str, Counter[str]] = {}
    for one in evidence:
        place = _place(one, captures=captures)
        noted.setdefault("" if place == one.note else one.note, Counter())[place] += 1
    if len(noted) == 1 and next(iter(noted)) in title:
        noted = dict(zip([""], noted.values(), strict=True))
    room = max(SHOWN - len(noted), 0)
    told = []
    for note, places in list(noted.items())[:SHOWN]:
        kept = list(places.items())[: 1 + room]
        room -= len(kept) - 1
        text = ", ".join(place if times == 1 else f"{place} ({times:,} times)" for place, times in kept)
        rest = len(places) - len(kept)
        told.append(f"{text}{f' and {rest:,} more' if rest else ''}{f' ({note})' if note else ''}")
    if len(noted) > SHOWN:
        told.append(f"and {len(noted) - SHOWN:,} more")
    return told


def _place(evidence: Evidence, *, captures: bool) -> str:
    if evidence.exchange is not None:
        return f"#{evidence.exchange}"
    if evidence.connection is not None:
        return f"conn {evidence.connection}"
    # The key of the tables: rows of an export have no numbers.
    if evidence.exchange_id is not None:
        return f"connection_id {evidence.connection_id} exchange_id {evidence.exchange_id}"
    if captures and evidence.note:
        return evidence.note  # an attempt to connect: decode numbers only connections that carried data
    return f"connection_id {evidence.connection_id}"


def list_text(detectors: Detectors, *, width: int, coloured: bool) -> str:
    """The detectors, with the thresholds that are set."""
    paint = COLOUR if coloured else PLAIN
    lines = []
    for detector in detectors.detectors:
        lines.append(f"{paint.api}{detector.name}{paint.reset}  {detector.summary}")
        for one in parameters_of(type(detector)):
            told = f"{one.name}={_value(detector.parameters, one)}"
            wrapped = textwrap.wrap(one.help, max(width - 26, 20))
            lines.append(f"    {paint.name}{told:<20}{paint.reset}  {wrapped[0]}")
            lines += [f"{'':26}{line}" for line in wrapped[1:]]
    return "".join(f"{line}\n" for line in lines)


def _value(thresholds: Any, parameter: Any) -> str:
    """A threshold as `--set` takes it."""
    value = getattr(thresholds, parameter.name)
    return msgspec.structs.replace(parameter, default=value).default_text or str(value)


def list_json(detectors: Detectors) -> bytes:
    """The same as one array."""
    told = [
        {
            "name": detector.name,
            "summary": detector.summary,
            "thresholds": {one.name: _value(detector.parameters, one) for one in parameters_of(type(detector))},
        }
        for detector in detectors.detectors
    ]
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)
