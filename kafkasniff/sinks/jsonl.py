"""JSON lines: one object per message, SASL token or problem; programs depend on the keys and their order.

Bodies go through orjson unchanged; only values without a JSON form (bytes) return through its `default` hook. So
nothing traverses a body here, with one exception: float64 fields, because orjson writes NaN and infinities as null.
"""

from __future__ import annotations

import codecs
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Any, Final, Literal

import orjson

from kafkasniff.kafka.messages.message_plan import may_have_floats
from kafkasniff.kafka.schema.context import LargeBody, RenderedBody, RenderedRecords
from kafkasniff.model import Body, Endpoint, Exchange, Lines, Message, Problem, SaslToken
from kafkasniff.redact.payload import SHOWN, BesideRecords, Payload
from kafkasniff.sinks.lines import ByteOutput, LineWriter, joined
from kafkasniff.text.printable import visible_json
from kafkasniff.text.times import rfc3339

# -- large bodies in pieces --------------------------------------------------------------------------------------------
#
# The line of a large body may be six times as long as its content (`\u0000`), which may be several times as long as on
# the wire. So lists of records are first omitted from the line, and rendered a few at a time in their places. Long
# values are omitted from those, and rendered in parts.


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
        _ZERO * len(part) if index % 2 else orjson.dumps(part.decode())[1:-1]
        for index, part in enumerate(_RUN.split(value))
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
            rendered_records = left.pop()
            if isinstance(rendered_records, bytes):
                yield from self._value(rendered_records)
            elif rendered_records.__class__ is RenderedRecords:
                yield rendered_records.json
            else:
                yield from self._list(rendered_records)
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
                few = [hide(row) for row in few]
            around, inside = self._split([_without_headers(row) for row in few])
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


# -- lines -------------------------------------------------------------------------------------------------------------


ENDPOINTS_KEPT: Final = 4096
"""Maximum number of endpoints cached as text."""


def json_default(form: BytesForm = "auto") -> Default:
    """The `default` hook for orjson that renders bytes in the given form."""
    return bytes_default(form)


def _finite(value: Any) -> Any:
    """`value` with NaN and infinities as strings: JSON has no numbers for them."""
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 (only NaN differs from itself)
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
    elif isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    elif isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _encodable(value: Any) -> Any:
    r"""`value` with lone surrogates as `\xNN`: file names that are not UTF-8 (PEP 383) have them, JSON cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value


def plain_text(text: str | None) -> bytes:
    """A string as written in lines."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(text))


def body_json(body: Body, form: BytesForm = "auto") -> str:
    """A body as compact JSON text, values as in the JSON lines: for the columns of Parquet."""
    return orjson.dumps(_finite(body), default=json_default(form)).decode()


def plain(value: Any, form: BytesForm = "auto") -> Any:
    """A decoded value as in JSON: dicts, lists, strings, numbers, booleans, None; bytes in the given form."""
    if isinstance(value, bytes):
        return json_default(form)(value)
    if isinstance(value, dict):
        return {key: plain(item, form) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, form) for item in value]
    return _finite(value)


@lru_cache(maxsize=ENDPOINTS_KEPT)
def _endpoint(endpoint: Endpoint | None) -> str | None:
    return None if endpoint is None else str(endpoint)


def problem_objects(problems: tuple[Problem, ...]) -> list[dict[str, Any]]:
    """The problems in the line of a message."""
    return [{"kind": problem.kind, "detail": problem.detail, "offset": problem.offset} for problem in problems]


def _message(message: Message, body: Any, capture: bool) -> dict[str, Any]:
    """The object of a message in the contract's order of keys. Hot: one dict literal, the rare keys added after it."""
    item: dict[str, Any] = {
        "type": message.type,
        "exchange": message.exchange,
        "connection": message.connection,
        "time": rfc3339(message.time_ns),
        "client": _endpoint(message.client),
        "broker": _endpoint(message.broker),
        "api_key": message.api_key,
        "api": message.api,
        "api_version": message.api_version,
        "correlation_id": message.correlation_id,
        "client_id": message.client_id,
        "size": message.size,
        "first_packet": message.first_packet,
        "last_packet": message.last_packet,
        "problems": problem_objects(message.problems) if message.problems else [],
    }
    if message.type == "response":
        latency, duration = message.latency_ns, message.duration_ns
        item["latency_ms"] = None if latency is None else latency / 1e6
        item["duration_ms"] = None if duration is None else duration / 1e6
        item["errors"] = [{"code": error.code, "name": error.name, "path": error.path} for error in message.errors]
    if capture:
        item["capture"] = message.capture
    if message.header_tags:
        item["header_tags"] = [
            {"tag": tag, "base64": b64encode(value).decode("ascii")} for tag, value in message.header_tags
        ]
    if message.body_version is not None:
        item["body_version"] = message.body_version
    item["body"] = body
    if message.raw is not None:
        item["raw"] = b64encode(message.raw).decode("ascii")
    elif message.raw_redacted is not None:
        item["raw"] = {"redacted": message.raw_redacted}
    return item


