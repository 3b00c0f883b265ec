"""The explorer, driven by keys, on shipped captures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static, Tree

from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen.app import Explorer, KeyHelp
from kafkasniff.browse.screen.exchange_list import ExchangeList
from tests.conftest import ROOT

ERRORS = ROOT / "captures" / "java-errors.pcap"
Steps = Callable[[Explorer, Pilot[None]], Awaitable[None]]


def drive(steps: Steps, capture: Path = ERRORS, size: tuple[int, int] = (80, 24)) -> Explorer:
    app = Explorer(CaptureReading((str(capture),), dict), title=capture.name)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            await steps(app, pilot)

    asyncio.run(run())
    return app


async def settled(app: Explorer, pilot: Pilot[None]) -> None:
    """Wait for the threads, and for what they have sent."""
    await app.workers.wait_for_complete()
    await pilot.pause()
    app._refresh_rows()
    await pilot.pause()


def listed(app: Explorer) -> ExchangeList:
    return app.query_one(ExchangeList)


def status(app: Explorer) -> str:
    return str(app.query_one("#status", Static).render())


def labels(app: Explorer) -> str:
    def below(node):
        return "\n".join([str(node.label), *map(below, node.children)])

    return below(app.query_one("#body", Tree).root)


def test_list_and_movement() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        assert len(rows.index) == 49
        assert "1/49" in status(app)
        for keys, cursor in [("j", 1), ("down", 2), ("k", 1), ("up", 0), ("up", 0), ("G", 48), ("j", 48), ("g", 0),
                             ("end", 48), ("home", 0)]:  # fmt: skip
            await pilot.press(keys)
            assert rows.cursor == cursor, keys
        await pilot.press("space")
        page = rows.cursor
        assert page > 5
        await pilot.press("pagedown", "b", "pageup")
        assert rows.cursor == 0
        await pilot.press("G")
        assert rows.scroll_offset.y > 0
        assert "49" in rows.render_line(rows.size.height - 1).text
        await pilot.press("l")
        assert rows.scroll_offset.x > 0
        await pilot.press("h")
        assert rows.scroll_offset.x == 0

    drive(steps)


def test_sorting_keeps_the_exchange() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        await pilot.press("j", "j")
        before = rows.row
        await pilot.press("s", "s", "s")
        assert rows.column == "latency"
        assert rows.row == before
        await pilot.press("r", "g")
        assert rows.row is not None
        assert rows.row.api == "CreateTopics v7"
        assert "latency↓" in rows.render_line(0).text

    drive(steps)


def test_clock() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        assert "07:28:14" in rows.render_line(1).text
        await pilot.press("t")
        assert "+0.000000" in rows.render_line(1).text
        await pilot.press("t")
        assert "since previous" in status(app)

    drive(steps)


@pytest.mark.parametrize(
    ("there", "back", "field"), [("]", "[", "connection"), ("}", "{", "client_id"), ("n", "N", "api")]
)
def test_jumps(there: str, back: str, field: str) -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        start = rows.row
        same = [place for place in range(49) if getattr(rows.index.row(place), field) == getattr(start, field)]
        await pilot.press(there)
        assert rows.cursor == same[1]
        await pilot.press(back, back)
        assert rows.row == start

    drive(steps)


def test_bodies_and_bytes() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("G", "enter")
        await settled(app, pilot)
        assert "isolation_level: 0 (READ_UNCOMMITTED)" in labels(app)
        assert "error_code: 0 (NONE)" in labels(app)
        await pilot.press("x")
        await settled(app, pilot)
        assert "session_id: 0" in str(app.query_one("#rows", Static).render())
        await pilot.press("escape", "escape")
        assert not app.query_one("#body").display
        assert not app.query_one("#bytes").display
        assert app.focused is listed(app)

    drive(steps)


def test_filter() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("slash")
        line = app.query_one("#filter", Input)
        line.value = "api == "
        await pilot.pause()
        assert "column" in status(app)
        await pilot.press("enter")
        assert len(listed(app).index) == 49
        line.value = 'api == "Fetch"'
        await pilot.press("enter")
        await settled(app, pilot)
        rows = listed(app)
        assert 0 < len(rows.index) < 49
        assert {rows.index.row(place).api for place in range(len(rows.index))} == {"Fetch v18"}
        await pilot.press("f")
        await settled(app, pilot)
        assert len({rows.index.row(place).connection for place in range(len(rows.index))}) == 1

    drive(steps)


def test_help_and_quit() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, KeyHelp)
        await pilot.press("escape")
        assert not isinstance(app.screen, KeyHelp)
        await pilot.press("q")

    assert drive(steps).return_code == 0
