"""The screen of `kafkasniff stats`: a few lines on the whole, then a table for each list.

Everything that comes from the wire goes through `word`. A column in which no row has anything is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkasniff.analysis.overview.answer import (
    Answer,
    Api,
    Client,
    Connections,
    Error,
    Group,
    Problem,
    Topic,
    Traffic,
)
from kafkasniff.cli.rich_text import as_text
from kafkasniff.detectors.visible_wording import visibility_lines
from kafkasniff.model import Endpoint
from kafkasniff.sinks.printable import cut, printable, word
from kafkasniff.sinks.summaries.phrases import amount, rate
from kafkasniff.sinks.times import clock_time, date_of, duration

if TYPE_CHECKING:
    from kafkasniff.detectors import Finding
    from kafkasniff.hosts import Hosts

__all__ = ["stats_text"]

MIDDLE: Final = 96
WIDE: Final = 116
HUGE: Final = 150
"""Columns of a screen from which on there is room for more."""
MAX_DETAIL: Final = 160
"""Characters of a problem's detail."""
MAX_VERSIONS: Final = 4
"""Spans of versions of one API that are told."""


class _Column(NamedTuple):
    """A column of a table; `cell` gives "" for nothing."""

    heading: str
    cell: Callable[[Any], str]
    number: bool = False
    least: int = 0
    """Columns that the screen must have for it."""
    most: int = 1 << 16
    """Columns from which on others say it better."""


def stats_text(
    answer: Answer,
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
    days = _spans_days(answer)
    for name, rows, columns_of in [*_sections(answer, days), ("Findings", findings, _FINDINGS)]:
        all_columns = columns_of if hosts is None else _named(columns_of, hosts)
        more = answer.more.get(name.lower(), 0)
        if not rows:
            continue
        columns = [one for one in all_columns if one.least <= width < one.most and any(one.cell(row) for row in rows)]
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            # Of numbers no digit may get lost unseen; names go on in the next line.
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


def _heading(answer: Answer, sources: Sequence[str]) -> list[str]:
    """What concerns everything."""
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
        + (f", {counts.lost:,} with responses that the capture lacks" if counts.lost else "")
    )
    if answer.connections is not None:
        lines += _connection_lines(answer.connections)
    return lines + visibility_lines(answer.visibility)


def _connection_lines(counts: Connections) -> list[str]:
    kinds = [f"{counts.kafka:,} Kafka"]
    kinds += [
        f"{number:,} {told}"
        for number, told in ((counts.not_kafka, "not Kafka"), (counts.undecided, "undecided"))
        if number
    ]
    streams = f"{_count(counts.connections, 'connection')} ({', '.join(kinds)}), {_count(counts.packets, 'packet')}"
    if counts.retransmits:
        streams += f", {_count(counts.retransmits, 'retransmit')}"
    skipped = f"{amount(counts.bytes_skipped)} skipped"
    if counts.bytes_pending:
        skipped += f" ({amount(counts.bytes_pending)} of frames cut off at the end)"
    parts = [f"{amount(counts.bytes_decoded)} decoded", skipped, f"{amount(counts.bytes_lost)} lost"]
    for size, told in ((counts.bytes_repeated, "repeated"), (counts.bytes_ignored, "ignored")):
        if size:
            parts.append(f"{amount(size)} {told}")
    return [streams, f"bytes: {', '.join(parts)}"]


def _sections(answer: Answer, days: bool) -> list[tuple[str, Sequence[Any], list[_Column]]]:
    """Name, rows and columns of each table. The names, in lower case, are those of `Answer.more`."""
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
                _Column("code", lambda row: "" if row.code is None else str(row.code), number=True),
                _Column("count", lambda row: f"{row.count:,}", number=True),
                _Column("meaning, and where it was seen first", lambda row: _error(row, days)),
            ],
        ),
        (
            "Problems",
            answer.problems or [],
            [
                _Column("problem", lambda row: row.kind),
                _Column("count", lambda row: f"{row.count:,}", number=True),
                _Column("bytes", lambda row: amount(row.bytes) if row.bytes else "", number=True),
                _Column("first", lambda row: _first_problem(row, days)),
            ],
        ),
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _some(number: int | None) -> str:
    return f"{number:,}" if number else ""


