"""A message as a hexdump with its fields: offset, bytes in hex and as text, and the field with its value.

Bytes are shown only where the decoders show what they mean (`redact.message`). Lines are made one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkasniff.kafka.messages.message_spans import (
    COMPRESSED,
    LEFT_OVER,
    MALFORMED,
    MAX_SPANS,
    NOT_DECODED,
    NOT_LISTED,
    Inside,
    Piece,
    message_spans,
    with_records,
)
from kafkasniff.kafka.schema.definition import Field
from kafkasniff.kafka.schema.walker import Span
from kafkasniff.model import Message, SaslToken
from kafkasniff.redact.message import Blanker
from kafkasniff.sinks.summaries.phrases import records_phrase
from kafkasniff.sinks.tree import field_at, layout_of, scalar_text, value_note
from kafkasniff.text.printable import Paint, clipped, cut, display_width, printable

ROW: Final = 8
"""Bytes per row: most fields fit, and an 80-column terminal has room for their names."""
SHOWN_ROWS: Final = 8
"""Rows shown per field unless all are wanted; for the rest only the size is shown."""
SHOWN_FIELDS: Final = 10_000
"""Fields shown per message unless all are wanted; for the rest only the size is shown."""
VALUE_WIDTH: Final = 80
MIN_VALUE: Final = 16
"""Columns left to a value if its path is long."""
_HEX: Final = ROW * 3 - 1
_BYTES: Final = _HEX + 2 + ROW
_TYPE: Final = 22
"""Columns of a type, which most types fit."""
_TEXT: Final = bytes(code if 0x20 <= code < 0x7F else 0x2E for code in range(256))
"""What stands for each byte in the column of text: a dot if it is not printable ASCII."""
_WITHOUT_FIELD: Final = frozenset({LEFT_OVER, NOT_DECODED, NOT_LISTED})


class HexRow(NamedTuple):
    """A row, and which bytes are in it."""

    text: str
    path: str = ""
    """The field of the bytes; a row without one has no bytes."""
    offset: int = 0
    """Offset of the first byte, in the message or in the decompressed bytes that an earlier row announces."""
    size: int = 0
    """Number of bytes that are shown; hidden ones do not count."""
    column: int = 0
    """Where in `text` the first byte is, apart from codes of colours."""


class HexView:
    """Shows messages that were decoded with all their records.

    `whole`: show all bytes of long fields and messages; `secrets`, `payload`: those are shown; `width`: columns
    available, None: any; `types`: also show types on the wire; `text`: also show bytes as text; `below`: a field that
    is too wide goes to a line of its own below its bytes, instead of being cut.
    """

    def __init__(
        self,
        paint: Paint,
        *,
        whole: bool,
        secrets: bool,
        payload: bool = True,
        width: int | None = None,
        types: bool = False,
        text: bool = True,
        below: bool = False,
    ) -> None:
        self._paint = paint
        self._whole = whole
        self._secrets = secrets
        self._blanker = Blanker(secrets=secrets, payload=payload, most=MAX_SPANS)
        self._width = width
        self._types = types
        self._bytes = _BYTES if text else _HEX
        """Columns of a row's bytes."""
        self._below = below

    def lines(self, message: Message, data: bytes, indent: str = "") -> Iterator[str]:
        """The rows of a message, `data`, as text."""
        return (row.text for row in self.rows(message, data, indent))

    def rows(self, message: Message, data: bytes, indent: str = "") -> Iterator[HexRow]:
        """The rows of a message, `data`."""
        visible, opens = self._blanker.visible(data, message)

        def may_open(start: int, end: int) -> bool:
            return opens and (visible is None or visible.find(0, start, end) < 0)

        spans = message_spans(message, data, show_secrets=self._secrets)
        view = _View(self, message, data, visible)
        yield from view.pieces(with_records(message, data, spans, may_open), indent, data, visible)
        yield from view.last_problems(indent)

    def token_lines(self, token: SaslToken, indent: str = "") -> Iterator[str]:
        """The rows of a raw SASL token; its size alone if it is secret."""
        if token.token is None:
            yield f"{indent}{self._paint.dim}0000{self._paint.reset}  [{_amount(token.size)} hidden]"
            return
        digits = max(4, len(f"{token.size:x}"))
        for offset, _, shown in hex_rows(token.token, 0, len(token.token), whole=self._whole):
            place = " " * digits if offset is None else f"{offset:0{digits}x}"
            yield f"{indent}{self._paint.dim}{place}{self._paint.reset}  {shown}"


