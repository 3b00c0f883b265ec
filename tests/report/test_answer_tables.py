"""Tables of a report: cells from rows, without empty columns."""

from __future__ import annotations

import pytest

from kafkasniff.report.answer_tables import AnswerTable
from kafkasniff.report.page import page_tables
from tests.analysis.tables import Row, exchange
from tests.report.test_page import contents


def table(name: str, *rows: Row) -> AnswerTable:
    found = page_tables(contents(exchanges=list(rows)))[name]
    assert found is not None
    return found


def test_omitted_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkasniff.report.contents.MAX_ROWS", 2)
    rows = [exchange("Metadata", client_id=f"app-{number}") for number in range(5)]
    found = table("clients", *rows)
    assert (len(found.rows), found.more) == (2, 3)
