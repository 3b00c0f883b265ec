"""The screen of `kafkasniff diff`: both sides, the number of differences, then a table for each list that has some.

All text from the wire goes through `word`. Percentages are shown only for numbers that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kafkasniff.analysis.comparison.answer import (
    SECTIONS,
    BatchingDiff,
    Change,
    ClientDiff,
    Compared,
    ComparisonAnswer,
    ErrorDiff,
    LatencyDiff,
    Shift,
    Software,
)
from kafkasniff.cli.render.tables import screen_text
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.report.answer_tables import AnswerTable, ReportColumn
from kafkasniff.sinks.summaries.phrases import amount, few
from kafkasniff.text.printable import printable, word
from kafkasniff.text.times import clock_time, date_of, duration

MIDDLE: Final = 1
WIDE: Final = 2
HUGE: Final = 3
VAST: Final = 4
"""Levels of optional columns."""
MAX_NAMES: Final = 4
"""Versions, codecs, addresses or kinds of software shown per row and side."""

_VERDICTS: Final = {
    "slower": "slower",
    "faster": "faster",
    "slower-tail": "slower tail",
    "faster-tail": "faster tail",
    "same": "same",
    "unclear": "too few",
}


def diff_text(
    answer: ComparisonAnswer,
    sources: Sequence[str],
    *,
    top: int,
    everything: bool,
    width: int,
    coloured: bool,
    hosts: Hosts | None = None,
) -> str:
    """The screen, `width` columns wide, with ANSI codes if `coloured`.

    `everything`: also rows that do not differ; `hosts`: names of addresses.
    """
    lines = [*_side("before", sources[0], answer.before), *_side("after ", sources[1], answer.after), _found(answer)]
    marks = [ReportColumn("", lambda row: "*" if row.differs else "")] if everything else []
    tables = []
    for name in SECTIONS:
        rows = [row for row in getattr(answer, name) or [] if everything or row.differs]
        columns = [*marks, *_TABLES[name]]
        tables.append(AnswerTable(name, name.capitalize(), rows[:top], columns, len(rows) - top, hosts=hosts))
    return screen_text(lines, tables, width=width, coloured=coloured)


def _side(name: str, source: str, side: Compared) -> Iterable[str]:
    yield f"{name}  {printable(source)}"
    line = f"{side.exchanges:,} exchange{'' if side.exchanges == 1 else 's'}"
    if side.first is not None and side.last is not None:
        ends = clock_time(side.last)
        if date_of(side.first) != date_of(side.last):
            ends = f"{date_of(side.last)} {ends}"
        span = f"{date_of(side.first)} {clock_time(side.first)} to {ends} UTC"
        line = f"{span}, {duration(side.last - side.first)}, {line}"
    yield f"        {line}"


def _found(answer: ComparisonAnswer) -> str:
    counts = {name: number for name, number in answer.differences.items() if number}
    if not counts:
        return f"no differences in {', '.join(answer.differences)}" if answer.differences else "nothing was compared"
    whole = sum(counts.values())
    parts = ", ".join(f"{number} in {name}" for name, number in counts.items())
    return f"{whole} difference{'' if whole == 1 else 's'}: {parts}"


# -- cells ------------------------------------------------------------------------------------------------------------


def _pair(before: str, after: str) -> str:
    return before if before == after else f"{before or '-'} → {after or '-'}"


def _counts(row: Any) -> str:
    return f"{row.before:,} → {row.after:,}"


def _only(before: object, after: object) -> str:
    """Text for an entry that only one side has."""
    if before and not after:
        return "gone"
    return "new" if after and not before else ""


def _percent(change: float | None) -> str:
    if change is None:
        return "from 0"
    return f"{change:+.0%}" if change < 10 else f"{1 + change:.0f}-fold"


def _change(name: str, shown: Callable[[float], str]) -> Callable[[Any], str]:
    def cell(row: Any) -> str:
        change: Change = getattr(row, name)
        if change.before is None and change.after is None:
            return ""
        before, after = ("-" if one is None else shown(one) for one in (change.before, change.after))
        if before == after == shown(0.0):
            return ""
        text = _pair(before, after)
        return f"{text} ({_percent(change.change)})" if change.differs else text

    return cell


def _rate(value: float) -> str:
    return f"{_number(value)}/s"


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.3g}"


def _share(value: float) -> str:
    return f"{value:.2%}" if 0 < value < 0.1 else f"{value:.0%}"


def _bytes(value: float) -> str:
    return amount(round(value))


def _percentile(name: str, *, percent: bool = True) -> Callable[[LatencyDiff], str]:
    def cell(row: LatencyDiff) -> str:
        shift: Shift = getattr(row, name)
        before, after = duration(shift.before_us * 1000), duration(shift.after_us * 1000)
        # A unit that both share is shown once.
        number, _, unit = before.rpartition(" ")
        text = f"{number if after.endswith(f' {unit}') else before} → {after}"
        return f"{text} ({_percent(shift.change)})" if percent and shift.differs and row.differs else text

    return cell


def _limits(row: LatencyDiff) -> str:
    if row.p50.low_us is None or row.p50.high_us is None:
        return ""
    return f"{_signed(row.p50.low_us)} to {_signed(row.p50.high_us)}"


def _signed(microseconds: float) -> str:
    text = duration(round(microseconds * 1000))
    return text if microseconds < 0 else f"+{text}"


def _slower(row: LatencyDiff) -> str:
    return "" if row.slower is None else f"{row.slower:.0%}"


def _p(row: LatencyDiff) -> str:
    p = row.tail_p if row.verdict in ("slower-tail", "faster-tail") else row.p
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _spans(versions: Sequence[int]) -> str:
    """`0, 4-9`."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and version == spans[-1][1] + 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    return few([str(low) if low == high else f"{low}-{high}" for low, high in spans], shown=MAX_NAMES)


