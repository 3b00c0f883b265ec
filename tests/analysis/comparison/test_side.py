"""One side of a comparison: what its rows count as, in spans of time that are the same for any order of rows."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkasniff.analysis.comparison import side as module
from kafkasniff.analysis.comparison.side import MAX_SPANS, SPAN, Side, SideSpans, Spanned
from kafkasniff.analysis.partials import Shape
from tests.analysis.comparison.traffic import side
from tests.analysis.tables import Row, batch_of, exchange, partition


def counted(*rows: Row) -> Side:
    return side(batch_of(rows))


def totals(sums: Any) -> dict[str, int]:
    return {name: int(values.sum()) for name, values in sums.items()}


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 exchange without a time is"), (3, "3 exchanges without a time are")]
)
def test_exchanges_without_a_time_are_noted(count: int, said: str) -> None:
    timeless = exchange("Metadata", api_version=9, time=None, time_ns=None)
    made = counted(exchange("Metadata", api_version=9), *[timeless] * count)
    assert made.timeless == count
    assert made.notes() == [f"{said} not included in rates, latencies and shares"]
    assert totals(made.apis()["Metadata"])["exchanges"] == 1
    assert made.versions() == {"Metadata": {9: 1 + count}}, "versions need no time"


def test_the_smallest_rows_are_dropped_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 8)
    made = Side()
    for topic in range(40):
        made.update(batch_of([exchange("Produce", partitions=[partition(f"topic-{topic}", bytes=1)])]))
    assert any(note.startswith("topics: the smallest ones were dropped") for note in made.notes())
    assert len(made.topics()) <= 8


SHAPE = Shape(keys=(("name", pa.string()),), measures=(("count", pa.int64(), "sum"),), weight="count")


def placed(rows: list[tuple[int, str]], random: Random | None = None) -> tuple[SideSpans, Counter[tuple[int, str]]]:
    spans = SideSpans()
    part = Spanned(spans, SHAPE)
    rest = list(rows) if random is None else random.sample(rows, len(rows))
    while rest:
        size = len(rest) if random is None else random.randrange(1, 9)
        times = np.array([time for time, _ in rest[:size]], np.int64)
        spans.take(times)
        part.add(times, {"name": [name for _, name in rest[:size]], "count": [1] * len(times)})
        del rest[:size]
    found: Counter[tuple[int, str]] = Counter()
    for row in part.table().to_pylist():
        found[(row[SPAN], row["name"])] += row["count"]
    return spans, found


@pytest.mark.parametrize("seed", range(4))
def test_spans_are_the_same_for_any_order(seed: int) -> None:
    random = Random(seed)
    start = random.choice([0, 1_795_000_000_000_000_000, -5_000_000_000])
    length = random.choice([1, 40, 10**6, 10**9, 3600 * 10**9])
    rows = [(start + random.randrange(length), random.choice("ab")) for _ in range(200)]
    spans, found = placed(rows)
    other, same = placed(rows, random)
    assert (spans.level, spans.start, spans.count) == (other.level, other.start, other.count)
    assert found == same == Counter((time >> spans.level, name) for time, name in rows)
    assert spans.count <= MAX_SPANS
    # Spans are no longer than needed.
    assert spans.level == 0 or spans.count > MAX_SPANS // 2 - 1


def test_extreme_times() -> None:
    spans, found = placed([(-(2**63), "a"), (2**63 - 1, "b"), (0, "a")], Random(1))
    assert spans.count <= MAX_SPANS
    assert sum(found.values()) == 3
    assert len(found) == 3