def _address(address: str | None, port: int) -> str:
    return "" if address is None else printable(str(Endpoint(address, port)))


def _named(columns: list[_Column], hosts: Hosts) -> list[_Column]:
    """The same with a name and a rack behind each address."""

    def told(find: Callable[[str | None, int | None], str | None]) -> Callable[[Any], str]:
        return lambda row: word(find(row.address, getattr(row, "port", None)) or "")

    made: list[_Column] = []
    for one in columns:
        made.append(one)
        if one.heading == "address":
            made += [_Column("name", told(hosts.name)), _Column("rack", told(hosts.rack), least=MIDDLE)]
    return made


def _software(row: Client) -> str:
    parts = [word(one) for one in (row.software_name, row.software_version) if one is not None]
    return " ".join(parts)


def _versions(row: Api) -> str:
    """`0, 4-9`."""
    spans: list[list[int]] = []
    for version in row.versions:
        if spans and version == spans[-1][1] + 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    told = [str(low) if low == high else f"{low}-{high}" for low, high in spans[:MAX_VERSIONS]]
    return ", ".join(told) + (", …" if len(spans) > MAX_VERSIONS else "")


def _latency(name: str) -> Callable[[Api], str]:
    return lambda row: "" if row.latency is None else duration(getattr(row.latency, name) * 1000)


def _traffic(way: str) -> Callable[[Topic], str]:
    def cell(row: Topic) -> str:
        traffic: Traffic = getattr(row, way)
        return f"{traffic.records:,} ({amount(traffic.bytes)})" if traffic.batches or traffic.bytes else ""

    return cell


def _rate(way: str) -> Callable[[Topic], str]:
    def cell(row: Topic) -> str:
        traffic: Traffic = getattr(row, way)
        if not traffic.records or traffic.records_per_second is None or traffic.bytes_per_second is None:
            return ""
        return rate(traffic.records_per_second, traffic.bytes_per_second)

    return cell


def _size(name: str) -> Callable[[Topic], str]:
    return lambda row: "" if getattr(row, name) is None else amount(getattr(row, name))


def _compression(row: Topic) -> str:
    codecs = ", ".join(word(one) for one in row.compression)
    if row.compression_ratio is None or row.compression == ["none"]:
        return codecs
    return f"{codecs} ({row.compression_ratio:.1f}x)"


def _generations(row: Group) -> str:
    if row.generation_first is None or row.generation_last is None:
        return ""
    if row.generation_first == row.generation_last:
        return str(row.generation_last)
    return f"{row.generation_first}-{row.generation_last}"


def _error(row: Error, days: bool) -> str:
    """Two lines: what it says, and the first exchange that had it."""
    if row.code is None:
        told = "codes that stand in bodies, which the export does not have"
    else:
        told = row.name or "a code that is not known"
        told += f": {row.meaning}" if row.meaning else ""
        told += " (retriable)" if row.retriable else ""
    who = "" if row.first_client_id is None else f" of {word(row.first_client_id)}"
    where = "" if row.first_client_address is None else f" at {printable(row.first_client_address)}"
    topic = "" if row.first_topic is None else f", topic {word(row.first_topic)}"
    api = "a response" if row.first_api is None else word(row.first_api)
    return f"{told}\n{_moment(row.first, days)} {api}{who}{where}{topic}"


def _first_problem(row: Problem, days: bool) -> str:
    detail = cut(printable(row.first_detail), MAX_DETAIL)
    packet = "" if row.first_packet is None else f" packet {row.first_packet}:"
    return f"{_moment(row.first, days)}{packet} {detail}".lstrip()


def _moment(time_ns: int | None, days: bool) -> str:
    if time_ns is None:
        return ""
    return f"{date_of(time_ns)} {clock_time(time_ns)[:-7]}" if days else clock_time(time_ns)[:-3]


