"""The explorer, driven by keys, on shipped captures."""

from __future__ import annotations

import asyncio
import html
import os
import re
from pathlib import Path

import pytest
from rich.color import ColorType
from textual.pilot import Pilot
from textual.widgets import Input, Tree

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.key_help import KeyHelp
from kafkasniff.browse.screen.overview import OverviewScreen, ReportPane
from tests.browse.screen.driving import ERRORS, drive, listed, open_error, settled, status
from tests.browse.test_export_reading import exported
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT


def labels(app: Explorer) -> str:
    def below(node):
        return "\n".join([str(node.label), *map(below, node.children)])

    return below(app.query_one("#body", Tree).root)


def test_bodies_and_bytes() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("G", "enter")
        await settled(app, pilot)
        assert "isolation_level: 0 (READ_UNCOMMITTED)" in labels(app)
        assert "error_code: 0 (NONE)" in labels(app)
        await pilot.press("x")
        await settled(app, pilot)
        assert "session_id: 0" in "\n".join(row.text for row in app.query_one(BytesPane).rows.rows)
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


@pytest.mark.parametrize("keys", ["", "\r", "\rx", "\rr", "o", "?", "F"])
def test_without_colours(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        # More lines than exchanges: the blank ones are drawn as well.
        assert listed(app).size.height > len(listed(app).index)
        for key in keys:
            await pilot.press({"\r": "enter", "?": "question_mark"}.get(key, key))
            await settled(app, pilot)
        strips = [strip for line in app.screen._compositor.render_strips() for strip in line]
        styles = [segment.style for segment in strips if segment.style is not None]
        colours = [colour for style in styles for colour in (style.color, style.bgcolor) if colour is not None]
        assert {colour.type for colour in colours} == {ColorType.DEFAULT}
        assert any(style.reverse for style in styles)

    drive(steps, size=(80, 70))


def words_of(svg: str) -> list[str]:
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).replace("\xa0", " ").split()


def test_the_picture_in_the_documents() -> None:
    """Its words; its form is up to rich."""
    path = ROOT / "docs" / "browse.svg"
    pictures = []

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await open_error(app, pilot, "MESSAGE_TOO_LARGE")
        await pilot.press("x", *"jjjj")
        await settled(app, pilot)
        pictures.append(re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(title="kafkasniff browse"), flags=re.S))

    drive(steps, size=(110, 40))
    if os.environ.get("KAFKASNIFF_SCREENS") == "write":
        path.write_text(pictures[0])
    assert words_of(path.read_text()) == words_of(pictures[0])
    assert "Produce" in words_of(pictures[0])
    assert "url(http" not in path.read_text()


def test_a_terminal_with_16_colours() -> None:
    app = Explorer(CaptureReading((str(ERRORS),), dict), few_colours=True)

    async def run() -> None:
        async with app.run_test() as pilot:
            await settled(app, pilot)
            await pilot.press("enter", "x")
            await settled(app, pilot)
            strips = [strip for line in app.screen._compositor.render_strips() for strip in line]
            colours = {
                colour
                for segment in strips if segment.style is not None
                for colour in (segment.style.color, segment.style.bgcolor) if colour is not None
            }  # fmt: skip
            assert colours
            assert {colour.type for colour in colours} <= {ColorType.DEFAULT, ColorType.STANDARD}

    asyncio.run(run())


def test_an_export(tmp_path: Path) -> None:
    reading, folder = exported("java-transactions", tmp_path, "--records"), str(tmp_path / "export")
    app = Explorer(reading, title="export", commands=Commands(exports=(folder,)))

    async def run() -> None:
        async with app.run_test() as pilot:
            await settled(app, pilot)
            rows = listed(app)
            assert len(rows.index) == 63
            at = next(line for line in range(63) if rows.index.row(line).api.startswith("Produce"))
            rows.move_to(at)
            await pilot.press("enter", "r")
            await settled(app, pilot)
            table = app._detail.record_table
            assert [row.record["key"] for row in table.rows] == ["account"]
            await pilot.press("x")
            await settled(app, pilot)
            assert "no bytes: an export does not have them" in [one.text for one in app.query_one(BytesPane).rows.rows]
            await pilot.press("escape", "escape", "escape", "p")
            await settled(app, pilot)
            assert "partition ledger-0: " in status(app)
            await pilot.press("o")
            await settled(app, pilot)
            await settled(app, pilot)
            assert isinstance(app.screen, OverviewScreen)
            await pilot.press("2")
            await settled(app, pilot)
            lines = [one.text for one in app.screen.query_one(ReportPane).lines]
            assert lines == command("stats", "-q", folder, width=78).lines
            await pilot.press("escape", "w", *"x.jsonl", "enter")
            await pilot.pause()
            assert "only captures can be written" in list(app._notifications)[-1].message

    asyncio.run(run())