def _codecs(row: BatchingDiff) -> str:
    return _pair(*(few([word(one) for one in side], shown=MAX_NAMES) for side in (row.codecs_before, row.codecs_after)))


def _software(row: ClientDiff) -> str:
    return _pair(*(_names(side) for side in (row.software_before, row.software_after)))


def _names(kinds: Sequence[Software]) -> str:
    names = [
        " ".join(word(part) for part in (software.software_name, software.software_version) if part is not None)
        for software in kinds
    ]
    return few(names, shown=MAX_NAMES)


def _addresses(side: Sequence[str]) -> str:
    return few([printable(one) for one in side], shown=MAX_NAMES)


def _error(row: ErrorDiff) -> str:
    return word(row.name) if row.name is not None else "(unknown)"


_API: Final = ReportColumn("API", lambda row: word(row.api))
_TOPIC: Final = ReportColumn("topic", lambda row: word(row.topic))
_SIDES: Final = ReportColumn("", lambda row: _only(row.before, row.after))

_TABLES: Final[dict[str, list[ReportColumn]]] = {
    "versions": [_API, _SIDES, ReportColumn("spoken", lambda row: _pair(_spans(row.before), _spans(row.after)))],
    "rates": [
        _API,
        _SIDES,
        ReportColumn("exchanges", _counts, number=True),
        ReportColumn("a second", _change("per_second", _rate), number=True),
    ],
    "latency": [
        _API,
        ReportColumn("", lambda row: _VERDICTS[row.verdict]),
        ReportColumn("p50", _percentile("p50", percent=False), number=True, until=MIDDLE),
        ReportColumn("p50", _percentile("p50"), number=True, level=MIDDLE),
        ReportColumn("shift of p50", _limits, number=True, level=HUGE),
        ReportColumn("p90", _percentile("p90"), number=True, level=VAST),
        ReportColumn("p99", _percentile("p99", percent=False), number=True, until=MIDDLE),
        ReportColumn("p99", _percentile("p99"), number=True, level=MIDDLE),
        ReportColumn("slower", _slower, number=True, level=WIDE),
        ReportColumn("p", _p, number=True, level=WIDE),
    ],
    "sizes": [
        _API,
        ReportColumn("requests", _change("request_bytes", _bytes), number=True),
        ReportColumn("responses", _change("response_bytes", _bytes), number=True),
    ],
    "errors": [
        _API,
        ReportColumn("code", lambda row: str(row.code), number=True),
        ReportColumn("error", _error),
        _SIDES,
        ReportColumn("exchanges", _counts, number=True),
        ReportColumn("share", _change("share", _share), number=True),
    ],
    "topics": [
        _TOPIC,
        ReportColumn("produced", _change("produced_per_second", _rate), number=True),
        ReportColumn("fetched", _change("fetched_per_second", _rate), number=True),
    ],
    "batching": [
        _TOPIC,
        ReportColumn("batches", _counts, number=True, level=MIDDLE),
        ReportColumn("records per batch", _change("records_per_batch", _number), number=True),
        ReportColumn("bytes per batch", _change("bytes_per_batch", _bytes), number=True),
        ReportColumn("codecs", _codecs),
    ],
    "clients": [
        ReportColumn("client id", lambda row: word(row.client_id)),
        _SIDES,
        ReportColumn("exchanges", _counts, number=True),
        ReportColumn("software", _software),
    ],
    "brokers": [
        ReportColumn("id", lambda row: "" if row.broker_id is None else str(row.broker_id), number=True),
        _SIDES,
        ReportColumn("address", lambda row: _pair(_addresses(row.before), _addresses(row.after))),
    ],
}
