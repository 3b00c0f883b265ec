"""Tables of a report: cells from rows, without empty columns."""

from __future__ import annotations

import pytest

from kafkasniff.report.tables import ReportTable, tables_of
from tests.analysis.questions.test_rebalances import join
from tests.analysis.tables import Row, exchange
from tests.report.test_page import contents


def table(name: str, *rows: Row) -> ReportTable:
    found = tables_of(contents(exchanges=list(rows)))[name]
    assert found is not None
    return found


def test_hostile_names_are_escaped_and_cut() -> None:
    evil = "<b>\x1b[31m\n" + "x" * 500
    for found in tables_of(
        contents(exchanges=[exchange("Metadata", client_id=evil), join(1, evil, 1, [evil])])
    ).values():
        for row in () if found is None else found.rows:
            assert all(cell.text.isprintable() and len(cell.text) < 600 for cell in row)


def test_omitted_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.report.contents.MAX_ROWS", 2)
    rows = [exchange("Metadata", client_id=f"app-{number}") for number in range(5)]
    found = table("clients", *rows)
    assert (len(found.rows), found.more) == (2, 3)
