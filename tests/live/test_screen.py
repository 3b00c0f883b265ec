"""Screens of a made-up cluster, kept in `screens/` for review. `KAFKASNIFF_SCREENS=write` regenerates them."""

from __future__ import annotations

import functools
import html
import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from kafkasniff.live.columns import TABLES
from kafkasniff.live.screen import HIGH, MIN_HEIGHT, MIN_WIDTH, WIDE, screen
from kafkasniff.live.snapshot import Snapshot
from kafkasniff.live.state import ViewState
from kafkasniff.text.printable import display_width
from tests.live.scenes import FINDINGS, PICTURE_SIZE, Scene, Talk, cluster, drawn, picture, produce_body

SCREENS = Path(__file__).parent / "screens"
SIZES = [(80, 24), (200, 50)]
VIEWS = {
    **{table.title: ViewState(table=place) for place, table in enumerate(TABLES)},
    "connection": ViewState(focus=3),
    "paused": ViewState(table=4, paused=True, selected=("payments-service", "10.0.1.6:51002", 2)),
    "help": ViewState(help=True),
}
# One screen has all tables.
WIDE_VIEWS = {"APIs": "tables", "connection": "connection", "help": "help"}


@functools.cache
def shot(focus: int | None = None) -> Snapshot:
    return cluster().snapshot(focus=focus, findings=FINDINGS)


def cases() -> list[object]:
    small = [pytest.param(f"{name}-80x24", view, 80, 24, id=f"{name}-80x24") for name, view in VIEWS.items()]
    wide = [
        pytest.param(f"{named}-200x50", VIEWS[view], 200, 50, id=f"{named}-200x50")
        for view, named in WIDE_VIEWS.items()
    ]
    return [*small, *wide]


@pytest.mark.parametrize(("name", "state", "width", "height"), cases())
def test_the_screens(name: str, state: ViewState, width: int, height: int) -> None:
    text = drawn(shot(state.focus), state, width, height)
    path = SCREENS / f"{name}.txt"
    if os.environ.get("KAFKASNIFF_SCREENS") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_no_outdated_screens_are_kept() -> None:
    kept = {path.name for path in SCREENS.iterdir()}
    assert kept == {f"{name}-80x24.txt" for name in VIEWS} | {f"{name}-200x50.txt" for name in WIDE_VIEWS.values()}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("width", "height"),
    [(MIN_WIDTH, MIN_HEIGHT), (61, 13), (80, 24), (81, 12), (120, 30), (WIDE - 1, 60), (WIDE, HIGH), (300, 100)],
)
def test_every_size_is_filled_and_not_exceeded(view: str, width: int, height: int) -> None:
    state = VIEWS[view]
    text = drawn(shot(state.focus), state, width, height)
    lines = text.splitlines()
    assert len(lines) == height
    assert max(display_width(line) for line in lines) <= width
    assert text.startswith("kafkasniff")
    assert "quit" in lines[-1] or width < 80


def test_too_small_a_terminal_is_reported() -> None:
    assert drawn(shot(), ViewState(), 30, 5) == "too small: 30×5\n"


def test_before_the_first_packet() -> None:
    for view in VIEWS.values():
        assert "q quit" in drawn(Snapshot("eth0"), view, 80, 24)


def test_no_bytes_from_the_wire_reach_the_terminal_raw() -> None:
    """Neither escapes nor rich's markup, wherever a name is shown."""
    hostile = "\x1b]0;owned\x07[red]\u202e\r\nx"
    scene = Scene()
    from kafkasniff.live.top import TopModel

    model = TopModel("\x1b[31meth")
    talk = Talk(scene, 1, hostile, "10.0.0.1", hostile)
    for event in scene.whole(talk, 0, 1000, "Produce", asked=produce_body(hostile.encode() + b"\xff", 1)):
        model.take(event)
    model.take(talk.request(5, "Metadata"))
    model.advance(model.snapshot().now_ns or 0)
    seen = model.snapshot(focus=1, threshold_ns=0)
    for state in (*VIEWS.values(), ViewState(focus=1)):
        for width, height in SIZES:
            buffer = io.StringIO()
            console = Console(file=buffer, width=width, height=height, force_terminal=True, color_system="standard")
            console.print(screen(seen, state, width, height))
            plain = re.sub("\x1b\\[[0-9;]*m", "", buffer.getvalue())
            assert all(character.isprintable() or character == "\n" for character in plain)
            assert "owned\x07" not in plain
    assert "[red]" in drawn(seen, ViewState(table=2), 200, 20)


def test_the_selected_row_stays_visible() -> None:
    from kafkasniff.live.top import TopModel

    model, scene = TopModel(), Scene()
    for number_of in range(1, 60):
        talk = Talk(scene, number_of, f"client-{number_of}", "10.0.0.1", "")
        for event in scene.whole(talk, number_of, 1000, "Metadata"):
            model.take(event)
    seen = model.snapshot()
    state = ViewState(table=2)
    rows = state.rows(seen)
    chosen = ViewState(table=2, selected=(rows[-1].name, rows[-1].client, None))
    assert str(rows[-1].name) not in drawn(seen, state, 80, 24)
    assert str(rows[-1].name) in drawn(seen, chosen, 80, 24)


def words_of(svg: str) -> str:
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).replace("\xa0", " ")


def test_the_picture_in_the_documents() -> None:
    """Its words; its form is up to rich."""
    path = Path(__file__).parents[2] / "docs" / "top.svg"
    if os.environ.get("KAFKASNIFF_SCREENS") == "write":
        path.write_text(picture())
    shown = words_of(path.read_text())
    text = drawn(shot(), ViewState(), *PICTURE_SIZE)
    assert " ".join(shown.replace("kafkasniff live --top", "", 1).split()) == " ".join(text.split())
    assert "url(http" not in path.read_text()
