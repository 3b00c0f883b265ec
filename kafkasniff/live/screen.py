"""Renders the view: a snapshot and the user's choices as lines of a terminal of a given size.

Below 150 columns or 34 lines one table is shown at a time, otherwise all of them. Text from the wire goes through
`text.printable` and is passed to rich as `Text`, so it is not parsed as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from kafkasniff.live.columns import (
    EXCHANGES_TABLE,
    FINDINGS_TABLE,
    GAP,
    TABLES,
    WAITING_TABLE,
    Cell,
    Head,
    ViewColumn,
    beside,
    chosen_lines,
    exactly,
    findings_line,
    fitting,
    number,
    one_line,
    sparkline,
    table_lines,
    time_text,
)
from kafkasniff.live.snapshot import ConnectionDetail, Findings, LiveRow, Recent, Snapshot, Waiting
from kafkasniff.live.state import KEYS, ViewState, drilled
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import printable, word
from kafkasniff.text.times import clock_time, duration

MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 12
"""A smaller terminal only gets a message."""
WIDE: Final = 150
HIGH: Final = 34
"""From this size on all tables are shown."""

MAX_SOFTWARE: Final = 40
"""Maximum number of characters of a client's software name and version."""

_API_TITLES: Final = ("API", "requests", "errors", "p50", "p99", "max", "sent", "received")
_RECENT_TITLES: Final = ("latest exchanges", "#", "request", "corr", "latency", "sent", "received", "result")
MAX_ABOUT: Final = 5
"""Maximum number of lines that explain a finding above its tables."""


