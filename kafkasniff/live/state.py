"""The user's choices in the view, and the effect of each key."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kafkasniff.live.columns import TABLES, identity, sorted_rows
from kafkasniff.live.snapshot import Breadcrumb, Snapshot

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
