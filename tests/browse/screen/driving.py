"""Runs the explorer without a terminal and presses its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Static

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.saved_filters import SavedFilters
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.exchange_list import ExchangeList
from tests.conftest import ROOT

ERRORS = ROOT / "captures" / "java-errors.pcap"
Steps = Callable[[Explorer, Pilot[None]], Awaitable[None]]


def drive(
    steps: Steps, capture: Path = ERRORS, size: tuple[int, int] = (80, 24), saved: SavedFilters | None = None
) -> Explorer:
    commands = Commands((str(capture),))
    reading = CaptureReading((str(capture),), dict)
    app = Explorer(reading, title=capture.name, commands=commands, saved=saved)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            await steps(app, pilot)

    asyncio.run(run())
    return app


async def settled(app: Explorer, pilot: Pilot[None]) -> None:
    """Wait for the threads, and for what they have sent."""
    await app.workers.wait_for_complete()
    await pilot.pause()
    app._refresh_rows()
    await pilot.pause()


async def open_error(app: Explorer, pilot: Pilot[None], error: str) -> None:
    """Open the first exchange with an error."""
    rows = listed(app)
    rows.move_to(next(line for line in range(len(rows.index)) if rows.index.row(rows._place(line)).error == error))
    await pilot.press("enter")
    await settled(app, pilot)


def listed(app: Explorer) -> ExchangeList:
    return app.query_one(ExchangeList)


def status(app: Explorer) -> str:
    return str(app.query_one("#status", Static).render())
