"""An export in the explorer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.overview import OverviewScreen, ReportPane
from tests.browse.screen.driving import listed, settled, status
from tests.browse.test_export_reading import exported
from tests.cli.console import kafkasniff as command


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
            assert lines == command("stats", "-q", folder, width=80).lines
            await pilot.press("escape", "w", *"x.jsonl", "enter")
            await pilot.pause()
            assert "only captures can be written" in list(app._notifications)[-1].message

    asyncio.run(run())
