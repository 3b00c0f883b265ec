"""The table of benchmarks/COSTS.md: for each pair, the highest cost of a byte in time and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.results_page import write_section
from benchmarks.tables import table
from tests.fuzz.costs.family import Results
from tests.fuzz.costs.pairs import PAIRS
from tests.fuzz.costs.trial import Trial

__all__ = ["PAGE", "section", "write"]

PAGE: Final = Path(__file__).resolve().parents[3] / "benchmarks" / "COSTS.md"

HEAD: Final = ("pair", "most µs/byte", "with", "twice the input", "most bytes/byte", "with")


def section(results: Results) -> str:
    """The table, in the order of the pairs; those that were not run are missing."""
    rows = []
    for name in PAIRS:
        found = results.found.get(name)
        if found is None:
            continue
        rows.append(
            [
                f"`{name}`",
                f"{found.seconds.cost.microseconds:,.2f}{_ended(found.seconds)}",
                found.seconds.output,
                f"{found.growth:.1f}×" if found.growth is not None else "",
                f"{found.memory.cost.memory:,.0f}{_ended(found.memory)}",
                found.memory.output,
            ]
        )
    return table(HEAD, rows)


def write(results: Results, page: Path = PAGE) -> None:
    """Write the table into the page, between its marks."""
    write_section("costs", section(results), page)


def _ended(trial: Trial) -> str:
    """A mark where a limit ended the command, so that it took more than the figure says."""
    return " (ended)" if trial.cost.broken else ""
