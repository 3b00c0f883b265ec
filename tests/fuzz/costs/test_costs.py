"""The family `costs`: what it makes, how it climbs, and that a trial keeps within its limits."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.fuzz.costs import trial
from tests.fuzz.costs.family import (
    LEAST_SIZE,
    MAX_MEMORY,
    MAX_MICROSECONDS,
    Plan,
    climb,
    is_excess,
    replay,
    search,
    section,
)
from tests.fuzz.costs.pairs import PAIRS, Pair, Quantity
from tests.fuzz.costs.trial import OUTPUTS, Base, Cost, Trial

pytestmark = pytest.mark.extended

SIZE = 20_000


def cost(seconds: float = 1.0, rss: int = 1_000_000, *, size: int = 1 << 20, code: int = 0) -> Cost:
    return Cost(size, seconds, rss, code)


HILL = Pair(
    "gaps-outstanding",
    lambda size, *values: msgspec.json.encode(dict(zip("ab", values, strict=True))),
    (Quantity("a", 1, 10_000, 1), Quantity("b", 1, 10_000, 1)),
)


def measured(output: str, data: bytes) -> Cost:
    """Time where both are high, to one output; memory where `a` is, and `b` is not."""
    made = msgspec.json.decode(data)
    seconds = made["a"] * made["b"] / 1e8 if output == "stats" else 0.0
    return cost(seconds, round(1e6 * made["a"] / made["b"]))


def test_what_is_made() -> None:
    """Captures of about the size that was asked for, the same again, others with other numbers."""
    for name, pair in PAIRS.items():
        ends = [(one.low, min(one.high, max(one.low, 300))) for one in pair.quantities]
        found = set()
        for values in itertools.product(*ends):
            data = pair.make(SIZE, *values)
            assert data == pair.make(SIZE, *values), name
            assert 0.8 * SIZE < len(data) < 4 * SIZE, name
            assert data[:4] in {b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a"}, name
            found.add(data)
        assert len(found) > 1, name
        highest = pair.make(1 << 18, *(one.high for one in pair.quantities))
        assert 0.8 < len(highest) / (1 << 18) < 4, name


def test_a_climb_comes_to_the_top() -> None:
    found = climb(HILL, Plan(1, trials=250), measured, clock=lambda: 0.0)
    assert (found.seconds.output, found.seconds.values) == ("stats", (10_000, 10_000))
    assert found.memory.values == (10_000, 1)
    assert found.trials <= 250
    assert found == climb(HILL, Plan(1, trials=250), measured, clock=lambda: 0.0)
    assert found != climb(HILL, Plan(1, trials=20, seed=2), measured, clock=lambda: 0.0)
    ticks = itertools.count()
    assert climb(HILL, Plan(5), measured, clock=lambda: float(next(ticks))).trials == 5


@pytest.mark.parametrize(
    ("pair", "one", "over"),
    [
        ("gaps-outstanding", cost(MAX_MICROSECONDS, int(MAX_MEMORY * (1 << 20))), False),
        ("gaps-outstanding", cost(MAX_MICROSECONDS * 1.1), True),
        ("gaps-outstanding", cost(1.0, int(MAX_MEMORY * 1.1) << 20), True),
        ("gaps-outstanding", cost(MAX_MICROSECONDS, size=1_000), False),
        ("gaps-outstanding", cost(code=-signal.SIGXCPU), True),
        ("gaps-outstanding", cost(code=70), True),
        ("gaps-outstanding", cost(code=1), False),
        # What expands: a quarter of the time that a megabyte may take, and its memory.
        ("ratio-messages", cost(MAX_MICROSECONDS * 0.26, size=16 << 10), False),
        ("ratio-messages", cost(MAX_MICROSECONDS * 0.27, size=16 << 10), True),
        ("ratio-messages", cost(rss=(1 << 30) + 1, size=16 << 10), True),
    ],
)
def test_what_is_beyond_the_bounds(pair: str, one: Cost, over: bool) -> None:
    assert LEAST_SIZE == 1 << 20
    assert is_excess(Trial(pair, (1,), "json", one)) is over


def test_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands are there, take next to nothing of next to nothing, and end where they go too far."""
    for output in OUTPUTS:
        found = trial.run(PAIRS["connections-overhead"].make(2_000, 1, 3), output)
        assert found.code in {0, 1}, output  # check has findings or none
        assert 0.05 < found.seconds < trial.CPU_SECONDS
        assert 20e6 < found.rss < 500e6
    # Seconds of work: starting takes part of the one that it may have.
    data = PAIRS["ratio-messages"].make(50_000, 1414, 3162, 4, 32)
    found = trial.run(data, "json", Base(0.2, 0), cpu_seconds=1)
    assert (found.code, found.broken) == (-signal.SIGXCPU, True)
    monkeypatch.setattr(trial, "MEMORY", 64 << 20)
    assert trial.run(data, "json").code != 0


FAMILIES: Final = (
    *("topics-errors", "clients-errors", "attempts-endpoints", "segments-overlaps", "members-groups"),
    *("leaders-topics", "connections-unanswered", "producers-batches", "gaps-outstanding", "segments-holes"),
)
"""Hostile inputs that no decompression makes longer."""
EACH_SIZE: Final = 1 << 17
MOST_SECONDS: Final = 3.0
"""CPU time for a megabyte."""
MOST_RSS: Final = 256 << 20
"""Memory beside that of a few exchanges."""


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_command_keeps_to_3_s_for_a_megabyte(output: str) -> None:
    # `report` draws charts of any exchange, with a browser's engine.
    few = trial.run(PAIRS["connections-overhead"].make(2_000, 1, 3), output)
    base = Base(few.seconds, few.rss)
    costs = {
        name: trial.run(PAIRS[name].make(EACH_SIZE, *PAIRS[name].worst), output, base, cpu_seconds=10)
        for name in FAMILIES
    }
    assert {name: found.code for name, found in costs.items() if found.code not in {0, 1}} == {}
    seconds = sum(found.seconds for found in costs.values())
    assert seconds * 1e6 < MOST_SECONDS * sum(found.size for found in costs.values()), costs
    assert max(found.rss for found in costs.values()) < MOST_RSS, costs


def test_a_run_keeps_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def bad(output: str, data: bytes) -> Cost:
        return cost(MAX_MICROSECONDS * 1.5 if output == "export" else 1.0, size=len(data))

    def good(_output: str, data: bytes) -> Cost:
        return cost(1.0, size=len(data))

    pairs = [PAIRS["packets-tunnels"], PAIRS["gaps-outstanding"]]
    plan = Plan(1e9, size=SIZE, trials=8)
    found, sound = search(tmp_path, plan, pairs, measure=bad)
    assert not sound
    assert capsys.readouterr().out.count("beyond the bounds: packets-tunnels depth=") == 1
    assert list(found) == [pair.name for pair in pairs]
    assert "| `packets-tunnels` | " in section(found)
    (kept,) = [path for path in tmp_path.glob("crash-*") if b"tunnels" in path.read_bytes()]
    assert not replay(kept, bad)
    assert replay(kept, good)
    assert search(tmp_path, plan, pairs, measure=good)[1]


def test_the_worst_numbers_are_within_their_bounds() -> None:
    for pair in PAIRS.values():
        assert all(one.low <= at <= one.high for one, at in zip(pair.quantities, pair.worst, strict=True)), pair.name