def _sasl(token: SaslToken, capture: bool) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "sasl",
        "connection": token.connection,
        "time": rfc3339(token.time_ns),
        "client": _endpoint(token.client),
        "broker": _endpoint(token.broker),
        "direction": token.direction,
        "size": token.size,
        "mechanism": token.mechanism,
    }
    if capture:
        item["capture"] = token.capture
    item["token"] = {"redacted": token.size} if token.token is None else token.token
    if token.meaning is not None:
        item["_token"] = token.meaning
    return item


def _problem(problem: Problem) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "problem",
        "kind": problem.kind,
        "detail": problem.detail,
        "connection": problem.connection,
        "time": rfc3339(problem.time_ns),
        "capture": problem.capture,
        "packet": problem.packet,
        "direction": problem.direction,
        "bytes": problem.bytes,
    }
    if problem.exchange is not None:
        item["exchange"] = problem.exchange
    return item


def message_object(message: Message, *, form: BytesForm = "auto", capture: bool = False) -> dict[str, Any]:
    """The content of a message's line, as plain values in the contract's order; `capture`: also name the capture."""
    item: dict[str, Any] = plain(_message(message, message.body, capture), form)
    return item


class JsonSink:
    """Writes events as JSON lines to `stream`.

    `form`: how bytes are written; `capture`: name the capture in every line, if there are several;
    `payload`: how payload is shown; `terminal`: escape characters that would act on one.
    """

    def __init__(
        self,
        stream: ByteOutput,
        *,
        form: BytesForm = "auto",
        capture: bool = False,
        payload: Payload = SHOWN,
        terminal: bool = False,
    ) -> None:
        self._terminal = terminal
        self._payload = payload if payload.hides else None
        self._beside = BesideRecords.of(payload)
        self._lines = LineWriter(stream)
        self._dumps = partial(orjson.dumps, default=self._default, option=orjson.OPT_APPEND_NEWLINE)
        self._plain = json_default(form)
        self._fillings: list[bytes] = []
        """Large JSON of the current line, in order: orjson would copy it several times."""
        self._pieces = Pieces(form, payload.record if payload.hides else None)
        self._capture = capture

    @property
    def stream(self) -> ByteOutput:
        """Where lines go. May be replaced before the first one."""
        return self._lines.stream

    @stream.setter
    def stream(self, stream: ByteOutput) -> None:
        self._lines.stream = stream

    def write_lines(self, lines: Lines) -> None:
        """Write finished lines."""
        self._lines.add(lines.data)

    def write(self, event: Message | SaslToken | Exchange | Problem) -> None:
        """Write the line of one event, if it has one. Hot."""
        line = self.line(event)
        if isinstance(line, bytes):
            self._lines.add(line)
        elif line is not None:
            for piece in line:
                self._lines.add(piece)

    def line(self, event: Message | SaslToken | Exchange | Problem) -> bytes | Iterator[bytes] | None:
        """The line of one event with its line feed; None if it has none. Hot.

        For a large body, the pieces of the line, which are made lazily.
        """
        self._fillings = []
        if type(event) is Message:
            if self._payload is not None:
                payload = self._beside if event.body.__class__ is LargeBody else self._payload
                event = payload.hide(event)
            body: Any = event.body
            large = body.__class__ is LargeBody
            if body.__class__ is RenderedBody:
                body = self._fragment(body.json)
            elif body is not None and event.api_key is not None and may_have_floats(event.api_key):
                body = _finite(body)
            item = _message(event, body, self._capture)
            if large:
                return self._in_pieces(item, body)
        elif isinstance(event, Problem):
            item = _problem(event)
        elif isinstance(event, SaslToken):
            item = _sasl(event, self._capture)
        else:
            # The end of an exchange has no line: its messages have lines, its problems are separate events.
            return None
        before = len(self._fillings)
        try:
            line: bytes = self._dumps(item)
        except orjson.JSONEncodeError:
            # Only a capture's name can contain text that JSON cannot.
            del self._fillings[before:]
            line = self._dumps(_encodable(item))
        if self._fillings:
            return self._around(line)
        return visible_json(line) if self._terminal else line

    def _default(self, value: Any) -> Any:
        """The JSON form of a value that has none in orjson. Hot."""
        if value.__class__ is RenderedRecords:
            return self._fragment(value.json)
        return self._plain(value)

    def _fragment(self, json: bytes) -> orjson.Fragment:
        if len(json) < PIECE_BYTES:
            return orjson.Fragment(json)
        self._fillings.append(json)
        return orjson.Fragment(PLACE)

    def _around(self, line: bytes) -> Iterator[bytes]:
        """A line in pieces, including its omitted parts."""
        fillings, self._fillings = self._fillings, []
        pieces = (piece for pair in zip_longest(line.split(PLACE), fillings) for piece in pair if piece)
        return map(visible_json, pieces) if self._terminal else pieces

    def _in_pieces(self, item: dict[str, Any], body: Body) -> Iterator[bytes]:
        try:
            pieces = self._pieces.of(item, body)
        except orjson.JSONEncodeError:
            # As below; the omitted parts have no such text.
            pieces = self._pieces.of(_encodable({**item, "body": None}) | {"body": body}, body)
        return map(visible_json, pieces) if self._terminal else pieces

    def flush(self) -> None:
        """Flush all lines so far."""
        self._lines.flush()

    def close(self) -> None:
        """Flush the last lines; the stream stays open."""
        self._lines.flush()
