"""The list of exchanges and its filter line, driven by keys; copying an exchange, and writing what is listed."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

import kafkasniff
from kafkasniff.browse.screen import exchange_list as module
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.list_lines import LIST_COLUMNS
from kafkasniff.browse.screen.menus import CopyMenu, FilterLine, PathPrompt
from tests.browse.screen.driving import ERRORS, drive, listed, press, said, settled, status


def test_movement_columns_and_order() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        assert len(rows.index) == 49
        assert "1/49" in status(app)
        # Neither before the first line nor after the last.
        for keys, cursor in [("jj", 2), ("kkk", 0), ("G", 48), ("j", 48), ("bbbbbbbb", 0)]:
            await pilot.press(*keys)
            assert rows.cursor == cursor, keys
        await pilot.press("G")
        assert rows.scroll_offset.y > 0
        assert f"{rows.row.number} " in rows.render_line(rows.size.height - 1).text
        await pilot.press("g", *"llllll")
        assert rows.scroll_offset.x > 0
        # The first columns do not scroll with the others.
        assert rows.render_line(0).text.split()[:3] == ["#", "time↑", "API"]
        await pilot.press(*"hhhhhhhhh")
        assert (rows.at, rows.scroll_offset.x) == (0, 0)
        assert "07:28:14" in rows.render_line(1).text
        await pilot.press("t")
        assert "+0.000000" in rows.render_line(1).text
        await pilot.press("t")
        assert "since previous" in status(app)
        times = [rows.index.row(line).time for line in (1, 2)]
        assert f"+{(times[1] - times[0]) / 1e9:.6f}" in rows.render_line(3).text
        # Another order keeps the exchange.
        await pilot.press("t", "l", "j", "j")
        before = rows.row
        await pilot.press("l", "l", "s")
        assert (rows.column, rows.row) == ("latency", before)
        await pilot.press("r", "g")
        assert rows.row.api == "CreateTopics v7"
        assert "latency↓" in rows.render_line(0).text
        await pilot.press("h", "c")
        assert rows.render_line(0).text.split()[:3] == ["#", "time", "latency↓"]
        await pilot.press("L")
        assert rows.render_line(0).text.split()[:3] == ["#", "time", "topic,"]
        await pilot.press("H", "H", "H")
        assert rows.render_line(0).text.split()[:2] == ["latency↓", "#"]
        await pilot.press("C")
        assert rows.columns == [*LIST_COLUMNS]
        await pilot.press(*"c" * 20)
        assert len(rows.columns) == 1
        assert rows.virtual_size.width == rows._laid_out[0].width + 1

    drive(steps)


def test_the_end_is_followed() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        index = rows.index
        index.is_complete = False
        exchanges = list(kafkasniff.read(ERRORS))
        for keys, cursor in [(("G",), 49), (("z",), 49), (("z",), 51), (("k",), 50)]:
            await pilot.press(*keys)
            index.add(exchanges[-1])
            index.publish()
            app._refresh_rows()
            assert rows.cursor == cursor, keys
            assert ("paused" in status(app)) is False  # only of a growing capture

    drive(steps)


def test_a_jump_does_not_move_a_cursor_that_was_moved_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEAR", (0, 0))
    looking, moved = threading.Event(), threading.Event()
    missed: list[str] = []

    def wanted(places: NDArray[np.int64]) -> NDArray[np.bool_]:
        if len(places):
            looking.set()
            assert moved.wait(60)
        return places == 40

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        rows.jump(wanted, 1, "the same")
        while not looking.is_set():
            await pilot.pause(0.01)
        # The screen answers meanwhile, and the same jump is not begun again.
        running = rows._jump
        rows.jump(wanted, 1, "the same")
        assert rows._jump is running
        await pilot.press("j")
        moved.set()
        await settled(app, pilot)
        assert rows.cursor == 1
        rows.jump(wanted, 1, "the same", lambda: missed.append("next"))
        await settled(app, pilot)
        assert rows.cursor == 40
        rows.jump(wanted, 1, "the same", lambda: missed.append("next"))
        await settled(app, pilot)
        assert (rows.cursor, missed) == (40, ["next"])

    drive(steps)


def apis(app: Explorer) -> set[str]:
    index = listed(app).index
    return {index.row(place).api for place in range(len(index))}


def test_completion_and_marks() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        line = app.query_one(FilterLine)
        await pilot.press("slash")
        line.value = "api == "
        await pilot.pause()
        assert "column" in status(app)
        await pilot.press("enter")
        assert len(listed(app).index) == 49
        line.value = ""
        await pilot.press(*"latency")
        assert line.value == "latency"
        await pilot.pause()
        await pilot.press("tab")
        assert line.value == "latency_ms"
        line.value = 'api == "Fetc'
        line.cursor_position = len(line.value)
        await pilot.pause()
        await pilot.press("tab")
        assert line.value == 'api == "Fetch"'
        line.value = "nonsense == 3"
        marked = line.highlighter("acks == 0 and nonsense == 3")
        assert [(span.start, str(span.style)) for span in marked.spans] == [(14, "underline red")]
        await pilot.pause()
        assert "column 1: unknown field" in status(app)
        line.value = 'api == "Fetch"'
        await press(app, pilot, "enter")
        assert apis(app) == {"Fetch v18"}
        # One connection, then all again: the exchange under the cursor stays.
        row, count = listed(app).row, len(listed(app).index)
        await press(app, pilot, "slash")
        line.value = ""
        await press(app, pilot, "enter")
        assert len(listed(app).index) == 49 > count
        assert listed(app).row == row
        await press(app, pilot, "f")
        index = listed(app).index
        assert len({index.row(place).connection for place in range(len(index))}) == 1
        assert listed(app).row == row
        await press(app, pilot, "backspace")
        assert len(listed(app).index) == 49
        assert listed(app).row == row
        await press(app, pilot, "l", "less_than_sign")
        assert "no filter `<`" in status(app)
        await pilot.press("j")
        assert "no filter" not in status(app)

    drive(steps, size=(140, 24))


async def opened(app: Explorer, pilot: Pilot[None]) -> OptionList:
    await press(app, pilot, "G", "y")
    assert isinstance(app.screen, CopyMenu)
    return app.screen.query_one(OptionList)


def test_clipboard() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await opened(app, pilot)
        await pilot.press("enter")
        await pilot.pause()
        lines = [json.loads(line) for line in app.clipboard.splitlines()]
        assert [(one["type"], one["api"]) for one in lines] == [("request", "Fetch"), ("response", "Fetch")]
        assert said(app).startswith(f"copied {len(app.clipboard):,} characters")
        assert app.focused is listed(app)
        await opened(app, pilot)
        await pilot.press("j", "j", "k", "enter")
        await pilot.pause()
        assert bytes.fromhex(app.clipboard)[:2] == b"\0\1"
        await opened(app, pilot)
        await pilot.press("end", "enter")
        await pilot.pause()
        assert app.clipboard.startswith("kafkasniff decode -v --connection=")
        before = app.clipboard
        await opened(app, pilot)
        await pilot.press("q")
        assert app.clipboard == before

    drive(steps)


async def write(app: Explorer, pilot: Pilot[None], path: str) -> None:
    await pilot.press("w")
    assert isinstance(app.screen, PathPrompt)
    app.screen.query_one(Input).value = path
    await press(app, pilot, "enter")


@pytest.mark.extended
def test_the_listed_exchanges_are_written(tmp_path: Path) -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        app._filter('api == "Fetch"')
        await settled(app, pilot)
        await write(app, pilot, f"{tmp_path}/out.jsonl")
        assert said(app) == f"wrote {tmp_path}/out.jsonl"
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        assert len(lines) == 2 * len(listed(app).index)
        assert {json.loads(line)["api"] for line in lines} == {"Fetch"}
        await write(app, pilot, f"{tmp_path}/out.jsonl")
        assert "exists" in said(app)
        await write(app, pilot, f"{tmp_path}/none/out.jsonl")
        assert "none/out.jsonl" in said(app)
        await pilot.press("w", "escape")
        assert app.focused is listed(app)

    drive(steps)
