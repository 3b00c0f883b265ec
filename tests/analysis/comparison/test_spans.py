"""Spans of time: the same counts for any order of rows and batches."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from kafkasniff.analysis.comparison.spans import MAX_SPANS, SPAN, SideSpans, Spanned
from kafkasniff.analysis.partials import Shape

SHAPE = Shape(keys=(("name", pa.string()),), measures=(("count", pa.int64(), "sum"),), weight="count")


def counted(rows: list[tuple[int, str]], random: Random | None = None) -> tuple[SideSpans, Counter[tuple[int, str]]]:
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


@pytest.mark.parametrize("seed", range(6))
def test_order_and_batches_change_nothing(seed: int) -> None:
    random = Random(seed)
    start = random.choice([0, 1_795_000_000_000_000_000, -5_000_000_000])
    length = random.choice([1, 40, 10**6, 10**9, 3600 * 10**9])
    rows = [(start + random.randrange(length), random.choice("ab")) for _ in range(200)]
    spans, found = counted(rows)
    other, same = counted(rows, random)
    assert (spans.level, spans.start, spans.count) == (other.level, other.start, other.count)
    assert found == same == Counter((time >> spans.level, name) for time, name in rows)
    assert spans.count <= MAX_SPANS
    # Spans are no longer than needed.
    assert spans.level == 0 or spans.count > MAX_SPANS // 2 - 1


def test_seconds_add_up_to_the_time_between_first_and_last() -> None:
    spans = SideSpans()
    spans.take(np.array([10_500_000_000, 12_250_000_000], np.int64))
    seconds = spans.seconds()
    assert len(seconds) == spans.count
    assert seconds.sum() == pytest.approx(1.75)
    assert (seconds > 0).all()
    assert seconds[1:-1] == pytest.approx([(1 << spans.level) / 1e9] * (spans.count - 2))


def test_extreme_times() -> None:
    spans, found = counted([(-(2**63), "a"), (2**63 - 1, "b"), (0, "a")], Random(1))
    assert spans.count <= MAX_SPANS
    assert sum(found.values()) == 3
    assert len(found) == 3


def test_a_single_time_and_no_time() -> None:
    spans = SideSpans()
    assert (spans.count, len(spans.seconds())) == (0, 0)
    spans.take(np.array([], np.int64))
    assert spans.first is None
    spans.take(np.array([7, 7], np.int64))
    assert (spans.count, list(spans.seconds())) == (1, [0.0])
