"""Schemas of a registry from its HTTP traffic: each answered request of Confluent's API is a schema.

Source: RFC 9112 for messages; paths as in `registries`, below any other path. An exchange begins with a segment that
begins with its request, and its answer where that segment acknowledges: the registry sends nothing unasked. Bytes that
the capture lacks end an exchange: nothing is guessed.
"""

from __future__ import annotations

import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.errors import OutputError
from kafkasniff.values.registries import MAX_ANSWER, SERIALIZED, path_of, write_answer
from kafkasniff.values.schemas import RegisteredSchema

MAX_HEAD: Final = 64 << 10
"""Bytes of the lines before a body."""
MAX_EXCHANGES: Final = 1024
"""Exchanges at once; the oldest is given up for another one."""
MAX_HELD: Final = 64 << 20
"""Bytes of all of them; further ones are given up."""
MAX_SCHEMAS: Final = 1_000_000
MAX_REMEMBERED: Final = 1 << 16
"""Connections with requests; all are forgotten when there are more."""
MAX_PIECES: Final = 256
"""Segments that wait for earlier ones, for each direction."""

STARTS: Final = (b"GET ", b"POST")
"""What the first segment of a request begins with."""
_REQUEST: Final = re.compile(rb"(GET|POST) ([^ \r\n]{1,4096}) HTTP/1\.[01]\r\n")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_SUBJECT: Final = r"subjects/(?P<subject>[^/]+)"
_GET: Final = re.compile(
    rf"(?:.*/)?(?:schemas/ids/(?P<id>\d{{1,10}})|schemas/guids/(?P<guid>[\w-]+)|{_SUBJECT}/versions/\w+)"
)
_POST: Final = re.compile(rf"(?:.*/)?{_SUBJECT}(?:/versions)?")


class IncompleteError(Exception):
    """An exchange that cannot be read; `str()` of it says why."""


class _Sent:
    """The bytes of one direction from a sequence number on. The first copy of a byte counts."""

    def __init__(self, start: int) -> None:
        self.start = start
        """Its first sequence number."""
        self._waiting: dict[int, bytes] = {}
        self.data = bytearray()
        self.held = 0
        """Bytes of this and of what waits."""
        self.ended: int | None = None
        """Where the sender has closed the stream."""

    def take(self, sequence: int, payload: bytes, *, ends: bool) -> None:
        """Take a segment. Raises IncompleteError."""
        at = (sequence - self.start + (1 << 31)) % (1 << 32) - (1 << 31)
        if ends:
            self.ended = at + len(payload)
        if at < 0:
            payload, at = payload[-at:], 0
        if payload and at >= len(self.data):
            self._waiting.setdefault(at, payload)
        elif payload:
            self.data += payload[len(self.data) - at :]
        while self._waiting:
            first = min(self._waiting)
            if first > len(self.data):
                break
            self.data += self._waiting.pop(first)[len(self.data) - first :]
        self.held = len(self.data) + sum(map(len, self._waiting.values()))
        if len(self._waiting) > MAX_PIECES:
            raise IncompleteError("bytes are missing")
        if self.held > MAX_HEAD + MAX_ANSWER:
            raise IncompleteError("it is too large")


