"""Cells of the list."""

from __future__ import annotations

from kafkasniff.browse.index import COLUMNS, Row
from kafkasniff.browse.list_columns import LIST_COLUMNS, cell

ROW = Row(
    packet=12345, connection=1, time=1_700_000_000_123_456_789, latency=2_500_000, request=1000, response=None,
    problems=0, client="10.0.0.5:4000", client_id="app", broker="10.0.0.9:9092", api="Fetch v18", subject="orders",
    others=3, error="", connection_id=7, exchange_id=1,
)  # fmt: skip
BY_NAME = {column.name: column for column in LIST_COLUMNS}


def test_a_terminal_shows_whole_columns_but_for_the_error() -> None:
    """The scroll bar takes two of 80 or 120 columns."""
    ends = [sum(column.width + 1 for column in LIST_COLUMNS[: place + 1]) for place in range(len(LIST_COLUMNS))]
    names = [column.name for column in LIST_COLUMNS]
    assert ends[names.index("subject")] == 78
    assert ends[names.index("client_id")] + len("NOT_LEADER_OR_FOLLOWER") < 118


def test_cells() -> None:
    texts = {
        "packet": "12,345", "latency": "2.50 ms", "response": "-", "problems": "", "subject": "orders +3",
        "time": "22:13:20.123456",
    }  # fmt: skip
    assert {name: cell(ROW, BY_NAME[name], None, 0) for name in texts} == texts
    assert ROW.time is not None
    assert cell(ROW, BY_NAME["time"], ROW.time - 1_500_000, 1) == "+0.001500"
    assert cell(ROW, BY_NAME["time"], ROW.time + 1_000_000_000, 2) == "-1.000000"
    assert cell(ROW, BY_NAME["time"], None, 2) == "-"
    assert set(BY_NAME) <= set(COLUMNS), "a column that cannot be sorted by"
