"""The family `costs`: what it makes, how it climbs, and that a trial keeps within its limits."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import msgspec
import pytest

from tests.choice import one_in
from tests.fuzz.__main__ import main
from tests.fuzz.costs import family, page, trial
from tests.fuzz.costs.climb import LEAST_SIZE, MAX_MEMORY, MAX_MICROSECONDS, Climb, climb, is_excess
from tests.fuzz.costs.family import Results, keep, replay, run
from tests.fuzz.costs.pairs import PAIRS, Pair, Quantity
from tests.fuzz.costs.trial import OUTPUTS, Base, Cost, Trial

SIZE = 20_000


def cost(seconds: float = 1.0, rss: int = 1_000_000, *, size: int = 1 << 20, code: int = 0) -> Cost:
    return Cost(size, seconds, rss, code)


def made_of(data: bytes) -> dict[str, int]:
    """What a made pair says of itself."""
    return msgspec.json.decode(data)


HILL = Pair(
    "gaps-outstanding",
    lambda size, *values: msgspec.json.encode(dict(zip("ab", values, strict=True))),
    (Quantity("a", 1, 10_000), Quantity("b", 1, 10_000)),
)


def measured(output: str, data: bytes) -> Cost:
    """Time where both are high, to one output; memory where `a` is, and `b` is not."""
    made = made_of(data)
    seconds = made["a"] * made["b"] / 1e8 if output == "stats" else 0.0
    return cost(seconds, round(1e6 * made["a"] / made["b"]))


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_made(name: str) -> None:
    """A capture of about the size that was asked for, the same again, another with other numbers."""
    pair = PAIRS[name]
    ends = [(one.low, min(one.high, max(one.low, 300))) for one in pair.quantities]
    found = set()
    for values in itertools.product(*ends):
        data = pair.make(SIZE, *values)
        assert data == pair.make(SIZE, *values)
        assert 0.8 * SIZE < len(data) < 4 * SIZE
        assert data[:4] in {b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a"}
        found.add(data)
    assert len(found) > 1


@pytest.mark.parametrize("name", one_in(4, list(PAIRS)))
def test_the_highest_numbers_do_not_make_more(name: str) -> None:
    pair = PAIRS[name]
    data = pair.make(1 << 18, *(one.high for one in pair.quantities))
    assert 0.8 < len(data) / (1 << 18) < 4


def test_a_climb_comes_to_the_top() -> None:
    found = climb(HILL, Climb(1, trials=250), measured, clock=lambda: 0.0)
    assert (found.seconds.output, found.seconds.values) == ("stats", (10_000, 10_000))
    assert found.memory.values == (10_000, 1)
    assert found.trials <= 250
    assert found == climb(HILL, Climb(1, trials=250), measured, clock=lambda: 0.0)
    assert found != climb(HILL, Climb(1, trials=20, seed=2), measured, clock=lambda: 0.0)


def test_a_climb_begins_with_what_was_worst() -> None:
    before = climb(HILL, Climb(1, trials=60), measured, clock=lambda: 0.0)
    tried: list[tuple[str, bytes]] = []

    def noted(output: str, data: bytes) -> Cost:
        tried.append((output, data))
        return measured(output, data)

    climb(HILL, Climb(1, trials=3), noted, before, clock=lambda: 0.0)
    firsts = [(one.output, HILL.make(0, *one.values)) for one in (before.seconds, before.memory)]
    assert tried[:2] == firsts
    assert len(tried) == 3


def test_a_climb_ends_in_time() -> None:
    ticks = itertools.count()
    assert climb(HILL, Climb(5), measured, clock=lambda: float(next(ticks))).trials == 5
    assert climb(HILL, Climb(0), measured, clock=lambda: 0.0).trials == 1


@pytest.mark.parametrize(
    ("one", "over"),
    [
        (cost(MAX_MICROSECONDS * 1.0, int(MAX_MEMORY * (1 << 20))), False),
        (cost(MAX_MICROSECONDS * 1.1), True),
        (cost(1.0, int(MAX_MEMORY * 1.1) << 20), True),
        (cost(MAX_MICROSECONDS * 1.0, size=1_000), False),
        (cost(code=-signal.SIGXCPU), True),
        (cost(code=70), True),
        (cost(code=1), False),
    ],
)
def test_what_is_beyond_the_bounds(one: Cost, over: bool) -> None:
    assert LEAST_SIZE == 1 << 20
    assert is_excess(Trial("gaps-outstanding", (1,), "json", one)) is over


@pytest.mark.parametrize(
    ("one", "over"),
    [
        (cost(MAX_MICROSECONDS * 0.26, size=16 << 10), False),
        (cost(MAX_MICROSECONDS * 0.27, size=16 << 10), True),
        (cost(rss=1 << 30, size=16 << 10), False),
        (cost(rss=(1 << 30) + 1, size=16 << 10), True),
        (cost(code=-24, size=16 << 10), True),
    ],
)
def test_what_expands_is_bounded_too(one: Cost, over: bool) -> None:
    """A quarter of the time that a megabyte may take, and its memory."""
    assert is_excess(Trial("ratio-messages", (1,), "json", one)) is over


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_trial(output: str) -> None:
    """The commands are there, and take next to nothing of next to nothing."""
    found = trial.run(PAIRS["connections-overhead"].make(2_000, 1, 3), output)
    assert found.code in {0, 1}  # check has findings or none
    assert 0.05 < found.seconds < trial.CPU_SECONDS
    assert 20e6 < found.rss < 500e6


def test_a_trial_that_goes_too_far_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds of work: starting takes part of the one that it may have.
    data = PAIRS["ratio-messages"].make(50_000, 1414, 3162, 4, 32)
    found = trial.run(data, "json", Base(0.2, 0), cpu_seconds=1)
    assert (found.code, found.broken) == (-signal.SIGXCPU, True)
    # The system samples CPU time for the limit, so a busy machine ends it early.
    assert 0.2 < found.seconds < 10
    monkeypatch.setattr(trial, "ADDRESS_SPACE", 64 << 20)
    assert trial.run(data, "json").code != 0


def test_a_run_keeps_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def bad(output: str, data: bytes) -> Cost:
        return cost(MAX_MICROSECONDS * 1.5 if output == "export" else 1.0, size=len(data))

    folder = tmp_path / "costs"
    pairs = [PAIRS["packets-tunnels"], PAIRS["gaps-outstanding"]]
    assert not run(folder, Climb(1e9, size=SIZE, trials=8), pairs, measure=bad)
    said = capsys.readouterr().out
    assert said.count("beyond the bounds: packets-tunnels depth=") == 1
    assert "to export" in said
    found = Results.read(folder).found
    assert set(found) == {pair.name for pair in pairs}
    assert found["packets-tunnels"].seconds.output == "export"
    assert found["packets-tunnels"].growth == pytest.approx(1.0)
    (kept,) = [path for path in folder.glob("crash-*") if b"tunnels" in path.read_bytes()]
    assert not replay(kept, bad)
    assert replay(kept, lambda _output, data: cost(1.0, size=len(data)))
    # The next run measures anew, so that what was mended does not stay.
    assert run(folder, Climb(1e9, size=SIZE, trials=8), pairs, measure=lambda _, data: cost(1.0, size=len(data)))
    again = Results.read(folder).found["packets-tunnels"]
    assert again.seconds.cost.seconds == 1.0
    assert again.trials == 16


def test_a_run_that_is_asked_to_end(tmp_path: Path) -> None:
    asked = iter([False, False, True, True])
    made = lambda _, data: cost(1.0, size=len(data))  # noqa: E731
    assert run(tmp_path, Climb(1e9, size=SIZE), ended=lambda: next(asked), measure=made)
    assert len(Results.read(tmp_path).found) == 1


def test_the_table(tmp_path: Path) -> None:
    def found(seconds: float, code: int = 0) -> family.Found:
        one = Trial("packets-tunnels", (3, 1_400), "stats", cost(seconds, 50 << 20, code=code))
        return family.Found(one, one, 2.0)

    path = tmp_path / "page.md"
    path.write_text("# Page\n\n<!-- costs: begin -->\nold\n<!-- costs: end -->\n\n## Next\n")
    page.write(Results({"packets-tunnels": found(20.0, -24)}), path)
    text = path.read_text()
    assert "| `packets-tunnels` | 19.07 (ended) | stats | 2.0× | 50 (ended) | stats |" in text
    assert text.startswith("# Page\n")
    assert text.endswith("## Next\n")
    assert "old" not in text


def test_the_results_from_before_are_of_these_pairs() -> None:
    before = Results.of_file(family.BEFORE).found
    assert set(before) == set(PAIRS)
    for name, found in before.items():
        for one in (found.seconds, found.memory):
            bounds = PAIRS[name].quantities
            assert all(at.low <= value <= at.high for at, value in zip(bounds, one.values, strict=True))
            assert one.output in OUTPUTS


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    one = Trial("packets-tunnels", (0, 10), "stats", cost(size=5_000))
    path = keep(tmp_path, one)
    assert main(["costs", "--input", str(path)]) == 0
    assert "packets-tunnels depth=0, length=10 to stats: " in capsys.readouterr().err
    plans: list[Climb] = []
    monkeypatch.setattr(family, "run", lambda _folder, plan, **_: plans.append(plan) is None)
    assert main(["costs", "--folder", str(tmp_path), "--seconds", "46", "--seed", "5"]) == 0
    assert [(plan.seconds, plan.seed) for plan in plans] == [(46 / len(PAIRS), 5)]
    assert main(["costs", "--folder", str(tmp_path), "--tally"]) == 0
    assert capsys.readouterr().out.startswith("| pair | most µs/byte |")
