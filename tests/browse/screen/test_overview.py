"""The overview: histograms as a brush, findings that open their evidence, the figures of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.overview import Histogram, OverviewScreen, ReportPane
from tests.browse.screen.driving import ERRORS, drive, listed, settled, status
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
        titles = [row for row, line in enumerate(pane.lines) if line.severity is not None]
        assert len(titles) == len(wanted["findings"])
        at = next(row for row, one in zip(titles, wanted["findings"], strict=True) if one["count"] == 8)
        await pilot.press(*"j" * (at + 1), "enter")
        await settled(app, pilot)
        rows = listed(app)
        assert app.focused is rows
        assert {rows.index.row(place).api for place in range(len(rows.index))} == {"Metadata v13"}
        assert len(rows.index) == 8
        # The overview is that of the selection, which is too short to say that the topic will not be created.
        screen = await opened(app, pilot)
        found = [line.severity for line in screen.query_one(ReportPane).lines if line.severity is not None]
        assert found == ["note", "note"]
        await pilot.press("escape", "backspace")
        await settled(app, pilot)
        assert len(listed(app).index) == 49

    drive(steps)


@pytest.mark.extended
def test_a_brush_selects_a_range() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        screen = await opened(app, pilot)
        for number, field in enumerate(("time", "latency_ms")):
            bars = [*screen.query(Histogram)][number]
            bars.focus()
            await pilot.pause()
            await pilot.press("l", "space", "G", "h", "l", "g", "G")
            assert bars.brush is not None
            last = len(bars.brush.bins) - 1
            assert bars.range == (1, last)
            counted = sum(one.exchanges for one in bars.brush.bins[1:])
            assert f"{counted:,} in " in str(bars.render())
            await pilot.press("enter")
            await settled(app, pilot)
            assert len(listed(app).index) == counted < 49
            assert f"filter: {field} >= " in status(app)
            await pilot.press("backspace")
            await settled(app, pilot)
            screen = await opened(app, pilot)
        bars = next(iter(screen.query(Histogram)))
        await pilot.mouse_down(bars, offset=(2, 2))
        await pilot.hover(bars, offset=(9, 2))
        await pilot.mouse_up(bars, offset=(9, 2))
        assert bars.has_focus
        assert bars.range[0] == 2
        pane = screen.query_one(ReportPane)
        await pilot.press("3")
        await settled(app, pilot)
        # Beside the scrollbar.
        assert pane.scrollable_content_region.width == 118
        assert [one.text for one in pane.lines] == command("timing", "-q", ERRORS, width=118).lines
        await pilot.press("o")
        assert app.focused is listed(app)

    drive(steps, size=(120, 40))


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
