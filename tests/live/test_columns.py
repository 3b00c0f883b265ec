"""Tables of the view: numbers, sort keys, and which columns fit."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from kafkasniff.live.columns import (
    CLIENTS,
    FINDINGS_TABLE,
    TABLES,
    TableOf,
    identity,
    number,
    sorted_rows,
    time_text,
)
from kafkasniff.live.snapshot import ErrorRow, FindingRow, Findings, LiveRow, Snapshot


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-1, "0"),
        (0.01, "<0.1"),
        (0.5, "0.5"),
        (3, "3"),
        (9.96, "10"),
        (12.4, "12"),
        (999.4, "999"),
        (999.6, "1.0k"),
        (12_345, "12k"),
        (3.4e6, "3.4M"),
        (7e9, "7.0G"),
        (5e12, "5T"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


SHOT = Snapshot(
    clients=(
        LiveRow(None, requests=99.0),
        LiveRow("b", "10.0.0.1", requests=1.0, mean=5),
        LiveRow("a", "10.0.0.1", requests=1.0),
        LiveRow("c", "10.0.0.1", requests=7.0, mean=2),
    )
)


def names(sort: int, *, reverse: bool) -> list[object]:
    return [row.name for row in sorted_rows(CLIENTS, SHOT, sort, reverse=reverse)]


def column_of(title: str) -> int:
    return next(place for place, one in enumerate(CLIENTS.columns) if one.title == title)


def test_rows_are_sorted_by_a_column_the_greatest_first() -> None:
    """Equal ones by their identity; the row of all others is always last, and missing latencies come after all."""
    assert names(column_of("req/s"), reverse=False) == ["c", "a", "b", None]
    assert names(column_of("req/s"), reverse=True) == ["a", "b", "c", None]
    assert names(column_of("mean"), reverse=False) == ["b", "c", "a", None]


def test_rows_without_a_client_id_are_not_the_row_of_all_others() -> None:
    shot = Snapshot(clients=(LiveRow(None), LiveRow(None, "10.0.0.2")))
    rows = sorted_rows(CLIENTS, shot, column_of("req/s"), reverse=False)
    assert [row.client for row in rows] == ["10.0.0.2", ""]
    assert [CLIENTS.columns[0].text(row) for row in rows][1] == "other"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_wider_tables_have_more_columns(table: TableOf) -> None:
    shown = [[place for place, _ in table.shown(width)] for width in (60, 94, 110, 400)]
    for narrow, wide in itertools.pairwise(shown):
        assert set(narrow) <= set(wide)
    assert shown[-1] == list(range(len(table.columns)))
    # Any table can be sorted at any width by what it is sorted by at first.
    assert table.sort in shown[0]
    assert table.sort in table.sortable


def test_a_severity_comes_before_a_count() -> None:
    def found(severity: str, count: int) -> FindingRow:
        return FindingRow(severity, severity, "", "", "detector", str(count), count, None)

    rows = (found("note", 90), found("error", 1), found("warning", 50), found("error", 3))
    findings = TABLES[FINDINGS_TABLE]
    ranked = sorted_rows(findings, Snapshot(findings=Findings(rows=rows)), findings.sort, reverse=False)
    assert [(row.severity, row.count) for row in ranked] == [("error", 3), ("error", 1), ("warning", 50), ("note", 90)]
    assert sorted_rows(findings, Snapshot(), findings.sort, reverse=False) == []


@pytest.mark.parametrize(("microseconds", "text"), [(None, "-"), (0, "0 ns"), (1500, "1.50 ms")])
def test_latencies(microseconds: int | None, text: str) -> None:
    assert time_text(microseconds) == text


def test_identity_does_not_depend_on_values() -> None:
    row = LiveRow("a", "10.0.0.1", connection=3)
    assert identity(row) == identity(msgspec.structs.replace(row, requests=9.0, total=4))
    assert identity(row) != identity(msgspec.structs.replace(row, connection=4))
    errors = ErrorRow("Produce", "NOT_LEADER", 1, 0.1), ErrorRow("Produce", "NOT_LEADER", 9, 0.9)
    assert identity(errors[0]) == identity(errors[1])
