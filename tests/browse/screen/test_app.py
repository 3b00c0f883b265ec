"""The explorer as a whole: its colours, its picture in the documents, panes, exports, a lost terminal."""

from __future__ import annotations

import asyncio
import html
import io
import os
import re
from collections.abc import Iterable, Iterator

import pytest
from rich.color import ColorType
from textual.pilot import Pilot

from kafkasniff.browse.commands import Commands
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen import row_pane
from kafkasniff.browse.screen.app import Explorer, LosableTerminal
from kafkasniff.browse.screen.body_tree import BodyTree, BytesPane
from kafkasniff.browse.screen.overview import OverviewScreen, ReportPane
from kafkasniff.browse.screen.row_pane import PaneSearch
from tests.browse.opened import exported
from tests.browse.screen.driving import ERRORS, drive, listed, open_error, press, said, settled, status
from tests.choice import one_in
from tests.cli.console import kafkasniff as command
from tests.conftest import ROOT


@pytest.mark.extended
@pytest.mark.parametrize("most", one_in(2, [ColorType.DEFAULT, ColorType.STANDARD]), ids=lambda one: one.name)
def test_colours_of_every_screen(most: ColorType, monkeypatch: pytest.MonkeyPatch) -> None:
    if most is ColorType.DEFAULT:
        monkeypatch.setenv("NO_COLOR", "1")
    app = Explorer(CaptureReading((str(ERRORS),), dict), few_colours=most is ColorType.STANDARD)

    async def run() -> None:
        # More lines than exchanges: the blank ones are drawn as well.
        async with app.run_test(size=(80, 70)) as pilot:
            await settled(app, pilot)
            for key in ("enter", "x", "r", "o", "escape", "question_mark", "escape", "F"):
                await press(app, pilot, key)
                strips = [strip for line in app.screen._compositor.render_strips() for strip in line]
                styles = [segment.style for segment in strips if segment.style is not None]
                colours = [colour for style in styles for colour in (style.color, style.bgcolor) if colour is not None]
                assert {colour.type for colour in colours} <= {ColorType.DEFAULT, most}, key
                assert any(style.reverse for style in styles), key

    asyncio.run(run())


def words_of(svg: str) -> list[str]:
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).replace("\xa0", " ").split()


def test_the_picture_in_the_documents() -> None:
    """Its words; its form is up to rich."""
    path = ROOT / "docs" / "browse.svg"
    pictures = []

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await open_error(app, pilot, "MESSAGE_TOO_LARGE")
        await press(app, pilot, "x", *"jjjj")
        pictures.append(re.sub(r"@font-face \{.*?\}", "", app.export_screenshot(title="kafkasniff browse"), flags=re.S))

    drive(steps, size=(110, 40))
    if os.environ.get("KAFKASNIFF_SCREENS") == "write":
        path.write_text(pictures[0])
    assert words_of(path.read_text()) == words_of(pictures[0])
    assert "Produce" in words_of(pictures[0])
    assert "url(http" not in path.read_text()


@pytest.mark.extended
def test_an_export() -> None:
    reading, folder = exported("java-transactions", "--records")

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        rows = listed(app)
        assert len(rows.index) == 63
        rows.move_to(next(line for line in range(63) if rows.index.row(line).api.startswith("Produce")))
        await press(app, pilot, "enter", "r")
        assert [row.record["key"] for row in app._detail.record_table.rows] == ["account"]
        await press(app, pilot, "x")
        assert "no bytes: an export does not have them" in [one.text for one in app.query_one(BytesPane).rows.rows]
        await press(app, pilot, "escape", "escape", "escape", "p")
        assert "partition ledger-0: " in status(app)
        await press(app, pilot, "o")
        assert isinstance(app.screen, OverviewScreen)
        await press(app, pilot, "2")
        lines = [one.text for one in app.screen.query_one(ReportPane).lines]
        assert lines == command("stats", "-q", folder, width=79).lines
        await pilot.press("escape", "w", *"x.jsonl", "enter")
        await pilot.pause()
        assert "only captures can be written" in said(app)

    drive(steps, app=Explorer(reading, title="export", commands=Commands(exports=(folder,))))


def label(tree: BodyTree) -> str:
    """What the cursor is on."""
    return str(tree.cursor_node.label)


