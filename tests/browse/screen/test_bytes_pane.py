"""Bytes and tree: what one shows under its cursor, the other marks."""

from __future__ import annotations

from textual.pilot import Pilot

from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyTree
from kafkasniff.browse.screen.bytes_pane import BytesPane
from tests.browse.screen.driving import drive, open_error, settled


async def opened(app: Explorer, pilot: Pilot[None]) -> tuple[BodyTree, BytesPane]:
    """The exchange in tree and bytes; the tree has the focus."""
    await open_error(app, pilot, "MESSAGE_TOO_LARGE")
    await pilot.press("x")
    await settled(app, pilot)
    await settled(app, pilot)
    return app.query_one(BodyTree), app.query_one(BytesPane)


def marked(pane: BytesPane) -> str:
    return "\n".join(pane.rows.rows[row].text for row in pane._marked)


def styled(pane: BytesPane, line: int) -> str:
    """The text of a line that is marked."""
    strip = pane.render_line(line - pane.scroll_offset.y)
    return "".join(one.text for one in strip if one.style is not None and one.style.underline)


def test_the_field_of_the_tree_is_marked() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        tree, pane = await opened(app, pilot)
        await pilot.press("j", "j", "j", "j", "j")
        assert str(tree.cursor_node.label) == "acks: -1 (ALL)"
        assert marked(pane).endswith("acks: -1 (ALL)")
        assert styled(pane, pane.cursor) == "ff ff.."
        await pilot.press("j", "j", "l", "j", "l", "j", "j", "j")
        assert str(tree.cursor_node.label) == "partition_data [1]"
        await pilot.press("h", "h")
        assert str(tree.cursor_node.label) == "[0]"
        assert "topic_data[0].topic_id" in marked(pane).splitlines()[0]
        assert len(marked(pane).splitlines()) > 20

    drive(steps, size=(100, 40))


def test_a_byte_selects_its_field() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        tree, pane = await opened(app, pilot)
        await pilot.press("tab")
        assert app.focused is pane
        await pilot.press("G", "k")
        await pilot.pause()
        # The last field of the response; the cursor is on one byte of it.
        assert str(tree.cursor_node.label) == "throttle_time_ms: 0"
        await pilot.press("k", "k", "k", "k")
        await pilot.pause()
        assert str(tree.cursor_node.label) == "record_errors: []"
        await pilot.press("h")
        await pilot.pause()
        assert str(tree.cursor_node.label) == "log_start_offset: -1"
        assert marked(pane).startswith("002d  ff ff ff ff ff ff ff ff")
        assert (pane.cursor, pane._byte) == (pane._marked[0], 7)
        for _ in range(8):
            await pilot.press("left")
        await pilot.pause()
        assert str(tree.cursor_node.label) == "log_append_time_ms: -1"
        await pilot.press("right")
        await pilot.pause()
        assert str(tree.cursor_node.label) == "log_start_offset: -1"

    drive(steps, size=(100, 40))


def test_mouse() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        tree, pane = await opened(app, pilot)
        line = next(line for line, row in enumerate(pane.rows.rows) if row.path == "client_id")
        for column, byte in ((6, 0), (6 + 3 * 4 + 1, 4), (6 + 25 + 5, 5)):
            # One line of border.
            await pilot.click(BytesPane, offset=(column, line + 1))
            assert (pane.cursor, pane._byte) == (line, byte)
        # The header is not in the tree: its message is.
        assert str(tree.cursor_node.label).startswith("request · ")

    drive(steps, size=(100, 60))


def test_whole_fields_and_width() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        _, pane = await opened(app, pilot)
        before = len(pane.rows.rows)
        assert "topic_data[0].partition_data[0].index: 0" not in "\n".join(row.text for row in pane.rows.rows)
        await pilot.press("tab", "plus")
        await settled(app, pilot)
        assert len(pane.rows.rows) == before + 1138 // 8 + 1 - 1
        await pilot.resize_terminal(160, 40)
        await settled(app, pilot)
        assert "topic_data[0].partition_data[0].index: 0" in "\n".join(row.text for row in pane.rows.rows)
        await pilot.press("space", "pagedown", "b")
        assert 0 < pane.cursor < 40
        assert pane.scroll_offset.y <= pane.cursor < pane.scroll_offset.y + pane.size.height

    drive(steps, size=(80, 40))
