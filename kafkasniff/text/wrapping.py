"""Wraps lines at the width of a terminal, in columns and not in characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kafkasniff.text.printable import display_width

__all__ = ["wrapped"]

_CODE: Final = re.compile(r"\x1b\[[0-9;]*m")
_WORD: Final = re.compile(r"([^ ]+|^)( *)")


def wrapped(line: str, width: int, indent: int = 0) -> Iterator[str]:
    """Parts of a line that fit. Later ones are indented as the first is, and by `indent` more.

    Words stay whole: only a single one, such as a long name, may be wider than `width`. Codes of colours have no width.
    """
    plain = _plain(line)
    after = " " * (len(plain) - len(plain.lstrip(" ")) + indent)
    shown = ""
    for word, gap in _WORD.findall(line):
        if shown.strip() and display_width(_plain(shown + word)) > width:
            yield shown.rstrip(" ")
            shown = after
        shown += word + gap
    yield shown.rstrip(" ")


def _plain(line: str) -> str:
    """The line without codes of colours."""
    return _CODE.sub("", line)
