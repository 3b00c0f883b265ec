"""Tables of answers as plain text, for files as well as terminals.

A table fits its screen: the least useful columns are hidden, and a line below it says so.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kafkasniff.enrich.hosts import Hosts
from kafkasniff.report.answer_tables import AnswerTable, ReportColumn

__all__ = ["FittedTable", "as_text", "screen_text", "wrapped"]

MIN_TEXT: Final = 20
"""Columns of text are at least this wide while others can be hidden: names must not wrap into slivers."""
GAP: Final = 2
"""Spaces between two columns."""
_WORD: Final = re.compile(r"\S+\s*|\s+")
_PIECE: Final = re.compile(r"[^-_./:,@]+[-_./:,@]*\s*|[-_./:,@]+\s*")
"""A part of a name, with its separators."""


class FittedTable:
    """Rows below a line of headings, as a renderable.

    Levels of columns are hidden, the highest first, until numbers are shown whole and texts get MIN_TEXT. Then texts
    share the room; longer ones wrap. Cells are safe to print. `hosts`: names that replace addresses.
    """

    def __init__(
        self, columns: Sequence[ReportColumn], rows: Sequence[Any], *, style: str = "dim", hosts: Hosts | None = None
    ) -> None:
        self._columns = columns
        self._rows = [[_shown(column.cell(row), hosts) for column in columns] for row in rows]
        self._style = style
        self._natural: list[int] = [
            max(_width(cell) for cell in (column.heading, *cells))
            for column, *cells in zip(columns, *self._rows, strict=True)
        ]
        self._is_plain = all(isinstance(cell, str) and "\n" not in cell for cells in self._rows for cell in cells)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, then the names of the hidden columns."""
        yield self._table(options.max_width, with_rows=True)
        yield from self.note(options.max_width)

    def headings(self, width: int) -> Table:
        """The line above the rows."""
        return self._table(width, with_rows=False)

    def note(self, width: int) -> list[Text]:
        """The line below the rows: the names of the hidden columns, if there are any."""
        _, hidden = self._choice(width)
        return [Text(f"hidden: {', '.join(hidden)} (--wide)", style="dim")] if hidden else []

    def plain_rows(self, width: int) -> list[str] | None:
        """The rows as Rich would show them, in a hundredth of the time; None if cells have a style or must wrap."""
        shown, _ = self._choice(width)
        widths = self._widths(shown, width)
        if not self._is_plain or any(self._natural[place] > wide for place, wide in zip(shown, widths, strict=True)):
            return None
        if sum(widths) + GAP * (len(widths) - 1) > width:
            return None
        columns = []
        for place, wide in zip(shown, widths, strict=True):
            cells = [str(row[place]) for row in self._rows]
            pads = [" " * (wide - _width(cell)) for cell in cells]
            pairs = zip(pads, cells, strict=True) if self._columns[place].number else zip(cells, pads, strict=True)
            columns.append([first + second for first, second in pairs])
        gap = " " * GAP
        return [gap.join(cells).rstrip() for cells in zip(*columns, strict=True)]

    def _table(self, max_width: int, *, with_rows: bool) -> Table:
        shown, _ = self._choice(max_width)
        table = Table(box=None, header_style=self._style, pad_edge=False, padding=(0, GAP, 0, 0))
        widths = dict(zip(shown, self._widths(shown, max_width), strict=True))
        for place, width in widths.items():
            column = self._columns[place]
            table.add_column(
                column.heading,
                justify="right" if column.number else "left",
                width=width,
                no_wrap=_whole(column) or column.clipped,
                overflow="ellipsis" if column.clipped else "fold",
            )
        for cells in self._rows if with_rows else ():
            table.add_row(*(self._cell(cells[place], place, width) for place, width in widths.items()))
        return table

    def _cell(self, cell: str | Text, place: int, width: int) -> Text:
        column = self._columns[place]
        wraps = isinstance(cell, str) and not (_whole(column) or column.clipped)
        return Text(wrapped(cell, width)) if wraps and isinstance(cell, str) else _text(cell)

    def _choice(self, width: int) -> tuple[list[int], list[str]]:
        """Places of the columns to show, and headings of those hidden."""
        levels = sorted({0, *(column.level for column in self._columns)})
        while True:
            level = levels.pop()
            places = [place for place, column in enumerate(self._columns) if column.level <= level < column.until]
            if not levels or sum(map(self._least, places)) + GAP * len(places) <= width + GAP:
                break
        hidden = [column.heading for column in self._columns if column.level > level and column.heading]
        return places, list(dict.fromkeys(hidden))

    def _least(self, place: int) -> int:
        natural = self._natural[place]
        return natural if _whole(self._columns[place]) else min(natural, MIN_TEXT)

    def _widths(self, shown: Sequence[int], width: int) -> list[int]:
        """Widths of columns: numbers as they need, texts of the rest the same share unless they need less."""
        widths = {place: self._natural[place] for place in shown}
        texts = sorted((place for place in shown if not _whole(self._columns[place])), key=self._natural.__getitem__)
        room = width - GAP * (len(shown) - 1) - sum(widths[place] for place in shown if place not in texts)
        for left, place in zip(range(len(texts), 0, -1), texts, strict=True):
            widths[place] = max(min(widths[place], room // left), 1)
            room -= widths[place]
        return list(widths.values())


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` columns. Words that are longer break after separators, if they have some."""
    if _width(text) <= width:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        lines.append("")
        for part in _parts(line, width):
            if cell_len((lines[-1] + part).rstrip()) <= width:
                lines[-1] += part
            else:
                lines.append(part)
    return "\n".join(line.rstrip() for line in lines)


def _parts(text: str, width: int) -> Iterator[str]:
    """Words with the spaces after them; a word that does not fit in pieces."""
    for word in _WORD.findall(text):
        if cell_len(word.rstrip()) <= width:
            yield word
            continue
        for piece in _PIECE.findall(word):
            yield from chop_cells(piece, width) if cell_len(piece.rstrip()) > width else [piece]


def _whole(column: ReportColumn) -> bool:
    return column.number or column.whole


def _shown(cell: str | Text, hosts: Hosts | None) -> str | Text:
    return cell if hosts is None or not isinstance(cell, str) else hosts.shown(cell)


def _text(cell: str | Text) -> Text:
    """Never markup."""
    return Text(cell) if isinstance(cell, str) else cell


def _width(cell: str | Text) -> int:
    """Width of its longest line."""
    if isinstance(cell, str) and cell.isascii() and cell.isprintable():
        return len(cell)
    return max(cell_len(line.plain) for line in _text(cell).split(allow_blank=True))


def as_text(parts: Iterable[RenderableType], *, width: int, coloured: bool) -> str:
    """Renderables, one below the other, as lines of at most `width` columns."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for one in parts:
        rows = one.plain_rows(width) if isinstance(one, FittedTable) else None
        if rows is None or not isinstance(one, FittedTable):
            console.print(one)
            continue
        console.print(one.headings(width))
        buffer.writelines(f"{row}\n" for row in rows)
        for note in one.note(width):
            console.print(note)
    # Rich pads columns to their width, which is only noise in a file.
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def screen_text(lines: Iterable[str], tables: Iterable[AnswerTable], *, width: int, coloured: bool) -> str:
    """Lines on the whole, then each table that has rows, without empty columns.

    `width` columns wide, with ANSI codes if `coloured`.
    """
    from kafkasniff.cli.render.tables import FittedTable

    shown: list[RenderableType] = [Text(line, overflow="fold") for line in lines]
    for one in tables:
        if not one.rows:
            continue
        table = FittedTable(one.filled, one.rows, hosts=one.hosts)
        shown += [Text(), Text(one.title, style="bold"), Padding(table, (0, 0, 0, 2))]
        if one.more > 0:
            shown.append(Text(f"  and {one.more:,} more ({one.option})"))
    return as_text(shown, width=width, coloured=coloured)
