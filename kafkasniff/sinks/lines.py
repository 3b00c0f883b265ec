"""Output of lines: collected, and written in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, Final, Protocol

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
