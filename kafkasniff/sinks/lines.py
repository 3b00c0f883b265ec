"""Output of lines: collected, written in blocks, and folded to fit a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import AnyStr, Final, Protocol

from kafkasniff.text.printable import display_width

BLOCK_BYTES: Final = 64 << 10
"""Bytes collected before they are written: as much as a pipe takes at once."""


class ByteOutput(Protocol):
    """Output for lines: a file, a pipe, a `BytesIO`."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Take all of `data`."""

    def flush(self) -> object:
        """Flush written data."""


def joined(parts: Iterable[AnyStr], separator: AnyStr, at_least: int) -> Iterator[AnyStr]:
    """The parts in pieces, with separators within a piece. Each piece but the last has `at_least` characters."""
    held: list[AnyStr] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= at_least:
            yield separator.join(held)
            held, size = [], 0
    if held:
        yield separator.join(held)


class LineWriter:
    """Writes complete lines to `stream`.

    Lines are written with their line ends or not at all, as far as `stream` allows it; a long line is passed on in
    pieces. `stream` may be replaced between two blocks.
    """

    __slots__ = ("_held", "_lines", "stream")

    def __init__(self, stream: ByteOutput) -> None:
        self.stream = stream
        self._lines: list[bytes] = []
        self._held = 0

    def add(self, line: bytes | memoryview) -> None:
        """Add one or several lines, each ending in a line feed, or the next piece of one. Hot.

        A view is written at once: its content may change.
        """
        if len(line) >= BLOCK_BYTES or isinstance(line, memoryview):
            # Joining it with the waiting lines would copy it.
            if self._lines:
                self.flush()
            self.stream.write(line)
            self.stream.flush()
            return
        self._lines.append(line)
        self._held += len(line)
        if self._held >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected lines and flush."""
        if self._lines:
            # Forgotten before they are written: a stream that fails is not retried on close.
            lines, self._lines, self._held = self._lines, [], 0
            self.stream.write(b"".join(lines))
        self.stream.flush()


class TextWriter:
    """The same for text, in UTF-8: lines are encoded block by block, since one by one takes longer.

    `stream` may be replaced between two blocks.
    """

    __slots__ = ("_blocks", "_held", "_lines", "stream")

    def __init__(self, stream: ByteOutput) -> None:
        self.stream = stream
        self._lines: list[str] = []
        self._blocks: list[bytes] = []
        """Earlier lines, encoded."""
        self._held = 0

    def add(self, line: str) -> None:
        """Add one or several lines, the last without its line feed. Hot."""
        self._lines.append(line)
        # In characters: the size in bytes is known after encoding, and a block need not be that exact.
        self._held += len(line)
        if self._held >= BLOCK_BYTES:
            self.flush()

    def add_encoded(self, lines: bytes) -> None:
        """Add encoded lines, each with its line feed. Hot."""
        self._encode()
        self._blocks.append(lines)
        self._held += len(lines)
        if self._held >= BLOCK_BYTES:
            self.flush()

    def _encode(self) -> None:
        if self._lines:
            # The empty string adds a line feed after the last line.
            lines, self._lines = [*self._lines, ""], []
            self._blocks.append("\n".join(lines).encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Write the collected lines and flush."""
        self._encode()
        if self._blocks:
            # Forgotten before it is written, as above.
            blocks, self._blocks, self._held = self._blocks, [], 0
            self.stream.write(b"".join(blocks))
        self.stream.flush()


# -- lines that fit a terminal -----------------------------------------------------------------------------------------
#
# Terminals break lines in the middle of a word and continue them below the time. A message's line breaks between two
# columns, or within the summary where that has room of its own; a line of a body or a problem breaks between words,
# below its own beginning. Nothing is cut. Files and pipes have one line for each message.


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
