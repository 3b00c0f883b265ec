"""The explorer as a whole: its colours, its picture in the documents, exports."""

from __future__ import annotations

import asyncio
import html
import os
import re

import pytest
from rich.color import ColorType
from textual.pilot import Pilot

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BytesPane
from kafkasniff.browse.screen.overview import OverviewScreen, ReportPane
from tests.browse.opened import exported
from tests.browse.screen.driving import ERRORS, drive, listed, open_error, said, settled, status
from tests.choice import one_in
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT


@pytest.mark.extended
@pytest.mark.parametrize("most", one_in(2, [ColorType.DEFAULT, ColorType.STANDARD]), ids=lambda one: one.name)
def test_colours_of_every_screen(most: ColorType, monkeypatch: pytest.MonkeyPatch) -> None:
    if most is ColorType.DEFAULT:
        monkeypatch.setenv("NO_COLOR", "1")
    app = Explorer(CaptureReading((str(ERRORS),), dict), few_colours=most is ColorType.STANDARD)

    async def run() -> None:
        # More lines than exchanges: the blank ones are drawn as well.
        async with app.run_test(size=(80, 70)) as pilot:
            await settled(app, pilot)
            for key in ("enter", "x", "r", "o", "escape", "question_mark", "escape", "F"):
                await pilot.press(key)
                await settled(app, pilot)
                strips = [strip for line in app.screen._compositor.render_strips() for strip in line]
                styles = [segment.style for segment in strips if segment.style is not None]
                colours = [colour for style in styles for colour in (style.color, style.bgcolor) if colour is not None]
                assert {colour.type for colour in colours} <= {ColorType.DEFAULT, most}, key
                assert any(style.reverse for style in styles), key

    asyncio.run(run())


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


@pytest.mark.extended
def test_an_export() -> None:
    reading, folder = exported("java-transactions", "--records")

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        assert len(rows.index) == 63
        rows.move_to(next(line for line in range(63) if rows.index.row(line).api.startswith("Produce")))
        await pilot.press("enter", "r")
        await settled(app, pilot)
        assert [row.record["key"] for row in app._detail.record_table.rows] == ["account"]
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
        assert "only captures can be written" in said(app)

    drive(steps, app=Explorer(reading, title="export", commands=Commands(exports=(folder,))))