class _View:
    """One message while it is shown."""

    def __init__(self, of: HexView, message: Message, data: bytes, visible: bytearray | None) -> None:
        self.of = of
        self.message = message
        self.layout = layout_of(message)
        self.size = len(data)
        problems = [(problem.offset, problem.kind) for problem in message.problems if problem.offset is not None]
        self.problems = sorted(problems, reverse=True)
        """Those that were not shown yet, the next one last."""
        self.fields = 0

    def pieces(
        self, pieces: Iterator[Piece], indent: str, data: bytes, visible: bytearray | None, sign: str = ""
    ) -> Iterator[HexRow]:
        """Rows of `data`; `sign` marks offsets that are not those of the message."""
        paint, digits = self.of._paint, max(4, len(f"{len(data):x}"))
        for piece in pieces:
            if isinstance(piece, Inside):
                name = printable(piece.path)
                size = f"{len(piece.data):,} bytes decompressed ({piece.codec})"
                place = f"{indent}{paint.dim}{sign}{' ' * digits}"
                yield HexRow(f"{place}  {size}:{paint.reset} {paint.name}{name}{paint.reset}", piece.path)
                yield from self.pieces(piece.spans, indent, piece.data, None, f"{sign}+")
                continue
            if self.fields >= SHOWN_FIELDS and not self.of._whole:
                yield HexRow(f"{indent}{sign}{' ' * digits}  … {len(data) - piece.start:,} more bytes")
                return
            self.fields += 1
            column = len(indent) + len(sign) + digits + 2
            left = None if self.of._width is None else self.of._width - column
            room = None if left is None else left - self.of._bytes - 2
            kinds = "" if sign else self.problems_before(piece.end)
            note, width = self.note(piece, visible, None if self.of._below else room, kinds)
            below = ""
            if self.of._below and room is not None and width > room:
                fits = None if left is None else left - (_TYPE + 2 if self.of._types else 0)
                below, note = self.note(piece, visible, fits, kinds)[0], ""
            for offset, count, shown in hex_rows(data, piece.start, piece.end, visible, whole=self.of._whole):
                place = f"{sign}{offset:0{digits}x}" if offset is not None else f"{sign}{' ' * digits}"
                seen = shown[: self.of._bytes] if count else shown
                text = f"{indent}{paint.dim}{place}{paint.reset}  {seen:<{self.of._bytes}}  {note}".rstrip()
                yield HexRow(text, piece.path, offset or 0, count, column)
                note = ""
            if below:
                yield HexRow(f"{' ' * column}{below}")

    def problems_before(self, end: int) -> str:
        """The kinds of problems up to this place that were not shown yet."""
        kinds = ""
        while self.problems and self.problems[-1][0] < end:
            kinds += f" ! {self.problems.pop()[1]}"
        return kinds

    def note(self, span: Span, visible: bytearray | None, room: int | None, kinds: str) -> tuple[str, int]:
        """Field and value of a span, with the kinds of problems in it; and its width."""
        paint = self.of._paint
        hidden = 0 if visible is None else visible.count(0, span.start, span.end)
        text, remark, colour = self.value(span, hidden)
        path = printable(span.path)
        if room is not None:
            room = max(room - len(kinds), 2 * MIN_VALUE)
            most = room - min(display_width(text) + 2, max(2 * room // 5, MIN_VALUE))
            if len(path) > most:
                path = "…" + path[len(path) - most + 1 :]
            text = clipped(text, room - len(path) - 2)
            if len(path) + display_width(text) + len(remark) + 5 > room:
                remark = ""
        above, dot, name = path.rpartition(".")
        shown = f"{paint.dim}{above}{dot}{paint.reset}{paint.name}{name}{paint.reset}: {text}"
        width = len(path) + 2 + display_width(text) + len(kinds)
        if self.of._types:
            shown = f"{paint.dim}{span.type:<{_TYPE}}{paint.reset}  {shown}"
            width += max(len(span.type), _TYPE) + 2
        if remark:
            shown += f" {colour}({remark}){paint.reset}"
            width += display_width(remark) + 3
        return f"{shown}{paint.warn}{kinds}{paint.reset}" if kinds else shown, width

    def value(self, span: Span, hidden: int) -> tuple[str, str, str]:
        """The value of a span, a remark on it, and the remark's colour."""
        value = span.value
        size = _amount(span.end - span.start)
        if span.path in _WITHOUT_FIELD or span.type == MALFORMED:
            return size if span.type != MALFORMED else f"{size} {MALFORMED}", "", ""
        if hidden and not (isinstance(value, dict) and "redacted" in value):
            return f"[{_amount(hidden)} hidden]", "", ""
        if isinstance(value, dict) and "batches" in value:
            return records_phrase(value), "", ""
        if span.type.startswith("length of"):
            return _amount(value), "", ""
        if span.type.startswith("tag and size"):
            return f"tag {value}", "", ""
        if span.type == COMPRESSED:
            return f"{size} {value}", "", ""
        text = cut(scalar_text(value), VALUE_WIDTH)
        if span.type.startswith("count of"):
            return text, "", ""
        if span.path == "request_api_key":
            return text, self.message.api or "", self.of._paint.note
        name = span.path.rpartition(".")[2]
        remark, colour = value_note("" if name.endswith("_delta") else name, value, self.field(span), self.of._paint)
        return text, remark or "", colour

    def field(self, span: Span) -> Field | None:
        """The definition of a field; those of records have none."""
        if span.type.startswith("varint"):
            return None
        return span.field or field_at(self.layout, span.path)

    def last_problems(self, indent: str) -> Iterator[HexRow]:
        """What is wrong with the end of the message."""
        paint, digits = self.of._paint, max(4, len(f"{self.size:x}"))
        if self.problems:
            kinds = "".join(f" ! {kind}" for _, kind in reversed(self.problems))
            place = f"{indent}{paint.dim}{self.size:0{digits}x}{paint.reset}  {'end of the message':<{_BYTES}}"
            yield HexRow(f"{place} {paint.warn}{kinds}{paint.reset}")


def hex_rows(
    data: bytes, start: int, end: int, visible: bytearray | None = None, *, whole: bool
) -> Iterator[tuple[int | None, int, str]]:
    """Offset, number of bytes shown, and bytes in hex and as text, of each row of `data[start:end]`.

    Consecutive hidden bytes share one row. `visible`: 1 for each byte that may be shown; None: all. `whole`: all rows,
    not only the first. The row that counts the rest has no offset.
    """
    count = 0
    position = stop = start
    is_hidden = False
    while position < end:
        if count == SHOWN_ROWS and not whole:
            yield None, 0, f"… {end - position:,} more bytes"
            return
        count += 1
        if position == stop:
            # Once for many rows: what is next may be far away.
            is_hidden = visible is not None and not visible[position]
            stop = end if visible is None else visible.find(is_hidden, position, end)
            stop = end if stop < 0 else stop
        if is_hidden:
            yield position, 0, f"[{_amount(stop - position)} hidden]"
            position = stop
            continue
        row = data[position : min(position + ROW, stop)]
        yield position, len(row), f"{row.hex(' '):<{_HEX}}  {row.translate(_TEXT).decode('ascii')}"
        position += len(row)


def _amount(size: int) -> str:
    return f"{size:,} byte{'' if size == 1 else 's'}"
