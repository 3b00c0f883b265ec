"""A run of the family: each pair in turn, what is beyond the bounds kept in its folder, results beside it."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.fuzz.costs.climb import Climb, Found, Measure, climb, is_excess, measured, spent
from tests.fuzz.costs.pairs import PAIRS, Pair
from tests.fuzz.costs.trial import Trial

__all__ = ["BEFORE", "SECONDS", "Results", "replay", "run"]

SECONDS: Final = 1_800
"""CPU seconds of a run of all pairs."""
BEFORE: Final = Path(__file__).with_name("before.json")
"""The results before what was found was mended: where a climb begins that has none of its own."""


class Results(msgspec.Struct):
    """The worst of each pair, by its name."""

    found: dict[str, Found] = {}

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Those of a folder; none where nothing was run. Raises msgspec.DecodeError."""
        return cls.of_file(folder / "results.json")

    @classmethod
    def of_file(cls, path: Path) -> Results:
        """Those of a file; none where it is not there. Raises msgspec.DecodeError."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def add(self, pair: str, found: Found) -> None:
        """Keep the worst of the run that ended last, which began with those of the run before."""
        had = self.found.get(pair)
        self.found[pair] = msgspec.structs.replace(found, trials=found.trials + (had.trials if had else 0))

    def write(self, folder: Path) -> None:
        """A run that is killed leaves those before, whole."""
        aside = folder / "results.json.new"
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        aside.replace(folder / "results.json")


def run(
    folder: Path,
    plan: Climb,
    pairs: Sequence[Pair] = tuple(PAIRS.values()),
    *,
    ended: Callable[[], bool] = lambda: False,
    measure: Measure | None = None,
) -> bool:
    """Climb in each pair; whether nothing was found beyond the bounds. `ended` is asked between trials."""
    folder.mkdir(parents=True, exist_ok=True)
    measure = measure or measured({})
    results, before = Results.read(folder), Results.of_file(BEFORE)
    sound = True
    for pair in pairs:
        if ended():
            break
        begin = time.monotonic()
        had = results.found.get(pair.name) or before.found.get(pair.name)
        found = climb(pair, plan, measure, had, lambda: math.inf if ended() else spent())
        found.growth = _growth(pair, found.seconds, measure)
        results.add(pair.name, found)
        results.write(folder)
        slow, large = found.seconds.cost, found.memory.cost
        print(
            f"{pair.name:<24}{found.trials:>4} trials {time.monotonic() - begin:>4.0f} s "
            f"{slow.microseconds:>9.2f} µs/byte {large.memory:>9.1f} bytes/byte",
            flush=True,
        )
        for trial in found.excess:
            sound = False
            path = keep(folder, trial)
            print(f"  beyond the bounds: {said(trial)}; kept in {path}", flush=True)
    return sound


def said(trial: Trial) -> str:
    """A trial in a line."""
    pair = PAIRS[trial.pair]
    values = ", ".join(f"{one.name}={value}" for one, value in zip(pair.quantities, trial.values, strict=True))
    cost = trial.cost
    how = f" (ended with {cost.code})" if cost.broken else ""
    return (
        f"{trial.pair} {values} to {trial.output}: {cost.size:,} bytes took {cost.seconds:.1f} s of CPU and "
        f"{cost.rss / 1e6:,.0f} MB{how}"
    )


def keep(folder: Path, trial: Trial) -> Path:
    """Write down a trial that was beyond the bounds, by which it can be made again."""
    key = msgspec.json.encode((trial.pair, trial.values, trial.output, trial.cost.size))
    path = folder / f"crash-{hashlib.sha1(key).hexdigest()}"
    path.write_bytes(msgspec.json.encode(trial) + b"\n")
    return path


def replay(path: Path, measure: Measure | None = None) -> bool:
    """Run the trial of a file once more; whether it keeps within the bounds."""
    old = msgspec.json.decode(path.read_bytes(), type=Trial)
    data = PAIRS[old.pair].make(old.cost.size, *old.values)
    trial = msgspec.structs.replace(old, cost=(measure or measured({}))(old.output, data))
    print(said(trial), file=sys.stderr)
    return not is_excess(trial)


def _growth(pair: Pair, trial: Trial, measure: Measure) -> float | None:
    """CPU time of a trial over that of an input of half the size: 2 where work is linear, 4 where it is quadratic.

    None where that says nothing: of what is too short, or was ended by a limit.
    """
    if trial.cost.broken:
        return None
    half = measure(trial.output, pair.make(trial.cost.size // 2, *trial.values))
    if half.seconds < LEAST_SECONDS or half.size > 0.7 * trial.cost.size:
        return None
    return trial.cost.seconds / half.seconds


LEAST_SECONDS: Final = 0.5
"""CPU seconds below which a ratio of two times means little."""
