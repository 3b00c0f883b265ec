"""Answers, and Rich's tables, as plain text, for files as well as terminals."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kafkasniff.report.answer_tables import AnswerTable

__all__ = ["as_text", "screen_text"]


def as_text(parts: Iterable[RenderableType], *, width: int, coloured: bool) -> str:
    """Renderables, one below the other, as lines of at most `width` columns."""
    from rich.console import Console

    from kafkasniff.cli.render.fitted import FittedTable

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
    from rich.padding import Padding
    from rich.text import Text

    from kafkasniff.cli.render.fitted import FittedTable

    shown: list[RenderableType] = [Text(line, overflow="fold") for line in lines]
    for one in tables:
        if not one.rows:
            continue
        table = FittedTable(one.filled, one.rows, hosts=one.hosts)
        shown += [Text(), Text(one.title, style="bold"), Padding(table, (0, 0, 0, 2))]
        if one.more > 0:
            shown.append(Text(f"  and {one.more:,} more ({one.option})"))
    return as_text(shown, width=width, coloured=coloured)
