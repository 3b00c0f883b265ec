"""Tables and lines of answers as plain text, for files as well as terminals.

A table fits its screen: the least useful columns are hidden, and a line below it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kafkasniff.enrich.hosts import Hosts
from kafkasniff.report.answer_tables import AnswerTable, ReportColumn
from kafkasniff.text.printable import COLOUR, PLAIN, Paint, clipped, display_width
from kafkasniff.text.printable import wrapped as wrapped_words

MIN_TEXT: Final = 20
"""Columns of text are at least this wide while others can be hidden: names must not wrap into slivers."""
GAP: Final = 2
"""Spaces between two columns."""
_WORD: Final = re.compile(r"^\s*\S+\s*|\S+\s*|\s+")
_PIECE: Final = re.compile(r"[^-_./:,@]+[-_./:,@]*\s*|[-_./:,@]+\s*")
"""A part of a name, with its separators."""


class Styled(NamedTuple):
    """Text in a style."""

    text: str
    style: Literal["bold", "dim"]

    def painted(self, paint: Paint) -> str:
        """The text with codes of colours."""
        return f"{paint.api if self.style == 'bold' else paint.dim}{self.text}{paint.reset}"


Line: TypeAlias = "str | Styled | tuple[str | Styled, ...]"
"""A line; a tuple is the parts of one."""


class FittedTable:
    """Rows below a line of headings.

    Levels of columns are hidden, the highest first, until numbers are shown whole and texts get MIN_TEXT. Then texts
    share the room; longer ones wrap. Cells are safe to print. `style`: that of the headings, None without these;
    `hosts`: names that replace addresses.
    """

    def __init__(
        self,
        columns: Sequence[ReportColumn],
        rows: Sequence[Any],
        *,
        style: Literal["bold", "dim"] | None = "dim",
        hosts: Hosts | None = None,
    ) -> None:
        self._columns = columns
        self._rows: list[list[str | Styled]] = [[_shown(column.cell(row), hosts) for column in columns] for row in rows]
        if style is not None:
            self._rows.insert(0, [Styled(column.heading, style) for column in columns])
        self._natural: list[int] = [
            max((display_width(line) for cell in cells for line in _plain(cell).split("\n")), default=0)
            for cells in zip(*self._rows, strict=True)
        ]

    def lines(self, width: int, paint: Paint) -> Iterator[str]:
        """The table in lines of at most `width` columns, then the names of the hidden columns."""
        shown, hidden = self._choice(width)
        widths = self._widths(shown, width)
        for cells in self._rows:
            columns = [self._lines(cells[index], index, wide) for index, wide in zip(shown, widths, strict=True)]
            for parts in zip_longest(*columns, fillvalue=""):
                line = []
                for part, cell, index, wide in zip(
                    parts, [cells[index] for index in shown], shown, widths, strict=True
                ):
                    pad = " " * (wide - display_width(part))
                    text = cell._replace(text=part).painted(paint) if isinstance(cell, Styled) and part else part
                    line.append(pad + text if self._columns[index].number else text + pad)
                yield (" " * GAP).join(line).rstrip()
        if hidden:
            yield from _wrapped(Styled(f"hidden: {', '.join(hidden)} (--wide)", "dim"), width, paint)

    def _lines(self, cell: str | Styled, place: int, width: int) -> list[str]:
        text = _plain(cell)
        return [clipped(text, width)] if self._columns[place].clipped else wrapped(text, width).split("\n")

    def _choice(self, width: int) -> tuple[list[int], list[str]]:
        """Places of the columns to show, and headings of those hidden."""
        levels = sorted({0, *(column.level for column in self._columns)})
        while True:
            level = levels.pop()
            places = [index for index, column in enumerate(self._columns) if column.level <= level < column.until]
            if not levels or sum(map(self._least, places)) + GAP * len(places) <= width + GAP:
                break
        hidden = [column.heading for column in self._columns if column.level > level and column.heading]
        return places, list(dict.fromkeys(hidden))

    def _least(self, place: int) -> int:
        natural = self._natural[place]
        return natural if _whole(self._columns[place]) else min(natural, MIN_TEXT)

    def _widths(self, shown: Sequence[int], width: int) -> list[int]:
        """Widths of columns: numbers as they need, texts of the rest the same share unless they need less."""
        widths = {index: self._natural[index] for index in shown}
        texts = sorted((index for index in shown if not _whole(self._columns[index])), key=self._natural.__getitem__)
        room = width - GAP * (len(shown) - 1) - sum(widths[index] for index in shown if index not in texts)
        for left, index in zip(range(len(texts), 0, -1), texts, strict=True):
            widths[index] = max(min(widths[index], room // left), 1)
            room -= widths[index]
        return list(widths.values())


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` columns. Words that are longer break after separators, if they have some."""
    if display_width(text) <= width and "\n" not in text:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        lines.append("")
        for part in [line] if display_width(line) <= width else _parts(line, width):
            if display_width((lines[-1] + part).rstrip()) <= width:
                lines[-1] += part
            else:
                lines.append(part)
    return "\n".join(line.rstrip() for line in lines)


