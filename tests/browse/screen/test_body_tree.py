"""The tree of bodies: keys, and finding a field by its path."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from kafkasniff.browse import body_view
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.body_tree import BodyField, BodyTree
from tests.browse.screen.driving import drive, open_error, settled


def test_keys() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("G", "enter")
        await settled(app, pilot)
        tree = app.query_one(BodyTree)
        for keys, line in [("j", 1), ("down", 2), ("k", 1), ("up", 0), ("G", tree.last_line), ("g", 0),
                           ("end", tree.last_line), ("home", 0)]:  # fmt: skip
            await pilot.press(keys)
            assert tree.cursor_line == line, keys
        await pilot.press("pagedown")
        assert tree.cursor_line > 2
        await pilot.press("b")
        assert tree.cursor_line == 0
        tree.select(BodyField(0, ""))
        await pilot.pause()
        for keys, is_open in [("h", False), ("l", True), ("left", False), ("right", True), ("space", False),
                              ("enter", True)]:  # fmt: skip
            await pilot.press(keys)
            assert tree.cursor_node.is_expanded is is_open, keys
        await pilot.press("j", "h")
        assert tree.field == BodyField(0, "")

    drive(steps)


def test_fields_are_found_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_view, "MAX_CHILDREN", 4)

    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await open_error(app, pilot, "MESSAGE_TOO_LARGE")
        tree = app.query_one(BodyTree)
        everything = list(tree.texts())
        assert len({field for field, _ in everything}) == len(everything) > 40
        for field, text in everything:
            tree.select(field)
            await pilot.pause()
            assert tree.field == field
            assert text.startswith(str(tree.cursor_node.label))

    drive(steps)


def test_facts_have_no_field() -> None:
    async def steps(app: Explorer, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await settled(app, pilot)
        tree = app.query_one(BodyTree)
        await pilot.press("g")
        assert str(tree.cursor_node.label).startswith("answered · ")
        assert tree.field is None

    drive(steps)
