"""Which panes are open, and what they show."""

from __future__ import annotations

from textual.pilot import Pilot

from kafkasniff.browse.body_view import facts
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.detail_panes import DetailPanes
from tests.browse.screen.driving import drive, listed, settled
from tests.conftest import ROOT

UNANSWERED = ROOT / "captures" / "java-0.9.pcap"


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


def test_more_records_of_a_large_message() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        app._threads.most = 2
        rows = listed(app)
        found = [rows.index.row(line) for line in range(len(rows.index))]
        rows.move_to(next(line for line, row in enumerate(found) if row.api.startswith("Fetch") and row.others > 2))
        await pilot.press("enter", "r")
        await settled(app, pilot)
        table = app._detail.record_table
        assert len(table.rows) == 2
        assert "not all records are decoded: press m for more" in facts(app._detail.exchange)
        await pilot.press("m")
        await settled(app, pilot)
        assert len(table.rows) == 20
        await pilot.press("m")
        await settled(app, pilot)
        count = len(table.rows)
        assert count > 20
        assert "not all records are decoded: press m for more" not in facts(app._detail.exchange)
        await pilot.press("m")
        assert app._threads.most == 200

    drive(steps, ROOT / "captures" / "java-codecs.pcap")


def test_request_and_response_side_by_side_and_in_turn() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        panes = app.query_one(DetailPanes)
        request, response = panes.tree_pane, panes.response_pane

        async def press(*keys: str) -> None:
            await pilot.press(*keys)
            await settled(app, pilot)

        # In one tree, one after the other.
        await press("G", "enter", "%")
        assert not response.display
        assert request.field == (1, "")
        await press("%")
        assert request.field == (0, "")
        await press("%", "j", "j")
        field = request.field
        assert field is not None
        assert field.message == 1
        assert field.path
        # Side by side, on the same field.
        await press("|")
        assert response.display
        assert app.focused is response
        assert response.field == field
        assert request.size.height == response.size.height
        assert abs(request.size.width - response.size.width) <= 1
        assert [node.data.label.split(" ")[0] for node in request._messages] == ["request"]
        assert [node.data.label.split(" ")[0] for node in response._messages] == ["response"]
        await press("%")
        assert app.focused is request
        assert request.field == (0, "")
        # Bytes follow either, and select in either.
        await press("x", "%", "j")
        assert app.focused is response
        assert panes.bytes_pane.rows.message_of(panes.bytes_pane.cursor) == 1
        panes.bytes_pane.focus()
        await press("%")
        assert panes.bytes_pane.rows.rows[panes.bytes_pane.cursor].text == "request"
        await press("j")
        assert request.field == (0, "") or request.field.path
        await press("%")
        assert panes.bytes_pane.rows.rows[panes.bytes_pane.cursor].text == "response"
        await press("escape", "|")
        assert not response.display
        assert {node.data.label.split(" ")[0] for node in request._messages} == {"request", "response"}
        # It stays so for the next exchange.
        await press("|", "escape")
        assert not panes.display
        await press("k", "enter")
        assert response.display

    drive(steps, size=(160, 40))


def test_without_a_response_there_is_one_tree() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        panes, rows = app.query_one(DetailPanes), listed(app)
        await pilot.press("enter", "|")
        await settled(app, pilot)
        assert panes.response_pane.display
        rows.move_to(next(line for line in range(len(rows.index)) if rows.index.row(line).response is None))
        await settled(app, pilot)
        assert not panes.response_pane.display
        await pilot.press("%")
        assert app.focused is panes.tree_pane

    drive(steps, UNANSWERED)
