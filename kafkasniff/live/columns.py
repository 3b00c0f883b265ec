"""The tables of the view: their columns (titles, contents, sort keys) and how they become lines.

rich's own tables measure every cell several times: a large screen took four times as long. Here cells are one line
each, and their text is safe to print.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kafkasniff.live.snapshot import (
    PROBLEM,
    Breadcrumb,
    ErrorRow,
    FindingRow,
    Findings,
    LagRow,
    LiveRow,
    Recent,
    Snapshot,
    Waiting,
)
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import word
from kafkasniff.text.times import clock_time, duration

Cell = tuple[str, str]
"""Text and style."""

GAP: Final = 2
"""Spaces between two columns."""
MIN_FLEXIBLE: Final = 6
"""Minimum width of a flexible column in terminal columns."""
MIN_NAME: Final = 10
"""Width that flexible columns need before others are shown: fewer characters of a name say little."""


class Head(NamedTuple):
    """Head of a column."""

    title: str
    flexible: bool = False
    """Shares the remaining room and is left-aligned; other columns are as wide as needed and right-aligned."""


def one_line(text: Text, width: int) -> Text:
    """The text in one line, cut if it is too long."""
    text.no_wrap = True
    text.truncate(width, overflow="ellipsis")
    return text


BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[int], width: int) -> str:
    """The latest values as bars, the greatest as the highest one; 0 is the lowest bar alone."""
    shown = values[-width:]
    most = max(shown, default=0)
    return "".join(BARS[0] if value <= 0 else BARS[1 + value * (len(BARS) - 2) // most] for value in shown)


def exactly(lines: Sequence[Text], height: int) -> list[Text]:
    """Exactly this many lines: cut, or filled with empty ones."""
    return [*lines[:height], *(Text() for _ in range(height - len(lines)))]


def beside(left: Sequence[Text], right: Sequence[Text], left_width: int) -> list[Text]:
    """Equally many lines side by side, with a gap between them."""
    found = []
    for one, other in zip(left, right, strict=True):
        line = Text.assemble(one, " " * (left_width + GAP - one.cell_len), other)
        line.no_wrap = True
        found.append(line)
    return found


def table_lines(
    heads: Sequence[Head], rows: Sequence[Sequence[Cell]], width: int, *, marked: int | None = None
) -> list[Text]:
    """The heads and the rows, a line each; row `marked` is highlighted."""
    widths = _natural(heads, rows)
    flexible = [index for index, head in enumerate(heads) if head.flexible]
    room = width - GAP * (len(heads) - 1) - sum(wide for index, wide in enumerate(widths) if index not in flexible)
    for left, place in zip(range(len(flexible), 0, -1), flexible, strict=True):
        widths[place] = max(room // left, MIN_FLEXIBLE)
        room -= widths[place]
    lines = [_row([(head.title, "bold") for head in heads], heads, widths, width)]
    for number, row in enumerate(rows):
        line = _row(row, heads, widths, width)
        if number == marked:
            line.pad_right(width - line.cell_len)
            line.stylize("reverse")
        lines.append(line)
    return lines


def fitting(heads: Sequence[Head], rows: Sequence[Sequence[Cell]], width: int, needed: Collection[int]) -> list[int]:
    """Places of the columns to show: flexible and `needed` ones, and of the others those that fit, in their order."""
    least = [
        min(wide, MIN_NAME) if head.flexible else wide for head, wide in zip(heads, _natural(heads, rows), strict=True)
    ]
    chosen = {index for index, head in enumerate(heads) if head.flexible or index in needed}
    room = width + GAP - sum(least[index] + GAP for index in chosen)
    for index, wide in enumerate(least):
        if index not in chosen and wide + GAP <= room:
            chosen.add(index)
            room -= wide + GAP
    return sorted(chosen)


def _natural(heads: Sequence[Head], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The width of each column's widest cell."""
    return [
        max(cell_len(head.title), max((cell_len(row[index][0]) for row in rows), default=0))
        for index, head in enumerate(heads)
    ]


def _row(cells: Sequence[Cell], heads: Sequence[Head], widths: Sequence[int], width: int) -> Text:
    parts: list[Cell | str] = []
    for index, ((text, style), head, wide) in enumerate(zip(cells, heads, widths, strict=True)):
        if index:
            parts.append(" " * GAP)
        blanks = " " * (wide - cell_len(text))
        shown = text if cell_len(text) <= wide else set_cell_size(text, wide - 1) + "…"
        parts += [(shown, style), blanks] if head.flexible else [blanks, (shown, style)]
    return one_line(Text.assemble(*parts), width)


