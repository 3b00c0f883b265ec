"""A run of the family: of each pair, the numbers and the command that take most CPU time, and those of most memory."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from benchmarks.pages import table, write_section
from tests.fuzz.costs import NAME
from tests.fuzz.costs.pairs import PAIRS, Pair
from tests.fuzz.costs.trial import OUTPUTS, Base, Cost, Trial, base_of
from tests.fuzz.costs.trial import run as run_trial

SECONDS: Final = 1_800
"""CPU seconds of a run of all pairs."""
MAX_MICROSECONDS: Final = 36.0
"""CPU time that a byte of input may take, in µs. Healthy traffic takes 0.01 to 0.5. A byte may become 4 records and 16
headers (`records.record_list`), and `stats` looks at them twice."""
MAX_MEMORY: Final = 1024.0
"""Bytes of memory that a byte of input may take: one may become 4 records, of some 400 bytes each, until they are rows.
Far below the budget of `--memory` for a megabyte."""
LEAST_SIZE: Final = 1 << 20
"""Shorter inputs may take what one of this many bytes may."""
LEAST_EXPANDING: Final = 1 << 18
"""The same for the time of inputs that a codec makes far more of: they may take a quarter of what a megabyte may."""
LEAST_SECONDS: Final = 0.5
"""CPU seconds below which a ratio of two times means little."""
MAX_TRIALS: Final = 1_000
MAX_IDLE: Final = 50
"""Consecutive steps to inputs tried before that end a search: all neighbours were tried."""
FACTORS: Final = (2, 2, 4, 16)
"""How far a number goes at once."""
PAGE: Final = Path(__file__).resolve().parents[3] / "benchmarks" / "COSTS.md"
HEAD: Final = ("pair", "most µs/byte", "with", "twice the input", "most bytes/byte", "with")

Measure = Callable[[str, bytes], Cost]
Point = tuple[tuple[int, ...], str]


class Found(msgspec.Struct):
    """The most that inputs of a pair took."""

    seconds: Trial
    """By CPU time for each byte."""
    memory: Trial
    """By memory for each byte."""
    growth: float | None = None
    """CPU time of the first over that of half of it: 2 where work is linear; None where it is too short to say."""
    trials: int = 0


class Plan(NamedTuple):
    """What a climb is to do."""

    seconds: float
    """CPU time of this process and of the trials, for each pair; the current trial always runs to its end."""
    size: int = 1 << 20
    seed: int = 1
    trials: int = MAX_TRIALS
    """At most, for each pair."""


def is_excess(trial: Trial) -> bool:
    """Whether a trial took more than inputs of its length may, or ended otherwise than by itself."""
    cost = trial.cost
    size = max(cost.size, LEAST_SIZE)
    timed = max(cost.size, LEAST_EXPANDING) if PAIRS[trial.pair].expands > 1 else size
    return cost.broken or cost.seconds * 1e6 > MAX_MICROSECONDS * timed or cost.rss > MAX_MEMORY * size


def measured() -> Measure:
    """The cost of a command over a capture, without that of an empty one."""
    bases: dict[str, Base] = {}

    def measure(output: str, data: bytes) -> Cost:
        if output not in bases:
            bases[output] = base_of(output)
        return run_trial(data, output, bases[output])

    return measure


def spent() -> float:
    """CPU seconds of this process and of those that it waited for, which others on the machine do not add to."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def climb(pair: Pair, plan: Plan, measure: Measure, clock: Callable[[], float] = spent) -> Found:
    """Try what was worst before with each output, then what is near the worst so far.

    Every other step goes from the trial that took most CPU time, every other from that of most memory. With the same
    plan the same trials are made, as far as there is time and their costs are in the same order.
    """
    dice = random.Random(f"{plan.seed}-{pair.name}")
    end = clock() + plan.seconds
    found: Found | None = None
    seen: set[Point] = set()
    idle = 0
    points = [(pair.worst, output) for output in OUTPUTS]
    for step in itertools.count():
        if step < len(points) or found is None:
            point = points[step]
        else:
            point = _near(pair, found.memory if step % 2 else found.seconds, dice)
        idle = idle + 1 if point in seen else 0
        if point not in seen:
            seen.add(point)
            values, output = point
            data = pair.make(plan.size // pair.expands, *values)
            trial = Trial(pair.name, values, output, measure(output, data))
            found = found or Found(trial, trial)
            found.seconds = max(found.seconds, trial, key=lambda one: one.cost.microseconds)
            found.memory = max(found.memory, trial, key=lambda one: one.cost.memory)
            found.trials += 1
        if found is not None and (clock() >= end or found.trials >= plan.trials or idle >= MAX_IDLE):
            return found
    raise AssertionError


def _near(pair: Pair, best: Trial, dice: random.Random) -> Point:
    """One number, or the output, is another."""
    values = list(best.values)
    at = dice.randrange(len(values) + 1)
    if at == len(values):
        return best.values, dice.choice(tuple(OUTPUTS))
    one = pair.quantities[at]
    factor = dice.choice(FACTORS)
    if one.high - one.low <= 8:
        values[at] = dice.randint(one.low, one.high)
    else:
        other = max(values[at], 1) * factor if dice.random() < 0.5 else values[at] // factor
        values[at] = max(one.low, min(other, one.high))
    return tuple(values), best.output


def run(options: argparse.Namespace, *, ended: Callable[[], bool]) -> bool:
    """Climb in all pairs as the options of `tests.fuzz` say; whether nothing was found beyond the bounds."""
    seconds = (options.seconds or SECONDS) / len(PAIRS)
    plan = Plan(seconds, seed=options.seed, trials=options.executions or MAX_TRIALS)
    found, sound = search(options.folder / NAME, plan, ended=ended)
    if options.table:
        write_section("costs", section(found), PAGE)
    return sound


def search(
    folder: Path,
    plan: Plan,
    pairs: Sequence[Pair] = tuple(PAIRS.values()),
    *,
    ended: Callable[[], bool] = lambda: False,
    measure: Measure | None = None,
) -> tuple[dict[str, Found], bool]:
    """Climb in each pair: what was found, and whether nothing of it is beyond the bounds.

    `ended` is asked between trials. A trial beyond the bounds is written into the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    measure = measure or measured()
    results: dict[str, Found] = {}
    sound = True
    for pair in pairs:
        if ended():
            break
        begin = time.monotonic()
        found = results[pair.name] = climb(pair, plan, measure, lambda: math.inf if ended() else spent())
        found.growth = _growth(pair, found.seconds, measure)
        print(
            f"{pair.name:<24}{found.trials:>4} trials {time.monotonic() - begin:>4.0f} s "
            f"{found.seconds.cost.microseconds:>9.2f} µs/byte {found.memory.cost.memory:>9.1f} bytes/byte",
            flush=True,
        )
        for trial in dict.fromkeys((found.seconds, found.memory)):
            if is_excess(trial):
                sound = False
                content = msgspec.json.encode(trial)
                path = folder / f"crash-{hashlib.sha1(content).hexdigest()}"
                path.write_bytes(content + b"\n")
                print(f"  beyond the bounds: {said(trial)}; kept in {path}", flush=True)
    return results, sound


def _growth(pair: Pair, trial: Trial, measure: Measure) -> float | None:
    """CPU time of a trial over that of an input of half the size; None of what is too short, or was ended."""
    if trial.cost.broken:
        return None
    half = measure(trial.output, pair.make(trial.cost.size // 2, *trial.values))
    if half.seconds < LEAST_SECONDS or half.size > 0.7 * trial.cost.size:
        return None
    return trial.cost.seconds / half.seconds


def said(trial: Trial) -> str:
    """A trial in a line."""
    pair, cost = PAIRS[trial.pair], trial.cost
    values = ", ".join(f"{one.name}={value}" for one, value in zip(pair.quantities, trial.values, strict=True))
    how = f" (ended with {cost.code})" if cost.broken else ""
    taken = f"{cost.size:,} bytes took {cost.seconds:.1f} s of CPU and {cost.rss / 1e6:,.0f} MB{how}"
    return f"{trial.pair} {values} to {trial.output}: {taken}"


def replay(path: Path, measure: Measure | None = None) -> bool:
    """Run the trial of a file once more; whether it keeps within the bounds."""
    old = msgspec.json.decode(path.read_bytes(), type=Trial)
    data = PAIRS[old.pair].make(old.cost.size, *old.values)
    trial = msgspec.structs.replace(old, cost=(measure or measured())(old.output, data))
    print(said(trial), file=sys.stderr)
    return not is_excess(trial)


def section(found: dict[str, Found]) -> str:
    """The table of benchmarks/COSTS.md."""

    def ended(trial: Trial) -> str:
        return " (ended)" if trial.cost.broken else ""

    rows = [
        [
            f"`{name}`",
            f"{one.seconds.cost.microseconds:,.2f}{ended(one.seconds)}",
            one.seconds.output,
            f"{one.growth:.1f}×" if one.growth is not None else "",
            f"{one.memory.cost.memory:,.0f}{ended(one.memory)}",
            one.memory.output,
        ]
        for name, one in found.items()
    ]
    return table(HEAD, rows)
