"""The tables of the view and their columns: titles, contents and sort keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkasniff.live.snapshot import ErrorRow, FindingRow, LagRow, LiveRow, Snapshot, Waiting
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word
from kafkasniff.text.times import duration

__all__ = ["FINDINGS_TABLE", "TABLES", "TableOf", "ViewColumn", "identity", "number", "sorted_rows", "time_text"]

MAX_NAME: Final = 60
"""Maximum number of characters of a name from the wire; the column cuts it further."""
_ROOM: Final = 94
_WIDE: Final = 110
"""Table widths from which on there is room for one more column, and for more."""


class ViewColumn(NamedTuple):
    """One column; `rank` None: it cannot be sorted by."""

    title: str
    text: Callable[[Any], str]
    rank: Callable[[Any], Any] | None = None
    """Sort key of rows, the greatest first."""
    flexible: bool = False
    """Takes the remaining room; its text is left-aligned."""
    from_width: int = 0
    """Only in tables at least this wide."""
    alarm: bool = False
    """Any value is highlighted."""
    style: Callable[[Any], str] | None = None
    """Style of its text, by the row."""


class TableOf(NamedTuple):
    """One table of the view."""

    title: str
    rows: Callable[[Snapshot], tuple[Any, ...]]
    columns: tuple[ViewColumn, ...]
    sort: int
    """The column that it is initially sorted by."""
    short: str = ""
    """Its title where there is little room."""

    def shown(self, width: int) -> list[tuple[int, ViewColumn]]:
        """The columns for a width, each with its index among all."""
        return [(place, one) for place, one in enumerate(self.columns) if width >= one.from_width]

    @property
    def sortable(self) -> list[int]:
        """Indices of the columns that it can be sorted by."""
        return [place for place, one in enumerate(self.columns) if one.rank is not None]


def number(value: float) -> str:
    """A rate or a count in three digits: `0`, `0.5`, `12`, `1.2k`, `340k`, `12M`."""
    if value <= 0:
        return "0"
    if value < 0.05:
        return "<0.1"
    if value < 9.95:
        return f"{value:.1f}".removesuffix(".0")
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.0f}T"


def time_text(microseconds: int | None) -> str:
    """A latency; `-` if there is none."""
    return "-" if microseconds is None else duration(microseconds * 1000)


def identity(row: Any) -> tuple[object, ...]:
    """Identity of a row, independent of sorting."""
    if isinstance(row, Waiting):
        return (row.exchange, row.connection, row.api, row.correlation_id)
    if isinstance(row, ErrorRow):
        return (row.api, row.error)
    if isinstance(row, FindingRow):
        return (row.detector, row.about)
    if isinstance(row, LagRow):
        return (row.group, row.topic, row.partition)
    return (row.name, row.client, row.connection)


def sorted_rows(table: TableOf, snapshot: Snapshot, sort: int, *, reverse: bool) -> list[Any]:
    """The rows of a table by one of its columns, greatest first unless `reverse`; the row of all others last."""
    rank = table.columns[sort].rank
    rows = list(table.rows(snapshot))
    if rank is not None:
        rows.sort(key=lambda row: str(identity(row)))
        rows.sort(key=rank, reverse=not reverse)
    rows.sort(key=_is_other)
    return rows


def _is_other(row: Any) -> bool:
    return isinstance(row, LiveRow) and row.name is None and not row.client and row.connection is None


def _name(row: LiveRow) -> str:
    return "other" if _is_other(row) else word(row.name, MAX_NAME)


def _bytes(value: float) -> str:
    return "0" if value < 0.5 else amount(round(value))


def _version(row: Waiting) -> str:
    return row.api if row.api_version is None else f"{row.api} v{row.api_version}"


_REQUESTS: Final = ViewColumn("req/s", lambda row: number(row.requests), lambda row: row.requests)
_ERRORS: Final = ViewColumn("err/s", lambda row: number(row.errors), lambda row: row.errors, alarm=True)
_SENT: Final = ViewColumn("sent/s", lambda row: _bytes(row.sent), lambda row: row.sent)
_RECEIVED: Final = ViewColumn("recv/s", lambda row: _bytes(row.received), lambda row: row.received)
_PRODUCED: Final = ViewColumn(
    "prod rec/s", lambda row: number(row.produced), lambda row: row.produced, from_width=_WIDE
)
_FETCHED: Final = ViewColumn("fetch rec/s", lambda row: number(row.fetched), lambda row: row.fetched, from_width=_WIDE)
_MEAN: Final = ViewColumn("mean", lambda row: time_text(row.mean), lambda row: -1 if row.mean is None else row.mean)
_SLOWEST: Final = ViewColumn("max", lambda row: time_text(row.slowest), lambda row: row.slowest or 0)
_TOTAL: Final = ViewColumn("requests", lambda row: number(row.total), lambda row: row.total)

APIS: Final = TableOf(
    "APIs",
    lambda snapshot: snapshot.apis,
    (
        ViewColumn("API", _name, lambda row: str(row.name), flexible=True),
        _REQUESTS,
        _ERRORS,
        ViewColumn("p50", lambda row: time_text(row.p50), lambda row: -1 if row.p50 is None else row.p50),
        ViewColumn("p99", lambda row: time_text(row.p99), lambda row: -1 if row.p99 is None else row.p99),
        _SENT,
        _RECEIVED,
        _TOTAL,
        ViewColumn(
            "errors", lambda row: number(row.total_errors), lambda row: row.total_errors, from_width=_WIDE, alarm=True
        ),
    ),
    1,
)
ERRORS: Final = TableOf(
    "errors",
    lambda snapshot: snapshot.errors,
    (
        ViewColumn("error", lambda row: row.error, lambda row: row.error, flexible=True),
        ViewColumn("API", lambda row: word(row.api, MAX_NAME), lambda row: row.api, flexible=True),
        ViewColumn("responses", lambda row: number(row.responses), lambda row: row.responses, alarm=True),
        ViewColumn("of the API's", lambda row: f"{row.share:.1%}", lambda row: row.share),
    ),
    2,
)
CLIENTS: Final = TableOf(
    "clients",
    lambda snapshot: snapshot.clients,
    (
        ViewColumn("client id", _name, lambda row: str(row.name), flexible=True),
        ViewColumn("address", lambda row: row.client, lambda row: row.client),
        _REQUESTS,
        _ERRORS,
        _MEAN,
        _SLOWEST,
        _SENT,
        _RECEIVED,
        _PRODUCED,
        _FETCHED,
    ),
    2,
)
BROKERS: Final = TableOf(
    "brokers",
    lambda snapshot: snapshot.brokers,
    (
        # An address, not a name from the wire: the brackets of IPv6 need no quotation marks.
        ViewColumn(
            "broker", lambda row: "other" if _is_other(row) else row.name, lambda row: str(row.name), flexible=True
        ),
        _REQUESTS,
        _ERRORS,
        _MEAN,
        _SLOWEST,
        _SENT._replace(title="recv/s"),
        _RECEIVED._replace(title="sent/s"),
        _PRODUCED,
        _FETCHED,
    ),
    1,
)
LAG: Final = TableOf(
    "lag",
    lambda snapshot: snapshot.lags,
    (
        ViewColumn("group", lambda row: word(row.group, MAX_NAME), lambda row: row.group, flexible=True),
        ViewColumn("topic", lambda row: word(row.topic, MAX_NAME), lambda row: row.topic, flexible=True),
        ViewColumn("part", lambda row: str(row.partition), lambda row: row.partition),
        ViewColumn("lag", lambda row: number(row.lag), lambda row: row.lag),
        ViewColumn("committed", lambda row: f"{row.committed:,}", lambda row: row.committed),
        ViewColumn("end", lambda row: f"{row.end:,}", lambda row: row.end, from_width=_ROOM),
    ),
    3,
)
TOPICS: Final = TableOf(
    "topics",
    lambda snapshot: snapshot.topics,
    (
        ViewColumn("topic", _name, lambda row: str(row.name), flexible=True),
        ViewColumn("prod rec/s", lambda row: number(row.produced), lambda row: row.produced),
        ViewColumn("fetch rec/s", lambda row: number(row.fetched), lambda row: row.fetched),
        ViewColumn("prod B/s", lambda row: _bytes(row.sent), lambda row: row.sent),
        ViewColumn("fetch B/s", lambda row: _bytes(row.received), lambda row: row.received),
        _ERRORS,
        ViewColumn("messages", lambda row: number(row.total), lambda row: row.total, from_width=_WIDE),
    ),
    3,
)
CONNECTIONS: Final = TableOf(
    "connections",
    lambda snapshot: snapshot.connections_seen,
    (
        ViewColumn(
            "conn", lambda row: "" if row.connection is None else str(row.connection), lambda row: row.connection or 0
        ),
        ViewColumn("client", lambda row: row.client, lambda row: row.client),
        ViewColumn("broker", lambda row: row.broker, lambda row: row.broker, from_width=_ROOM),
        ViewColumn("client id", _name, lambda row: str(row.name), flexible=True),
        _REQUESTS,
        _ERRORS,
        _MEAN,
        _SLOWEST._replace(from_width=_WIDE),
        _SENT._replace(from_width=_WIDE),
        _RECEIVED,
        ViewColumn("", lambda row: "" if row.open else "over"),
    ),
    4,
    "conns",
)
WAITING: Final = TableOf(
    "waiting",
    lambda snapshot: snapshot.waiting,
    (
        ViewColumn("waits", lambda row: duration(row.age_ns), lambda row: row.age_ns),
        ViewColumn("request", _version, _version),
        ViewColumn("#", lambda row: f"#{row.exchange}"),
        ViewColumn("corr", lambda row: str(row.correlation_id)),
        ViewColumn(
            "client id", lambda row: word(row.client_id, MAX_NAME), lambda row: str(row.client_id), flexible=True
        ),
        ViewColumn("client", lambda row: row.client, lambda row: row.client),
        ViewColumn("broker", lambda row: row.broker, lambda row: row.broker, from_width=_ROOM),
        ViewColumn("conn", lambda row: str(row.connection)),
    ),
    0,
)
_SEVERITIES: Final = {"error": 2, "warning": 1}
FINDINGS: Final = TableOf(
    "findings",
    lambda snapshot: () if snapshot.findings is None else snapshot.findings.rows,
    (
        ViewColumn(
            "severity",
            lambda row: row.severity,
            lambda row: (_SEVERITIES.get(row.severity, 0), row.count),
            style=lambda row: {"error": "red", "warning": "yellow"}.get(row.severity, ""),
        ),
        ViewColumn("finding", lambda row: row.title, flexible=True),
        ViewColumn("times", lambda row: number(row.count), lambda row: row.count),
        ViewColumn("detector", lambda row: row.detector, lambda row: row.detector, from_width=_WIDE),
    ),
    0,
)
TABLES: Final = (APIS, ERRORS, CLIENTS, TOPICS, CONNECTIONS, WAITING, BROKERS, LAG, FINDINGS)
FINDINGS_TABLE: Final = TABLES.index(FINDINGS)
