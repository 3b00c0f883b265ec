"""A pane of rows: its keys, the mouse, and which rows it draws."""

from __future__ import annotations

import asyncio

from rich.text import Text
from textual.app import App, ComposeResult

from kafkasniff.browse.screen.row_pane import RowPane


class Numbers(RowPane):
    TITLES = 1
    count = 10_000_000

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()

    def drawn(self, row: int) -> Text:
        self.asked.add(row)
        return Text("title" if row < 0 else f"row {row}")


class NumbersApp(App[None]):
    def compose(self) -> ComposeResult:
        yield Numbers()


def test_keys_and_mouse() -> None:
    async def run() -> None:
        app = NumbersApp()
        async with app.run_test(size=(20, 10)) as pilot:
            pane = app.query_one(Numbers)
            pane.reset(20)
            pane.focus()
            last = pane.count - 1
            for keys, cursor in [("j", 1), ("down", 2), ("k", 1), ("up", 0), ("up", 0), ("G", last), ("j", last),
                                 ("pageup", last - 8), ("space", last), ("b", last - 8), ("g", 0), ("end", last),
                                 ("home", 0), ("pagedown", 8)]:  # fmt: skip
                await pilot.press(keys)
                assert pane.cursor == cursor, keys
                shown = [pane.render_line(y).text.rstrip() for y in range(10)]
                assert shown[0] == "title"
                assert f"row {cursor}" in shown
            top = pane.scroll_offset.y
            await pilot.click(Numbers, offset=(1, 4))
            assert pane.cursor == top + 3
            await pilot.click(Numbers, offset=(1, 0))
            assert pane.cursor == top + 3
            # Only visible rows are drawn.
            assert len(pane.asked) < 100

    asyncio.run(run())
