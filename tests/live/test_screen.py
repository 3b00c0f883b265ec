"""Screens of a made-up cluster, kept in `screens/` for review. `KAFKASNIFF_SCREENS=write` regenerates them."""

from __future__ import annotations

import functools
import html
import io
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from kafkasniff.live.columns import TABLES, Head, identity, table_lines
from kafkasniff.live.screen import HIGH, MIN_HEIGHT, MIN_WIDTH, WIDE, screen
from kafkasniff.live.snapshot import Breadcrumb, Snapshot
from kafkasniff.live.state import ViewState, drilled, press
from kafkasniff.live.top import TopModel
from kafkasniff.text.printable import display_width
from tests.live.scenes import (
    FINDINGS,
    PICTURE_SIZE,
    SECOND,
    Scene,
    Talk,
    cluster,
    commit_body,
    drawn,
    opened,
    picture,
    produce_body,
)

SCREENS = Path(__file__).parent / "screens"
SIZES = [(80, 24), (200, 50)]
VIEWS = {
    **{table.title: ViewState(table=place) for place, table in enumerate(TABLES)},
    "connection": opened(("connection", 3)),
    "client": opened(("client", ("orders-service", "10.0.1.5"))),
    "error": opened(("topic", "orders"), ("error", ("Produce", "NOT_LEADER_OR_FOLLOWER"))),
    "paused": ViewState(table=4, paused=True, selected=("payments-service", "10.0.1.6:51002", 2)),
    "help": ViewState(help=True),
}
# One screen has all tables.
WIDE_VIEWS = {"APIs": "tables", "connection": "connection", "client": "client", "help": "help"}


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


@pytest.mark.parametrize("view", VIEWS)
def test_every_size_is_filled_and_not_exceeded(view: str) -> None:
    state = VIEWS[view]
    for width, height in (
        *((MIN_WIDTH, MIN_HEIGHT), (61, 13), (80, 24), (81, 12), (120, 30)),
        *((WIDE - 1, 60), (WIDE, HIGH), (300, 100)),
    ):
        text = drawn(shot(state.focus), state, width, height)
        lines = text.splitlines()
        assert len(lines) == height
        assert max(display_width(line) for line in lines) <= width
        assert text.startswith("kafkasniff")
        assert "quit" in lines[-1] or width < 80


def test_no_bytes_from_the_wire_reach_the_terminal_raw() -> None:
    """Neither escapes nor rich's markup, wherever a name is shown."""
    hostile = "\x1b]0;owned\x07[red]\u202e\r\nx"
    scene = Scene()

    model = TopModel("\x1b[31meth")
    talk = Talk(scene, 1, hostile, "10.0.0.1", hostile)
    for event in scene.whole(talk, 0, 1000, "Produce", asked=produce_body(hostile.encode() + b"\xff", 1)):
        model.take(event)
    model.take(talk.request(5, "Metadata"))
    model.advance(model.snapshot().now_ns or 0)
    seen = model.snapshot(focus=1, threshold_ns=0)
    for state in (*VIEWS.values(), opened(("connection", 1))):
        for width, height in SIZES:
            buffer = io.StringIO()
            console = Console(file=buffer, width=width, height=height, force_terminal=True, color_system="standard")
            console.print(screen(seen, state, width, height))
            plain = re.sub("\x1b\\[[0-9;]*m", "", buffer.getvalue())
            assert all(character.isprintable() or character == "\n" for character in plain)
            assert "owned\x07" not in plain
    assert "[red]" in drawn(seen, ViewState(table=2), 200, 20)


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


NAMES = st.text("ab日é …", max_size=30)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), max_size=5), st.integers(1, 60))
def test_no_line_is_too_long(names: list[tuple[str, str, str]], width: int) -> None:
    """Wide characters take two columns of the terminal."""
    heads = [Head("first", flexible=True), Head("second"), Head("third", flexible=True)]
    lines = table_lines(heads, [[(name, "") for name in row] for row in names], width, marked=0)
    assert len(lines) == len(names) + 1
    assert all(cell_len(line.plain) <= width for line in lines)


