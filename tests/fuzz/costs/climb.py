"""Hill climbing: of each pair, the numbers and the output that take most CPU time, and those that take most memory."""

from __future__ import annotations

import itertools
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from tests.fuzz.costs.pairs import PAIRS, Pair, Quantity
from tests.fuzz.costs.trial import OUTPUTS, Base, Cost, Trial, base_of, run

__all__ = [
    "MAX_MEMORY",
    "MAX_MICROSECONDS",
    "MAX_TRIALS",
    "Climb",
    "Found",
    "Measure",
    "climb",
    "is_excess",
    "measured",
    "spent",
]

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

SHARES: Final = (0.0, 0.3, 0.6, 0.8, 1.0)
"""How far between their ends numbers are at first."""

MAX_TRIALS: Final = 1_000
MAX_IDLE: Final = 50
"""Consecutive steps to inputs tried before that end a search: all neighbours were tried."""

FACTORS: Final = (2, 2, 4, 16)
"""How far a number goes at once."""


class Found(msgspec.Struct):
    """The most that inputs of a pair took."""

    seconds: Trial
    """By CPU time for each byte."""
    memory: Trial
    """By memory for each byte."""
    growth: float | None = None
    """CPU time of the first over that of half of it; None where it is too short to say."""
    trials: int = 0

    @property
    def excess(self) -> list[Trial]:
        """Those beyond the bounds, or that ended otherwise than by themselves."""
        return [trial for trial in dict.fromkeys((self.seconds, self.memory)) if is_excess(trial)]


def is_excess(trial: Trial) -> bool:
    """Whether a trial took more than inputs of its length may, or ended otherwise than by itself."""
    cost = trial.cost
    size = max(cost.size, LEAST_SIZE)
    timed = size
    if trial.pair in PAIRS and PAIRS[trial.pair].expands > 1:
        timed = max(cost.size, LEAST_EXPANDING)
    return cost.broken or cost.seconds * 1e6 > MAX_MICROSECONDS * timed or cost.rss > MAX_MEMORY * size


class Climb(NamedTuple):
    """What a climb is to do."""

    seconds: float
    """CPU time of this process and of the trials, for each pair; the current trial always runs to its end."""
    size: int = 1 << 20
    seed: int = 1
    outputs: Sequence[str] = tuple(OUTPUTS)
    trials: int = MAX_TRIALS
    """At most, for each pair."""


Measure = Callable[[str, bytes], Cost]


def measured(bases: dict[str, Base]) -> Measure:
    """`run` with the base of each output, which is looked at once."""

    def measure(output: str, data: bytes) -> Cost:
        if output not in bases:
            bases[output] = base_of(output)
        return run(data, output, bases[output])

    return measure


def spent() -> float:
    """CPU seconds of this process and of those that it waited for, which others on the machine do not add to."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def climb(
    pair: Pair, plan: Climb, measure: Measure, had: Found | None = None, clock: Callable[[], float] = spent
) -> Found:
    """Try what was worst so far, points all over with the outputs in turn, then what is near the worst.

    Every other step goes from the trial that took most CPU time, every other from that of most memory. With the same
    plan and `had` the same trials are made, as far as there is time and their costs are in the same order.
    """
    count = had.trials if had is not None else 0
    dice = random.Random(f"{plan.seed}-{pair.name}-{count}")
    end = clock() + plan.seconds
    walk = _Walk(pair, plan, measure)
    for values, output in (*_before(had), *_corners(pair, plan, dice)):
        found = walk.take(values, output)
        if clock() >= end or found.trials >= plan.trials:
            return found
    idle = 0
    for step in itertools.count():
        if clock() >= end or found.trials >= plan.trials or idle >= MAX_IDLE:
            break
        trials = found.trials
        found = walk.take(*_near(pair, found.memory if step % 2 else found.seconds, plan, dice))
        idle = idle + 1 if found.trials == trials else 0
    return found


def _before(had: Found | None) -> list[tuple[tuple[int, ...], str]]:
    """The trials that were worst in a run before; they are made anew, since the code may be another."""
    return [(trial.values, trial.output) for trial in (had.seconds, had.memory)] if had is not None else []


def _corners(pair: Pair, plan: Climb, dice: random.Random) -> Iterator[tuple[tuple[int, ...], str]]:
    """The middle (of the logarithms), then points all over, each with the next output."""
    outputs = list(plan.outputs)
    dice.shuffle(outputs)
    yield tuple(_between(one, 0.5) for one in pair.quantities), outputs[0]
    for number in range(1, 1 + len(outputs)):
        values = tuple(_between(one, dice.choice(SHARES)) for one in pair.quantities)
        yield values, outputs[number % len(outputs)]


def _between(one: Quantity, share: float) -> int:
    """The number that lies so far between the ends, 0 to 1, by its logarithm."""
    low, high = one.low + 1, one.high + 1
    return _clamped(round(low * (high / low) ** share) - 1, one.low, one.high)


def _near(pair: Pair, best: Trial, plan: Climb, dice: random.Random) -> tuple[tuple[int, ...], str]:
    """One number, or the output, is another."""
    values = list(best.values)
    at = dice.randrange(len(values) + 1)
    if at == len(values):
        return best.values, dice.choice(plan.outputs)
    one = pair.quantities[at]
    if one.high - one.low <= 8:
        values[at] = dice.randint(one.low, one.high)
    else:
        factor = dice.choice(FACTORS)
        values[at] = _clamped(
            max(values[at], 1) * factor if dice.random() < 0.5 else values[at] // factor, one.low, one.high
        )
    return tuple(values), best.output


class _Walk:
    """The trials of a climb, each made once."""

    def __init__(self, pair: Pair, plan: Climb, measure: Measure) -> None:
        self._pair = pair
        self._plan = plan
        self._measure = measure
        self._seen: set[tuple[tuple[int, ...], str]] = set()
        self._found: Found | None = None

    def take(self, values: tuple[int, ...], output: str) -> Found:
        """Make a trial, if it was not made; what is worst so far."""
        if (values, output) not in self._seen or self._found is None:
            self._seen.add((values, output))
            data = self._pair.make(self._plan.size // self._pair.expands, *values)
            trial = Trial(self._pair.name, values, output, self._measure(output, data))
            self._found = self._found or Found(trial, trial)
            if trial.cost.microseconds > self._found.seconds.cost.microseconds:
                self._found.seconds = trial
            if trial.cost.memory > self._found.memory.cost.memory:
                self._found.memory = trial
            self._found.trials = len(self._seen)
        return self._found


def _clamped(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))
