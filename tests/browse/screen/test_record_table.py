"""The table of records: forms, jumps to bytes, search, and a record as a whole."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen import record_table as module
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.detail_panes import DetailPanes
from kafkasniff.browse.screen.record_table import RecordScreen, RecordTable
from kafkasniff.browse.screen.row_pane import RowPane
from tests.browse.screen.driving import drive, listed, press
from tests.conftest import ROOT

LEDGER = ROOT / "captures" / "java-transactions.pcap"


async def opened(app: Explorer, pilot: Pilot[None], size: int = 269) -> RecordTable:
    """The records of the response of this size."""
    rows = listed(app)
    rows.move_to(next(line for line in range(len(rows.index)) if rows.index.row(rows._place(line)).response == size))
    await press(app, pilot, "enter", "r")
    return app.query_one(RecordTable)


def lines(pane: RowPane) -> list[str]:
    return [pane.render_line(y).text.rstrip() for y in range(pane.size.height)]


@pytest.mark.extended
def test_table_and_forms_and_a_record_as_a_whole() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        table = await opened(app, pilot)
        assert app.focused is table
        assert not app.query_one(BodyTree).display
        title, first, second, *_ = lines(table)
        assert title.split() == ["part.", "offset", "key", "value", "as", "text"]
        assert first.split() == ["0", "0", '"account"', '"committed-1"']
        assert second.split() == ["0", "1", '"account"', '"committed-2"']
        await pilot.press("v")
        assert "value as JSON" in lines(table)[0]
        await pilot.press("v")
        assert "61 63 63 6f" in lines(table)[1]
        await pilot.press("l", "l", "l")
        assert "2023-11-14T22:13:20.000Z" in lines(table)[1]
        await pilot.press("l", "l", "l")
        assert lines(table)[1].endswith("ledger")
        await pilot.press(*"hhhhhh")
        assert lines(table)[0].startswith("part.")
        await press(app, pilot, "j", "enter")
        assert isinstance(app.screen, RecordScreen)
        pane = app.screen.query_one(RowPane)
        assert lines(pane)[0] == "topic ledger · partition 0"
        # In the form of the table, then in the others.
        assert any(line.startswith("0000  63 6f 6d 6d 69 74 74 65  committe") for line in lines(pane))
        await pilot.press("v")
        assert "committed-2" in lines(pane)
        await pilot.press("q")
        assert app.focused is table
        await pilot.double_click(RecordTable, offset=(20, 2))
        await pilot.pause()
        assert isinstance(app.screen, RecordScreen)
        await pilot.press("q", "r")
        assert app.focused is app.query_one(BodyTree)
        assert not table.display

    drive(steps, LEDGER)


@pytest.mark.extended
def test_bytes_of_a_record() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        table = await opened(app, pilot)
        await press(app, pilot, "x")
        pane = app.query_one(BytesPane)
        assert pane.rows.rows[pane._marked[0]].path.endswith("batches[0].records[0].length")
        await press(app, pilot, "j")
        assert pane.rows.rows[pane._marked[-1]].path.endswith("batches[1].records[0].headers")
        await press(app, pilot, "tab", *"k" * 12)
        assert table.cursor == 1
        pane.move_to(pane.rows.find(1, "responses[0].partitions[0].records.batches[0].records[0].value")[0])
        await pilot.pause()
        assert table.cursor == 0
        await pilot.press("escape", "escape")
        assert app.focused is app.query_one(BodyTree)
        # The tree has followed.
        assert str(app.query_one(BodyTree).cursor_node.label) == 'value: "committed-1"'

    drive(steps, LEDGER, size=(100, 50))


def test_the_table_follows_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        table = await opened(app, pilot)
        await press(app, pilot, "slash", *"Committed-2", "enter")
        assert table.cursor == 1
        listed(app).focus()
        await press(app, pilot, "g")
        assert table.count == 0
        assert "no records" in lines(table)[0]
        assert table.field is None
        assert app.query_one(DetailPanes)._search is None
        assert table.border_title == ""
        monkeypatch.setattr(module, "MAX_RECORDS", 1)
        await pilot.press("r", "escape")
        assert "the first 1 records" in lines(await opened(app, pilot))[0]

    drive(steps, LEDGER)
