"""The table of docs/fuzzing.md: of each pair the most that a byte took, before what was found was mended and now."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.results_page import write_section
from benchmarks.tables import table
from tests.fuzz.costs.family import Results
from tests.fuzz.costs.pairs import PAIRS
from tests.fuzz.costs.trial import Trial

__all__ = ["PAGE", "section", "write"]

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "fuzzing.md"

HEAD: Final = (
    *("pair", "most CPU time", "µs/byte before", "µs/byte now", "twice the input"),
    *("most memory", "bytes/byte before", "bytes/byte now"),
)


def section(before: Results, now: Results) -> str:
    """The table, in the order of the pairs; what was not run is empty."""
    rows = []
    for name in PAIRS:
        had, has = before.found.get(name), now.found.get(name)
        shown = has or had
        if shown is None:
            continue
        growth = f"{shown.growth:.1f}×" if shown.growth is not None else ""
        rows.append(
            [
                f"`{name}`",
                _inputs(shown.seconds),
                f"{had.seconds.cost.microseconds:,.2f}{_ended(had.seconds)}" if had else "",
                f"{has.seconds.cost.microseconds:,.2f}{_ended(has.seconds)}" if has else "",
                growth,
                _inputs(shown.memory),
                f"{had.memory.cost.memory:,.0f}{_ended(had.memory)}" if had else "",
                f"{has.memory.cost.memory:,.0f}{_ended(has.memory)}" if has else "",
            ]
        )
    return table(HEAD, rows)


def write(before: Results, now: Results, page: Path = PAGE) -> None:
    """Write the table into the page, between its marks."""
    write_section("costs", section(before, now), page)


def _inputs(trial: Trial) -> str:
    values = zip(PAIRS[trial.pair].quantities, trial.values, strict=True)
    return f"{trial.output}: " + ", ".join(f"{one.name} {value:,}" for one, value in values)


def _ended(trial: Trial) -> str:
    """A mark where a limit ended the command, so that it took more than the figure says."""
    return " (ended)" if trial.cost.broken else ""
