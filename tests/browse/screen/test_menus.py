"""Copying an exchange, and writing what is listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from kafkasniff.browse.filter_texts import SavedFilters
from kafkasniff.browse.screen import menus as module
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.menus import CopyMenu, FilterLine, PathPrompt, flaw_of
from tests.browse.screen.driving import ERRORS, drive, listed, press, said, settled, status


async def opened(app: Explorer, pilot: Pilot[None]) -> OptionList:
    await pilot.press("G", "y")
    await settled(app, pilot)
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


@pytest.mark.extended
def test_too_long_for_the_clipboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "MAX_CLIPBOARD", 10)

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await opened(app, pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert "press s" in said(app)
        assert app.clipboard == ""
        await pilot.press("s")
        line = app.screen.query_one(Input)
        line.value = str(ERRORS)
        await pilot.press("enter")
        await pilot.pause()
        assert "cannot write" in said(app)
        assert isinstance(app.screen, CopyMenu)
        await pilot.press("s")
        app.screen.query_one(Input).value = str(tmp_path / "out.jsonl")
        await pilot.press("enter")
        await pilot.pause()
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
        assert not isinstance(app.screen, CopyMenu)

    drive(steps)


async def write(app: Explorer, pilot: Pilot[None], path: str) -> None:
    await pilot.press("w")
    assert isinstance(app.screen, PathPrompt)
    app.screen.query_one(Input).value = path
    await pilot.press("enter")
    await settled(app, pilot)


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
        assert line.highlighter is not None
        marked = line.highlighter("acks == 0 and nonsense == 3")
        assert [(span.start, str(span.style)) for span in marked.spans] == [(14, "underline red")]
        await pilot.pause()
        assert "column 1: unknown field" in status(app)
        line.value = 'api == "Fetch"'
        await pilot.press("enter")
        await settled(app, pilot)
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


def test_saved_filters(tmp_path: Path) -> None:
    saved = SavedFilters(tmp_path / "filters")
    saved.save("acks == 0")

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        line = app.query_one(FilterLine)
        await pilot.press("slash")
        line.value = "acks =="
        await pilot.press("ctrl+s")
        assert saved.expressions == ["acks == 0"]
        line.value = 'api == "Fetch"'
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert "saved" in status(app)
        line.value = ""
        for wanted in ('api == "Fetch"', "acks == 0", 'api == "Fetch"'):
            await pilot.press("up")
            assert line.value == wanted
        await pilot.press("down")
        assert line.value == "acks == 0"
        await pilot.press("escape")
        assert not line.display

    drive(steps, saved=saved)
    assert SavedFilters(tmp_path / "filters").expressions == ["acks == 0", 'api == "Fetch"']


def test_flaws() -> None:
    assert flaw_of("  ") == flaw_of("has topic") == ""
    assert flaw_of("has \x1b[2J").startswith("column 5")
    assert "\x1b" not in flaw_of("has \x1b[2J")
