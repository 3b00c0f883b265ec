"""The panes of an exchange: bodies and bytes, in turn, and search."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.pilot import Pilot

from kafkasniff.browse.screen import row_pane
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree, BytesPane
from kafkasniff.browse.screen.row_pane import PaneSearch
from tests.browse.screen.driving import drive, open_error, press


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


@pytest.mark.parametrize(("count", "matches"), [(3, "match 1 of 3"), (4, "match 1 of 3; the rest was not searched")])
def test_a_search_is_bounded(count: int, matches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_pane, "MAX_EXAMINED", 3 * row_pane.PLACE_COST)
    asked = []

    class Endless(Words):
        def texts(self) -> Iterator[tuple[int, str]]:
            for place in range(count if count == 3 else 1_000_000):
                asked.append(place)
                yield place, "a"

    assert search(Endless(), "a").step(1) == matches
    assert len(asked) == count
    long = Words("b" * row_pane.MAX_EXAMINED, "a")
    assert search(long, "a").step(1) == "not found; the rest was not searched"
