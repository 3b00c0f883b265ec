"""Axes, series and labels of charts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.report.drawing import (
    MAX_SERIES,
    OTHER,
    TimeAxis,
    labels_of,
    series_of,
)

SECOND, DAY = 10**9, 86_400 * 10**9
NOON = 1_795_003_200 * SECOND


def axis(*starts: int | None, width: int = SECOND) -> TimeAxis:
    contents: Any = SimpleNamespace(traffic=[{"start": start} for start in starts], width=width, findings=[])
    return TimeAxis(contents)


def test_labels_are_as_precise_as_the_axis_is_long() -> None:
    forms = ("%H:%M:%S.%L", "%H:%M:%S", "%H:%M", "%m-%d %H:%M", "%m-%d")
    for length, form in zip((5 * SECOND, 60 * SECOND, 3600 * SECOND, 2 * DAY, 9 * DAY), forms, strict=True):
        assert axis(NOON, NOON + length - SECOND).encoding()["axis"]["format"] == form


@given(st.lists(st.none() | st.text(max_size=40), max_size=12), st.integers(8, 40))
def test_labels_are_unique_and_safe(names: list[str | None], width: int) -> None:
    found = labels_of([*names, "x" * 50 + "a", "x" * 50 + "b"], width)
    assert len(set(found.values())) == len(found)
    assert all(label.isprintable() for label in found.values())


values = st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abcdefghijkl"), st.integers(0, 9)), max_size=40)


@given(values)
def test_series_keep_every_value(rows: list[tuple[int, str, int]]) -> None:
    found, names = series_of(rows)
    assert sum(sum(row.values()) for row in found.values()) == sum(number for *_, number in rows)
    for place, row in found.items():
        assert sum(row.values()) == sum(number for at, _, number in rows if at == place)
        assert set(row) <= set(names)
    sums = {name: sum(number for _, one, number in rows if one == name) for name in "abcdefghijkl"}
    ranked = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))
    if len(ranked) <= MAX_SERIES + 1:
        assert names == ranked
    else:
        assert names == [*ranked[:MAX_SERIES], OTHER]
