"""The screen of `kafkasniff stats`: a few lines on the whole, then a table for each list.

All text from the wire goes through `word`. Empty columns are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkasniff.analysis.detectors.visible_wording import visibility_lines
from kafkasniff.analysis.overview.answer import ConnectionTotals, ErrorStats, OverviewAnswer
from kafkasniff.cli.render.rich_text import screen_text
from kafkasniff.model import Endpoint
from kafkasniff.report.answer_tables import AnswerTable, overview_tables
from kafkasniff.report.cells import ReportColumn, count_of, first_exchange, meaning_of, spans_days
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.times import clock_time, date_of, duration

if TYPE_CHECKING:
    from kafkasniff.analysis.detectors import Finding
    from kafkasniff.analysis.security import SecurityView
    from kafkasniff.enrich.hosts import Hosts

__all__ = ["stats_text"]


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
    identities = [] if security is None else security.identities()
    tables = overview_tables(answer, identities, _errors(spans_days(answer)), top=top, hosts=hosts)
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
        f"{_count(counts.exchanges, 'exchange')}: {_count(counts.requests, 'request')} of "
        f"{amount(counts.request_bytes)}, {_count(counts.responses, 'response')} of {amount(counts.response_bytes)}; "
        f"{counts.with_errors:,} with errors, {counts.unanswered:,} unanswered"
        + (f", {counts.lost:,} with responses missing from the capture" if counts.lost else "")
    )
    if answer.connections is not None:
        lines += _connection_lines(answer.connections)
    lines += [
        f"{_count(one.connects, 'connect')} to {Endpoint(one.address, one.port)} {one.outcome}, "
        f"{_count(one.packets, 'packet')}"
        for one in answer.failed_connects
    ]
    if (left := answer.more["failed_connects"]) > 0:
        lines.append(f"and connects to {_count(left, 'other endpoint')} failed (--top)")
    return lines + visibility_lines(answer.visibility)


def _connection_lines(counts: ConnectionTotals) -> list[str]:
    kinds = [f"{counts.kafka:,} Kafka"]
    kinds += [
        f"{number:,} {kind}"
        for number, kind in ((counts.not_kafka, "not Kafka"), (counts.undecided, "undecided"))
        if number
    ]
    streams = f"{_count(counts.connections, 'connection')} ({', '.join(kinds)}), {_count(counts.packets, 'packet')}"
    if counts.retransmits:
        streams += f", {_count(counts.retransmits, 'retransmit')}"
    skipped = f"{amount(counts.bytes_skipped)} skipped"
    if counts.bytes_pending:
        skipped += f" ({amount(counts.bytes_pending)} of frames truncated at the end)"
    parts = [f"{amount(counts.bytes_decoded)} decoded", skipped, f"{amount(counts.bytes_lost)} lost"]
    for size, kind in ((counts.bytes_repeated, "repeated"), (counts.bytes_ignored, "ignored")):
        if size:
            parts.append(f"{amount(size)} {kind}")
    return [streams, f"bytes: {', '.join(parts)}"]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _errors(days: bool) -> list[ReportColumn]:
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
