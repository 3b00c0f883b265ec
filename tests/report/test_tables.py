"""Tables of a report: cells from rows, without empty columns."""

from __future__ import annotations

import pytest

from kafkasniff.report.tables import ReportTable, tables_of
from tests.analysis.questions.test_rebalances import join
from tests.analysis.tables import Row, exchange, partition
from tests.report.test_page import contents


def table(name: str, *rows: Row) -> ReportTable:
    found = tables_of(contents(exchanges=list(rows)))[name]
    assert found is not None
    return found


def cells(found: ReportTable) -> list[dict[str, str]]:
    headings = [one.text for one in found.headings]
    return [dict(zip(headings, (one.text for one in row), strict=True)) for row in found.rows]


def test_no_rows_no_table() -> None:
    assert set(tables_of(contents()).values()) == {None}
    found = tables_of(contents(exchanges=[exchange("Metadata")]))
    assert {name for name, one in found.items() if one is not None} == {"brokers", "clients", "apis"}


def test_empty_columns_are_omitted() -> None:
    plain = table("clients", exchange("Metadata"))
    named = table("clients", exchange("Metadata", software_name="java", software_version="3.7.0"))
    assert "software" not in cells(plain)[0]
    assert cells(named)[0]["software"] == "java 3.7.0"
    for found in (plain, named):
        for place, heading in enumerate(found.headings):
            assert any(row[place].text for row in found.rows)
            assert {row[place].number for row in found.rows} == {heading.number}


def test_a_topic_known_only_by_its_id() -> None:
    parts = [partition(None, topic_id="A" * 22, bytes=10, record_count=2)]
    (row,) = cells(table("topics", exchange("Produce", partitions=parts, topics=[])))
    assert (row["topic"], row["produced"]) == ("A" * 22, "2 (10 B)")


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