def _parts(text: str, width: int) -> Iterator[str]:
    """Words with the spaces after them; a word that does not fit in pieces."""
    for word in _WORD.findall(text):
        if display_width(word.rstrip()) <= width:
            yield word
            continue
        for piece in _PIECE.findall(word):
            yield from _chopped(piece, width) if display_width(piece.rstrip()) > width else [piece]


def _chopped(text: str, width: int) -> Iterator[str]:
    """Pieces of at most `width` columns, or of one character that is wider."""
    piece = ""
    for character in text:
        if piece and display_width(piece + character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def _whole(column: ReportColumn) -> bool:
    return column.number or column.whole


def _plain(cell: str | Styled) -> str:
    return cell if isinstance(cell, str) else cell.text


def _shown(cell: str | Styled, hosts: Hosts | None) -> str | Styled:
    return cell if hosts is None or not isinstance(cell, str) else hosts.shown(cell)


def _wrapped(line: Line, width: int, paint: Paint) -> Iterator[str]:
    match line:
        case str():
            yield from wrapped(line, width).split("\n")
        case Styled(text, _):
            yield from (
                line._replace(text=part).painted(paint) if part else "" for part in wrapped(text, width).split("\n")
            )
        case _:
            parts = (part if isinstance(part, str) else part.painted(paint) for part in line)
            yield from wrapped_words("".join(parts), width)


def as_text(parts: Iterable[FittedTable | Line], *, width: int, coloured: bool) -> str:
    """Tables and lines, one below the other, in lines of at most `width` columns, with ANSI codes if `coloured`."""
    paint = COLOUR if coloured else PLAIN
    found: list[str] = []
    for fitted_table in parts:
        found += (
            fitted_table.lines(width, paint)
            if isinstance(fitted_table, FittedTable)
            else _wrapped(fitted_table, width, paint)
        )
    return "".join(f"{line.rstrip()}\n" for line in found)


def screen_text(lines: Iterable[str], tables: Iterable[AnswerTable], *, width: int, coloured: bool) -> str:
    """Lines on the whole, then each table that has rows, indented and without empty columns.

    `width` columns wide, with ANSI codes if `coloured`.
    """
    indent = " " * GAP
    text = as_text(lines, width=width, coloured=coloured)
    for one in tables:
        if not one.rows:
            continue
        table = FittedTable(one.filled, one.rows, hosts=one.hosts)
        below = as_text([table], width=width - GAP, coloured=coloured).splitlines()
        text += as_text(["", Styled(one.title, "bold")], width=width, coloured=coloured)
        text += "".join(f"{indent}{line}".rstrip() + "\n" for line in below)
        if one.more > 0:
            text += f"{indent}and {one.more:,} more ({one.option})\n"
    return text
