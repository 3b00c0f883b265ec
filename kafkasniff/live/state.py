"""The user's choices in the view, the effect of each key, and the rows that belong to what was opened.

A path of steps, such as an API and then a client, selects from a snapshot. Connections, waiting requests and lag are
those of the snapshot; everything else is counted again, from the latest exchanges that it has (`MAX_EXCHANGES`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

import msgspec

from kafkasniff.kafka.connection.waits import long_poll_apis
from kafkasniff.live.columns import TABLES, identity, sorted_rows
from kafkasniff.live.snapshot import (
    QUANTILES,
    Breadcrumb,
    ErrorRow,
    Findings,
    LagRow,
    LiveRow,
    Recent,
    Snapshot,
    Waiting,
    live_row,
    trend_of,
)
from kafkasniff.live.traffic import (
    PRODUCED,
    SLOT_NS,
    TREND_SLOTS,
    WINDOW_SLOTS,
    Counts,
    Load,
    latency_bucket,
    latency_quantiles,
)

THRESHOLDS_NS: Final = tuple(
    milliseconds * 1_000_000 for milliseconds in (10, 50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
)
"""How long a request may wait before it is shown."""
MAX_STEPS: Final = 8
"""More do not fit on a line."""
PAGE: Final = 10

KEYS: Final = (
    ("1 … 9, 0, Tab, ← →", "choose a table"),
    ("↑ ↓, j k, PgUp PgDn", "choose a row"),
    ("Enter", "open what the row stands for: its clients, exchanges, connections …"),
    ("Esc, Backspace", "back"),
    ("s, S", "sort by the next, the previous column"),
    ("r", "reverse the order"),
    ("p, Space", "pause the display until pressed again; counting continues"),
    ("+ -", "threshold of waiting requests up, down"),
    ("h, ?", "this page"),
    ("q, Ctrl-C", "quit"),
)


class ViewState(msgspec.Struct, frozen=True):
    """The choices."""

    table: int = 0
    sort: tuple[int, ...] = tuple(one.sort for one in TABLES)
    reverse: tuple[bool, ...] = (False,) * len(TABLES)
    selected: tuple[object, ...] | None = None
    """Identity of the chosen row; None: the first."""
    path: tuple[Breadcrumb, ...] = ()
    """What has been opened; tables show only what belongs to all steps."""
    back: tuple[tuple[int, tuple[object, ...] | None], ...] = ()
    """For each step, the table and the row that it was opened from."""
    paused: bool = False
    help: bool = False
    threshold: int = 5
    """Index in THRESHOLDS_NS."""
    over: bool = False
    """The user wants to quit."""

    @property
    def focus(self) -> int | None:
        """The connection that is shown in detail."""
        return self.path[-1].value if self.path and self.path[-1].kind == "connection" else None

    @property
    def threshold_ns(self) -> int:
        """How long a request may wait."""
        return THRESHOLDS_NS[self.threshold]

    def rows(self, snapshot: Snapshot, table: int | None = None) -> list[Any]:
        """The rows of a table (the chosen one) in the chosen order."""
        index = self.table if table is None else table
        return sorted_rows(TABLES[index], snapshot, self.sort[index], reverse=self.reverse[index])

    def cursor(self, rows: list[Any]) -> int:
        """Index of the chosen row."""
        if self.selected is not None:
            for index, row in enumerate(rows):
                if identity(row) == self.selected:
                    return index
        return 0


def _with(state: ViewState, **changes: Any) -> ViewState:
    return msgspec.structs.replace(state, **changes)


def press(state: ViewState, key: str, snapshot: Snapshot) -> ViewState:
    """The state after a key (`terminal.KEY_NAMES`, or the character); unknown keys change nothing."""
    if key in {"q", "Q"}:
        return _with(state, over=True)
    if state.help:
        return _with(state, help=False)
    match key:
        case "h" | "?":
            return _with(state, help=True)
        case "p" | " ":
            return _with(state, paused=not state.paused)
        case "+" | "=":
            return _with(state, threshold=min(state.threshold + 1, len(THRESHOLDS_NS) - 1))
        case "-":
            return _with(state, threshold=max(state.threshold - 1, 0))
        case "escape" | "backspace":
            if not state.path:
                return state
            table, selected = state.back[-1]
            return _with(state, path=state.path[:-1], back=state.back[:-1], table=table, selected=selected)
    if state.focus is not None:
        return state
    return _in_tables(state, key, snapshot)


def _in_tables(state: ViewState, key: str, snapshot: Snapshot) -> ViewState:
    index = state.table
    match key:
        case "tab" | "right":
            return _with(state, table=(index + 1) % len(TABLES), selected=None)
        case "left" | "backtab":
            return _with(state, table=(index - 1) % len(TABLES), selected=None)
        case "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
            return _with(state, table=(int(key) - 1) % len(TABLES), selected=None)
        case "s" | "S":
            sortable = TABLES[index].sortable
            step = 1 if key == "s" else -1
            column = sortable[(sortable.index(state.sort[index]) + step) % len(sortable)]
            return _with(state, sort=_put(state.sort, index, column), reverse=_put(state.reverse, index, False))
        case "r":
            return _with(state, reverse=_put(state.reverse, index, not state.reverse[index]))
        case "up" | "k" | "down" | "j" | "pageup" | "pagedown" | "home" | "end":
            return _moved(state, key, snapshot)
        case "enter":
            rows = state.rows(snapshot)
            return _opened(state, rows[state.cursor(rows)]) if rows else state
    return state


def _opened(state: ViewState, row: Any) -> ViewState:
    described = TABLES[state.table]
    step = described.step(row)
    if step is None or step in state.path or len(state.path) >= MAX_STEPS:
        return state
    back = (*state.back, (state.table, identity(row)))
    return _with(state, path=(*state.path, step), back=back, table=described.opens, selected=None)


def _moved(state: ViewState, key: str, snapshot: Snapshot) -> ViewState:
    rows = state.rows(snapshot)
    if not rows:
        return state
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -PAGE, "pagedown": PAGE, "home": -len(rows)}
    # The first key marks the first row, which was selected silently.
    start = -1 if state.selected is None and key in {"down", "j"} else state.cursor(rows)
    target = start + steps.get(key, len(rows))
    return _with(state, selected=identity(rows[min(max(target, 0), len(rows) - 1)]))


def _put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


_EXCHANGES: Final[dict[str, Callable[[Recent, Any], bool]]] = {
    "API": lambda recent, api: recent.api == api,
    "error": lambda recent, named: recent.api == named[0] and named[1] in recent.errors,
    "client": lambda recent, client: (recent.client_id, _address(recent.client)) == client,
    "broker": lambda recent, broker: recent.broker == broker,
    "topic": lambda recent, topic: any(traffic.topic == topic for traffic in recent.topics),
    "group": lambda recent, group: recent.group == group,
    "connection": lambda recent, number: recent.connection == number,
    "finding": lambda recent, numbers: recent.connection in numbers,
    "problem": lambda recent, numbers: recent.connection in numbers,
}
"""Whether an exchange belongs to a step, by the kind of the step."""
_CONNECTIONS: Final[dict[str, Callable[[LiveRow, Any], bool]]] = {
    "client": lambda row, client: (row.name, _address(row.client)) == client,
    "broker": lambda row, broker: row.broker == broker,
    "finding": lambda row, numbers: row.connection in numbers,
    "problem": lambda row, numbers: row.connection in numbers,
}
"""The same for a connection; for other kinds, those with a selected exchange."""
_WAITING: Final[dict[str, Callable[[Waiting, Any], bool]]] = {
    "API": lambda waiting, api: waiting.api == api,
    "client": lambda waiting, client: (waiting.client_id, _address(waiting.client)) == client,
    "broker": lambda waiting, broker: waiting.broker == broker,
    "finding": lambda waiting, numbers: waiting.connection in numbers,
    "problem": lambda waiting, numbers: waiting.connection in numbers,
}
_ROWS: Final[dict[str, Callable[[Snapshot], Iterable[LiveRow]]]] = {
    "API": lambda snapshot: snapshot.apis,
    "client": lambda snapshot: snapshot.clients,
    "broker": lambda snapshot: snapshot.brokers,
    "topic": lambda snapshot: snapshot.topics,
}
"""Tables whose rows have a trend of their own, which is longer than the exchanges of a busy network."""


def _address(endpoint: str) -> str:
    """The address in `address:port`."""
    return endpoint.rpartition(":")[0].strip("[]")


def drilled(snapshot: Snapshot, path: tuple[Breadcrumb, ...]) -> Snapshot:
    """The same moment, with only what belongs to all steps of a path."""
    chosen = [
        recent for recent in snapshot.exchanges if all(_EXCHANGES[step.kind](recent, step.value) for step in path)
    ]
    numbers: set[int | None] = {recent.connection for recent in chosen}
    groups = {recent.group for recent in chosen}
    connections = tuple(
        row
        for row in snapshot.connections_seen
        if row.connection is not None
        and all(
            _CONNECTIONS[step.kind](row, step.value) if step.kind in _CONNECTIONS else row.connection in numbers
            for step in path
        )
    )
    numbers |= {row.connection for row in connections}
    findings = snapshot.findings
    now_ns = snapshot.now_ns or 0
    seconds = sample_seconds(snapshot)
    tally = _Tally(now_ns - int(seconds * 1e9), seconds)
    for recent in chosen:
        tally.add(recent, {step.value for step in path if step.kind == "topic"})
    (whole,) = tally.rows("all")
    rows = _ROWS[path[0].kind](snapshot) if len(path) == 1 and path[0].kind in _ROWS else ()
    trend = next((row.trend for row in rows if _is(row, path[0])), None) or trend_of(_loads(chosen, now_ns))
    return msgspec.structs.replace(
        snapshot,
        all=msgspec.structs.replace(whole, trend=trend),
        apis=tally.rows("API"),
        errors=tally.errors(),
        clients=tally.rows("client"),
        topics=tally.rows("topic"),
        brokers=tally.rows("broker"),
        connections_seen=connections,
        waiting=tuple(
            waiting
            for waiting in snapshot.waiting
            if all(step.kind in _WAITING and _WAITING[step.kind](waiting, step.value) for step in path)
        ),
        lags=tuple(row for row in snapshot.lags if all(_lags(row, step, groups) for step in path)),
        exchanges=tuple(chosen),
        findings=Findings(
            {} if findings is None else findings.counts,
            () if findings is None else tuple(row for row in findings.rows if numbers.intersection(row.connections)),
        ),
    )


def sample_seconds(snapshot: Snapshot) -> float:
    """The time that rates of selected exchanges cover: the window, or less if the exchanges are younger."""
    first = next((recent.time_ns for recent in snapshot.exchanges if recent.time_ns is not None), None)
    if first is None or snapshot.now_ns is None:
        return 1.0
    return min(max((snapshot.now_ns - first) / 1e9, 1.0), WINDOW_SLOTS * SLOT_NS / 1e9)


def _is(row: LiveRow, step: Breadcrumb) -> bool:
    return bool(((row.name, row.client) if step.kind == "client" else row.name) == step.value)


def _lags(row: LagRow, step: Breadcrumb, groups: set[str]) -> bool:
    if step.kind in {"group", "topic"}:
        return bool(getattr(row, step.kind) == step.value)
    return row.group in groups


def _loads(chosen: list[Recent], now_ns: int) -> Iterator[tuple[int, Load]]:
    first = now_ns // SLOT_NS - TREND_SLOTS + 1
    for recent in chosen:
        at = -1 if recent.time_ns is None else recent.time_ns // SLOT_NS - first
        if 0 <= at < TREND_SLOTS:
            latency = _latency(recent)
            yield at, (1, bool(recent.errors), latency is not None, latency or 0)


def _latency(one: Recent) -> int | None:
    """In microseconds; None if it is unknown or a wait for data or members."""
    return None if one.latency_ns is None or one.api.rpartition(" ")[2] in long_poll_apis() else one.latency_ns // 1000


class _Tally:
    """Counts of exchanges by what they have in common: all, and those since a time, for rates.

    An exchange counts once, with those of the same API, client and broker; tables add up these groups.
    """

    def __init__(self, since_ns: int, seconds: float) -> None:
        self._since = since_ns
        self._seconds = seconds
        self._groups: dict[tuple[str, Hashable, str, bool], Counts] = {}
        """Counts by API, client, broker, and whether they are for rates."""
        self._topics: dict[tuple[Hashable, bool], Counts] = {}
        self._errors: dict[tuple[str, str], int] = {}

    def add(self, one: Recent, topics: set[object]) -> None:
        """Count an exchange; `topics`: the only ones that count, if there are any. Hot."""
        current = one.time_ns is not None and one.time_ns >= self._since
        key = one.api, (one.client_id, _address(one.client)), one.broker, current
        counts = self._groups.get(key)
        if counts is None:
            counts = self._groups[key] = Counts()
        counts.requests += 1
        counts.responses += one.received > 0
        counts.sent += one.sent
        counts.received += one.received
        latency = _latency(one)
        if latency is not None:
            counts.measured += 1
            counts.latency_sum += latency
            counts.latency_max = max(counts.latency_max, latency)
            bucket = latency_bucket(latency)
            counts.latency[bucket] = counts.latency.get(bucket, 0) + 1
        elif one.latency_ns is not None:
            counts.polls += 1
            counts.poll_sum += one.latency_ns // 1000
        if one.errors:
            counts.errors += 1
            for error in one.errors:
                self._errors[one.api, error] = self._errors.get((one.api, error), 0) + 1
        for traffic in one.topics:
            if not topics or traffic.topic in topics:
                counted = self._topics.setdefault((traffic.topic, current), Counts())
                counted.requests += 1
                counted.errors += traffic.errors
                if traffic.flow == PRODUCED:
                    counts.produced += traffic.records
                    counted.produced += traffic.records
                    counted.sent += traffic.bytes
                else:
                    counts.fetched += traffic.records
                    counted.fetched += traffic.records
                    counted.received += traffic.bytes

    def rows(self, kind: str) -> tuple[LiveRow, ...]:
        """The rows of a kind: "all" (one), "API", "client", "broker" or "topic"."""
        found: dict[Any, tuple[Counts, Counts]] = {"all": (Counts(), Counts())} if kind == "all" else {}
        parts: Iterable[tuple[Any, bool, Counts]]
        if kind == "topic":
            parts = ((topic, current, counts) for (topic, current), counts in self._topics.items())
        else:
            index = {"API": 0, "client": 1, "broker": 2}.get(kind)
            parts = (("all" if index is None else key[index], key[3], counts) for key, counts in self._groups.items())
        for subject, current, counts in parts:
            now, total = found.setdefault(subject, (Counts(), Counts()))
            total.add(counts)
            if current:
                now.add(counts)
        rows = []
        quantiles = latency_quantiles([now.latency for now, _ in found.values()], QUANTILES)
        for (subject, (now, total)), values in zip(found.items(), quantiles, strict=True):
            name, client = subject if kind == "client" else (subject, "")
            rows.append(live_row(name, now, total, self._seconds, values, client=client))
        return tuple(rows)

    def errors(self) -> tuple[ErrorRow, ...]:
        """Errors by API."""
        responses: dict[str, int] = {}
        for (api, *_), counts in self._groups.items():
            responses[api] = responses.get(api, 0) + counts.responses
        return tuple(
            ErrorRow(api, error, count, count / max(responses[api], 1)) for (api, error), count in self._errors.items()
        )
