"""Charts of a report: which there are, and that bars have the sizes of their rows."""

from __future__ import annotations

import re

import pytest

from kafkasniff.report import charts
from kafkasniff.report.charts import MAX_BARS, Chart, charts_of
from tests.analysis.questions.test_rebalances import join, leave
from tests.analysis.tables import Row, exchange, partition
from tests.report.test_page import contents


def drawn(*rows: Row) -> dict[str, list[Chart]]:
    return charts_of(contents(exchanges=list(rows)))


def captions(chart: Chart) -> list[str]:
    return [title for picture in chart.pictures for title in re.findall(r"<title>([^<]*)</title>", picture)]


def named(found: list[Chart], title: str) -> Chart:
    return next(one for one in found if one.title == title)


def test_nothing_to_show() -> None:
    assert set(map(len, charts_of(contents()).values())) == {0}


def test_exchanges_without_times_are_in_no_chart_over_time() -> None:
    found = drawn({**exchange("Metadata"), "time_ns": None, "time": None})
    assert found["traffic"] == []


def test_exchanges_by_api() -> None:
    rows = [exchange("Produce", exchange_id=number) for number in range(3)] + [
        exchange("Fetch"),
        exchange(None, api_key=9999),
    ]
    chart = named(drawn(*rows)["traffic"], "Exchanges")
    assert [name for name, _ in chart.legend][:1] == ["Produce"]
    assert any(one.endswith("Produce: 3") for one in captions(chart))
    assert any(one.endswith("Fetch: 1") for one in captions(chart))


def test_bytes_of_requests_and_responses() -> None:
    chart = named(drawn(exchange("Produce", request_size=1_000, response_size=2_000))["traffic"], "Bytes")
    assert {name for name, _ in chart.legend} == {"requests", "responses"}
    assert any(one.endswith("requests: 1.0 kB") for one in captions(chart))


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


def test_the_busiest_topics() -> None:
    rows = [
        exchange(
            "Produce",
            exchange_id=number,
            partitions=[partition(f"topic-{number:02}", bytes=100 + number, record_count=1)],
        )
        for number in range(MAX_BARS + 3)
    ]
    (chart,) = drawn(*rows)["topics"]
    assert len(captions(chart)) == MAX_BARS
    assert not any("topic-00 " in one for one in captions(chart))
    assert any("topic-14 produced: 114 B" in one for one in captions(chart))


def test_rebalances_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [join(1, "a", 1, ["a"]), join(2, "b", 2), join(2.1, "a", 2, ["a", "b"]), leave(9, "b")]
    (chart,) = drawn(*rows)["groups"]
    assert chart.legend == [("new generation", "purple"), ("members left", "orange")]
    assert any("g 2: id-b joined" in one for one in captions(chart))
    monkeypatch.setattr(charts, "MAX_REBALANCES", 1)
    (chart,) = drawn(*rows)["groups"]
    assert len(captions(chart)) == 1


def test_hostile_names() -> None:
    evil = "<script>alert(1)</script>\x1b"
    parts = [partition(evil, bytes=5, record_count=1)]
    for found in drawn(exchange("Produce", client_id=evil, partitions=parts), join(1, evil, 1, [evil])).values():
        for chart in found:
            for picture in chart.pictures:
                assert "<script" not in picture
                assert "\x1b" not in picture
