"""The table of records follows the list and is searched."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen import record_table as module
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.detail_panes import DetailPanes
from kafkasniff.browse.screen.record_table import RecordTable
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


def test_the_table_follows_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        table = await opened(app, pilot)
        await press(app, pilot, "slash", *"Committed-2", "enter")
        assert table.cursor == 1
        styles = [next(iter(table.render_line(y))).style for y in range(3)]
        assert [style is not None and bool(style.reverse) for style in styles] == [False, False, True]
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