def _spans_days(answer: Answer) -> bool:
    return answer.first is None or answer.last is None or date_of(answer.first) != date_of(answer.last)


def _bytes_of(name: str) -> Callable[[Any], str]:
    return lambda row: amount(getattr(row, name)) if getattr(row, name) else ""


_SENT: Final = _Column("sent", _bytes_of("request_bytes"), number=True, least=WIDE)
_RECEIVED: Final = _Column("received", _bytes_of("response_bytes"), number=True, least=WIDE)
_BOTH: Final = _Column("bytes", lambda row: amount(row.request_bytes + row.response_bytes), number=True, most=WIDE)
_REQUESTS: Final = _Column("requests", lambda row: f"{row.requests:,}", number=True)
_ERRORS: Final = _Column("errors", lambda row: _some(row.errors), number=True)
_UNANSWERED: Final = _Column("unanswered", lambda row: _some(row.unanswered), number=True, least=WIDE)
_CLUSTER: Final = _Column("cluster", lambda row: "" if row.cluster is None else word(row.cluster))

_BROKERS: Final = [
    _Column("id", lambda row: "" if row.broker_id is None else str(row.broker_id), number=True),
    _Column("address", lambda row: _address(row.address, row.port)),
    _CLUSTER,
    _Column("connections", lambda row: _some(row.connections), number=True),
    _REQUESTS,
    _ERRORS,
    _UNANSWERED,
    # What clients send, a broker receives.
    _RECEIVED._replace(cell=_SENT.cell),
    _SENT._replace(cell=_RECEIVED.cell),
    _BOTH,
]
_CLIENTS: Final = [
    _Column("client id", lambda row: word(row.client_id)),
    _Column("address", lambda row: "" if row.address is None else printable(row.address)),
    _Column("software", _software),
    _REQUESTS,
    _ERRORS,
    _UNANSWERED,
    _SENT,
    _RECEIVED,
    _BOTH,
]
_APIS: Final = [
    _Column("API", lambda row: "(request not seen)" if row.api is None else word(row.api)),
    _Column("versions", _versions, least=MIDDLE),
    _Column("count", lambda row: f"{row.exchanges:,}", number=True),
    _ERRORS,
    _UNANSWERED,
    _Column("p50", _latency("p50_us"), number=True),
    _Column("p90", _latency("p90_us"), number=True),
    _Column("p99", _latency("p99_us"), number=True),
    _Column("max", _latency("max_us"), number=True),
    _SENT,
    _RECEIVED,
    _BOTH,
]
_TOPICS: Final = [
    _Column("topic", lambda row: word(row.topic)),
    _CLUSTER,
    _Column("partitions", lambda row: f"{row.partitions:,}", number=True, least=HUGE),
    _Column("produced", _traffic("produced"), number=True),
    _Column("rate", _rate("produced"), number=True, least=MIDDLE),
    _Column("fetched", _traffic("fetched"), number=True),
    _Column("rate", _rate("fetched"), number=True, least=WIDE),
    _Column("replicated", _traffic("replicated"), number=True),
    _Column("record p50", _size("record_bytes_p50"), number=True),
    _Column("p99", _size("record_bytes_p99"), number=True, least=HUGE),
    _Column("max", _size("record_bytes_max"), number=True, least=WIDE),
    _Column("compression", _compression),
]
_GROUPS: Final = [
    _Column("group", lambda row: word(row.group_id)),
    _CLUSTER,
    _Column("protocol", lambda row: ", ".join(row.protocols)),
    _Column("generations", _generations, number=True),
    _Column("rebalances", lambda row: _some(row.rebalances), number=True),
    _Column("clients", lambda row: f"{row.clients:,}", number=True, least=MIDDLE),
    _Column("members", lambda row: "" if row.members is None else f"{row.members:,}", number=True),
    _REQUESTS,
    _ERRORS,
]
_FINDINGS: Final = [
    _Column("severity", lambda row: row.severity),
    # Sentences of detectors are safe to print.
    _Column("what was seen (kafkasniff check tells more)", lambda row: row.title),
]
