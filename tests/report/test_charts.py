"""Charts of a report, with their axes, series and labels, and the traffic that they show."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.analysis.detectors import Finding
from kafkasniff.report.charts import MAX_SERIES, OTHER, Chart, charts_of, labels_of, series_of
from tests.analysis.questions.test_rebalances import join
from tests.analysis.tables import Row, exchange, partition
from tests.report.test_page import contents


def drawn(*rows: Row) -> dict[str, list[Chart]]:
    return charts_of(contents(exchanges=list(rows)))


def test_nothing_to_show() -> None:
    assert set(map(len, charts_of(contents()).values())) == {0}
    found = drawn({**exchange("Metadata"), "time_ns": None, "time": None})
    assert found["timeline"] == found["traffic"] == []


def test_findings_are_aligned_with_the_exchanges_above() -> None:
    """Also those that begin before the first exchange, such as findings of connections."""
    whole = contents(exchanges=[exchange("Produce", second) for second in (10, 11, 17)])
    low = min(row["start"] for row in whole.traffic)
    finding = Finding(
        detector="crafted", severity="error", title="t", meaning="m", advice="a", subject={}, count=1,
        first=low - 3 * 10**9, last=low + 10**9, evidence=(),
    )  # fmt: skip
    (chart,) = charts_of(msgspec.structs.replace(whole, findings=[finding]))["timeline"]
    above, below = (re.findall(r"translate\(([\d.]+),15\)", picture) for picture in chart.pictures)
    assert above == below != []


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
