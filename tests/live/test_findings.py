"""Findings of detectors in the view: from the same events, they match those of `check`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from kafkasniff.analysis.detectors import Detectors
from kafkasniff.engine.inspector import Inspector
from kafkasniff.live import findings as module
from kafkasniff.live.columns import FINDINGS_TABLE
from kafkasniff.live.findings import BEHIND, COSTLY, LiveFindings
from kafkasniff.live.snapshot import Findings, Snapshot
from kafkasniff.live.state import ViewState
from kafkasniff.model import Connection, Exchange, Message, Problem, SaslToken
from tests.live.scenes import Scene, Talk, drawn

Event = Message | SaslToken | Exchange | Problem | Connection
SECOND = 1_000_000_000
OVER = 100.0
"""Seconds after which everything that waits is due."""


class World:
    """A clock under the test's control, and a ring that can be full."""

    def __init__(self) -> None:
        self.now = 0.0
        self.behind = False

    def findings(self, **options: Any) -> LiveFindings:
        return LiveFindings(Inspector(), lambda: self.behind, clock=lambda: self.now, **options)

    def looks(self, live: LiveFindings, seconds: float = OVER) -> Findings:
        self.now += seconds
        live.look()
        return live.shown()


def give(live: LiveFindings, events: Iterable[Event]) -> None:
    for event in events:
        live.take(event)


def late(client_id: str, number: int = 1, at: int = 0) -> list[Event]:
    """A connection whose only request was answered after 40 s: an error of `late-answers`."""
    talk = Talk(Scene(), number, client_id, "10.0.0.5", "")
    return [*talk.scene.whole(talk, at * SECOND, 40 * SECOND, "Metadata"), talk.closed()]


def late_ones() -> Detectors:
    return Detectors(only=["late-answers"])


def titles(findings: Findings) -> list[str]:
    return [row.title for row in findings.rows]


def test_hostile_names() -> None:
    world = World()
    live = world.findings(detectors=late_ones)
    give(live, late("\x1b]0;owned\x07[red]\u202e\r\nx"))
    shot = Snapshot("eth0", findings=world.looks(live))
    for state in (ViewState(), ViewState(table=FINDINGS_TABLE)):
        for width, height in ((80, 24), (200, 50)):
            text = drawn(shot, state, width, height)
            assert "1 error" in text
            assert width < 200 or r"\x1b]0;owned\x07[red]\u202e" in text
            assert all(character.isprintable() or character == "\n" for character in text)


def test_paused_under_pressure() -> None:
    """Events in the meantime are skipped, which is reported. Then detectors start over, and earlier findings stay."""
    world = World()
    live = world.findings(detectors=late_ones)
    give(live, late("before"))
    world.looks(live)
    give(live, late("held", 2, 50))
    world.behind = True
    shown = world.looks(live)
    assert (shown.paused, shown.restarts) == (BEHIND, 0)
    assert "before" in titles(shown)[0]
    text = drawn(Snapshot(findings=shown), ViewState(), 80, 24)
    assert f"findings paused: {BEHIND}, before that 1 error" in text
    give(live, late("meanwhile", 3, 60))
    world.behind = False
    assert world.looks(live, module.CALM_SECONDS / 2).paused == BEHIND, "it may come back"
    shown = world.looks(live, module.CALM_SECONDS)
    assert (shown.paused, shown.restarts) == ("", 1)
    give(live, late("after", 4, 70))
    shown = world.looks(live)
    assert sorted(title.split(" at ")[0].split()[-1] for title in titles(shown)) == ["after", "before"]
    assert [title.endswith("similar for 1 other client") for title in titles(shown)].count(True) == 1
    assert "2 errors   started over 1×" in drawn(Snapshot(findings=shown), ViewState(), 80, 24)


class Slow(Detectors):
    """Takes a second of the simulated clock per row, or to return its findings."""

    def __init__(self, world: World, *, row: float = 0.0, look: float = 0.0) -> None:
        super().__init__(only=["late-answers"])
        self.world, self.row, self.look = world, row, look

    def update(self, batch: pa.RecordBatch, table: str = "exchanges") -> None:
        self.world.now += self.row * len(batch)
        super().update(batch, table)

    def findings(self, *arguments: Any) -> Any:
        self.world.now += self.look
        return super().findings(*arguments)


def test_paused_where_rows_take_too_long() -> None:
    world = World()
    live = world.findings(detectors=lambda: Slow(world, row=0.5))
    give(live, [event for number in range(1, 7) for event in late("busy", number)])
    assert world.looks(live, module.FINDINGS_SECONDS).paused == "", "three seconds for six rows, and as many before"
    shown = world.looks(live, 2.0)
    assert shown.paused == COSTLY
    assert "paused: too much to examine, before that 1 error" in drawn(Snapshot(findings=shown), ViewState(), 80, 24)
    for number in range(1, 4):
        give(live, late("more", number))
    assert world.looks(live, module.SHARE_SECONDS).paused == COSTLY, "1.5 s of 5 s are more than a quarter"
    give(live, late("fewer"))
    shown = world.looks(live, module.SHARE_SECONDS)
    assert (shown.paused, shown.restarts) == ("", 1)
    give(live, late("last", 9))
    assert [title.split(" at ")[0].split()[-1] for title in titles(world.looks(live))] == ["busy", "last"]


def test_held_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr("kafkasniff.tables.exports.staging.Stager.take", lambda _, events: given.append(len(events)))
    monkeypatch.setattr(module, "HELD_EVENTS", 5)
    live = World().findings(detectors=late_ones)
    give(live, [event for number in range(1, 6) for event in late("app", number)])
    assert given == [5, 5]
    monkeypatch.setattr(module, "HELD_BYTES", 1)
    give(live, late("app"))
    assert given == [5, 5, 1], "bytes are those of messages"
