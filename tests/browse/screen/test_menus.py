"""Copying an exchange, and writing what is listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.menus import CopyMenu, PathPrompt
from tests.browse.screen.driving import drive, listed, said, settled


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
