"""The screen of a comparison: both sides, differing rows, and numbers in few characters."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.analysis.comparison.answer import (
    Change,
    Compared,
    ComparisonAnswer,
    LatencyDiff,
    Rate,
    Shift,
    VersionDiff,
)
from kafkasniff.cli.render.diff_text import diff_text

NOON = 1_795_003_200 * 10**9


def side(exchanges: int = 7) -> Compared:
    return Compared(NOON, NOON + 2 * 10**9, 2_000_000, exchanges, 5, 400_000)


def answer(**lists: Any) -> ComparisonAnswer:
    differences = {name: sum(row.differs for row in rows) for name, rows in lists.items()}
    return ComparisonAnswer(before=side(), after=side(1), differences=differences, notes=[], **lists)


def shown(found: ComparisonAnswer, *, top: int = 10, everything: bool = False, width: int = 160) -> list[str]:
    text = diff_text(found, ("a", "b\x1b"), top=top, everything=everything, width=width, coloured=False)
    return text.splitlines()


def version(api: str, before: list[int], after: list[int]) -> VersionDiff:
    return VersionDiff(api=api, before=before, after=after, differs=before != after)


def rows(found: ComparisonAnswer, name: str, **options: Any) -> list[list[str]]:
    """Cells of a table, without its heading."""
    lines = shown(found, **options)
    table = lines[lines.index(name) + 2 :]
    return (
        [line.split() for line in table[: table.index("")] if line] if "" in table else [line.split() for line in table]
    )


def test_only_rows_that_differ() -> None:
    found = answer(
        versions=[version("Fetch", [4], [4]), version("Produce", [3, 4, 5, 9], [9]), version("Old", [1], [])]
    )
    assert shown(found)[4] == "2 differences: 2 in versions"
    assert rows(found, "Versions") == [["Produce", "3-5,", "9", "→", "9"], ["Old", "gone", "1", "→", "-"]]
    assert [row[:2] for row in rows(found, "Versions", everything=True)] == [
        ["Fetch", "4"],
        ["*", "Produce"],
        ["*", "Old"],
    ]


def rate(before: float | None, after: float | None, change: float | None) -> str:
    row = Rate(api="X", before=1, after=1, per_second=Change(before, after, change, 0.01, True), differs=True)
    return " ".join(rows(answer(rates=[row]), "Rates")[0][4:])


@pytest.mark.parametrize(
    ("before", "after", "change", "text"),
    [
        (1.0, 2.0, 1.0, "1/s → 2/s (+100%)"),
        (0.123, 0.1, -0.187, "0.12/s → 0.1/s (-19%)"),
        (12.34, 1234.5, 99.0, "12.3/s → 1,234/s (100-fold)"),
        (0.0, 5.0, None, "0/s → 5/s (from 0)"),
        (None, 5.0, None, "- → 5/s (from 0)"),
    ],
)
def test_numbers(before: float | None, after: float | None, change: float | None, text: str) -> None:
    assert rate(before, after, change) == text


def latency(verdict: Any, **values: Any) -> LatencyDiff:
    shift = Shift(1000, 2000, 1.0, 1000.0, 900.0, 1100.0, True)
    fields: dict[str, Any] = {"slower": 0.9, "p": 0.0001, "tail_p": 0.02, "differs": True, **values}
    return LatencyDiff(api="Produce", before=10, after=10, verdict=verdict, p50=shift, p90=shift, p99=shift, **fields)


def test_latencies() -> None:
    (row,) = rows(answer(latency=[latency("slower")]), "Latency")
    assert " ".join(row) == (
        "Produce slower 1.00 → 2.00 ms (+100%) +900 µs to +1.10 ms 1.00 → 2.00 ms (+100%) 1.00 → 2.00 ms (+100%) "
        "90% <0.001"
    )
    (row,) = rows(answer(latency=[latency("slower-tail")]), "Latency")
    assert row[-1] == "0.020"
    (row,) = rows(answer(latency=[latency("unclear", slower=None, p=None, differs=True)]), "Latency")
    assert row[1:3] == ["too", "few"]
