"""Which dates of a table have partitions of their own: a bounded number, whatever times packets claim.

Dates are counted after all rows are staged. So the order of rows, the process that staged them and an interruption of
the run do not affect the decision. The dates with the most rows get partitions: a few packets with wrong clocks cannot
displace the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

from kafkasniff.model import Problem
from kafkasniff.tables.rows import TABLE_NAMES
from kafkasniff.tables.rows.staged import UNDATED, day_of

__all__ = ["DATE_BOUND", "MAX_DATES", "TablePartitions", "partitioned"]

MAX_DATES: Final = 400
"""Dates of a table with a partition of their own in one run: those of a year. Each costs a file of at least 50 kB
and 10 ms, and a second one for rows that were unfinished when the captures ended, which are counted separately."""

DATE_BOUND: Final = "date-bound"

Days = Mapping[int, int]
"""Rows by day, which is numbered from 1970-01-01."""


def partitioned(days: Days) -> frozenset[int]:
    """The days that get a partition; all others share the partition of rows without a time, which always exists."""
    dated = [day for day in days if day != UNDATED]
    if len(dated) > MAX_DATES:
        dated.sort(key=lambda day: (-days[day], day))
    return frozenset(dated[:MAX_DATES])


class TablePartitions:
    """Decides for one table after the other, or repeats an earlier decision.

    `decided`: the days of each table, and `problems`, if they were counted elsewhere.
    """

    def __init__(self, decided: Mapping[str, frozenset[int]] | None = None, problems: Sequence[Problem] = ()) -> None:
        self._decided = decided
        self.days: dict[str, Days] = {}
        """Row counts by table."""
        self.problems = list(problems)
        """Reports of rows without a partition of their own; for the table `problems`, which comes last."""

    @classmethod
    def none(cls) -> Self:
        """For a consumer of a table's rows in one piece, regardless of their dates."""
        return cls(dict.fromkeys(TABLE_NAMES, frozenset()))

    def of(self, table: str, days: Days) -> frozenset[int]:
        """The days of a table that have a partition of their own; `days`: of all its rows."""
        self.days[table] = days
        if self._decided is not None:
            return self._decided[table]
        own = partitioned(days)
        moved = sorted(day for day in days if day not in own and day != UNDATED)
        if moved:
            rows = sum(days[day] for day in moved)
            self.problems.append(
                Problem(
                    DATE_BOUND,
                    f"{rows:,} rows of {table}, from {len(moved):,} dates between {day_of(moved[0])} and "
                    f"{day_of(moved[-1])}, are in the partition date={day_of(UNDATED)}: more than {MAX_DATES} dates "
                    "have rows, and those with the most are partitioned",
                )
            )
        return own
