"""The screen of `kafkasniff stats`: a few lines on the whole, then a table for each list.

All text from the wire goes through `word`. Empty columns are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.analysis.detectors.visible_wording import visibility_lines
from kafkasniff.analysis.overview.answer import (
    ConnectionTotals,
    ErrorStats,
    OverviewAnswer,
    TopicStats,
)
from kafkasniff.cli.render.rich_text import as_text
from kafkasniff.report.cells import (
    CLUSTER,
    ERRORS,
    GENERATIONS,
    MEMBERS,
    REQUESTS,
    ReportColumn,
    address,
    bytes_of,
    count_of,
    first_exchange,
    first_problem,
    latency_of,
    named,
    rate_of,
    records_of,
    software,
    some_of,
    spans,
    spans_days,
)
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import printable, word
from kafkasniff.text.times import clock_time, date_of, duration

if TYPE_CHECKING:
    from kafkasniff.analysis.detectors import Finding
    from kafkasniff.enrich.hosts import Hosts

__all__ = ["stats_text"]

MIDDLE: Final = 96
WIDE: Final = 116
HUGE: Final = 150
"""Width from which optional columns are shown."""
MAX_VERSIONS: Final = 4
"""Version ranges shown per API."""


def stats_text(
    answer: OverviewAnswer,
    findings: Sequence[Finding],
    sources: Sequence[str],
    *,
    width: int,
    coloured: bool,
    hosts: Hosts | None = None,
) -> str:
    """The screen, `width` columns wide, with ANSI codes if `coloured`; `hosts`: names of addresses."""
    from rich.console import RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shown: list[RenderableType] = [Text(line, overflow="fold") for line in _heading(answer, sources)]
    days = spans_days(answer)
    for name, rows, columns_of in [*_sections(answer, days), ("Findings", findings, _FINDINGS)]:
        all_columns = named(columns_of, hosts, least=MIDDLE)
        more = answer.more.get(name.lower(), 0)
        if not rows:
            continue
        columns = [one for one in all_columns if one.least <= width < one.most and any(one.cell(row) for row in rows)]
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            # Numbers must not be truncated; names wrap.
            if column.number:
                table.add_column(column.heading, justify="right", no_wrap=True, overflow="ellipsis")
            else:
                table.add_column(column.heading, overflow="fold")
        for row in rows:
            table.add_row(*(Text(column.cell(row)) for column in columns))
        shown += [Text(), Text(name, style="bold"), Padding(table, (0, 0, 0, 2))]
        if more:
            shown.append(Text(f"  and {more:,} more (--top)"))
    return as_text(shown, width=width, coloured=coloured)


def _heading(answer: OverviewAnswer, sources: Sequence[str]) -> list[str]:
    """Lines about the sources as a whole."""
    lines = [", ".join(printable(one) for one in sources)]
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


def _sections(answer: OverviewAnswer, days: bool) -> list[tuple[str, Sequence[Any], list[ReportColumn]]]:
    """Name, rows and columns of each table. The names in lower case are those in `OverviewAnswer.more`."""
    return [
        ("Brokers", answer.brokers, _BROKERS),
        ("Clients", answer.clients, _CLIENTS),
        ("APIs", answer.apis, _APIS),
        ("Topics", answer.topics, _TOPICS),
        ("Groups", answer.groups, _GROUPS),
        (
            "Errors",
            answer.errors,
            [
                ReportColumn("code", lambda row: "" if row.code is None else str(row.code), number=True),
                ReportColumn("count", count_of("count"), number=True),
                ReportColumn("meaning, and first occurrence", lambda row: _error(row, days)),
            ],
        ),
        (
            "Problems",
            answer.problems or [],
            [
                ReportColumn("problem", lambda row: row.kind),
                ReportColumn("count", count_of("count"), number=True),
                ReportColumn("bytes", bytes_of("bytes"), number=True),
                ReportColumn("first", lambda row: first_problem(row, days=days)),
            ],
        ),
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(name: str) -> Callable[[TopicStats], str]:
    return lambda row: "" if getattr(row, name) is None else amount(getattr(row, name))


def _compression(row: TopicStats) -> str:
    codecs = ", ".join(word(one) for one in row.compression)
    if row.compression_ratio is None or row.compression == ["none"]:
        return codecs
    return f"{codecs} ({row.compression_ratio:.1f}x)"


def _error(row: ErrorStats, days: bool) -> str:
    """Two lines: the meaning, and the first exchange with the error."""
    if row.code is None:
        meaning = "codes in bodies, which the export does not have"
    else:
        meaning = row.name or "unknown code"
        meaning += f": {row.meaning}" if row.meaning else ""
        meaning += " (retriable)" if row.retriable else ""
    return f"{meaning}\n{first_exchange(row, days=days)}"


_SENT: Final = ReportColumn("sent", bytes_of("request_bytes"), number=True, least=WIDE)
_RECEIVED: Final = ReportColumn("received", bytes_of("response_bytes"), number=True, least=WIDE)
_BOTH: Final = ReportColumn("bytes", lambda row: amount(row.request_bytes + row.response_bytes), number=True, most=WIDE)
_UNANSWERED: Final = ReportColumn("unanswered", some_of("unanswered"), number=True, least=WIDE)

_BROKERS: Final = [
    ReportColumn("id", lambda row: "" if row.broker_id is None else str(row.broker_id), number=True),
    ReportColumn("address", lambda row: address(row.address, row.port)),
    CLUSTER,
    ReportColumn("connections", some_of("connections"), number=True),
    REQUESTS,
    ERRORS,
    _UNANSWERED,
    # What clients send is what a broker receives.
    _RECEIVED._replace(cell=_SENT.cell),
    _SENT._replace(cell=_RECEIVED.cell),
    _BOTH,
]
_CLIENTS: Final = [
    ReportColumn("client id", lambda row: word(row.client_id)),
    ReportColumn("address", lambda row: "" if row.address is None else printable(row.address)),
    ReportColumn("software", software),
    REQUESTS,
    ERRORS,
    _UNANSWERED,
    _SENT,
    _RECEIVED,
    _BOTH,
]
_APIS: Final = [
    ReportColumn("API", lambda row: "(request not seen)" if row.api is None else word(row.api)),
    ReportColumn("versions", lambda row: spans(row.versions, MAX_VERSIONS), least=MIDDLE),
    ReportColumn("count", count_of("exchanges"), number=True),
    ERRORS,
    _UNANSWERED,
    ReportColumn("p50", latency_of("p50_us"), number=True),
    ReportColumn("p90", latency_of("p90_us"), number=True),
    ReportColumn("p99", latency_of("p99_us"), number=True),
    ReportColumn("max", latency_of("max_us"), number=True),
    _SENT,
    _RECEIVED,
    _BOTH,
]
_TOPICS: Final = [
    ReportColumn("topic", lambda row: word(row.topic)),
    CLUSTER,
    ReportColumn("partitions", count_of("partitions"), number=True, least=HUGE),
    ReportColumn("produced", records_of("produced"), number=True),
    ReportColumn("rate", rate_of("produced"), number=True, least=MIDDLE),
    ReportColumn("fetched", records_of("fetched"), number=True),
    ReportColumn("rate", rate_of("fetched"), number=True, least=WIDE),
    ReportColumn("replicated", records_of("replicated"), number=True),
    ReportColumn("record p50", _size("record_bytes_p50"), number=True),
    ReportColumn("p99", _size("record_bytes_p99"), number=True, least=HUGE),
    ReportColumn("max", _size("record_bytes_max"), number=True, least=WIDE),
    ReportColumn("compression", _compression),
]
_GROUPS: Final = [
    ReportColumn("group", lambda row: word(row.group_id)),
    CLUSTER,
    ReportColumn("protocol", lambda row: ", ".join(row.protocols)),
    GENERATIONS,
    ReportColumn("rebalances", some_of("rebalances"), number=True),
    ReportColumn("clients", count_of("clients"), number=True, least=MIDDLE),
    MEMBERS,
    REQUESTS,
    ERRORS,
]
_FINDINGS: Final = [
    ReportColumn("severity", lambda row: row.severity),
    # Titles of findings are safe to print.
    ReportColumn("finding (see kafkasniff check)", lambda row: row.title),
]
