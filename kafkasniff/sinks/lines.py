"""Output of lines: collected, written in blocks, folded to fit a terminal, or kept at their places.

A filter may decide on requests later than they are due. Without places, a request that only its response selects would
be shown with it, after lines of other connections.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import AnyStr, Final, Protocol

from kafkasniff.model import DecidedRequest, Exchange, HeldLines, Lines, Message, Problem, SaslToken
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


# -- lines that wait for a decision ------------------------------------------------------------------------------------
#
# Sinks do not know of it: they write to the end, or to a place while it is `at` hand.


MAX_HELD: Final = 64 << 20
"""Bytes that wait for a decision on earlier places; with more, the earliest place is given up. Bytes of places that
were given up; with more, the earliest one is dropped."""
MAX_PLACES: Final = 1 << 16
"""Places that are open at a time; with more, the earliest one is given up. Likewise those that were given up."""


class _Part:
    """Consecutive output. `count`: its messages."""

    __slots__ = ("count", "data", "is_open", "size")

    def __init__(self, *, is_open: bool = False) -> None:
        self.data: list[bytes] = []
        self.size = 0
        self.count = 0
        self.is_open = is_open

    def add(self, data: bytes) -> None:
        self.data.append(data)
        self.size += len(data)


class OrderedOutput:
    """Passes output on to `stream` up to the first open place.

    `limit`: waiting output ends after this many messages, of which `counted` has to be called for each; None: it does
    not end. A caller flushes its sink before and after it fills a place or counts a message.
    """

    def __init__(self, stream: ByteOutput, *, limit: int | None = None) -> None:
        self._stream = stream
        self._limit = limit
        self._parts: deque[_Part] = deque()
        """Output that waits, the earliest first; the last one is not a place."""
        self._places: dict[int, _Part] = {}
        """The open places, the earliest first."""
        self._given_up: dict[int, _Part] = {}
        """The contents of places for which the output did not wait."""
        self._at: _Part | None = None
        self._held = self._held_late = 0
        self.collects = False
        """Whether a flush only moves the output of a sink to its place."""
        self.shown = 0
        """Messages passed on, as far as they are counted."""
        self.late = 0
        """Places that were shown after later output."""
        self.dropped = 0
        """Places that were dropped without a decision."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Take output for the current place."""
        if not self._parts:
            self._stream.write(data)
            return
        (self._parts[-1] if self._at is None else self._at).add(bytes(data))
        self._held += len(data)
        if self._held > MAX_HELD:
            self._give_up()

    def write_held(self, data: bytes, held: Sequence[HeldLines]) -> None:
        """Take lines of which some have places of their own. Hot."""
        at = 0
        for key, begin, end in held:
            if begin > at:
                self.write(data[at:begin])
            self._open(key).add(data[begin:end])
            self._held += end - begin
            if self._held > MAX_HELD or len(self._places) > MAX_PLACES:
                self._give_up()
            at = end
        if at < len(data):
            self.write(data[at:])

    def flush(self) -> None:
        """Flush what was passed on."""
        if not self.collects:
            self._stream.flush()

    @contextmanager
    def at(self, key: int) -> Iterator[None]:
        """Open a place at the end, for the output written within."""
        self._at = self._open(key)
        yield
        self._at = None
        if len(self._places) > MAX_PLACES:
            self._give_up()

    def _open(self, key: int) -> _Part:
        part = self._places[key] = _Part(is_open=True)
        self._parts += (part, _Part())
        return part

    def decide(self, key: int, *, shown: bool) -> bool:
        """Show a place, or drop its content; returns whether it is shown."""
        part = self._places.pop(key, None)
        if part is not None:
            if not shown:
                self._held -= part.size
                part.data, part.size, part.count = [], 0, 0
            part.is_open = False
            self._release()
            return shown
        part = self._given_up.pop(key, None)
        if part is None:
            return False
        self._held_late -= part.size
        if shown:
            self.late += 1
            for data in part.data:
                self.write(data)
            self.counted(part.count)
        return shown

    def counted(self, count: int = 1) -> None:
        """The output so far, at the current place, includes more messages."""
        if not self._parts:
            self.shown += count
            return
        (self._parts[-1] if self._at is None else self._at).count += count
        if self._at is None:
            self._parts.append(_Part())

    def finish(self) -> None:
        """No more decisions follow."""
        for key in list(self._places):
            self.decide(key, shown=False)

    def _give_up(self) -> None:
        """Continue without the earliest places, until little waits."""
        while self._places and (self._held > MAX_HELD // 2 or len(self._places) > MAX_PLACES):
            key = next(iter(self._places))
            if self._places[key] is self._at:
                break
            self._given_up[key] = late = _Part()
            part = self._places[key]
            late.data, late.size, late.count = part.data, part.size, part.count
            self._held_late += late.size
            self.decide(key, shown=False)
        while self._held_late > MAX_HELD or len(self._given_up) > MAX_PLACES:
            self._held_late -= self._given_up.pop(next(iter(self._given_up))).size
            self.dropped += 1

    def _release(self) -> None:
        """Pass on the parts before the first open place."""
        while self._parts and not self._parts[0].is_open:
            part = self._parts.popleft()
            self._held -= part.size
            if self._limit is not None and self.shown >= self._limit:
                continue
            for data in part.data:
                self._stream.write(data)
            self.shown += part.count


# -- the sink ----------------------------------------------------------------------------------------------------------


class FormatSink(Protocol):
    """Writes events. Every event is passed on once, in the order of the capture."""

    stream: ByteOutput
    """Where finished lines go; may be replaced before the first one."""

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write an event, if the format shows such events."""

    def write_lines(self, lines: Lines) -> None:
        """Write lines that the format's line maker made, in turn with events."""

    def flush(self) -> None:
        """Pass everything written so far on to the stream."""

    def close(self) -> None:
        """End of events. The stream stays open."""


class OrderedSink:
    """Writes to `inner`, whose output passes the first request that waits once that is decided.

    `limit`: messages to be shown, None for all; a caller stops once they are.
    """

    def __init__(self, inner: FormatSink, limit: int | None = None) -> None:
        self.inner = inner
        """The sink of the format."""
        self._output = inner.stream = OrderedOutput(inner.stream, limit=limit)
        self._limits = limit is not None
        self._count = 0

    @property
    def shown(self) -> int:
        """Messages shown; those that wait for a request count at once if there is no limit."""
        return self._output.shown if self._limits else self._count

    @property
    def late(self) -> int:
        """Requests that waited for too many others, and were shown with their responses."""
        return self._output.late

    @property
    def dropped(self) -> int:
        """Such requests of which there were too many: they were not shown."""
        return self._output.dropped

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write an event. Hot."""
        self.inner.write(event)
        if type(event) is Message:
            self._counted()

    def write_lines(self, lines: Lines) -> None:
        """Write lines that the format's line maker made; without a limit only."""
        if lines.held:
            self._collect()
            self._output.write_held(bytes(lines.data), lines.held)
        else:
            self.inner.write_lines(lines)
        self._count += lines.count

    def hold(self, request: Message) -> None:
        """Write a request that is shown, or not, when `decide` is called."""
        assert request.exchange is not None
        with self._place(request.exchange):
            self.inner.write(request)

    @contextmanager
    def _place(self, exchange: int) -> Iterator[None]:
        """Output written within is shown, or not, when `decide` is called."""
        self._collect()
        with self._output.at(exchange):
            yield
            self._collect()
            self._output.counted()

    def decide(self, decided: DecidedRequest) -> None:
        """Show a held request at its place, or do not show it."""
        # If it is late, it follows the output so far.
        self._collect()
        self._count += self._output.decide(decided.exchange, shown=decided.is_selected)

    def flush(self) -> None:
        """Pass everything before the first held request on to the stream."""
        self.inner.flush()

    def close(self) -> None:
        """End of events: requests that are still held are not shown."""
        self._collect()
        self._output.finish()
        self.inner.close()

    def _counted(self) -> None:
        self._count += 1
        if self._limits:
            self._collect()
            self._output.counted()

    def _collect(self) -> None:
        """Move what the sink has collected to its place."""
        self._output.collects = True
        self.inner.flush()
        self._output.collects = False
