"""Every key of the explorer does what it says, and `?` lists it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import operator
import pkgutil
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Static

import kafkasniff
from kafkasniff.browse import screen as package
from kafkasniff.browse.commands import Commands, ReportLine
from kafkasniff.browse.filter_texts import SavedFilters
from kafkasniff.browse.following import followed
from kafkasniff.browse.index import Row
from kafkasniff.browse.reading import CaptureReading
from kafkasniff.browse.screen.app import Explorer
from kafkasniff.browse.screen.exchange_list import ExchangeList
from kafkasniff.browse.screen.list_lines import LIST_COLUMNS
from kafkasniff.browse.screen.menus import Choices, FilterLine
from kafkasniff.browse.screen.overview import Histogram, OverviewScreen
from tests.browse.screen.driving import listed, settled
from tests.choice import one_in
from tests.conftest import ROOT

CAPTURE = ROOT / "captures" / "java-transactions.pcap"
SAVED = ['api == "Fetch"', "has error"]
EVIDENCE = 'api == "EndTxn"'
FETCH = 269
"""The size of a Fetch response with records of one partition."""

PLACES: dict[str, tuple[str, ...]] = {
    "list": (), "tree": ("enter",), "bytes": ("x", "tab"), "records": ("enter", "r"), "record": ("enter", "r", "enter"),
    "menu": ("F",), "copies": ("y",), "path": ("w",), "filter": ("slash",), "help": ("question_mark",),
    "report": ("o",), "bars": ("o", "tab"),
}  # fmt: skip
"""The keys from the Fetch in the list to each place."""


class Case(NamedTuple):
    """After `keys` at a place, what `look` sees changes to `wanted` by a key."""

    place: str
    keys: str
    look: Callable[[Explorer], Any]
    wanted: Any
    """A value, or a test of the values before and after."""


def bindings() -> Iterator[tuple[str, Binding]]:
    """All of the package, with the names of their classes."""
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        for name, one in vars(module).items():
            if inspect.isclass(one) and one.__module__ == module.__name__:
                yield from ((name, binding) for binding in vars(one).get("BINDINGS", ()))


def by(count: int) -> Callable[[int, int], bool]:
    return lambda before, after: after == before + count


def far(count: int) -> Callable[[int, int], bool]:
    """At least `count` in one direction, as a page is."""
    return lambda before, after: (after - before) * (1 if count > 0 else -1) >= abs(count)


def cursor(app: Explorer) -> int:
    return listed(app).cursor


def bars(app: Explorer) -> Histogram:
    return app.screen.query(Histogram).first()


def report(app: Explorer) -> str:
    assert isinstance(app.screen, OverviewScreen)
    return f"{app.screen._shown}: {app.screen._pane.lines[0].text}"


def highlighted(app: Explorer) -> int | None:
    return app.screen.query_one(Choices).highlighted


def focus(app: Explorer) -> str | None:
    return None if app.focused is None else app.focused.id


def columns(app: Explorer) -> list[str]:
    return [column.name for column in listed(app).columns]


def typed(app: Explorer) -> str:
    return app.query_one(FilterLine).value


NAMES = [column.name for column in LIST_COLUMNS]
MAIN = "Screen"
more, less = operator.lt, operator.gt
shown = attrgetter("screen.__class__.__name__")
tree = attrgetter("_detail.tree_pane.cursor_line")
is_open = attrgetter("_detail.tree_pane.cursor_node.is_expanded")
row = attrgetter("_detail.bytes_pane.cursor")
byte = attrgetter("_detail.bytes_pane.cursor", "_detail.bytes_pane._byte")
expression = attrgetter("_expression")
side = attrgetter("_detail.record_table.scroll_offset.x")
CASES: dict[tuple[str, str], Case] = {
    ("Explorer", "quit"): Case("list", "", lambda app: app.return_code, 0),
    ("Explorer", "close_pane"): Case("tree", "", lambda app: app._detail.is_open, False),
    ("Explorer", "filter"): Case("list", "", focus, "filter"),
    ("Explorer", "copy"): Case("list", "", shown, "CopyMenu"),
    ("Explorer", "overview"): Case("list", "", shown, "OverviewScreen"),
    ("Explorer", "write"): Case("list", "", shown, "PathPrompt"),
    ("Explorer", "bytes"): Case("list", "", lambda app: app._detail.bytes_pane.count, more),
    ("Explorer", "jump('partition', 1)"): Case("list", "", cursor, "next partition"),
    ("Explorer", "jump('partition', -1)"): Case("list", "", cursor, "previous partition"),
    ("Explorer", "jump('producer id', 1)"): Case("list", "", cursor, "next producer id"),
    ("Explorer", "jump('producer id', -1)"): Case("list", "", cursor, "previous producer id"),
    ("Explorer", "follow"): Case("list", "", expression, lambda _, now: now.startswith("connection == ")),
    ("Explorer", "follow_menu"): Case("list", "", shown, "FollowMenu"),
    ("Explorer", "pause"): Case("list", "", lambda app: app._paused, True),
    ("Explorer", "filter_before"): Case("list", "f", expression, ""),
    ("Explorer", "focus_next"): Case("tree", "x", focus, "bytes"),
    ("Explorer", "keys"): Case("list", "", shown, "KeyHelp"),
    ("ExchangeList", "move(1)"): Case("list", "", cursor, by(1)),
    ("ExchangeList", "move(-1)"): Case("list", "", cursor, by(-1)),
    ("ExchangeList", "page(1)"): Case("list", "g", cursor, far(10)),
    ("ExchangeList", "page(-1)"): Case("list", "G", cursor, far(-10)),
    ("ExchangeList", "first"): Case("list", "", cursor, 0),
    ("ExchangeList", "last"): Case("list", "", cursor, 62),
    ("ExchangeList", "side(1)"): Case("list", "", lambda app: listed(app).at, 2),
    ("ExchangeList", "side(-1)"): Case("list", "", lambda app: listed(app).at, 0),
    ("ExchangeList", "sort"): Case("list", "ll", lambda app: listed(app).column, "latency"),
    ("ExchangeList", "reverse"): Case("list", "", lambda app: listed(app)._place(0), 62),
    ("ExchangeList", "narrow('==')"): Case("list", "l", expression, 'api == "Fetch"'),
    ("ExchangeList", "narrow('!=')"): Case("list", "l", expression, 'not (api == "Fetch")'),
    ("ExchangeList", "narrow('>')"): Case("list", "ll", expression, lambda _, now: now.startswith("latency_ms > ")),
    ("ExchangeList", "narrow('<')"): Case("list", "ll", expression, lambda _, now: now.startswith("latency_ms < ")),
    ("ExchangeList", "hide"): Case("list", "", columns, [name for name in NAMES if name != "time"]),
    ("ExchangeList", "show_all"): Case("list", "cc", columns, NAMES),
    ("ExchangeList", "shift(-1)"): Case("list", "", columns, ["time", "number", *NAMES[2:]]),
    ("ExchangeList", "shift(1)"): Case("list", "", columns, ["number", "api", "time", *NAMES[3:]]),
    ("ExchangeList", "clock"): Case("list", "", lambda app: listed(app).clock, 1),
    ("ExchangeList", "same('connection', 1)"): Case("list", "", cursor, "next connection"),
    ("ExchangeList", "same('connection', -1)"): Case("list", "", cursor, "previous connection"),
    ("ExchangeList", "same('client_id', 1)"): Case("list", "", cursor, "next client_id"),
    ("ExchangeList", "same('client_id', -1)"): Case("list", "", cursor, "previous client_id"),
    ("ExchangeList", "same('api', 1)"): Case("list", "", cursor, "next api"),
    ("ExchangeList", "same('api', -1)"): Case("list", "", cursor, "previous api"),
    ("ExchangeList", "open"): Case("list", "", focus, "body"),
    ("DetailPanes", "search"): Case("tree", "", focus, "search"),
    ("DetailPanes", "step(1)"): Case("tree", "/offset\n", lambda app: app._detail.tree_pane.border_title,
                                     lambda _, now: now.startswith("match 2 of ")),
    ("DetailPanes", "step(-1)"): Case("tree", "/offset\nn", lambda app: app._detail.tree_pane.border_title,
                                      lambda _, now: now.startswith("match 1 of ")),
    ("DetailPanes", "more"): Case("records", "", lambda app: len(app._detail.record_table.rows), more),
    ("DetailPanes", "records"): Case("tree", "", focus, "records"),
    ("DetailPanes", "other"): Case("tree", "", lambda app: app._detail.field, (1, "")),
    ("DetailPanes", "beside"): Case("tree", "", lambda app: app._detail.response_pane.display, True),
    ("BodyTree", "cursor_down"): Case("tree", "", tree, by(1)),
    ("BodyTree", "cursor_up"): Case("tree", "jj", tree, by(-1)),
    ("BodyTree", "page_down"): Case("tree", "", tree, far(5)),
    ("BodyTree", "page_up"): Case("tree", "G", tree, far(-5)),
    ("BodyTree", "scroll_home"): Case("tree", "jj", tree, 0),
    ("BodyTree", "scroll_end"): Case("tree", "", tree, far(10)),
    ("BodyTree", "unfold"): Case("tree", "%h", is_open, True),
    ("BodyTree", "fold"): Case("tree", "%", is_open, False),
    ("BodyTree", "toggle_node"): Case("tree", "%", is_open, False),
    ("RowPane", "move(1)"): Case("bytes", "", row, by(1)),
    ("RowPane", "move(-1)"): Case("bytes", "jj", row, by(-1)),
    ("RowPane", "page(1)"): Case("bytes", "g", row, far(3)),
    ("RowPane", "page(-1)"): Case("bytes", "G", row, far(-3)),
    ("RowPane", "end(-1)"): Case("bytes", "jj", row, 0),
    ("RowPane", "end(1)"): Case("bytes", "", row, far(10)),
    ("BytesPane", "next_byte(1)"): Case("bytes", "j", byte, (1, 1)),
    ("BytesPane", "next_byte(-1)"): Case("bytes", "jl", byte, (1, 0)),
    ("BytesPane", "whole"): Case("bytes", "", lambda app: app._detail.bytes_pane.whole, True),
    ("RecordTable", "form"): Case("records", "", lambda app: app._detail.record_table.form, "JSON"),
    ("RecordTable", "side(1)"): Case("records", "", side, more),
    ("RecordTable", "side(-1)"): Case("records", "l", side, less),
    ("RecordTable", "whole"): Case("records", "", shown, "RecordScreen"),
    ("RecordScreen", "dismiss"): Case("record", "", shown, MAIN),
    ("RecordScreen", "form"): Case("record", "", lambda app: app.screen.query_one("*").border_title, "record as JSON"),
    ("Choices", "cursor_down"): Case("menu", "", highlighted, 1),
    ("Choices", "cursor_up"): Case("menu", "j", highlighted, 0),
    ("FollowMenu", "give_up"): Case("menu", "", shown, MAIN),
    ("CopyMenu", "dismiss"): Case("copies", "", shown, MAIN),
    ("CopyMenu", "save"): Case("copies", "", shown, "PathPrompt"),
    ("PathPrompt", "give_up"): Case("path", "", shown, MAIN),
    ("KeyHelp", "dismiss"): Case("help", "", shown, MAIN),
    ("FilterLine", "cursor_right"): Case("filter", "laten", typed, "latency_ms"),
    ("FilterLine", "saved(-1)"): Case("filter", "", typed, SAVED[-1]),
    ("FilterLine", "saved(1)"): Case("filter", "", typed, SAVED[0]),
    ("FilterLine", "save"): Case("filter", "has api", lambda app: app._saved.expressions, [*SAVED, "has api"]),
    ("Histogram", "move(1)"): Case("bars", "", lambda app: bars(app).cursor, by(1)),
    ("Histogram", "move(-1)"): Case("bars", "ll", lambda app: bars(app).cursor, by(-1)),
    ("Histogram", "move(-1000000)"): Case("bars", "ll", lambda app: bars(app).cursor, 0),
    ("Histogram", "move(1000000)"): Case("bars", "", lambda app: bars(app).cursor, far(20)),
    ("Histogram", "mark"): Case("bars", "ll", lambda app: bars(app).mark, 2),
    ("Histogram", "choose"): Case("bars", "", expression, lambda _, now: now.startswith("time >= ")),
    ("ReportPane", "evidence"): Case("report", "", expression, EVIDENCE),
    ("OverviewScreen", "give_up"): Case("report", "", shown, MAIN),
    ("OverviewScreen", "report('check')"): Case("report", "2", report, "check: lines of check"),
    ("OverviewScreen", "report('stats')"): Case("report", "", report, "stats: lines of stats"),
    ("OverviewScreen", "report('timing')"): Case("report", "", report, "timing: lines of timing"),
    ("OverviewScreen", "app.focus_next"): Case("report", "", focus, "times"),
}  # fmt: skip
_KEYS = {"/": "slash", "\n": "enter", " ": "space", "%": "percent_sign"}


def along(app: Explorer, kind: str) -> list[int]:
    """The lines of the most exchanges that have something of a kind in common."""
    exchanges = {(one.connection_id, one.exchange_id): one for one in kafkasniff.read(CAPTURE)}
    found: dict[Any, list[int]] = {}
    for line, one in enumerate(everything(listed(app))):
        if hasattr(one, kind):
            found.setdefault(getattr(one, kind), []).append(line)
            continue
        of = followed(exchanges[one.connection_id, one.exchange_id])
        # The first one is followed.
        for each in [each.expression for each in of if each.kind == kind][:1]:
            found.setdefault(each, []).append(line)
    return max(found.values(), key=len)


def everything(rows: ExchangeList) -> list[Row]:
    return [rows.index.row(rows._place(line)) for line in range(len(rows.index))]


async def press(app: Explorer, pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        while len(app.workers):
            await app.workers.wait_for_complete()
            await pilot.pause()


async def begin(app: Explorer, pilot: Pilot[None], case: Case) -> None:
    """From wherever the last case ended, to the place of this one."""
    while len(app.screen_stack) > 1:
        app.pop_screen()
    while app._detail.close():
        pass
    app._close_filter()
    app._detail._wants_two, app._detail.bytes_pane.whole, app._detail.record_table.form = False, False, "text"
    app._detail._input.value = ""
    app._detail.exchange = app._trail = None
    rows = listed(app)
    rows.columns, rows.at, rows.clock, rows.column, rows.descending = list(LIST_COLUMNS), 1, 0, "time", False
    if app._expression or app._paused:
        app._set_filter("")
        await settled(app, pilot)
    rows._sort()
    rows.move_to(next(line for line, one in enumerate(everything(rows)) if one.response == FETCH))
    if case is CASES["DetailPanes", "more"]:
        app._threads.most, app._threads._read = 1, None
    await pilot.pause()
    await press(app, pilot, *PLACES[case.place], *(_KEYS.get(key, key) for key in case.keys))


async def check(app: Explorer, pilot: Pilot[None], name: str, binding: Binding) -> None:
    """Press the last of its keys; the others must lead to the same action of the same widget."""
    case = CASES[name, binding.action]
    with app.batch_update():  # drawing what is on the way takes most of the time
        await begin(app, pilot, case)
    await pilot.pause()
    *others, key = binding.key.split(",")
    for other in others:
        active = app.screen.active_bindings[other]
        assert active.binding.action == binding.action
        assert name in {one.__name__ for one in type(active.node).__mro__}
    before, wanted = case.look(app), case.wanted
    if isinstance(wanted, str) and wanted.startswith(("next ", "previous ")):
        way, _, kind = wanted.partition(" ")
        lines = along(app, kind)
        listed(app).move_to(lines[1])
        before, wanted = lines[1], lines[2 if way == "next" else 0]
    await press(app, pilot, key)
    after = case.look(app)
    assert after != before, after
    assert wanted(before, after) if callable(wanted) else after == wanted, (before, after)


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(name: str, *_: object, **__: object) -> list[ReportLine]:
        return [ReportLine(f"lines of {name}", EVIDENCE)]

    assert {(name, binding.action) for name, binding in bindings()} == CASES.keys(), "a key without a case"
    # The commands are run in other tests.
    monkeypatch.setattr("kafkasniff.browse.screen.overview.report", lines)
    path = tmp_path / "filters"
    path.write_text("".join(f"{one}\n" for one in SAVED))
    app = Explorer(CaptureReading((str(CAPTURE),), dict), commands=Commands((str(CAPTURE),)), saved=SavedFilters(path))
    wrong = []

    async def run() -> None:
        async with app.run_test(size=(60, 16)) as pilot:
            await settled(app, pilot)
            await pilot.press("question_mark")
            text = str(app.screen.query_one(Static).render())
            # Two columns of 80, and the keys of the list and of the explorer in the first page of 24 lines.
            lines = text.splitlines()
            assert max(map(len, lines)) <= 78, max(lines, key=len)
            assert {"Show bodies", "Show keys"} <= {line[8:38].strip() for line in lines[:24]} | {
                line[46:].strip() for line in lines[:24]
            }
            unlisted = {"KeyHelp", "FollowMenu", "PathPrompt", "RecordScreen"}
            for name, binding in bindings():
                if name not in unlisted and binding.description not in text:
                    wrong.append(f"{name}: {binding.key} ({binding.description}) is not listed")
            await pilot.press("escape")
            # The one that ends the run is last.
            for name, binding in one_in(8, sorted(bindings(), key=lambda pair: pair[1].action == "quit")):
                try:
                    await check(app, pilot, name, binding)
                except AssertionError as error:
                    wrong.append(f"{name}: {binding.key} ({binding.description}): {error}")

    asyncio.run(run())
    assert not wrong, "\n".join(wrong)
