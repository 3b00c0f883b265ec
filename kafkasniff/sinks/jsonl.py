"""JSON lines: one object per message, SASL token or problem; programs depend on the keys and their order.

Bodies go through orjson as they are; only what JSON has no form for (bytes) comes back through its `default` hook. So
nothing walks over a body here, with one exception: float64 fields, because orjson writes NaN and infinities as null.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Any, Final

import orjson

from kafkasniff.kafka.embedded import may_have_floats
from kafkasniff.model import (
    Body,
    Endpoint,
    Exchange,
    LargeBody,
    Lines,
    Message,
    Problem,
    RenderedBody,
    RenderedRecords,
    SaslToken,
    SharedBody,
)
from kafkasniff.payload import SHOWN, BesideRecords, Payload
from kafkasniff.sinks.json_pieces import PIECE_BYTES, PLACE, BytesForm, Pieces, bytes_default
from kafkasniff.sinks.lines import ByteStream, LineWriter
from kafkasniff.sinks.printable import visible_json
from kafkasniff.sinks.shared import MadeOfShared
from kafkasniff.sinks.times import rfc3339

__all__ = [
    "BytesForm",
    "JsonSink",
    "body_json",
    "event_object",
    "json_default",
    "message_object",
    "plain",
    "plain_text",
]

CONNECTIONS_KEPT: Final = 4096
"""Connections whose ends are kept as text."""

Default = Callable[[Any], Any]


def json_default(form: BytesForm = "auto") -> Default:
    """The `default` hook for orjson that gives bytes the wanted form."""
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
    """A string as it is written in lines."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return orjson.dumps(_encodable(text))


def body_json(body: Body, form: BytesForm = "auto") -> str:
    """A body as compact JSON text, values as in the JSON lines: for the columns of Parquet."""
    return orjson.dumps(_finite(body), default=json_default(form)).decode()


def plain(value: Any, form: BytesForm = "auto") -> Any:
    """A decoded value as JSON has it: dicts, lists, strings, numbers, booleans, None; bytes in the wanted form."""
    if isinstance(value, bytes):
        return json_default(form)(value)
    if isinstance(value, dict):
        return {key: plain(item, form) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, form) for item in value]
    return _finite(value)


@lru_cache(maxsize=CONNECTIONS_KEPT)
def _endpoint(endpoint: Endpoint | None) -> str | None:
    return None if endpoint is None else str(endpoint)


def problem_objects(problems: tuple[Problem, ...]) -> list[dict[str, Any]]:
    """What the line of a message says of its problems."""
    return [{"kind": one.kind, "detail": one.detail, "offset": one.offset} for one in problems]


_Ends = tuple[Endpoint | None, Endpoint | None, str | None, str | None]
"""Client and broker of a connection, and how they are written."""


def _ends(message: Message) -> _Ends:
    client, broker = message.client, message.broker
    return client, broker, _endpoint(client), _endpoint(broker)


