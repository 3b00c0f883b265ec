"""The panes of an exchange: bodies and bytes, side by side and in turn, and search in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.pilot import Pilot

from kafkasniff.browse import body_view
from kafkasniff.browse.body_view import facts
from kafkasniff.browse.screen import pane_search
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from kafkasniff.browse.screen.detail_panes import DetailPanes
from kafkasniff.browse.screen.pane_search import PaneSearch
from tests.browse.screen.driving import drive, listed, open_error, press, settled
from tests.conftest import ROOT


def label(tree: BodyTree) -> str:
    """What the cursor is on."""
    return str(tree.cursor_node.label)


def messages(tree: BodyTree) -> list[str]:
    return [node.data.label.split(" ")[0] for node in tree._messages]


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


@pytest.mark.extended
def test_fields_are_found_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_view, "MAX_CHILDREN", 4)

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await open_error(app, pilot, "MESSAGE_TOO_LARGE")
        tree = app.query_one(BodyTree)
        everything = list(tree.texts())
        assert len({field for field, _ in everything}) == len(everything) > 40
        for field, text in everything[::5]:
            tree.select(field)
            await pilot.pause()
            assert tree.field == field
            assert text.startswith(label(tree))
        await pilot.press("g")
        assert label(tree).startswith("answered · ")
        assert tree.field is None

    drive(steps)


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


@pytest.mark.extended
def test_whole_fields_and_width() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        _, pane = await opened(app, pilot)
        before = len(pane.rows.rows)
        assert "topic_data[0].partition_data[0].index: 0" not in "\n".join(row.text for row in pane.rows.rows)
        await press(app, pilot, "tab", "plus")
        assert len(pane.rows.rows) == before + 1138 // 8 + 1 - 1
        await pilot.resize_terminal(160, 40)
        await settled(app, pilot)
        assert "topic_data[0].partition_data[0].index: 0" in "\n".join(row.text for row in pane.rows.rows)
        await pilot.press("space", "pagedown", "b")
        assert pane.scroll_offset.y <= pane.cursor < pane.scroll_offset.y + pane.size.height

    drive(steps, size=(80, 40))


def test_panes_open_and_close_in_turn() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        panes, tree, rows = app.query_one(DetailPanes), app.query_one(BodyTree), app.query_one(BytesPane)
        assert not panes.display
        # Bytes without bodies follow the list.
        await press(app, pilot, "x")
        assert app.focused is listed(app)
        assert (panes.display, tree.display) == (True, False)
        assert rows.rows.rows[1].text.endswith("request_api_key: 18 (ApiVersions)")
        await press(app, pilot, "G")
        assert rows.rows.rows[1].text.endswith("request_api_key: 1 (Fetch)")
        await pilot.press("x")
        assert not panes.display
        await pilot.press("enter", "x", "tab")
        assert app.focused is rows
        height = listed(app).size.height
        await pilot.press("escape")
        assert app.focused is tree
        assert listed(app).size.height > height
        for _ in range(2):
            await pilot.press("escape")
            assert app.focused is listed(app)
        assert not panes.display

    drive(steps)


@pytest.mark.extended
def test_more_records_of_a_large_message() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        app._threads.most = 2
        rows = listed(app)
        found = [rows.index.row(line) for line in range(len(rows.index))]
        rows.move_to(next(line for line, row in enumerate(found) if row.api.startswith("Fetch") and row.others > 2))
        await press(app, pilot, "enter", "r")
        table, more = app._detail.record_table, "not all records are decoded: press m for more"
        assert len(table.rows) == 2
        assert more in facts(app._detail.exchange)
        await press(app, pilot, "m")
        assert len(table.rows) == 20
        await press(app, pilot, "m")
        assert len(table.rows) > 20
        assert more not in facts(app._detail.exchange)
        await pilot.press("m")
        assert app._threads.most == 200

    drive(steps, ROOT / "captures" / "java-codecs.pcap")


@pytest.mark.extended
def test_request_and_response_side_by_side_and_in_turn() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        panes = app.query_one(DetailPanes)
        request, response = panes.tree_pane, panes.response_pane
        # In one tree, one after the other.
        await press(app, pilot, "G", "enter", "%")
        assert not response.display
        assert request.field == (1, "")
        await press(app, pilot, "%")
        assert request.field == (0, "")
        await press(app, pilot, "%", "j", "j")
        field = request.field
        assert field is not None
        assert field.message == 1
        assert field.path
        # Side by side, on the same field.
        await press(app, pilot, "|")
        assert app.focused is response
        assert response.field == field
        assert request.size.height == response.size.height
        assert abs(request.size.width - response.size.width) <= 1
        assert (messages(request), messages(response)) == (["request"], ["response"])
        await press(app, pilot, "%")
        assert app.focused is request
        assert request.field == (0, "")
        # Bytes follow either, and select in either.
        await press(app, pilot, "x", "%", "j")
        assert app.focused is response
        rows = panes.bytes_pane
        assert rows.rows.message_of(rows.cursor) == 1
        rows.focus()
        for wanted in ("request", "response"):
            await press(app, pilot, "%")
            assert rows.rows.rows[rows.cursor].text == wanted
        await press(app, pilot, "escape", "|")
        assert not response.display
        assert messages(request) == ["request", "response"]
        # It stays so for the next exchange.
        await press(app, pilot, "|", "escape")
        assert not panes.display
        await press(app, pilot, "k", "enter")
        assert response.display

    drive(steps, size=(160, 40))


@pytest.mark.extended
def test_without_a_response_there_is_one_tree() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        panes, rows = app.query_one(DetailPanes), listed(app)
        await press(app, pilot, "enter", "|")
        assert panes.response_pane.display
        rows.move_to(next(line for line in range(len(rows.index)) if rows.index.row(line).response is None))
        await settled(app, pilot)
        assert not panes.response_pane.display
        await pilot.press("%")
        assert app.focused is panes.tree_pane

    drive(steps, ROOT / "captures" / "java-0.9.pcap")


# Search


class Words:
    """A pane to search: a text in each place."""

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


def test_steps_begin_at_the_cursor_and_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Words("One", "two", "oNe", "none", cursor=1)
    found = search(words, "ONE")
    seen = [(found.step(way), words.cursor) for way in (1, 1, 1, -1, -1)]
    assert seen == [("match 2 of 3", 2), ("match 3 of 3", 3), ("match 1 of 3", 0), ("match 3 of 3", 3),
                    ("match 2 of 3", 2)]  # fmt: skip
    words = Words("one", "two", "one", cursor=1)
    assert search(words, "one").step(-1) == "match 1 of 2"
    assert search(words, "two").step(1) == "match 1 of 1"
    assert search(Words("a"), "b").step(1) == "not found"
    stopped = PaneSearch(Words("a"), "a")
    stopped.run(lambda: True)
    assert stopped.step(1) == "not found"
    monkeypatch.setattr(pane_search, "MAX_FOUND", 2)
    assert search(Words("a", "a", "a"), "a").step(-1) == "match 2 of the first 2"


@pytest.mark.parametrize(("count", "matches"), [(3, "match 1 of 3"), (4, "match 1 of 3; the rest was not searched")])
def test_a_search_is_bounded(count: int, matches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane_search, "MAX_EXAMINED", 3 * pane_search.PLACE_COST)
    asked = []

    class Endless(Words):
        def texts(self) -> Iterator[tuple[int, str]]:
            for place in range(count if count == 3 else 1_000_000):
                asked.append(place)
                yield place, "a"

    assert search(Endless(), "a").step(1) == matches
    assert len(asked) == count
    long = Words("b" * pane_search.MAX_EXAMINED, "a")
    assert search(long, "a").step(1) == "not found; the rest was not searched"


@pytest.mark.extended
def test_search_in_tree_and_bytes() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        tree, pane = await opened(app, pilot)
        await press(app, pilot, "slash", *"Offset", "enter")
        assert app.focused is tree
        assert (label(tree), tree.border_title) == ("base_offset: 0", "match 1 of 5")
        await pilot.press("n", "n")
        await pilot.pause()
        assert label(tree) == "offset: 0"
        await pilot.press("n", "n", "n", "N")
        await pilot.pause()
        assert (label(tree), tree.border_title) == ("log_start_offset: -1", "match 5 of 5")
        await press(app, pilot, "slash", *"no such text", "enter")
        assert tree.border_title == "not found"
        # The list is as it was: this was not a filter.
        assert len(listed(app).index) == 49
        await pilot.press("slash", "x", "escape")
        assert app.focused is tree
        assert tree.display
        await press(app, pilot, "tab", "slash", *"00 0a", "enter")
        assert pane.rows.rows[pane.cursor].path.endswith("error_code")
        assert label(tree) == "error_code: 10 (MESSAGE_TOO_LARGE)"
        # Another pane is searched for the same text.
        await press(app, pilot, "shift+tab", "n")
        assert tree.border_title == "not found"

    drive(steps)
