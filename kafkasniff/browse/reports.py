"""What `check`, `stats` and `timing` say of the listed exchanges, in lines: the commands themselves are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from kafkasniff.browse.commands import Commands, run_command
from kafkasniff.text.printable import printable, wrapped

__all__ = ["REPORTS", "ReportLine", "ReportName", "report"]

ReportName = Literal["check", "stats", "timing"]
REPORTS: Final[tuple[ReportName, ...]] = get_args(ReportName)
MAX_LINES: Final = 20_000
"""Maximum number of lines that are shown of a report."""
_INDENT: Final = 9


class ReportLine(NamedTuple):
    """A line, and the filter expression for the exchanges that it is about."""

    text: str
    """Escaped."""
    evidence: str = ""
    severity: str | None = None
    """That of the finding, in its first line; else None."""


class _Evidence(msgspec.Struct):
    connection_id: int
    exchange_id: int | None
    time: str | None
    connection: int | None
    exchange: int | None


class _Finding(msgspec.Struct):
    detector: str
    severity: str
    title: str
    meaning: str
    advice: str
    count: int
    evidence: list[_Evidence]


class _Check(msgspec.Struct):
    findings: list[_Finding]
    notes: list[str]


def report(
    name: ReportName,
    commands: Commands,
    expression: str,
    width: int,
    *,
    numbers: Mapping[int, int],
    stopped: Callable[[], bool],
) -> list[ReportLine]:
    """Run a command for the exchanges that a filter selects, and return its lines.

    `numbers`: those of connections in the list, by `connection_id`.
    """
    done = run_command(commands.report(name, expression), stopped=stopped, width=width)
    if done.wrong is not None:
        return [ReportLine(done.wrong)]
    if name == "check":
        lines = list(_check_lines(msgspec.json.decode(done.output, type=_Check), width, numbers))
    else:
        lines = [ReportLine(printable(one, backslashes=False)) for one in done.output.decode().splitlines()]
    return lines[:MAX_LINES]


def _check_lines(check: _Check, width: int, numbers: Mapping[int, int]) -> Iterator[ReportLine]:
    if not check.findings:
        yield ReportLine("no findings")
    for one in check.findings:
        shown = [found for found in (_numbered(evidence, numbers) for evidence in one.evidence) if found is not None]
        evidence = _expression(shown)
        first, *rest = _wrapped(f"{one.severity:<{_INDENT}}{one.title}", width, 0)
        yield ReportLine(first, evidence, one.severity)
        for text in (*rest, *_wrapped(one.meaning, width), *_wrapped(f"Try: {one.advice}", width)):
            yield ReportLine(text, evidence)
        does = f"Enter lists {len(shown):,} of {one.count:,}" if evidence else f"{one.count:,}, no exchanges to list"
        yield ReportLine(f"{'':{_INDENT}}{one.detector}: {does}", evidence)
        yield ReportLine("", evidence)
    for note in check.notes:
        yield from map(ReportLine, _wrapped(f"note: {note}", width, 0))


def _wrapped(text: str, width: int, indent: int = _INDENT) -> Iterator[str]:
    """Lines of a text; the first one is indented by `indent`, the others by `_INDENT`."""
    return wrapped(" " * indent + printable(text, backslashes=False), max(width, 2 * _INDENT), _INDENT - indent)


def _numbered(evidence: _Evidence, numbers: Mapping[int, int]) -> _Evidence | None:
    """Evidence with the number of its connection if it is a whole one of an export; None if that has no exchanges."""
    if evidence.exchange_id is not None or evidence.connection is not None:
        return evidence
    number = numbers.get(evidence.connection_id)
    return None if number is None else msgspec.structs.replace(evidence, connection=number)


def _expression(evidence: list[_Evidence]) -> str:
    """The filter for the exchanges, or whole connections, that show a finding.

    Exchanges of an export have no numbers, so the times of their requests select them, to the nanosecond.
    """
    exchanges = [str(one.exchange) for one in evidence if one.exchange is not None]
    connections = [str(one.connection) for one in evidence if one.exchange is None and one.connection is not None]
    times = [one.time for one in evidence if one.connection is None and one.exchange_id is not None and one.time]
    parts = [
        f"{field} in ({', '.join(numbers)})"
        for field, numbers in (("exchange", exchanges), ("connection", connections))
        if numbers
    ]
    return " or ".join((*parts, *(f"time == {time}" for time in dict.fromkeys(times))))