async def opened(app: Explorer, pilot: Pilot[None]) -> tuple[BodyTree, BytesPane]:
    """The exchange in tree and bytes; the tree has the focus."""
    await open_error(app, pilot, "MESSAGE_TOO_LARGE")
    await press(app, pilot, "x")
    return app.query_one(BodyTree), app.query_one(BytesPane)


def marked(pane: BytesPane) -> str:
    return "\n".join(pane.rows.rows[row].text for row in pane._marked)


def styled(pane: BytesPane, line: int) -> str:
    """The text of a line that is marked."""
    strip = pane.render_line(line - pane.scroll_offset.y)
    return "".join(one.text for one in strip if one.style is not None and one.style.underline)


def test_the_field_of_the_tree_is_marked_in_the_bytes_and_back() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        tree, pane = await opened(app, pilot)
        await pilot.press(*"jjjjj")
        assert label(tree) == "acks: -1 (ALL)"
        assert marked(pane).endswith("acks: -1 (ALL)")
        assert styled(pane, pane.cursor) == "ff ff.."
        await pilot.press(*"jjljljjj")
        assert label(tree) == "partition_data [1]"
        await pilot.press("h", "h")
        assert label(tree) == "[0]"
        assert "topic_data[0].topic_id" in marked(pane).splitlines()[0]
        assert len(marked(pane).splitlines()) > 20
        # A byte selects its field: the last one of the response, and those before it.
        await pilot.press("tab")
        assert app.focused is pane
        for keys, wanted in (
            ("Gk", "throttle_time_ms: 0"),
            ("kkkk", "record_errors: []"),
            ("h", "log_start_offset: -1"),
            ("hhhhhhhh", "log_append_time_ms: -1"),
            ("l", "log_start_offset: -1"),
        ):
            await pilot.press(*keys)
            await pilot.pause()
            assert label(tree) == wanted, keys
        assert marked(pane).startswith("002d  ff ff ff ff ff ff ff ff")
        line = next(line for line, row in enumerate(pane.rows.rows) if row.path == "client_id")
        await pilot.press("g", "space")
        assert pane.cursor == pane.size.height - 1 - pane.TITLES, "a page"
        pane.move_to(line)
        await pilot.pause()
        for column, byte in ((6, 0), (6 + 3 * 4 + 1, 4), (6 + 25 + 5, 5)):
            # One line of border.
            await pilot.click(BytesPane, offset=(column, line + 1 - pane.scroll_offset.y))
            assert (pane.cursor, pane._byte) == (line, byte)
        # The header is not in the tree: its message is.
        assert label(tree).startswith("request · ")

    drive(steps, size=(100, 60))


class Pane:
    """A pane to search, with these texts."""

    cursor = 0

    def __init__(self, texts: Iterable[str]) -> None:
        self.left = enumerate(texts)

    def texts(self) -> Iterator[tuple[int, str]]:
        return self.left

    def here(self) -> int:
        return self.cursor

    def go(self, place: int) -> None:
        self.cursor = place


def search(pane: Pane) -> str:
    found = PaneSearch(pane, "a")
    found.run(lambda: False)
    return found.step(1)


@pytest.mark.parametrize(("count", "matches"), [(3, "match 1 of 3"), (4, "match 1 of 3; the rest was not searched")])
def test_a_search_is_bounded(count: int, matches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_pane, "MAX_EXAMINED", 3 * row_pane.PLACE_COST)
    endless = Pane("a" * (count if count == 3 else 1_000_000))
    assert search(endless) == matches
    assert next(endless.left, (count, ""))[0] == count
    assert search(Pane(["b" * row_pane.MAX_EXAMINED, "a"])) == "not found; the rest was not searched"


class Terminal(io.StringIO):
    is_gone = False

    def write(self, text: str) -> int:
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_what_is_written_to_a_lost_terminal_is_discarded() -> None:
    file, lost = Terminal(), []
    terminal = LosableTerminal(file, lambda: lost.append(1))
    assert terminal.write("shown") == 5
    terminal.flush()
    file.is_gone = True
    for _ in range(3):
        assert terminal.write("not shown") == 9
        terminal.flush()
    file.is_gone = False
    terminal.write("neither")
    assert (file.getvalue(), lost) == ("shown", [1])
    assert terminal.encoding == file.encoding
