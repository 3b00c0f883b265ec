r"""JSON of large bodies in pieces, identical to orjson's output for the whole.

A line of a large body may be six times as long as the body's content (`\u0000`), which may be several times as long as
on the wire. So lists of records are first omitted from the line, and rendered a few at a time in their places. Long
values are omitted from those, and rendered in parts.
"""

from __future__ import annotations

import codecs
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import orjson

from kafkasniff.kafka.schema.context import RenderedRecords
from kafkasniff.model import Body
from kafkasniff.sinks.lines import joined

BytesForm = Literal["auto", "base64", "hex"]
"""auto: a string if the bytes are UTF-8, else `{"base64"}`; base64, hex: always that."""
Default = Callable[[Any], Any]

PIECE_BYTES: Final = 64 << 10
"""Approximate size of a piece in bytes: as much as a pipe takes at once."""
LONG_VALUE: Final = 4 << 10
"""Values from this size on are rendered separately."""
PART_BYTES: Final = 48 << 10
"""Bytes of a value that are rendered at once: a multiple of three, for base64."""
FEW: Final = 64
"""Records, or headers of one, that are rendered at once."""
MANY_HEADERS: Final = 16
"""From this number on, the headers of a record are rendered separately."""

PLACE: Final = b"\0"
"""Placeholder for omitted parts: JSON escapes this byte, so it cannot occur otherwise."""
_ZEROS: Final = bytes(64)
_RUN: Final = re.compile(rb"(\0{64,})")
_ZERO: Final = b"\\u0000"


class _Later:
    """Placeholder for an omitted list."""

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
        # Payload may be zeros, which are slow to encode one by one, as six bytes each.
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
    """The JSON string of UTF-8 bytes that contain runs of zeros."""
    # The matches of the pattern are at odd indices.
    parts = [
        _ZERO * len(part) if place % 2 else orjson.dumps(part.decode())[1:-1]
        for place, part in enumerate(_RUN.split(value))
    ]
    return b'"' + b"".join(parts) + b'"'


class Pieces:
    """Renders items with large bodies; shared by a sink.

    `form`: of bytes; `hide`: returns the displayed form of a record.
    """

    def __init__(
        self, form: BytesForm = "auto", hide: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> None:
        self._form = form
        self._hide = hide
        self._plain = bytes_default(form)
        self._left: list[Any] = []
        """Parts omitted from the JSON being rendered, in order."""

    def of(self, item: dict[str, Any], body: Body) -> Iterator[bytes]:
        """The line of an item that contains `body`, with its line feed, in pieces of about `PIECE_BYTES`."""
        return joined(self._line(item, body), b"", PIECE_BYTES)

    def _line(self, item: dict[str, Any], body: Body) -> Iterator[bytes]:
        lists = [(batch, batch["records"]) for batch in _batches(body) if len(batch.get("records") or ()) > 0]
        # The body is shared: it is restored before anybody else sees it.
        try:
            for batch, records in lists:
                batch["records"] = _Later(records)
            parts = self._split(item, orjson.OPT_APPEND_NEWLINE)
        finally:
            for batch, records in lists:
                batch["records"] = records
        del lists
        return self._filled(*parts)

    def _split(self, value: Any, option: int = 0) -> tuple[list[bytes], list[Any]]:
        """The JSON of a value around its omitted parts, and those parts."""
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
            around, inside = self._split([_without_headers(one) for one in few])
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
    """A record without its headers, if there are many."""
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
    """The batches of all `records` values, at any depth."""
    left = [body]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left.extend([inner for inner in one if isinstance(inner, dict | list)])
        elif "truncated_bytes" in one and "batches" in one:
            yield from one["batches"]
        else:
            left.extend([inner for inner in one.values() if isinstance(inner, dict | list)])
