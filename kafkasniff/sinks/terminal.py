"""Lines of text that fit a terminal: a line that is too wide continues below, indented.

Terminals break lines in the middle of a word and continue them below the time. A message's line breaks between two
columns, or within the summary where that has room of its own; a line of a body or a problem breaks between words, below
its own beginning. Nothing is cut. Files and pipes have one line for each message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kafkasniff.sinks.lines import ByteOutput
from kafkasniff.text.printable import display_width

MIN_SUMMARY: Final = 40
"""Columns that a summary needs, to continue below its own beginning."""
MESSAGE_INDENT: Final = 17
"""Where a message's line continues otherwise: below its ends, as its problems do."""
LINE_INDENT: Final = 4
"""How much deeper other lines continue."""
MAX_LINE: Final = 64 << 10
"""Bytes of a line that are folded: more are a piece of payload, which is written as it is."""

_COLOURS: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_GAP: Final = re.compile("  +")
"""Between two columns."""
_MESSAGE: Final = re.compile(r"\d\d:\d\d:\d\d\.| {17}\S")
"""Begins a message's line, or one of its problems."""


def folded(line: str, width: int) -> Iterator[str]:
    """The line in pieces of at most `width` columns, the later ones indented.

    A word that is wider is broken. Colours take no room.
    """
    plain = _COLOURS.sub("", line).rstrip(" ")
    if _columns(plain) <= width:
        yield line.rstrip(" ")
        return
    is_message = _MESSAGE.match(plain) is not None
    gaps = list(_GAP.finditer(plain)) if is_message else []
    summary = _columns(plain[: gaps[-1].end()]) if gaps else width
    breaks: list[int] = []
    if width - summary >= MIN_SUMMARY:
        indent = summary
    else:
        indent = MESSAGE_INDENT if is_message else len(plain) - len(plain.lstrip(" ")) + LINE_INDENT
        indent = min(indent, width // 2)
        near = [gap for gap in gaps if gap.start() <= width]
        breaks += [gap.end() for gap in near if indent < _columns(plain[: gap.start()]) <= width][-1:]
    at = breaks[-1] if breaks else 0
    room = width - indent if breaks else width
    while (end := _fit(plain, at, room)) < len(plain):
        at = _word_end(plain, at, end)
        breaks.append(at)
        room = width - indent
    first, *rest = _cut(line, breaks)
    yield first
    for piece in rest:
        # Below its line, nothing is aligned with the columns.
        yield " " * indent + _GAP.sub("  ", piece.lstrip(" "))


def _columns(text: str) -> int:
    text = text.replace("→", "-").replace("←", "-")  # in nearly every line
    return len(text) if text.isascii() else display_width(text)


def _fit(text: str, at: int, width: int) -> int:
    """The end of what fits into `width` columns from `at`; at least one character."""
    end = at + width
    while end > at + 1 and _columns(text[at:end]) > width:
        end -= max(1, (_columns(text[at:end]) - width) // 2)
    return min(max(end, at + 1), len(text))


def _word_end(text: str, at: int, end: int) -> int:
    """The beginning of the last word that does not fit, else `end`."""
    if text[end : end + 1] == " ":
        return end + 1
    space = text.rfind(" ", at, end)
    return space + 1 if space >= 0 and text[at:space].strip(" ") else end


def _cut(line: str, breaks: list[int]) -> Iterator[str]:
    """The line cut at these places of its visible text, without the spaces before a cut."""
    pieces: list[str] = []
    at, rest = 0, iter([*breaks, -1])
    stop = next(rest)
    for part in _COLOURS.split(line):
        if part.startswith("\x1b"):
            pieces.append(part)
            continue
        while 0 <= stop - at < len(part):
            pieces.append(part[: stop - at])
            yield "".join(pieces).rstrip(" ")
            pieces = []
            part, at = part[stop - at :], stop  # noqa: PLW2901
            stop = next(rest)
        pieces.append(part)
        at += len(part)
    yield "".join(pieces).rstrip(" ")


class TerminalOutput:
    """Passes text on to `stream`, a terminal of `width` columns, in lines that fit.

    `encoding`: of the text.
    """

    def __init__(self, stream: ByteOutput, width: int, encoding: str) -> None:
        self._stream = stream
        self._width = width
        self._encoding = encoding

    def write(self, data: bytes | memoryview, /) -> None:
        """Write complete lines."""
        lines = bytes(data).split(b"\n")
        self._stream.write(b"\n".join(self._fit(line) for line in lines))

    def flush(self) -> None:
        """Flush what was written."""
        self._stream.flush()

    def _fit(self, line: bytes) -> bytes:
        if not self._width < len(line) <= MAX_LINE:
            return line
        text = line.decode(self._encoding, "replace")
        return "\n".join(folded(text, self._width)).encode(self._encoding, "backslashreplace")
