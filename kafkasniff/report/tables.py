"""The tables of a report: rows of an answer as text cells. Text from the wire goes through `word`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from kafkasniff.analysis.overview.answer import ErrorStats, TopicStats
from kafkasniff.enrich.hosts import Hosts
from kafkasniff.report.cells import (
    MAX_DETAIL,
    ReportColumn,
    bytes_of,
    count_of,
    first_exchange,
    moment,
    named,
    spans,
    spans_days,
)
from kafkasniff.report.contents import MAX_ROWS, Contents
from kafkasniff.report.overview_columns import APIS, BROKERS, CLIENTS, GROUPS, TOPICS, on_page, problem_columns
from kafkasniff.report.security_columns import SECURITY
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import duration

__all__ = ["Cell", "ReportTable", "tables_of"]

MAX_SPANS: Final = 8
"""Maximum number of version ranges of one API."""


class Cell(msgspec.Struct, frozen=True):
    """One cell."""

    text: str
    number: bool


class ReportTable(msgspec.Struct, frozen=True):
    """One table."""

    name: str
    """Used for anchors."""
    title: str
    headings: list[Cell]
    rows: list[list[Cell]]
    more: int
    """Number of rows omitted at its end."""


def tables_of(contents: Contents, hosts: Hosts | None = None) -> dict[str, ReportTable | None]:
    """The tables by name; None for those without rows. `hosts`: names and racks of addresses."""
    answer = contents.answer
    identities = contents.identities
    days = spans_days(answer)
    lists: list[tuple[str, str, Sequence[Any], list[ReportColumn]]] = [
        ("brokers", "Brokers", answer.brokers, _BROKERS),
        ("clients", "Clients", answer.clients, _CLIENTS),
        ("apis", "APIs", answer.apis, _APIS),
        ("topics", "Topics", answer.topics, _TOPICS),
        ("groups", "Groups", answer.groups, _GROUPS),
        ("errors", "Error codes", answer.errors, _errors(days)),
        ("problems", "Problems of the capture", answer.problems or [], problem_columns(days)),
        ("rebalances", "Rebalances", contents.generations, _rebalances(days)),
        ("identities", "Who connects as whom", identities[:MAX_ROWS], _SECURITY),
    ]
    more = {**answer.more, "rebalances": contents.more_generations, "identities": max(len(identities) - MAX_ROWS, 0)}
    return {
        name: _table(name, title, rows, named(columns, hosts), more.get(name, 0)) if rows else None
        for name, title, rows, columns in lists
    }


def _table(name: str, title: str, rows: Sequence[Any], columns: Sequence[ReportColumn], more: int) -> ReportTable:
    texts = [[column.cell(row) for column in columns] for row in rows]
    used = [place for place in range(len(columns)) if any(row[place] for row in texts)]
    return ReportTable(
        name,
        title,
        [Cell(columns[place].heading, columns[place].number) for place in used],
        [[Cell(row[place], columns[place].number) for place in used] for row in texts],
        more,
    )


def _name(name: str) -> Callable[[Any], str]:
    return lambda row: "" if getattr(row, name) is None else word(getattr(row, name))


def _compression(row: TopicStats) -> str:
    codecs = ", ".join(word(one) for one in row.compression)
    saved = row.compression_ratio is not None and row.compression != ["none"]
    return f"{codecs} ({row.compression_ratio:.1f} to 1)" if saved else codecs


_BROKERS: Final = on_page(BROKERS)
_CLIENTS: Final = on_page(CLIENTS, client_id=_name("client_id"))
_APIS: Final = on_page(
    APIS,
    {"p50": "median", "p90": "90%", "p99": "99%", "max": "longest"},
    versions=lambda row: spans(row.versions, MAX_SPANS),
)
_TOPICS: Final = on_page(
    TOPICS,
    {"record p50": "record, median", "p99": "99%", "max": "largest"},
    topic=lambda row: "(not known)" if row.topic is None else word(row.topic),
    record_p50=bytes_of("record_bytes_p50"),
    p99=bytes_of("record_bytes_p99"),
    max=bytes_of("record_bytes_max"),
    compression=_compression,
)
_GROUPS: Final = on_page(GROUPS)
_SECURITY: Final = on_page(SECURITY)


def _errors(days: bool) -> list[ReportColumn]:
    def meaning(row: ErrorStats) -> str:
        if row.code is None:
            return "codes in bodies, which the export does not have"
        return f"{row.meaning or 'an unknown code'}{' (may succeed later)' if row.retriable else ''}"

    return [
        ReportColumn("code", lambda row: "" if row.code is None else str(row.code), number=True),
        ReportColumn("name", lambda row: row.name or ""),
        ReportColumn("count", count_of("count"), number=True),
        ReportColumn("meaning", meaning),
        ReportColumn("in", lambda row: ", ".join(word(one) for one in row.apis)),
        ReportColumn("first", lambda row: first_exchange(row, days=days)),
    ]


def _rebalances(days: bool) -> list[ReportColumn]:
    def lasted(row: dict[str, Any]) -> str:
        return "" if row["duration_us"] is None else duration(1000 * row["duration_us"])

    def number(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda row: "" if row[name] is None else str(row[name])

    return [
        ReportColumn("group", lambda row: word(row["group_id"])),
        ReportColumn("cluster", lambda row: "" if row["cluster"] is None else word(row["cluster"])),
        ReportColumn(
            "begins", lambda row: moment(None if row["time_us"] is None else 1000 * row["time_us"], days=days)
        ),
        ReportColumn("protocol", lambda row: row["protocol"]),
        ReportColumn("generation", number("generation"), number=True),
        ReportColumn("lasts", lasted, number=True),
        ReportColumn("members", number("members"), number=True),
        ReportColumn("why", lambda row: cut(printable(row["cause"] or ""), MAX_DETAIL)),
    ]
