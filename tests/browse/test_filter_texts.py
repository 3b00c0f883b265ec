"""Filters made from a cell of the list."""

from __future__ import annotations

import pytest

from kafkasniff.browse.conditions import added, condition
from kafkasniff.browse.index import Row
from kafkasniff.browse.list_columns import LIST_COLUMNS
from tests.browse.opened import capture, fill, rows_of


def listed(expression: str | None = None) -> list[Row]:
    return rows_of(fill(capture("java-errors"), expression))


ROWS = listed()


def values(row: Row, column: str) -> object:
    value = getattr(row, column)
    if column == "api":
        return value.rpartition(" v")[0]
    return bool(value) if column == "problems" else value


@pytest.mark.parametrize("sign", ["==", "!="])
@pytest.mark.parametrize("column", [column.name for column in LIST_COLUMNS])
def test_the_filter_keeps_what_the_cell_says(column: str, sign: str) -> None:
    like = next((row for row in ROWS if row.error and row.subject), ROWS[0])
    made = condition(like, column, sign)  # type: ignore[arg-type]
    assert made is not None
    found = listed(made)
    if column == "subject":
        # The list shows the first of several topics.
        assert {row.subject for row in found if not row.others} == (
            {like.subject} if sign == "==" else {row.subject for row in ROWS if not row.others} - {like.subject}
        )
    else:
        wanted = [row for row in ROWS if (values(row, column) == values(like, column)) == (sign == "==")]
        assert [row.exchange_id for row in found] == [row.exchange_id for row in wanted]


@pytest.mark.parametrize("column", ["packet", "time", "latency", "request", "response"])
def test_more_and_less(column: str) -> None:
    like = ROWS[20]
    bound = getattr(like, column)
    for sign, wanted in ((">", lambda value: value > bound), ("<", lambda value: value < bound)):
        made = condition(like, column, sign)  # type: ignore[arg-type]
        assert made is not None
        known = [getattr(row, column) for row in ROWS if getattr(row, column) is not None]
        assert sorted(getattr(row, column) for row in listed(made)) == sorted(filter(wanted, known))


@pytest.mark.parametrize(
    ("column", "value", "sign", "made"),
    [
        ("error", "", "==", 'error == "NONE"'),
        ("error", "no response", "==", 'status == "no_response"'),
        ("error", "error 999", "!=", "not (error == 999)"),
        ("error", "unheard of", "==", None),
        ("api", "API 99 v3", "==", "api_key == 99"),
        ("api", "?", "==", None),
        ("client_id", "", "==", "not has client_id"),
        ("client_id", '"my app"', "==", 'client_id == "my app"'),
        ("client_id", r"\x1b[2J", "==", r'client_id == "\x1b[2J"'),
        ("client_id", "long… +700", "==", None),
        ("client_id", "a", ">", None),
        ("subject", "", "==", "not has topic and not has group_id and not has transactional_id"),
        ("latency", None, ">", None),
        ("time", None, "==", None),
        ("packet", None, "==", None),
    ],
)
def test_cells(column: str, value: object, sign: str, made: str | None) -> None:
    assert condition(ROWS[0]._replace(**{column: value}), column, sign) == made  # type: ignore[arg-type]


def test_conditions_are_added() -> None:
    assert added("", "has topic") == "has topic"
    assert added("acks == 0 or has topic", "partition == 3") == "(acks == 0 or has topic) and partition == 3"
    assert added("acks == 0", "has topic || has group_id") == "acks == 0 and (has topic || has group_id)"
