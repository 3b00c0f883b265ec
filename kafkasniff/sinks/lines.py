"""Lines on their way out: collected, and written in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, Final, Protocol

__all__ = ["BLOCK_BYTES", "ByteStream", "LineWriter", "TextWriter", "joined"]

BLOCK_BYTES: Final = 64 << 10
"""Bytes collected before they are written: as much as a pipe takes at once."""


class ByteStream(Protocol):
    """Where lines go: a file, a pipe, a `BytesIO`."""

    def write(self, data: bytes, /) -> object:
        """Take all of `data`."""

    def flush(self) -> object:
        """Hand on what was written."""


def joined(parts: Iterable[AnyStr], separator: AnyStr, at_least: int) -> Iterator[AnyStr]:
    """The parts in pieces, with separators within a piece. Each but the last has `at_least` characters of parts."""
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

    Lines go out with their line ends or not at all, as far as `stream` keeps to that; a long line comes and
    goes in pieces.
    """

    __slots__ = ("_held", "_lines", "_stream")

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._held = 0

    def add(self, line: bytes) -> None:
        """Take one or several lines, each ending in a line feed, or the next piece of one. Hot."""
        if len(line) >= BLOCK_BYTES:
            # Joining it to what waits would copy it.
            if self._lines:
                self.flush()
            self._stream.write(line)
            self._stream.flush()
            return
        self._lines.append(line)
        self._held += len(line)
        if self._held >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was collected and hand it on."""
        if self._lines:
            # Forgotten before it is written: a stream that fails once is not asked again on close.
            lines, self._lines, self._held = self._lines, [], 0
            self._stream.write(b"".join(lines))
        self._stream.flush()


class TextWriter:
    """The same for text: lines wait as they are and are encoded block by block, since one by one takes longer.

    What `encoding` has no bytes for is written as backslash escapes.
    """

    __slots__ = ("_blocks", "_encoding", "_held", "_lines", "_stream")

    def __init__(self, stream: ByteStream, *, encoding: str = "utf-8") -> None:
        self._stream = stream
        self._encoding = encoding
        self._lines: list[str] = []
        self._blocks: list[bytes] = []
        """Lines in front of those, encoded."""
        self._held = 0

    def add(self, line: str) -> None:
        """Take one or several lines, the last without its line feed. Hot."""
        self._lines.append(line)
        # Characters: what they are in bytes is known when they are encoded, and a block need not be that exact.
        self._held += len(line)
        if self._held >= BLOCK_BYTES:
            self.flush()

    def add_encoded(self, lines: bytes) -> None:
        """Take lines that are encoded already, each with its line feed. Hot."""
        self._encode()
        self._blocks.append(lines)
        self._held += len(lines)
        if self._held >= BLOCK_BYTES:
            self.flush()

    def _encode(self) -> None:
        if self._lines:
            # The empty string puts a line feed behind the last line.
            lines, self._lines = [*self._lines, ""], []
            self._blocks.append("\n".join(lines).encode(self._encoding, "backslashreplace"))

    def flush(self) -> None:
        """Write what was collected and hand it on."""
        self._encode()
        if self._blocks:
            # Forgotten before it is written, as above.
            blocks, self._blocks, self._held = self._blocks, [], 0
            self._stream.write(b"".join(blocks))
        self._stream.flush()
