"""Tables as lines of text of a given width.

rich's own tables measure every cell several times: a large screen took four times as long. Here cells are one line
each, and their text is safe to print.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from kafkasniff.live.snapshot import FindingRow, Findings

Cell = tuple[str, str]
"""Text and style."""

GAP: Final = 2
"""Spaces between two columns."""
MIN_FLEXIBLE: Final = 6
"""Minimum width of a flexible column in terminal columns."""
MIN_NAME: Final = 10
"""Width that flexible columns need before others are shown: fewer characters of a name say little."""


class Head(NamedTuple):
    """Head of a column."""

    title: str
    flexible: bool = False
    """Shares the remaining room and is left-aligned; other columns are as wide as needed and right-aligned."""


def one_line(text: Text, width: int) -> Text:
    """The text in one line, cut if it is too long."""
    text.no_wrap = True
    text.truncate(width, overflow="ellipsis")
    return text


BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[int], width: int) -> str:
    """The latest values as bars, the greatest as the highest one; 0 is the lowest bar alone."""
    shown = values[-width:]
    most = max(shown, default=0)
    return "".join(BARS[0] if value <= 0 else BARS[1 + value * (len(BARS) - 2) // most] for value in shown)


def exactly(lines: Sequence[Text], height: int) -> list[Text]:
    """Exactly this many lines: cut, or filled with empty ones."""
    return [*lines[:height], *(Text() for _ in range(height - len(lines)))]


def beside(left: Sequence[Text], right: Sequence[Text], left_width: int) -> list[Text]:
    """Equally many lines side by side, with a gap between them."""
    found = []
    for one, other in zip(left, right, strict=True):
        line = Text.assemble(one, " " * (left_width + GAP - one.cell_len), other)
        line.no_wrap = True
        found.append(line)
    return found


def table_lines(
    heads: Sequence[Head], rows: Sequence[Sequence[Cell]], width: int, *, marked: int | None = None
) -> list[Text]:
    """The heads and the rows, a line each; row `marked` is highlighted."""
    widths = _natural(heads, rows)
    flexible = [index for index, head in enumerate(heads) if head.flexible]
    room = width - GAP * (len(heads) - 1) - sum(wide for index, wide in enumerate(widths) if index not in flexible)
    for left, place in zip(range(len(flexible), 0, -1), flexible, strict=True):
        widths[place] = max(room // left, MIN_FLEXIBLE)
        room -= widths[place]
    lines = [_row([(head.title, "bold") for head in heads], heads, widths, width)]
    for number, row in enumerate(rows):
        line = _row(row, heads, widths, width)
        if number == marked:
            line.pad_right(width - line.cell_len)
            line.stylize("reverse")
        lines.append(line)
    return lines


def fitting(heads: Sequence[Head], rows: Sequence[Sequence[Cell]], width: int, needed: Collection[int]) -> list[int]:
    """Places of the columns to show: flexible and `needed` ones, and of the others those that fit, in their order."""
    least = [
        min(wide, MIN_NAME) if head.flexible else wide for head, wide in zip(heads, _natural(heads, rows), strict=True)
    ]
    chosen = {index for index, head in enumerate(heads) if head.flexible or index in needed}
    room = width + GAP - sum(least[index] + GAP for index in chosen)
    for index, wide in enumerate(least):
        if index not in chosen and wide + GAP <= room:
            chosen.add(index)
            room -= wide + GAP
    return sorted(chosen)


def _natural(heads: Sequence[Head], rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The width of each column's widest cell."""
    return [
        max(cell_len(head.title), max((cell_len(row[index][0]) for row in rows), default=0))
        for index, head in enumerate(heads)
    ]


def _row(cells: Sequence[Cell], heads: Sequence[Head], widths: Sequence[int], width: int) -> Text:
    parts: list[Cell | str] = []
    for index, ((text, style), head, wide) in enumerate(zip(cells, heads, widths, strict=True)):
        if index:
            parts.append(" " * GAP)
        blanks = " " * (wide - cell_len(text))
        shown = text if cell_len(text) <= wide else set_cell_size(text, wide - 1) + "…"
        parts += [(shown, style), blanks] if head.flexible else [blanks, (shown, style)]
    return one_line(Text.assemble(*parts), width)


_STYLES: Final = {"error": "bold red", "warning": "bold yellow"}


def findings_line(findings: Findings, width: int) -> Text:
    """`findings 2 errors, 1 warning`, whether detectors are active, and the worst one."""
    counts = [
        (f"{count:,} {severity}{'' if count == 1 else 's'}", _STYLES.get(severity, "bold"))
        for severity, count in findings.counts.items()
        if count
    ]
    line = Text.assemble(("findings ", "dim"))
    if findings.paused:
        line.append(f"paused: {findings.paused}", "bold yellow")
        line.append(", before that ", "dim")
    parts = counts or [("none", "bold")]
    for left, (count, style) in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
        line.append(f"{count}, " if left else count, style)
    if findings.restarts:
        line.append(f"   started over {findings.restarts}×", "yellow")
    if findings.rows:
        line.append(f"   {findings.rows[0].title}", "dim")
    return one_line(line, width)


def chosen_lines(findings: Findings, row: FindingRow | None, width: int) -> list[Text]:
    """Caveats for all findings, and one finding in full."""
    lines = [line for remark in findings.remarks for line in _wrapped(remark, width, "yellow")]
    if row is not None:
        lines += _wrapped(row.title, width, _STYLES.get(row.severity, "bold"))
        lines += [line for text in row.paragraphs for line in _wrapped(text, width)]
        lines += _wrapped(f"{row.detector}, {row.count:,}×", width, "dim")
    return lines


def _wrapped(text: str, width: int, style: str = "") -> list[Text]:
    return [one_line(Text(line, style), width) for line in textwrap.wrap(text, width)]
