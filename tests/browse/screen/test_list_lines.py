"""Cells of the list."""

from __future__ import annotations

from kafkasniff.browse.screen.list_lines import LIST_COLUMNS


def test_a_terminal_shows_whole_columns_but_for_the_error() -> None:
    """The scroll bar takes two of 80 or 120 columns."""
    ends = [sum(column.width + 1 for column in LIST_COLUMNS[: place + 1]) for place in range(len(LIST_COLUMNS))]
    names = [column.name for column in LIST_COLUMNS]
    assert ends[names.index("subject")] == 78
    assert ends[names.index("client_id")] + len("NOT_LEADER_OR_FOLLOWER") < 118
