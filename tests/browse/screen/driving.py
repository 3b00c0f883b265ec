"""Runs the explorer without a terminal and presses its keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import textual.app
import textual.pilot
from textual._context import active_app
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.filter_texts import SavedFilters
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.exchange_list import ExchangeList
from tests.conftest import ROOT

ERRORS = ROOT / "captures" / "java-errors.pcap"
Steps = Callable[[Explorer, Pilot[None]], Awaitable[None]]


CALM = 3
"""Looks in a row at a calm explorer, after which a key is done."""


def is_calm(app: App[None]) -> bool:
    """Whether no widget has a message, nothing is to be drawn, and nothing scrolls."""
    for node in [app, *(node for screen in app.screen_stack for node in screen.walk_children(with_self=True))]:
        if not node._message_queue.empty() or node._next_callbacks:
            return False
    if app._batch_count:
        return True  # nothing is drawn meanwhile
    screen = app.screen
    waits = screen._layout_required or screen._scroll_required or screen._dirty_widgets or screen._callbacks
    return not (waits or app.animator._animations)


async def until_calm(*_: float) -> None:
    """Wait until the explorer is calm.

    Textual waits at each key until the process has been idle for 20 ms, twice: most of the time of these tests.
    """
    app = active_app.get()
    calm, until = 0, time.monotonic() + 1
    while calm < CALM and time.monotonic() < until:
        await asyncio.sleep(0.001)
        calm = calm + 1 if is_calm(app) else 0


textual.app.wait_for_idle = textual.pilot.wait_for_idle = until_calm  # type: ignore[attr-defined]


def drive(
    steps: Steps,
    capture: Path = ERRORS,
    size: tuple[int, int] = (80, 24),
    *,
    saved: SavedFilters | None = None,
    app: Explorer | None = None,
) -> Explorer:
    """Run an explorer, of this capture unless another is given."""
    reading = CaptureReading((str(capture),), dict)
    app = app or Explorer(reading, title=capture.name, commands=Commands((str(capture),)), saved=saved)

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


async def press(app: Explorer, pilot: Pilot[None], *keys: str) -> None:
    """Press keys, and wait for what they begin; bytes are read once the body is there."""
    await pilot.press(*keys)
    await settled(app, pilot)
    await settled(app, pilot)


async def open_error(app: Explorer, pilot: Pilot[None], error: str) -> None:
    """Open the first exchange with an error."""
    rows = listed(app)
    rows.move_to(next(line for line in range(len(rows.index)) if rows.index.row(rows._place(line)).error == error))
    await press(app, pilot, "enter")


def listed(app: Explorer) -> ExchangeList:
    return app.query_one(ExchangeList)


def status(app: Explorer) -> str:
    return str(app.query_one("#status", Static).render())


def said(app: Explorer) -> str:
    """The last notification."""
    return list(app._notifications)[-1].message