class _Message:
    """A request or an answer, as far as it is known."""

    def __init__(self, sent: _Sent) -> None:
        self.sent = sent
        self._fields: dict[bytes, bytes] | None = None
        self._at = 0
        """Read up to here."""
        self._chunks = bytearray()
        self._content: bytes | None = None

    @property
    def head(self) -> bytes:
        """Its beginning."""
        return bytes(self.sent.data[:MAX_HEAD])

    def body(self) -> bytes | None:
        """Its content, decompressed; None: it is not complete. Raises IncompleteError."""
        if self._content is not None:
            return self._content
        data = self.sent.data
        if self._fields is None:
            end = data.find(b"\r\n\r\n", 0, MAX_HEAD)
            if end < 0:
                if len(data) >= MAX_HEAD:
                    raise IncompleteError("it is not HTTP")
                return None
            lines = (line.partition(b":") for line in bytes(data[:end]).split(b"\r\n")[1:])
            self._fields = {name.strip().lower(): value.strip() for name, _, value in lines}
            self._at = end + 4
        raw = self._raw(self._fields)
        if raw is not None:
            self._content = _decompressed(raw, self._fields.get(b"content-encoding", b"identity").lower())
        return self._content

    def _raw(self, fields: dict[bytes, bytes]) -> bytes | None:
        data = self.sent.data
        if b"chunked" in fields.get(b"transfer-encoding", b"").lower():
            return self._dechunked()
        length = fields.get(b"content-length")
        if length is None:
            if self.head.startswith(STARTS):
                return b""
            # It ends with the stream.
            return bytes(data[self._at :]) if self.sent.ended == len(data) else None
        if not re.fullmatch(rb"\d{1,9}", length):
            raise IncompleteError("its length is not a number")
        end = self._at + int(length)
        return bytes(data[self._at : end]) if len(data) >= end else None

    def _dechunked(self) -> bytes | None:
        """The content of chunks; each is read once."""
        data = self.sent.data
        while (line := data.find(b"\r\n", self._at, self._at + MAX_HEAD)) >= 0:
            match = re.match(rb"\s*([0-9A-Fa-f]{1,7})\s*(?:;|$)", bytes(data[self._at : line]))
            if match is None:
                raise IncompleteError("its chunks are malformed")
            size = int(match[1], 16)
            if not size:
                return bytes(self._chunks)
            if len(data) < line + 2 + size + 2:
                return None
            self._chunks += data[line + 2 : line + 2 + size]
            self._at = line + 2 + size + 2
        return None


def _decompressed(data: bytes, coding: bytes) -> bytes:
    if coding == b"identity":
        return data
    if coding not in (b"gzip", b"x-gzip", b"deflate"):
        raise IncompleteError("its compression is unknown")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        content = stream.decompress(data, MAX_ANSWER + 1)
    except zlib.error:
        raise IncompleteError("its compression is damaged") from None
    if len(content) > MAX_ANSWER or not stream.eof:
        raise IncompleteError("it is too large" if len(content) > MAX_ANSWER else "its compression is damaged")
    return content


class _Exchange(NamedTuple):
    request: _Message
    answer: _Message
    packet: str
    """Where it began."""

    @property
    def held(self) -> int:
        return self.request.sent.held + self.answer.sent.held


Sender = tuple[int, int, int]
"""Both halves of an address, and a port."""


class HttpSegment(NamedTuple):
    """A TCP segment of a connection."""

    source: Sender
    destination: Sender
    seq: int
    ack: int
    payload: bytes
    is_whole: bool
    """The snap length did not cut it."""
    is_last: bool
    """FIN or RST."""
    packet: str
    """Where it is, for messages."""

    @property
    def connection(self) -> frozenset[Sender]:
        """The same for both directions."""
        return frozenset((self.source, self.destination))


def may_begin(payload: bytes) -> bool:
    """Whether a payload may begin a request for a schema: it has the first line, or only a part of that."""
    return payload.startswith(STARTS) and (b"\n" not in payload or _wanted(payload) is not None)


def _wanted(payload: bytes) -> tuple[str, str, str] | None:
    """Method, path and query of a request for a schema, if a payload begins with one."""
    match = _REQUEST.match(payload)
    if match is None:
        return None
    method, target = match[1].decode(), match[2].decode("latin-1")
    path, _, query = target.partition("?")
    return (method, path, query) if (_GET if method == "GET" else _POST).fullmatch(path) else None


