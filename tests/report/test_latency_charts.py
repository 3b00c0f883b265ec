"""Charts of latencies: logarithmic axes that hold all values, and what bars say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.report.latency_charts import latency_histogram, latency_over_time, latency_ranges
from kafkasniff.report.traffic import EDGES
from tests.report.test_drawing import NOON, axis

latencies = st.integers(0, 10**8)


def span(p50: int, p99: int) -> dict[str, Any]:
    return {"start": NOON, "p50": p50, "p90": p99, "p99": p99, "high": p99, "count": 1234}


@given(st.lists(st.tuples(latencies, latencies).map(sorted), min_size=1, max_size=5))
def test_every_span_lies_on_the_axis(found: list[list[int]]) -> None:
    drawing = latency_over_time(axis(NOON), [span(*one) for one in found])
    assert drawing is not None
    low, high = drawing.spec["encoding"]["y"]["scale"]["domain"]
    assert high >= 10 * low
    for row in drawing.spec["data"]["values"]:
        # A logarithmic axis has no 0, and a bar without height would be invisible.
        assert low <= row["p50"] < row["p99"]
        assert row["p99"] <= 1.08 * high


def test_nothing_to_draw() -> None:
    assert latency_over_time(axis(NOON), []) is None
    assert latency_histogram([0] * (len(EDGES) + 1)) is None
    assert latency_ranges(contents([])) is None


@given(st.lists(st.integers(0, 1000), min_size=len(EDGES) + 1, max_size=len(EDGES) + 1))
def test_a_histogram_shows_every_count(counts: list[int]) -> None:
    drawing = latency_histogram(counts)
    if not any(counts):
        assert drawing is None
        return
    assert drawing is not None
    rows = drawing.spec["data"]["values"]
    assert [row["y2"] for row in rows] == [count for count in counts if count]
    low, high = drawing.spec["encoding"]["x"]["scale"]["domain"]
    assert all(low <= row["x"] < row["x2"] <= high for row in rows)


@pytest.mark.parametrize(
    ("place", "caption"),
    [(0, "below 1.00 µs: 4 (100%)"), (1, "1.00 µs to 2.00 µs: 4 (100%)"), (len(EDGES), "500 s or more: 4 (100%)")],
)
def test_captions_of_a_histogram(place: int, caption: str) -> None:
    counts = [0] * (len(EDGES) + 1)
    counts[place] = 4
    drawing = latency_histogram(counts)
    assert drawing is not None
    assert drawing.spec["data"]["values"][0]["caption"] == caption


def contents(apis: list[tuple[str | None, int | None]], spans: list[dict[str, Any]] | None = None) -> Any:
    rows = [
        SimpleNamespace(
            api=name,
            latency=None
            if p50 is None
            else SimpleNamespace(p50_us=p50, p90_us=2 * p50, p99_us=3 * p50, max_us=4 * p50, count=10),
        )
        for name, p50 in apis
    ]
    return SimpleNamespace(answer=SimpleNamespace(apis=rows), latencies=spans or [])
