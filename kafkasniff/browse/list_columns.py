"""The columns of the list as text: titles, widths and cells."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkasniff.browse.index import Row
from kafkasniff.text.printable import display_width
from kafkasniff.text.times import clock_time, duration

__all__ = ["CLOCKS", "LIST_COLUMNS", "ListColumn", "cell", "fitted"]

CLOCKS: Final = ("time", "since start", "since previous")
"""How the list shows times."""


class ListColumn(NamedTuple):
    """A column of the list; `width` in columns of the terminal."""

    name: str
    title: str
    width: int
    right: bool = False
    """Aligned to the right."""


LIST_COLUMNS: Final = (
    ListColumn("packet", "packet", 7, True),
    ListColumn("time", "time", 15, True),
    ListColumn("latency", "latency", 8, True),
    ListColumn("api", "API", 22),
    ListColumn("subject", "topic, group", 21),
    ListColumn("client_id", "client id", 15),
    ListColumn("error", "error", 26),
    ListColumn("client", "client", 21),
    ListColumn("broker", "broker", 21),
    ListColumn("request", "request", 9, True),
    ListColumn("response", "response", 9, True),
    ListColumn("problems", "problems", 8, True),
)
"""In order of importance: 80 columns show those up to the topic, 120 the client and most of the error, too. A narrower
terminal scrolls to the others."""


def cell(row: Row, column: ListColumn, since: int | None, clock: int) -> str:
    """A cell, in any width. `clock`: of `CLOCKS`; `since`: the time that it counts from."""
    value = getattr(row, column.name)
    if value is None:
        return "-"
    if column.name == "subject" and row.others:
        return f"{value} +{row.others}"
    if column.name == "latency":
        return duration(value)
    if column.name == "time":
        if clock == 0:
            return clock_time(value)
        return "-" if since is None else f"{(value - since) / 1e9:+.6f}"
    if isinstance(value, int):
        return "" if column.name == "problems" and not value else f"{value:,}"
    return str(value)


def fitted(text: str, column: ListColumn) -> str:
    """A cell in the width of its column."""
    width = display_width(text)
    if width > column.width:
        while display_width(text) > column.width - 1:
            text = text[:-1]
        text, width = f"{text}…", display_width(text) + 1
    blank = " " * (column.width - width)
    return blank + text if column.right else text + blank