class SchemaLearner:
    """Writes the schemas of exchanges to a folder; `report`: is called with a line for each one that is skipped."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._report = report
        self._open: dict[frozenset[Sender], tuple[Sender, _Exchange]] = {}
        """By connection, with the client; the oldest first."""
        self._held = 0
        """Bytes of all of them."""
        self._last: dict[frozenset[Sender], int] = {}
        """Where the last complete request of a connection began: it may be retransmitted."""
        self._written: dict[str, tuple[int, int]] = {}
        """Rank and hash of the schema at each path: answers replace requests, Protobuf's descriptors replace text."""

    @property
    def count(self) -> int:
        """Ids for which there is a schema."""
        return sum(path.startswith("schemas/ids/") for path in self._written)

    def take(self, segment: HttpSegment) -> None:
        """Take a segment, in capture order. Raises OutputError."""
        key = segment.connection
        if self._begins(segment):
            self._give_up(key, "another request follows")
            self._open[key] = (
                segment.source,
                _Exchange(_Message(_Sent(segment.seq)), _Message(_Sent(segment.ack)), segment.packet),
            )
        entry = self._open.get(key)
        if entry is None:
            return
        client, exchange = entry
        message = exchange.request if segment.source == client else exchange.answer
        try:
            if not segment.is_whole:
                raise IncompleteError("a packet is cut")
            before = message.sent.held
            try:
                message.sent.take(segment.seq, segment.payload, ends=segment.is_last)
            finally:
                self._held += message.sent.held - before
            answer = exchange.answer.body()
            if answer is not None and (request := exchange.request.body()) is not None:
                self._learn(exchange, request, answer)
                self._end(key)
        except IncompleteError as error:
            self._give_up(key, str(error))
        while len(self._open) > MAX_EXCHANGES or self._held > MAX_HELD:
            self._give_up(next(iter(self._open)), "too many at once")

    def close(self) -> None:
        """There are no more packets."""
        for key in list(self._open):
            self._give_up(key, "bytes are missing")

    def _begins(self, segment: HttpSegment) -> bool:
        """Whether a new exchange begins with a segment."""
        if not may_begin(segment.payload) or self._last.get(segment.connection) == segment.seq:
            return False
        entry = self._open.get(segment.connection)
        return entry is None or entry[0] != segment.source or entry[1].request.sent.start != segment.seq

    def _give_up(self, key: frozenset[Sender], why: str) -> None:
        exchange = self._end(key)
        found = None if exchange is None else _wanted(exchange.request.head)
        if exchange is not None and found is not None:
            self._report(f"{exchange.packet}: {found[0]} {found[1]} is skipped: {why}")

    def _end(self, key: frozenset[Sender]) -> _Exchange | None:
        _, exchange = self._open.pop(key, (None, None))
        if exchange is not None:
            self._held -= exchange.held
            if len(self._last) >= MAX_REMEMBERED:
                self._last.clear()
            self._last[key] = exchange.request.sent.start
        return exchange

    def _learn(self, exchange: _Exchange, request: bytes, answer: bytes) -> None:
        status = _STATUS.match(exchange.answer.head)
        if status is None:
            raise IncompleteError("the answer is not HTTP")
        found = _wanted(exchange.request.head)
        if found is None or status[1] != b"200":
            return  # it is about something else, there is no such schema, or it was refused
        method, path, query = found
        content = _object(answer)
        if method == "POST":
            # Newer registries repeat the schema, older ones answer the id alone.
            content = {**_object(request), **content}
            match = _POST.fullmatch(path)
        else:
            match = _GET.fullmatch(path)
        assert match is not None
        try:
            schema = msgspec.convert(content, RegisteredSchema)
        except msgspec.MsgspecError as error:
            raise IncompleteError(f"it has no schema: {error}") from None
        rank = (method == "GET") + (SERIALIZED[1:] in query.split("&"))
        for one in _paths(match.groupdict(), content):
            before = self._written.get(one)
            if before is not None and before[0] == rank and before[1] != hash(schema.schema):
                self._report(f"{exchange.packet}: {one} is another schema than before, which is kept: two registries?")
            elif (before is None and len(self._written) < MAX_SCHEMAS) or (before is not None and before[0] < rank):
                self._written[one] = rank, hash(schema.schema)
                try:
                    write_answer(self._folder, one, content)
                except OSError as error:
                    raise OutputError(f"cannot write to {self._folder}: {error.strerror or error}") from error


def _object(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IncompleteError("it is not JSON") from None


def _paths(named: dict[str, str | None], content: dict[str, Any]) -> Iterator[str]:
    """The paths of the API whose answer this is."""
    number, guid = content.get("id"), content.get("guid")
    if named.get("id") is not None:
        number = int(named["id"] or "")
    if type(number) is int and 0 <= number < 1 << 32:
        yield f"schemas/ids/{number}"
    if named.get("guid") or isinstance(guid, str):
        yield f"schemas/guids/{urllib.parse.quote(named.get('guid') or guid or '', safe='')}"
    subject, version = named.get("subject"), content.get("version")
    if subject and type(version) is int and version > 0:
        yield path_of(urllib.parse.unquote(subject), version)
