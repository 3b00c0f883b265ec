"""Charts of a report: which there are, and that bars have the sizes of their rows."""

from __future__ import annotations

import re

import msgspec
import pytest

from kafkasniff.analysis.detectors import Finding
from kafkasniff.report import charts
from kafkasniff.report.charts import MIN_LATENCIES, Chart, charts_of
from tests.analysis.questions.test_rebalances import join, leave
from tests.analysis.tables import START_NS, Row, exchange, partition
from tests.report.test_page import contents


def drawn(*rows: Row) -> dict[str, list[Chart]]:
    return charts_of(contents(exchanges=list(rows)))


def captions(chart: Chart) -> list[str]:
    return [title for picture in chart.pictures for title in re.findall(r"<title>([^<]*)</title>", picture)]


def test_nothing_to_show() -> None:
    assert set(map(len, charts_of(contents()).values())) == {0}


def test_exchanges_without_times_are_in_no_chart_over_time() -> None:
    found = drawn({**exchange("Metadata"), "time_ns": None, "time": None})
    assert found["timeline"] == []
    assert found["traffic"] == []


def test_errors_and_silence() -> None:
    rows = [
        exchange("Produce", error_code=6, error_count=1, partitions=[partition(error_code=6)]),
        exchange("Produce", error_code=9999, error_count=1, partitions=[partition(error_code=9999)]),
        exchange("Produce", status="unanswered", response_size=None, latency_us=None),
    ]
    (chart,) = drawn(*rows)["errors"]
    assert {name for name, _ in chart.legend} == {"NOT_LEADER_OR_FOLLOWER", "9999", "unanswered"}
    assert dict(chart.legend)["unanswered"] == "red"
    assert drawn(exchange("Produce"))["errors"] == []


def with_findings(*times: tuple[int, int]) -> dict[str, list[Chart]]:
    rows = [exchange("Produce", at=second) for second in range(20)]
    findings = [
        Finding(
            detector=f"crafted-{number}", severity="warning" if number else "error", title=f"outage {number}",
            meaning="", advice="", subject={}, count=1, first=START_NS + first * 10**9, last=START_NS + last * 10**9,
        )
        for number, (first, last) in enumerate(times)
    ]  # fmt: skip
    return charts_of(msgspec.structs.replace(contents(exchanges=rows), findings=findings))


def test_findings_are_below_the_exchanges_and_the_worst_behind_them() -> None:
    found = with_findings((5, 9), (12, 12))
    (timeline,) = found["timeline"]
    exchanges, findings = timeline.pictures
    assert exchanges.count("<title>outage 0") == findings.count("<title>outage 0") == 1
    assert exchanges.count("<title>outage 1") == 0
    assert findings.count("<title>outage 1") == 1
    assert "1 crafted-0" in findings
    (sizes,) = found["traffic"]
    assert "outage 0" in sizes.pictures[0]


def test_without_findings_there_is_nothing_below_and_nothing_behind() -> None:
    found = with_findings()
    (timeline,) = found["timeline"]
    assert len(timeline.pictures) == 1
    assert timeline.note.startswith("by API")
    assert "findings" not in timeline.note
    assert not any("outage" in picture for some in found.values() for chart in some for picture in chart.pictures)


def test_few_latencies_have_no_distribution() -> None:
    few, enough = ([exchange("Produce", latency_us=5)] * number for number in (MIN_LATENCIES - 1, MIN_LATENCIES))
    assert [chart.title for chart in drawn(*few)["latency"]] == ["Latency by API"]
    assert [chart.title for chart in drawn(*enough)["latency"]] == ["Latency by API", "Produce"]


def test_rebalances_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [join(1, "a", 1, ["a"]), join(2, "b", 2), join(2.1, "a", 2, ["a", "b"]), leave(9, "b")]
    (chart,) = drawn(*rows)["groups"]
    assert chart.legend == [("new generation", "purple"), ("members left", "orange")]
    assert any("g 2: id-b joined" in one for one in captions(chart))
    monkeypatch.setattr(charts, "MAX_REBALANCES", 1)
    (chart,) = drawn(*rows)["groups"]
    assert len(captions(chart)) == 1


def test_hostile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a chart's specification; `test_svg` shows that drawing it keeps them harmless."""
    evil = "<script>alert(1)</script>\x1b"
    parts = [partition(evil, bytes=5, record_count=1)]
    for found in drawn(exchange("Produce", client_id=evil, partitions=parts), join(1, evil, 1, [evil])).values():
        for chart in found:
            for picture in chart.pictures:
                assert "<script" not in picture
                assert "\x1b" not in picture
