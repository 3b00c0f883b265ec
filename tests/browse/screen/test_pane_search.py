"""Search in the panes of the detail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen import pane_search as module
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.detail_panes import DetailPanes
from kafkasniff.browse.screen.pane_search import PaneSearch
from kafkasniff.browse.screen.record_table import RecordTable
from tests.browse.screen.driving import drive, listed, open_error, settled
from tests.browse.screen.test_record_table import LEDGER, opened


class Words:
    def __init__(self, *words: str, cursor: int = 0) -> None:
        self.words = words
        self.cursor = cursor

    def texts(self) -> Iterator[tuple[int, str]]:
        return iter(enumerate(self.words))

    def here(self) -> int:
        return self.cursor

    def go(self, place: int) -> None:
        self.cursor = place


def search(words: Words, text: str) -> PaneSearch:
    found = PaneSearch(words, text)
    found.run(lambda: False)
    return found


def test_steps_begin_at_the_cursor_and_wrap() -> None:
    words = Words("One", "two", "oNe", "none", cursor=1)
    found = search(words, "ONE")
    seen = [(found.step(way), words.cursor) for way in (1, 1, 1, -1, -1)]
    assert seen == [("match 2 of 3", 2), ("match 3 of 3", 3), ("match 1 of 3", 0), ("match 3 of 3", 3),
                    ("match 2 of 3", 2)]  # fmt: skip
    words = Words("one", "two", "one", cursor=1)
    assert search(words, "one").step(-1) == "match 1 of 2"
    assert search(words, "two").step(1) == "match 1 of 1"
    assert search(Words("a"), "b").step(1) == "not found"


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FOUND", 2)
    assert search(Words("a", "a", "a"), "a").step(-1) == "match 2 of the first 2"
    found = PaneSearch(Words("a"), "a")
    found.run(lambda: True)
    assert found.step(1) == "not found"


@pytest.mark.parametrize(("count", "matches"), [(3, "match 1 of 3"), (4, "match 1 of 3; the rest was not searched")])
def test_work_is_bounded(count: int, matches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EXAMINED", 3 * module.PLACE_COST)
    asked = []

    class Endless(Words):
        def texts(self) -> Iterator[tuple[int, str]]:
            for place in range(count if count == 3 else 1_000_000):
                asked.append(place)
                yield place, "a"

    assert search(Endless(), "a").step(1) == matches
    assert len(asked) == count
    assert search(Words("b" * module.MAX_EXAMINED, "a"), "a").step(1) == "not found; the rest was not searched"


async def find(app: Explorer, pilot: Pilot[None], text: str) -> None:
    await pilot.press("slash", *text, "enter")
    await settled(app, pilot)
    await pilot.pause()


def test_tree() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await open_error(app, pilot, "MESSAGE_TOO_LARGE")
        tree = app.query_one(BodyTree)
        await find(app, pilot, "Offset")
        assert app.focused is tree
        assert str(tree.cursor_node.label) == "base_offset: 0"
        assert tree.border_title == "match 1 of 5"
        await pilot.press("n", "n")
        await pilot.pause()
        assert str(tree.cursor_node.label) == "offset: 0"
        await pilot.press("n", "n", "n", "N")
        await pilot.pause()
        assert tree.border_title == "match 5 of 5"
        assert str(tree.cursor_node.label) == "log_start_offset: -1"
        await find(app, pilot, "no such text")
        assert tree.border_title == "not found"
        # The list is as it was: this was not a filter.
        assert len(listed(app).index) == 49
        await pilot.press("slash", "x", "escape")
        assert app.focused is tree
        assert tree.display

    drive(steps)


def test_bytes() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await open_error(app, pilot, "MESSAGE_TOO_LARGE")
        await pilot.press("x", "tab")
        await settled(app, pilot)
        await settled(app, pilot)
        pane = app.query_one(BytesPane)
        await find(app, pilot, "00 0a")
        assert pane.rows.rows[pane.cursor].path.endswith("error_code")
        assert str(app.query_one(BodyTree).cursor_node.label) == "error_code: 10 (MESSAGE_TOO_LARGE)"
        # Another pane is searched for the same text.
        await pilot.press("shift+tab", "n")
        await settled(app, pilot)
        assert app.query_one(BodyTree).border_title == "not found"

    drive(steps)


def test_records() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        table: RecordTable = await opened(app, pilot)
        await find(app, pilot, "Committed-2")
        assert table.cursor == 1
        listed(app).focus()
        await pilot.press("g")
        await settled(app, pilot)
        assert app.query_one(DetailPanes)._search is None
        assert table.border_title == ""

    drive(steps, LEDGER)
