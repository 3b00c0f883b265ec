"""Charts of a report, with their axes, series and labels, and the traffic that they show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.report.charts import (
    MAX_SERIES,
    OTHER,
    Chart,
    charts_of,
    labels_of,
    series_of,
)
from kafkasniff.report.traffic import EDGES, LatenciesOverTime
from tests.analysis.questions.test_rebalances import join
from tests.analysis.tables import Row, batch_of, exchange, partition
from tests.report.test_page import contents


def drawn(*rows: Row) -> dict[str, list[Chart]]:
    return charts_of(contents(exchanges=list(rows)))


def test_nothing_to_show() -> None:
    assert set(map(len, charts_of(contents()).values())) == {0}
    found = drawn({**exchange("Metadata"), "time_ns": None, "time": None})
    assert found["timeline"] == found["traffic"] == []


def test_hostile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a chart's specification; `test_svg` shows that drawing it keeps them harmless."""
    evil = "<script>alert(1)</script>\x1b"
    parts = [partition(evil, bytes=5, record_count=1)]
    for found in drawn(exchange("Produce", client_id=evil, partitions=parts), join(1, evil, 1, [evil])).values():
        for chart in found:
            for picture in chart.pictures:
                assert "<script" not in picture
                assert "\x1b" not in picture


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


def rows() -> list[Row]:
    found = [exchange("Produce", second / 7, latency_us=100 * second, api_version=9) for second in range(1, 200)]
    found += [
        exchange("Fetch", 300 + second, error_count=2, error_code=3,
                 partitions=[partition(error_code=3), partition(number=1, error_code=6)])
        for second in range(3)
    ]  # fmt: skip
    found.append({**exchange("Metadata"), "time_ns": None, "time": None})
    found.append(exchange("Produce", 150, status="open", response_size=None, latency_us=None))
    return found


def test_latencies_by_span_and_over_all() -> None:
    counted = LatenciesOverTime()
    counted.update(batch_of([exchange("Produce", 0, latency_us=value) for value in (1, 3, 150, 150, 10**9)]))
    (row,) = counted.result().to_pylist()
    assert (row["count"], row["low"], row["high"], row["p50"]) == (5, 1, 10**9, 150)
    (found,) = counted.histograms(["Produce"]).values()
    assert len(found) == len(EDGES) + 1
    assert sum(found) == 5
    # Between 1 and 2, 2 and 5, 100 and 200 microseconds, and beyond the last edge.
    assert {place: number for place, number in enumerate(found) if number} == {1: 1, 2: 1, 7: 2, len(EDGES): 1}
