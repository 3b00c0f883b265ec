"""Rich's tables as plain text, for output that may go to a file as well as to a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["as_text"]


def as_text(parts: Iterable[RenderableType], *, width: int, coloured: bool) -> str:
    """What rich makes of some parts, one below the other, as lines of at most `width` columns."""
    from rich.console import Console

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
        console.print(one)
    # Columns are padded to their width: nothing to look at, and noise in a file.
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
