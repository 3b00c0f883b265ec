"""The overview: findings that open their evidence, and captures without exchanges."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.overview import Histogram, OverviewScreen, ReportPane
from tests.browse.screen.driving import ERRORS, drive, listed, settled
from tests.cli.console import kafkasniff as command


async def opened(app: Explorer, pilot: Pilot[None]) -> OverviewScreen:
    await pilot.press("o")
    await settled(app, pilot)
    await settled(app, pilot)
    assert isinstance(app.screen, OverviewScreen)
    return app.screen


@pytest.mark.extended
def test_findings_open_their_evidence() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        screen = await opened(app, pilot)
        pane = screen.query_one(ReportPane)
        assert app.focused is pane
        [wanted] = command("check", "--format=json", ERRORS).objects
        titles = [row for row, line in enumerate(pane.lines) if line.text.startswith(line.severity or "?")]
        assert len(titles) == len(wanted["findings"])
        at = next(row for row, one in zip(titles, wanted["findings"], strict=True) if one["count"] == 8)
        await pilot.press(*"j" * (at + 1), "enter")
        await settled(app, pilot)
        rows = listed(app)
        assert app.focused is rows
        assert {rows.index.row(place).api for place in range(len(rows.index))} == {"Metadata v13"}
        assert len(rows.index) == 8
        # The overview is that of the selection.
        screen = await opened(app, pilot)
        lines = screen.query_one(ReportPane).lines
        found = [line.severity for line in lines if line.text.startswith(line.severity or "?")]
        assert found == ["error", "note"]
        await pilot.press("escape", "backspace")
        await settled(app, pilot)
        assert len(listed(app).index) == 49

    drive(steps)


@pytest.mark.extended
def test_without_exchanges_and_captures(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(ERRORS.read_bytes()[:24])

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        screen = await opened(app, pilot)
        assert [str(one.render()) for one in screen.query(Histogram)] == [
            "no exchanges over time", "no latencies"
        ]  # fmt: skip
        for bars in screen.query(Histogram):
            bars.focus()
            await pilot.pause()
            await pilot.press("l", "space", "enter")
        assert app.screen is screen
        assert [one.text for one in screen.query_one(ReportPane).lines] == ["no findings"]

    drive(steps, empty)