def _message(message: Message, body: Any, ends: _Ends, capture: bool) -> dict[str, Any]:
    """The object of a message in the contract's order of keys. Hot: one dict literal, the rare keys added after it."""
    item: dict[str, Any] = {
        "type": message.type,
        "exchange": message.exchange,
        "connection": message.connection,
        "time": rfc3339(message.time_ns),
        "client": ends[2],
        "broker": ends[3],
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
        item["errors"] = [{"code": one.code, "name": one.name, "path": one.path} for one in message.errors]
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
    """What the line of a message holds, as plain values in the contract's order; `capture`: name the capture, too."""
    item: dict[str, Any] = plain(_message(message, message.body, _ends(message), capture), form)
    return item


def event_object(
    event: Message | SaslToken | Problem, *, form: BytesForm = "auto", capture: bool = False
) -> dict[str, Any]:
    """The same for anything that has a line."""
    if isinstance(event, Message):
        return message_object(event, form=form, capture=capture)
    item: dict[str, Any] = plain(_sasl(event, capture) if isinstance(event, SaslToken) else _problem(event), form)
    return item


class JsonSink:
    """Writes events as JSON lines to `stream`.

    `form`: how bytes are written; `capture`: name the capture in every line, as wanted for several of them;
    `payload`: what becomes of payload; `terminal`: escape what would act on one.
    """

    def __init__(
        self,
        stream: ByteStream,
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
        self._body_dumps = partial(orjson.dumps, default=self._plain)
        self._apart: list[bytes] = []
        """Large JSON of the line that is being made, in order: orjson would copy it several times."""
        self._pieces = Pieces(form, payload.record if payload.hides else None)
        self._shared: MadeOfShared[orjson.Fragment] = MadeOfShared()
        self._capture = capture
        # By the number of the connection; a look-up by `Endpoint` has to compare its fields.
        self._ends: dict[int | None, _Ends] = {}

    def write_lines(self, lines: Lines) -> None:
        """Write lines that are made already."""
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
        """The line of one event with its line feed; None where it has none. Hot.

        Where the body is a large one, the pieces of the line, which are made as they are asked for.
        """
        self._apart = []
        if type(event) is Message:
            if self._payload is not None:
                payload = self._beside if event.body.__class__ is LargeBody else self._payload
                event = payload.hide(event)
            body: Any = event.body
            large = body.__class__ is LargeBody
            if body.__class__ is RenderedBody:
                body = self._fragment(body.json)
            elif body.__class__ is SharedBody:
                body = self._shared.made.get(id(body)) or self._share(body)
            elif body is not None and event.api_key is not None and may_have_floats(event.api_key):
                body = _finite(body)
            ends = self._ends.get(event.connection)
            if ends is None or ends[0] is not event.client or ends[1] is not event.broker:
                if len(self._ends) >= CONNECTIONS_KEPT:
                    self._ends.clear()
                ends = self._ends[event.connection] = _ends(event)
            item = _message(event, body, ends, self._capture)
            if large:
                return self._in_pieces(item, body)
        elif isinstance(event, Problem):
            item = _problem(event)
        elif isinstance(event, SaslToken):
            item = _sasl(event, self._capture)
        else:
            # The end of an exchange has no line: its messages have theirs, its problems come as events of their own.
            return None
        before = len(self._apart)
        try:
            line: bytes = self._dumps(item)
        except orjson.JSONEncodeError:
            # Only a capture's name can hold what JSON cannot.
            del self._apart[before:]
            line = self._dumps(_encodable(item))
        if self._apart:
            return self._around(line)
        return visible_json(line) if self._terminal else line

    def _default(self, value: Any) -> Any:
        """The form of what JSON has none for. Hot."""
        if value.__class__ is RenderedRecords:
            return self._fragment(value.json)
        return self._plain(value)

    def _fragment(self, json: bytes) -> orjson.Fragment:
        if len(json) < PIECE_BYTES:
            return orjson.Fragment(json)
        self._apart.append(json)
        return orjson.Fragment(PLACE)

    def _around(self, line: bytes) -> Iterator[bytes]:
        """A line in pieces, with what was left out of it."""
        apart, self._apart = self._apart, []
        pieces = (piece for pair in zip_longest(line.split(PLACE), apart) for piece in pair if piece)
        return map(visible_json, pieces) if self._terminal else pieces

    def _in_pieces(self, item: dict[str, Any], body: Body) -> Iterator[bytes]:
        try:
            pieces = self._pieces.of(item, body)
        except orjson.JSONEncodeError:
            # As below; what is left out of the line holds nothing of the kind.
            pieces = self._pieces.of(_encodable({**item, "body": None}) | {"body": body}, body)
        return map(visible_json, pieces) if self._terminal else pieces

    def _share(self, body: SharedBody) -> orjson.Fragment:
        """A body that other messages may have, too, as JSON."""
        return self._shared.keep(body, orjson.Fragment(self._body_dumps(_finite(body))))

    def flush(self) -> None:
        """Hand on all lines so far."""
        self._lines.flush()

    def close(self) -> None:
        """Hand on the last lines; the stream stays open."""
        self._lines.flush()
