"""Charts of a report: which there are, and that bars have the sizes of their rows."""

from __future__ import annotations

import pytest

from kafkasniff.report import charts
from kafkasniff.report.charts import Chart, charts_of
from tests.analysis.questions.test_rebalances import join, leave
from tests.analysis.tables import Row, exchange, partition
from tests.report.test_page import contents


def drawn(*rows: Row) -> dict[str, list[Chart]]:
    return charts_of(contents(exchanges=list(rows)))


def test_nothing_to_show() -> None:
    assert set(map(len, charts_of(contents()).values())) == {0}
    found = drawn({**exchange("Metadata"), "time_ns": None, "time": None})
    assert found["timeline"] == found["traffic"] == []


def test_rebalances_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MAX_REBALANCES", 1)
    (chart,) = drawn(join(1, "a", 1, ["a"]), join(2, "b", 2), join(2.1, "a", 2, ["a", "b"]), leave(9, "b"))["groups"]
    assert sum(picture.count("<title>") for picture in chart.pictures) == 1


def test_errors_and_silence() -> None:
    rows = [
        exchange("Produce", error_code=6, error_count=1, partitions=[partition(error_code=6)]),
        exchange("Produce", error_code=9999, error_count=1, partitions=[partition(error_code=9999)]),
        exchange("Produce", status="unanswered", response_size=None, latency_us=None),
    ]
    (chart,) = drawn(*rows)["errors"]
    assert {name for name, _ in chart.legend} == {"NOT_LEADER_OR_FOLLOWER", "9999", "unanswered"}


def test_hostile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a chart's specification; `test_svg` shows that drawing it keeps them harmless."""
    evil = "<script>alert(1)</script>\x1b"
    parts = [partition(evil, bytes=5, record_count=1)]
    for found in drawn(exchange("Produce", client_id=evil, partitions=parts), join(1, evil, 1, [evil])).values():
        for chart in found:
            for picture in chart.pictures:
                assert "<script" not in picture
                assert "\x1b" not in picture
