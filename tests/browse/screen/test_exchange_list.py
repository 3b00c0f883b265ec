"""The list of exchanges: keys, order, times and jumps."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray
from textual.pilot import Pilot

import kafkasniff
from kafkasniff.browse.screen import exchange_list as module
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.list_lines import LIST_COLUMNS
from tests.browse.screen.driving import ERRORS, drive, listed, settled, status


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
        assert rows.row is not None
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
        assert rows.row is not None
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