def screen(snapshot: Snapshot, state: ViewState, width: int, height: int) -> RenderableType:
    """At most `height` lines of `width` columns."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return _line(f"too small: {width}×{height}", width)
    if state.path and state.focus is None:
        snapshot = drilled(snapshot, state.path)
    head = _head(snapshot, state, width, height)
    body = height - len(head) - 1
    if state.help:
        middle = exactly(_help(width), body)
    elif state.focus is not None:
        middle = _detail(snapshot.detail, state.focus, width, body)
    elif width >= WIDE and height >= HIGH:
        middle = _all_tables(snapshot, state, width, body)
    elif state.table == FINDINGS_TABLE and not state.path:
        middle = _findings(snapshot, state, width, body)
    else:
        middle = _table(snapshot, state, state.table, width, body)
    return Group(*head, *middle, _hints(state, width))


def _hints(state: ViewState, width: int) -> Text:
    """What the keys do here; those that fit."""
    table = TABLES[state.table]
    hints = [("Esc", "back")] if state.path and not state.help else []
    if state.help:
        hints.append(("any key", "close"))
    elif state.focus is None:
        hints += [("↑↓", "row"), ("Enter", table.enter)]
        hints += [("+-", f"over {_short(state.threshold_ns)}")] if state.table == WAITING_TABLE else []
        hints += [("0-9", "table"), ("s", f"sort: {table.columns[state.sort[state.table]].title}"), ("r", "reverse")]
    hints.append(("p", "resume" if state.paused else "pause"))
    last = [("h", "help"), ("q", "quit")]
    while hints and _hint_line([*hints, *last]).cell_len > width:
        hints.pop()
    return one_line(_hint_line([*hints, *last]), width)


def _hint_line(hints: Sequence[tuple[str, str]]) -> Text:
    return Text("  ").join(Text.assemble((key, "bold cyan"), (f" {what}", "dim")) for key, what in hints)


def _line(text: str, width: int, style: str = "") -> Text:
    return one_line(Text(text, style), width)


def _ends(left: Text, right: Text, width: int) -> Text:
    """One line with text at each end; the left part is cut if it does not fit."""
    room = width - right.cell_len - 1
    left.truncate(max(room, 0), overflow="ellipsis")
    return one_line(Text.assemble(left, " " * max(width - left.cell_len - right.cell_len, 0), right), width)


def _fact(label: str, value: str, style: str = "bold") -> Text:
    return Text.assemble((f"{label} ", "dim"), (value, style))


def _joined(facts: Sequence[Text]) -> Text:
    return Text("   ").join(facts)


def _packed(facts: Sequence[Text], width: int) -> list[Text]:
    """The facts in as few lines as possible."""
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + 3 + fact.cell_len <= width:
            lines[-1] = _joined([lines[-1], fact])
        else:
            lines.append(fact)
    return [one_line(line, width) for line in lines]


def _alarm(value: float) -> str:
    return "bold red" if value > 0 else "bold"


def _head(snapshot: Snapshot, state: ViewState, width: int, height: int) -> list[Text]:
    whole = snapshot.all
    title = Text.assemble(("kafkasniff", "bold"), " live ", (printable(snapshot.source), "cyan"))
    now = "" if snapshot.now_ns is None else f"{clock_time(snapshot.now_ns)[:8]} UTC, "
    right = Text(f"{now}{_elapsed(snapshot.seconds)}")
    if state.paused:
        right = Text.assemble((" PAUSED ", "reverse bold"), "  ", right)
    rates = [
        _fact("requests", f"{number(whole.requests)}/s"),
        _fact("errors", f"{number(whole.errors)}/s", _alarm(whole.errors)),
        _fact("p50", time_text(whole.p50)),
        _fact("p99", time_text(whole.p99)),
        _fact("sent", f"{amount(round(whole.sent))}/s"),
        _fact("received", f"{amount(round(whole.received))}/s"),
        _fact("records", f"{number(whole.produced)}/s in, {number(whole.fetched)}/s out"),
        _fact("without response", number(snapshot.without_response), _alarm(snapshot.without_response)),
    ]
    facts: list[Text] = []
    drops = f"{number(snapshot.drops)} ({number(snapshot.drops_now)}/s)" if snapshot.drops else "0"
    if state.path:
        # The rest is about the whole capture.
        facts = [*rates[:-1], _fact("connections", number(len(snapshot.connections_seen)))]
    state_of = [
        _fact(
            "waiting",
            f"{number(snapshot.outstanding)} ({number(snapshot.overdue)} over {_short(state.threshold_ns)})",
            _alarm(snapshot.overdue),
        ),
        _fact("dropped", drops, _alarm(snapshot.drops)),
        _fact("connections", number(snapshot.connections_open)),
        _fact("problems", number(snapshot.problems), "bold yellow" if snapshot.problems else "bold"),
        _fact("packets", number(snapshot.packets)),
    ]
    tabs = Text(" ").join(_tab(f" {index % 10} {table.title} ", index, state) for index, table in enumerate(TABLES, 1))
    if tabs.cell_len > width:
        tabs = Text(" ").join(
            _tab(f"{index % 10} {table.short or table.title}", index, state) for index, table in enumerate(TABLES, 1)
        )
    if state.focus is not None:
        tabs = Text(f" connection {state.focus} ", "reverse")
    return [
        _ends(title, right, width),
        *_packed(facts or [*rates[:4], *state_of[:3], *rates[4:], *state_of[3:]], width)[: height // 4],
        _trends(whole, width),
        *(_path_lines(snapshot, state, width) if state.path else []),
        *([] if snapshot.findings is None or state.path else [findings_line(snapshot.findings, width)]),
        one_line(tabs, width),
    ]


def _trends(row: LiveRow, width: int) -> Text:
    """Sparklines of the last minute: requests, errors, latency."""
    labels = ("requests", "errors", "latency")
    room = (width - sum(map(len, labels)) - len(labels) - GAP * 2) // len(labels)
    parts = []
    for label, values, style in zip(labels, row.trend, ("cyan", "red", "yellow"), strict=True):
        # The current second is incomplete.
        bars = sparkline(values[:-1], room)
        parts.append(Text.assemble((f"{label} ", "dim"), (bars, style if any(values) else "dim")))
    return one_line(Text(" " * GAP).join(parts), width)


def _path_lines(snapshot: Snapshot, state: ViewState, width: int) -> list[Text]:
    """Where the tables are, from the whole to its part, and what a finding means."""
    crumbs = Text("all", "dim")
    for step in state.path:
        crumbs.append(" › ", "bold")
        crumbs.append(f"{step.kind} ", "dim")
        crumbs.append(printable(step.label), "bold yellow")
    count = len(snapshot.exchanges)
    sample = f"{number(count)} exchange{'' if count == 1 else 's'}" if state.focus is None else ""
    about = [
        _line(line, width, "bold" if not index else "")
        for index, text in enumerate(state.path[-1].about)
        for line in textwrap.wrap(text, width)
    ]
    return [_ends(crumbs, Text(sample, "dim"), width), *about[:MAX_ABOUT]]


def _tab(text: str, place: int, state: ViewState) -> Text:
    return Text(text, "reverse" if place - 1 == state.table else "")


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _short(nanoseconds: int) -> str:
    """A threshold: `250 ms`, `1 s`."""
    milliseconds = nanoseconds // 1_000_000
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds // 1000} s"


def _table(
    snapshot: Snapshot, state: ViewState, place: int, width: int, height: int, *, titled: bool = False
) -> list[Text]:
    """One of the tables in exactly `height` lines; with its title if `titled`."""
    described = TABLES[place]
    rows = state.rows(snapshot, place)
    room = height - 1 - titled
    chosen = state.table == place
    cursor = state.cursor(rows) if chosen else 0
    first = max(0, cursor - room + 1)
    shown = described.shown(width)
    arrow = "↑" if state.reverse[place] else "↓"
    heads = [
        Head(view_column.title + (arrow if index == state.sort[place] else ""), view_column.flexible)
        for index, view_column in shown
    ]
    cells = [[_cell(view_column, row) for _, view_column in shown] for row in rows[first : first + room]]
    fit = fitting(heads, cells, width, {0, *(at for at, (index, _) in enumerate(shown) if index == state.sort[place])})
    # Parts of the whole have no sparklines of their own.
    fit = [at for at in fit if shown[at][1].rank is not None or any(row[at][0] for row in cells) or not state.path]
    lines = table_lines(
        [heads[at] for at in fit],
        [[row[at] for at in fit] for row in cells],
        width,
        # The first row is selected silently until a key moves the selection.
        marked=cursor - first if chosen and state.selected is not None else None,
    )
    if titled:
        hidden = f"  {len(rows)}" if len(rows) > room else ""
        title = (f"{(place + 1) % 10} {described.title}", "reverse" if chosen else "bold underline")
        lines.insert(0, Text.assemble(title, (hidden, "dim")))
    return exactly(lines, height)


def _cell(column: ViewColumn, row: Any) -> Cell:
    text = column.text(row)
    if column.style is not None:
        return (text, column.style(row))
    return (text, "red" if column.alarm and text != "0" else "")


def _findings(snapshot: Snapshot, state: ViewState, width: int, height: int) -> list[Text]:
    """The findings, and the selected one in full below."""
    rows = state.rows(snapshot, FINDINGS_TABLE)
    chosen = _chosen_finding(snapshot, state, width)
    room = max(height - len(chosen) - 1, min(len(rows) + 1, height // 2))
    return exactly([*_table(snapshot, state, FINDINGS_TABLE, width, room), Text(), *chosen], height)


def _chosen_finding(snapshot: Snapshot, state: ViewState, width: int) -> list[Text]:
    rows = state.rows(snapshot, FINDINGS_TABLE)
    cursor = state.cursor(rows) if state.table == FINDINGS_TABLE else 0
    return chosen_lines(snapshot.findings or Findings(), rows[cursor] if rows else None, width)


def _all_tables(snapshot: Snapshot, state: ViewState, width: int, height: int) -> list[Text]:
    """APIs, errors, brokers, waiting requests; clients, topics, lag, connections on the right; findings below."""
    right = width // 2
    left = width - right - GAP
    below: list[Text] = []
    if state.path or state.table == EXCHANGES_TABLE:
        high = height // 3
        height -= high
        below = _table(snapshot, state, EXCHANGES_TABLE, width, high, titled=True)
    elif snapshot.findings is not None or snapshot.problem_rows:
        high = height // 4
        height -= high
        listed = _table(snapshot, state, FINDINGS_TABLE, left, high, titled=True)
        below = beside(listed, exactly([Text(), *_chosen_finding(snapshot, state, right)], high), left)
    quarter = height // 4
    heights = (quarter, quarter, quarter, height - 3 * quarter)

    def column(places: tuple[int, int, int, int], wide: int) -> list[Text]:
        return [
            line
            for place, high in zip(places, heights, strict=True)
            for line in _table(snapshot, state, place, wide, high, titled=True)
        ]

    return [*beside(column((0, 1, 6, 5), left), column((2, 3, 7, 4), right), left), *below]


def _detail(detail: ConnectionDetail | None, wanted: int, width: int, height: int) -> list[Text]:
    """One connection: its ends, APIs, waiting requests and latest exchanges."""
    if detail is None or detail.row.connection != wanted:
        return exactly([_line(f"conn {wanted} is no longer kept", width, "dim")], height)
    row = detail.row
    begun = "?" if detail.begun_ns is None else clock_time(detail.begun_ns)[:8]
    facts = [
        Text(f"{row.client} → {row.broker}", "bold"),
        _fact("client id", word(row.name)),
        _fact("software", "?" if row.software is None else printable(row.software)[:MAX_SOFTWARE]),
        *(
            _fact(f"{end} process", printable(name))
            for end, name in zip(("client", "broker"), detail.processes, strict=True)
            if name
        ),
        _fact("since", f"{begun} UTC"),
        Text("open" if row.open else "over", "green" if row.open else "yellow"),
        _fact("requests", f"{number(row.requests)}/s"),
        _fact("errors", f"{number(row.errors)}/s", _alarm(row.errors)),
        _fact("p50", time_text(row.p50)),
        _fact("p99", time_text(row.p99)),
        _fact("sent", f"{amount(round(row.sent))}/s"),
        _fact("received", f"{amount(round(row.received))}/s"),
        _fact("waiting", number(len(detail.waiting)), _alarm(len(detail.waiting))),
    ]
    lines = [*_packed(facts, width), Text()]
    # A third of the room for the APIs, those with the most requests first.
    apis = sorted(detail.apis, key=lambda live_row: (-live_row.total, str(live_row.name)))[
        : max((height - len(lines)) // 3 - 2, 1)
    ]
    lines += table_lines(
        [Head(title, title == "API") for title in _API_TITLES], [_api_cells(live_row) for live_row in apis], width
    )
    lines.append(Text())
    room = height - len(lines) - 1
    cells = [
        *(_waiting_cells(waiting) for waiting in detail.waiting),
        *(_recent_cells(recent) for recent in detail.recent),
    ]
    lines += table_lines([Head(title, title == "result") for title in _RECENT_TITLES], cells[: max(room, 0)], width)
    return exactly(lines, height)


def _api_cells(row: LiveRow) -> list[Cell]:
    errors = number(row.total_errors)
    return [
        (word(row.name), ""),
        (number(row.total), ""),
        (errors, "red" if errors != "0" else ""),
        *((time_text(one), "") for one in (row.p50, row.p99, row.slowest)),
        (amount(row.total_sent), ""),
        (amount(row.total_received), ""),
    ]


def _request(api: str, version: int | None) -> str:
    return api if version is None else f"{api} v{version}"


def _waiting_cells(one: Waiting) -> list[Cell]:
    request, waits = _request(one.api, one.api_version), f"waits {duration(one.age_ns)}"
    empty = ("", "")
    number, correlation = (f"#{one.exchange}", ""), (str(one.correlation_id), "")
    return [empty, number, (request, ""), correlation, empty, empty, empty, (waits, "yellow")]


def _recent_cells(done: Recent) -> list[Cell]:
    ended = done.status.replace("_", " ")
    failed = ", ".join(done.errors) or ("" if done.status in {"answered", "no_response"} else ended)
    return [
        ("" if done.time_ns is None else clock_time(done.time_ns)[:12], "dim"),
        (f"#{done.exchange}", ""),
        (_request(done.api, done.api_version), ""),
        (str(done.correlation_id), ""),
        ("-" if done.latency_ns is None else duration(done.latency_ns), ""),
        (amount(done.sent), ""),
        (amount(done.received), ""),
        (failed or ended, "red" if failed else "dim"),
    ]


def _help(width: int) -> list[Text]:
    lines = [Text("Keys", "bold"), Text()]
    lines += [Text.assemble((f"{keys:<22}", "bold"), text) for keys, text in KEYS]
    lines += [
        Text(),
        Text("Rates and latencies: the last 10 s of the packet clock; counts: since the start.", "dim"),
        Text("`other`: entries that exceed the size of a table.", "dim"),
    ]
    return [one_line(line, width) for line in lines]
