"""Which panes are open, and what they show."""

from __future__ import annotations

from textual.pilot import Pilot

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.detail_panes import DetailPanes
from tests.browse.screen.driving import drive, listed, settled


def test_bytes_without_bodies() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        panes, rows = app.query_one(DetailPanes), app.query_one(BytesPane)
        assert not panes.display
        await pilot.press("x")
        await settled(app, pilot)
        await settled(app, pilot)
        assert app.focused is listed(app)
        assert panes.display
        assert not app.query_one(BodyTree).display
        assert rows.rows.rows[1].text.endswith("request_api_key: 18 (ApiVersions)")
        await pilot.press("G")
        await settled(app, pilot)
        await settled(app, pilot)
        assert rows.rows.rows[1].text.endswith("request_api_key: 1 (Fetch)")
        await pilot.press("x")
        assert not panes.display

    drive(steps)


def test_panes_close_in_turn() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        tree, rows = app.query_one(BodyTree), app.query_one(BytesPane)
        await pilot.press("enter", "x", "tab")
        assert app.focused is rows
        height = listed(app).size.height
        await pilot.press("escape")
        assert app.focused is tree
        assert listed(app).size.height > height
        await pilot.press("escape")
        assert app.focused is listed(app)
        await pilot.press("escape")
        assert app.focused is listed(app)

    drive(steps)
