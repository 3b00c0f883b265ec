"""Columns of overviews, on the screen and on a page."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkasniff.analysis.overview.answer import ProblemStats
from kafkasniff.report.cells import ReportColumn
from kafkasniff.report.overview_columns import APIS, BROKERS, CLIENTS, GROUPS, TOPICS, on_page, problem_columns


@pytest.mark.parametrize("columns", [BROKERS, CLIENTS, APIS, TOPICS, GROUPS])
def test_a_page_has_all_columns_but_those_for_narrow_screens(columns: Sequence[ReportColumn]) -> None:
    wide = [one for one in columns if one.level <= 10 < one.until]
    page = on_page(columns)
    assert [(one.cell, one.number) for one in page] == [(one.cell, one.number) for one in wide]
    words = ["no response" if one.heading == "unanswered" else one.heading for one in wide]
    assert [one.heading for one in page] == words


def test_other_headings_and_cells_on_a_page() -> None:
    page = on_page(TOPICS, {"record p50": "record, median"}, record_p50=lambda _row: "here")
    (changed,) = [one for one in page if one.heading == "record, median"]
    assert changed.cell(None) == "here"
    assert [one.cell for one in page if one is not changed] == [
        one.cell for one in TOPICS if one.heading != "record p50"
    ]


@pytest.mark.parametrize("days", [False, True])
def test_first_problems_have_dates_only_if_needed(days: bool) -> None:
    row = ProblemStats(kind="frame-cut", count=1200, bytes=0, first=0, first_detail="", first_packet=None)
    cells = {one.heading: one.cell(row) for one in problem_columns(days)}
    assert (cells["problem"], cells["count"], cells["bytes"]) == ("frame-cut", "1,200", "")
    assert ("1970-01-01" in cells["first"]) == days
