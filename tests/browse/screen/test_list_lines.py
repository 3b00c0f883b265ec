"""Columns of the list in the widths of terminals."""

from __future__ import annotations

import pytest

from kafkasniff.browse.screen.list_lines import LIST_COLUMNS, laid_out

WIDEST = {"number": 4, "api": 26, "subject": 13, "others": 3, "client_id": 15, "error": 26, "client": 15, "broker": 15}


@pytest.mark.parametrize(("room", "last"), [(78, "error"), (118, "response"), (198, "packet")])
def test_the_room_is_used_up_to_a_column(room: int, last: str) -> None:
    made = laid_out(LIST_COLUMNS, WIDEST, room)
    ends = [sum(column.width + 1 for column in made[: place + 1]) for place in range(len(made))]
    end = ends[[column.name for column in made].index(last)]
    wanted = {column.name: column.width for column in laid_out(LIST_COLUMNS, WIDEST, 1000)}
    assert end <= room
    assert end == room or all(column.width == wanted[column.name] for column in made)
    assert all(column.least <= column.width <= wanted[column.name] or column.width == wanted[column.name]
               for column in made)  # fmt: skip
    assert (wanted["error"], wanted["subject"], wanted["problems"], wanted["time"]) == (26, 16, 8, 15)


def test_what_the_list_does_not_contain_takes_no_room() -> None:
    assert {column.name: column.width for column in laid_out(LIST_COLUMNS, {}, 118)}["error"] == len("error") + 1