_STYLES: Final = {"error": "bold red", "warning": "bold yellow"}


def findings_line(findings: Findings, width: int) -> Text:
    """`findings 2 errors, 1 warning`, whether detectors are active, and the worst one."""
    counts = [
        (f"{count:,} {severity}{'' if count == 1 else 's'}", _STYLES.get(severity, "bold"))
        for severity, count in findings.counts.items()
        if count
    ]
    line = Text.assemble(("findings ", "dim"))
    if findings.paused:
        line.append(f"paused: {findings.paused}", "bold yellow")
        line.append(", before that ", "dim")
    parts = counts or [("none", "bold")]
    for left, (count, style) in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
        line.append(f"{count}, " if left else count, style)
    if findings.restarts:
        line.append(f"   started over {findings.restarts}×", "yellow")
    if findings.rows:
        line.append(f"   {findings.rows[0].title}", "dim")
    return one_line(line, width)


def chosen_lines(findings: Findings, row: FindingRow | None, width: int) -> list[Text]:
    """Caveats for all findings, and one finding in full."""
    lines = [line for remark in findings.remarks for line in _wrapped(remark, width, "yellow")]
    if row is not None:
        lines += _wrapped(row.title, width, _STYLES.get(row.severity, "bold"))
        lines += [line for text in row.paragraphs for line in _wrapped(text, width)]
        lines += _wrapped(f"{row.detector}, {row.count:,}×", width, "dim")
    return lines


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    return [one_line(Text(line, style), width) for line in textwrap.wrap(text, width)]


TREND_WIDTH: Final = 12
MAX_LISTED: Final = 200
"""Maximum number of exchanges that a table lists: the latest ones."""
MAX_NAME: Final = 60
"""Maximum number of characters of a name from the wire; the column cuts it further."""
_ROOM: Final = 94
_WIDE: Final = 110
_WIDER: Final = 140
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
    step: Callable[[Any], Breadcrumb | None]
    """What a row stands for; None: nothing to open."""
    opens: int
    """Index of the table that is shown of it first."""
    enter: str
    """What Enter opens."""
    short: str = ""
    """Its title where there is little room."""

    def shown(self, width: int) -> list[tuple[int, ViewColumn]]:
        """The columns for a width, each with its index among all."""
        return [(index, column) for index, column in enumerate(self.columns) if width >= column.from_width]

    @property
    def sortable(self) -> list[int]:
        """Indices of the columns that it can be sorted by."""
        return [index for index, column in enumerate(self.columns) if column.rank is not None]


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
    if isinstance(row, Recent):
        return (row.exchange, row.connection)
    if isinstance(row, Waiting):
        return (row.exchange, row.connection, row.api, row.correlation_id)
    if isinstance(row, ErrorRow):
        return (row.api, row.error)
    if isinstance(row, FindingRow):
        return (row.detector, row.about)
    if isinstance(row, LagRow):
        return (row.group, row.topic, row.partition)
    return (row.name, row.client, row.connection)


def _step(kind: str) -> Callable[[Any], Breadcrumb | None]:
    """A step to what a row of this kind has the name of."""

    def of(row: Any) -> Breadcrumb | None:
        return None if _is_other(row) else Breadcrumb(kind, row.name, word(row.name, MAX_NAME))

    return of


def _client(row: LiveRow) -> Breadcrumb | None:
    label = f"{word(row.name, MAX_NAME)} at {row.client}"
    return None if _is_other(row) else Breadcrumb("client", (row.name, row.client), label)


def _connection(row: Any) -> Breadcrumb | None:
    number = row.connection
    return None if number is None else Breadcrumb("connection", number, str(number))


def _finding(row: FindingRow) -> Breadcrumb:
    kind = "problem" if row.severity == PROBLEM else "finding"
    return Breadcrumb(kind, frozenset(row.connections), row.detector, (row.title, *row.paragraphs))


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


def _about(row: Recent) -> str:
    """Its group and topics."""
    names = dict.fromkeys([*([row.group] if row.group else []), *(traffic.topic for traffic in row.topics)])
    return ", ".join(word(name, MAX_NAME) for name in names)


def _result(row: Recent) -> str:
    ended = row.status.replace("_", " ")
    return ", ".join(row.errors) or ended