CLUSTER = cluster().snapshot(findings=FINDINGS)


def after(keys: str | list[str], state: ViewState | None = None, shot: Snapshot = CLUSTER) -> ViewState:
    found = ViewState() if state is None else state
    for key in keys:
        found = press(found, key, shot)
    return found


@pytest.mark.parametrize("table", range(len(TABLES)))
def test_sorting_cycles(table: int) -> None:
    state = after(str(table + 1))
    seen = [state.sort[table]]
    for _ in TABLES[table].sortable:
        rows = state.rows(CLUSTER)
        rank = TABLES[table].columns[state.sort[table]].rank
        ranks = [rank(row) for row in rows]
        assert ranks == sorted(ranks, reverse=True)
        assert state.cursor(rows) == 0
        turned = [identity(row) for row in after("r", state).rows(CLUSTER)]
        assert sorted(map(str, turned)) == sorted(str(identity(row)) for row in rows)
        state = after("s", state)
        seen.append(state.sort[table])
    assert seen[0] == seen[-1]
    assert sorted(seen[:-1]) == TABLES[table].sortable
    assert after("sS").sort == ViewState().sort


def test_every_row_opens_what_it_stands_for_and_escape_returns() -> None:
    """A way over four tables, and back to the row where it began."""
    begun = after(["9", "down", "down", "down"])
    finding = after(["enter"], begun)
    shown = drilled(CLUSTER, finding.path)
    assert {one.connection for one in shown.exchanges} == {1}
    api = after(["1", "enter"], finding, shown)
    client = after(["enter"], api, drilled(CLUSTER, api.path))
    assert [(step.kind, step.label) for step in client.path] == [
        ("finding", "not-leader"),
        ("API", "Produce"),
        ("client", "orders-service at 10.0.1.5"),
    ]
    text = drawn(CLUSTER, client, 120, 40)
    assert "all › finding not-leader › API Produce › client orders-service at 10.0.1.5" in text
    assert after(["escape"] * 4, client) == begun
    for table in TABLES:
        steps = [table.step(row) for row in table.rows(CLUSTER)]
        assert steps
        assert None not in steps
        assert dict.fromkeys(steps)


def test_what_is_opened_is_counted_from_its_exchanges() -> None:
    """By hand: 100 of 120 Produce requests are in the window of ten seconds, five with an error."""
    steps = [Breadcrumb("topic", "orders", ""), Breadcrumb("API", "Produce", "")]
    shown = drilled(CLUSTER, tuple(steps))
    assert {row.name: (row.requests, row.errors, row.total) for row in shown.apis} == {"Produce": (10, 0.5, 120)}
    assert [(row.error, row.responses, row.share) for row in shown.errors] == [("NOT_LEADER_OR_FOLLOWER", 6, 0.05)]
    assert {row.name: row.produced for row in shown.topics} == {"orders": 400}
    assert [row.connection for row in shown.connections_seen] == [1]
    # A Fetch does not name its group; its client did in another request.
    model, talk = TopModel(), Talk(Scene(), 1, "c", "10.0.0.1", "")
    for api, body in (("Fetch", None), ("OffsetCommit", commit_body("g", "t", 1)), ("Fetch", None)):
        for event in talk.scene.whole(talk, SECOND, 3_000_000, api, asked=body):
            model.take(event)
    members = drilled(model.snapshot(), (Breadcrumb("group", "g", ""),))
    assert {row.name: (row.total, row.mean, row.wait) for row in members.apis} == {
        "OffsetCommit": (1, 3000, None),
        "Fetch": (1, None, 3000),
    }
    assert [row.topic for row in drilled(CLUSTER, (Breadcrumb("group", "billing", ""),)).lags] == ["orders"]
    whole = drilled(CLUSTER, (Breadcrumb("broker", "10.0.0.9:9092", ""),))
    assert (len(whole.exchanges), whole.all.trend) == (len(CLUSTER.exchanges), CLUSTER.brokers[0].trend)
