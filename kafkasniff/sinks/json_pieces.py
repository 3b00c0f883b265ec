r"""JSON of large bodies in pieces, byte for byte what orjson makes of the whole.

A line of a large body may be six times as long as what the body holds (`\u0000`), and that several times as long as
what was on the wire. So lists of records are left out of the line at first, and rendered a few at a time where they
were left out; long values are left out of those, and rendered in parts.
"""

from __future__ import annotations

import codecs
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import orjson

from kafkasniff.model import Body, RenderedRecords
from kafkasniff.sinks.lines import joined

__all__ = ["LONG_VALUE", "PIECE_BYTES", "PLACE", "BytesForm", "Pieces", "bytes_default"]

BytesForm = Literal["auto", "base64", "hex"]
"""auto: a string where the bytes are UTF-8, else `{"base64"}`; base64, hex: always that."""
Default = Callable[[Any], Any]

PIECE_BYTES: Final = 64 << 10
"""Bytes of a piece, about: as much as a pipe takes at once."""
LONG_VALUE: Final = 4 << 10
"""Bytes from which on a value is rendered by itself."""
PART_BYTES: Final = 48 << 10
"""Bytes of a value that are rendered at once: a multiple of three, for base64."""
FEW: Final = 64
"""Records, or headers of one, that are rendered at once."""
MANY_HEADERS: Final = 16
"""Headers from which on those of a record are rendered by themselves."""

PLACE: Final = b"\0"
"""Stands where something was left out: JSON escapes it, so that nothing else is this byte."""
_ZEROS: Final = bytes(64)
_RUN: Final = re.compile(rb"(\0{64,})")
_ZERO: Final = b"\\u0000"


class _Later:
    """Stands for a list that is left out."""

    __slots__ = ("are_records", "items")

    def __init__(self, items: list[dict[str, Any]], are_records: bool = True) -> None:
        self.items = items
        self.are_records = are_records


def bytes_default(form: BytesForm = "auto") -> Default:
    """The `default` hook for orjson that gives bytes the wanted form. Hot."""
    return {"auto": _auto, "base64": _base64, "hex": _hex}[form]


def _rendered(value: Any) -> Any:
    if value.__class__ is RenderedRecords:
        return orjson.Fragment(value.json)
    raise TypeError(f"{type(value).__name__} in a body")


def _auto(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode("ascii")}
        # Payload may be zeros: six bytes for each, which take their time one by one.
        return orjson.Fragment(_with_zeros(value)) if 0 in value and _ZEROS in value else text
    return _rendered(value)


def _base64(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode("ascii")}
    return _rendered(value)


def _hex(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return _rendered(value)


def _with_zeros(value: bytes) -> bytes:
    """The JSON string of UTF-8 bytes in which runs of zeros are."""
    # What the pattern matches stands at odd places.
    parts = [
        _ZERO * len(part) if place % 2 else orjson.dumps(part.decode())[1:-1]
        for place, part in enumerate(_RUN.split(value))
    ]
    return b'"' + b"".join(parts) + b'"'


class Pieces:
    """Renders items with large bodies; the same for all of a sink.

    `form`: that of bytes; `hide`: makes of a record what is shown of it.
    """

    def __init__(
        self, form: BytesForm = "auto", hide: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> None:
        self._form = form
        self._hide = hide
        self._plain = bytes_default(form)
        self._left: list[Any] = []
        """What was left out of what is being rendered, in order."""

    def of(self, item: dict[str, Any], body: Body) -> Iterator[bytes]:
        """The line of an item, of which `body` is a part, with its line feed, in pieces of some `PIECE_BYTES`."""
        return joined(self._line(item, body), b"", PIECE_BYTES)

    def _line(self, item: dict[str, Any], body: Body) -> Iterator[bytes]:
        lists = [(batch, batch["records"]) for batch in _batches(body) if len(batch.get("records") or ()) > 0]
        # The body is another's, too: it is as it was before anybody else sees it.
        try:
            for batch, records in lists:
                batch["records"] = _Later(records)
            parts = self._apart(item, orjson.OPT_APPEND_NEWLINE)
        finally:
            for batch, records in lists:
                batch["records"] = records
        del lists
        return self._filled(*parts)

    def _apart(self, value: Any, option: int = 0) -> tuple[list[bytes], list[Any]]:
        """The JSON of a value around what is left out of it, and that."""
        left: list[Any] = []
        self._left = left
        try:
            whole: bytes = orjson.dumps(value, default=self._default, option=option)
        finally:
            self._left = []
        return whole.split(PLACE), left

    def _default(self, value: Any) -> Any:
        kind = value.__class__
        if kind is _Later or kind is RenderedRecords or (isinstance(value, bytes) and len(value) > LONG_VALUE):
            self._left.append(value)
            return orjson.Fragment(PLACE)
        return self._plain(value)

    def _filled(self, around: list[bytes], left: list[Any]) -> Iterator[bytes]:
        around.reverse()
        left.reverse()
        yield around.pop()
        while left:
            one = left.pop()
            if isinstance(one, bytes):
                yield from self._value(one)
            elif one.__class__ is RenderedRecords:
                yield one.json
            else:
                yield from self._list(one)
            yield around.pop()

    def _list(self, left: _Later) -> Iterator[bytes]:
        """A list of records, or of headers."""
        items, hide = left.items, self._hide if left.are_records else None
        yield b"["
        for start in range(0, len(items), FEW):
            if start:
                yield b","
            few = items[start : start + FEW]
            if hide is not None:
                few = [hide(one) for one in few]
            around, inside = self._apart([_without_headers(one) for one in few])
            around[0] = around[0][1:]
            around[-1] = around[-1][:-1]
            yield from self._filled(around, inside)
        yield b"]"

    def _value(self, value: bytes) -> Iterator[bytes]:
        """A long value, in parts."""
        if len(value) <= PART_BYTES:
            yield orjson.dumps(value, default=self._plain)
            return
        places = range(0, len(value), PART_BYTES)
        if self._form == "hex":
            yield b'{"hex":"'
            for start in places:
                yield value[start : start + PART_BYTES].hex().encode()
            yield b'"}'
        elif self._form == "auto" and _is_utf8(value):
            yield b'"'
            decoder = codecs.getincrementaldecoder("utf-8")()
            for start in places:
                text = decoder.decode(value[start : start + PART_BYTES], start + PART_BYTES >= len(value))
                yield orjson.dumps(text.encode(), default=self._plain)[1:-1]
            yield b'"'
        else:
            yield b'{"base64":"'
            for start in places:
                yield b64encode(value[start : start + PART_BYTES])
            yield b'"}'


def _without_headers(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose headers are left out, if there are many."""
    headers = record.get("headers")
    if headers and len(headers) > MANY_HEADERS:
        return {**record, "headers": _Later(headers, are_records=False)}
    return record


def _is_utf8(value: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(value), PART_BYTES):
            decoder.decode(value[start : start + PART_BYTES], start + PART_BYTES >= len(value))
    except UnicodeDecodeError:
        return False
    return True


def _batches(body: Any) -> Iterator[dict[str, Any]]:
    """The batches of all `records` values, however deep they are."""
    left = [body]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left.extend([inner for inner in one if isinstance(inner, dict | list)])
        elif "truncated_bytes" in one and "batches" in one:
            yield from one["batches"]
        else:
            left.extend([inner for inner in one.values() if isinstance(inner, dict | list)])