def _version(row: Waiting | Recent) -> str:
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
_TREND: Final = ViewColumn("last minute", lambda row: sparkline(row.trend.requests[:-1], TREND_WIDTH), from_width=_ROOM)
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
        ViewColumn("polls", lambda row: time_text(row.wait), lambda row: -1 if row.wait is None else row.wait),
        _SENT,
        _RECEIVED,
        _TOTAL,
        _TREND,
        ViewColumn(
            "errors", lambda row: number(row.total_errors), lambda row: row.total_errors, from_width=_WIDE, alarm=True
        ),
    ),
    1,
    _step("API"),
    2,
    "this API",
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
    lambda row: Breadcrumb("error", (row.api, row.error), row.error),
    9,
    "its exchanges",
    "errs",
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
        _TREND,
        _PRODUCED,
        _FETCHED,
    ),
    2,
    _client,
    0,
    "this client",
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
        _TREND,
        _PRODUCED,
        _FETCHED,
    ),
    1,
    _step("broker"),
    2,
    "this broker",
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
        ViewColumn("last 30 s", lambda row: sparkline(row.trend, TREND_WIDTH), from_width=_ROOM),
    ),
    3,
    lambda row: Breadcrumb("group", row.group, word(row.group, MAX_NAME)),
    2,
    "this group",
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
        _TREND,
    ),
    3,
    _step("topic"),
    2,
    "this topic",
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
    _connection,
    4,
    "this connection",
    "conns",
)
_CLIENT_ID: Final = ViewColumn(
    "client id", lambda row: word(row.client_id, MAX_NAME), lambda row: str(row.client_id), flexible=True
)
WAITING: Final = TableOf(
    "waiting",
    lambda snapshot: snapshot.waiting,
    (
        ViewColumn("waits", lambda row: duration(row.age_ns), lambda row: row.age_ns),
        ViewColumn("request", _version, _version),
        ViewColumn("#", lambda row: f"#{row.exchange}"),
        ViewColumn("corr", lambda row: str(row.correlation_id)),
        _CLIENT_ID,
        ViewColumn("client", lambda row: row.client, lambda row: row.client),
        ViewColumn("broker", lambda row: row.broker, lambda row: row.broker, from_width=_ROOM),
        ViewColumn("conn", lambda row: str(row.connection)),
    ),
    0,
    _connection,
    4,
    "its connection",
    "wait",
)
_SEVERITIES: Final = {"error": 3, "warning": 2, "note": 1}
FINDINGS: Final = TableOf(
    "findings",
    lambda snapshot: (*(() if snapshot.findings is None else snapshot.findings.rows), *snapshot.problem_rows),
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
    _finding,
    9,
    "what shows it",
    "finds",
)
EXCHANGES: Final = TableOf(
    "exchanges",
    lambda snapshot: snapshot.exchanges[-MAX_LISTED:],
    (
        ViewColumn("time", lambda row: "" if row.time_ns is None else clock_time(row.time_ns)[:12]),
        ViewColumn("#", lambda row: f"#{row.exchange}", lambda row: row.exchange),
        ViewColumn("request", _version, _version),
        ViewColumn(
            "client id", lambda row: word(row.client_id, MAX_NAME), lambda row: str(row.client_id), flexible=True
        ),
        ViewColumn("about", _about, _about, flexible=True, from_width=_ROOM),
        ViewColumn(
            "latency",
            lambda row: "-" if row.latency_ns is None else duration(row.latency_ns),
            lambda row: -1 if row.latency_ns is None else row.latency_ns,
        ),
        ViewColumn("sent", lambda row: amount(row.sent), lambda row: row.sent, from_width=_WIDE),
        ViewColumn("received", lambda row: amount(row.received), lambda row: row.received, from_width=_WIDE),
        ViewColumn("broker", lambda row: row.broker, lambda row: row.broker, from_width=_WIDER),
        ViewColumn("result", _result, _result, flexible=True, style=lambda row: "red" if row.errors else "dim"),
    ),
    1,
    _connection,
    4,
    "its connection",
    "exch",
)
TABLES: Final = (APIS, ERRORS, CLIENTS, TOPICS, CONNECTIONS, WAITING, BROKERS, LAG, FINDINGS, EXCHANGES)
WAITING_TABLE: Final = TABLES.index(WAITING)
EXCHANGES_TABLE: Final = TABLES.index(EXCHANGES)
FINDINGS_TABLE: Final = TABLES.index(FINDINGS)
