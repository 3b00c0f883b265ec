from __future__ import annotations

import pytest

from kafkasniff.live.columns import TABLES, identity
from kafkasniff.live.snapshot import LiveRow, Snapshot
from kafkasniff.live.state import KEYS, THRESHOLDS_NS, ViewState, press
from tests.live.scenes import FINDINGS, SECOND, cluster

SHOT = cluster().snapshot(findings=FINDINGS)
CONNECTIONS, WAITING = 4, 5


def after(keys: str | list[str], state: ViewState | None = None, shot: Snapshot = SHOT) -> ViewState:
    found = ViewState() if state is None else state
    for key in keys:
        found = press(found, key, shot)
    return found


def test_tables_are_chosen_by_number_or_cycled() -> None:
    assert [after(key).table for key in "123456789"] == list(range(len(TABLES)))
    assert after(["tab", "right", "left"]).table == 1
    assert after(["left"]).table == len(TABLES) - 1
    assert after(["backtab", "tab"]).table == 0


@pytest.mark.parametrize("table", range(len(TABLES)))
def test_sorting_cycles(table: int) -> None:
    state = after(str(table + 1))
    seen = [state.sort[table]]
    for _ in TABLES[table].sortable:
        rows = state.rows(SHOT)
        rank = TABLES[table].columns[state.sort[table]].rank
        assert rank is not None
        ranks = [rank(row) for row in rows]
        assert ranks == sorted(ranks, reverse=True)
        assert state.cursor(rows) == 0
        turned = [identity(row) for row in after("r", state).rows(SHOT)]
        assert sorted(map(str, turned)) == sorted(str(identity(row)) for row in rows)
        state = after("s", state)
        seen.append(state.sort[table])
    assert seen[0] == seen[-1]
    assert sorted(seen[:-1]) == TABLES[table].sortable
    assert after("sS").sort == ViewState().sort


def test_the_row_of_all_others_stays_last() -> None:
    shot = Snapshot(
        clients=(LiveRow(None, requests=99.0), LiveRow("a", "10.0.0.1", requests=1.0), LiveRow(None, "10.0.0.2"))
    )
    for keys in ("3", "3r", "3s", "3sr"):
        last = after(keys, shot=shot).rows(shot)[-1]
        assert (last.name, last.client) == (None, "")


def test_the_selection_follows_its_row() -> None:
    state = after(["5", "down", "down"])
    rows = state.rows(SHOT)
    assert state.cursor(rows) == 1
    turned = after("r", state)
    assert turned.rows(SHOT)[turned.cursor(turned.rows(SHOT))] == rows[1]
    assert after(["home"], state).cursor(rows) == 0
    assert after(["end"], state).cursor(rows) == len(rows) - 1
    assert after(["pagedown", "pageup"], state).cursor(rows) == 0
    assert state.cursor([]) == 0


def test_into_a_connection_and_back() -> None:
    state = after(["5", "down", "enter"])
    assert state.focus == ViewState(table=CONNECTIONS).rows(SHOT)[0].connection
    assert after(["down", "s", "1", "enter", "x"], state) == state
    assert after(["escape"], state).focus is None
    assert after(["backspace"], state).focus is None
    assert after(["6", "enter"]).focus == 3
    assert after(["9", "enter"]).focus == 3
    assert after(["9", "down", "down", "down", "enter"]).focus == 1
    assert after(["9", "end", "enter"]).focus is None
    assert after(["enter"]).focus is None, "an API is not a connection"
    assert after(["5", "down", "enter"], shot=Snapshot()).focus is None


def test_pause_help_quit() -> None:
    assert after("p").paused
    assert not after("p ").paused
    assert after("h").help
    assert not after("?x").help
    assert after("hq").over
    assert after("q").over
    assert after(["5", "enter", "q"]).over


def test_thresholds_are_bounded() -> None:
    assert ViewState().threshold_ns == SECOND
    assert after("+" * 99).threshold_ns == THRESHOLDS_NS[-1]
    assert after("-" * 99).threshold_ns == THRESHOLDS_NS[0]
    assert after("-=").threshold_ns == SECOND


def test_other_keys_change_nothing() -> None:
    assert after(["x", "Z", "0", "f1", "", "é"]) == ViewState()


def test_the_help_names_the_keys() -> None:
    reported = " ".join(keys for keys, _ in KEYS)
    for key in ("Tab", "Enter", "Esc", "s, S", "r", "p, Space", "+ -", "q"):
        assert key in reported
    assert f"1 … {len(TABLES)}" in reported
