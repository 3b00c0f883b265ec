"""What TLS streams consist of: the record layer, and the handshake messages in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

# The record layer: type, version, length and fragment (RFC 5246, 6.2.1; RFC 8446, 5.1), cut out of one stream.
#
# A `RecordCutter` knows where the next record begins. After missing bytes it still does if the record in which they
# begin extends beyond them; otherwise decryption has to find it: `seek` returns candidates.

CHANGE_CIPHER_SPEC: Final = 20
ALERT: Final = 21
HANDSHAKE: Final = 22
APPLICATION_DATA: Final = 23
HEARTBEAT: Final = 24

HEADER: Final = 5
MAX_FRAGMENT: Final = (1 << 14) + 2048
"""Maximum size of a protected fragment in bytes (RFC 5246, 6.2.3); TLS 1.3 allows less."""

_PROTECTED: Final = b"\x17\x03\x03"
"""Beginning of application data records in TLS 1.2 and, whatever they hold, in TLS 1.3."""


class Mark(msgspec.Struct, frozen=True):
    """Up to `end` (a position), bytes were delivered by this packet and became contiguous at that order."""

    end: int
    packet: int
    time_ns: int
    order: int
    released: int


class Record(msgspec.Struct, frozen=True):
    """One record. Ends of its marks are positions in `data`."""

    content_type: int
    version: int
    data: bytes
    """The fragment."""
    marks: tuple[Mark, ...]
    """The packets that delivered the fragment (for an empty one: its header)."""

    @property
    def order(self) -> int:
        """Order of the packet that completed it."""
        return self.marks[-1].order

    @property
    def header(self) -> bytes:
        """Its header as on the wire."""
        return bytes((self.content_type, *self.version.to_bytes(2), *len(self.data).to_bytes(2)))


def may_be_header(head: bytes | bytearray, at: int = 0) -> bool:
    """Whether the bytes at `at` can be (the beginning of) a record's header."""
    part = head[at : at + HEADER]
    if part and not CHANGE_CIPHER_SPEC <= part[0] <= HEARTBEAT:
        return False
    if len(part) > 1 and (part[1] != 3 or (len(part) > 2 and part[2] > 4)):
        return False
    return len(part) < HEADER or int.from_bytes(part[3:5]) <= MAX_FRAGMENT


class RecordCutter:
    """Cuts one stream into records, from a record's beginning on."""

    __slots__ = ("_base", "_data", "_marks", "_skip", "_start", "lost", "passed", "searched")

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0
        """Where in `_data` the next record begins, or is searched for."""
        self._base = 0
        """Position in the stream of `_data`'s first byte."""
        self._marks: deque[Mark] = deque()
        self._skip = 0
        """Bytes up to the end of an incomplete record."""
        self.lost = False
        """The beginning of the next record is unknown: use `seek`, not `cut`."""
        self.passed = 0
        """Bytes missing and skipped since then."""
        self.searched = 0
        """Bytes skipped since then."""

    def __len__(self) -> int:
        """Bytes that wait for more."""
        return len(self._data) - self._start

    def add(self, data: bytes, packet: int, time_ns: int, order: int, released: int) -> None:
        """Take a segment."""
        if self._skip:
            step = min(self._skip, len(data))
            self._skip -= step
            data = data[step:]
        if not data:
            return
        if self._start:
            del self._data[: self._start]
            self._base += self._start
            self._start = 0
        self._data += data
        self._marks.append(Mark(self._base + len(self._data), packet, time_ns, order, released))

    def clear(self) -> None:
        """Drop the waiting bytes."""
        self._base += len(self._data)
        self._data = bytearray()
        self._start = 0
        self._marks.clear()

    def cut(self) -> Record | None:
        """The next record; None if it is incomplete or invalid (see `flawed`)."""
        data, start = self._data, self._start
        if len(data) - start < HEADER or self.lost or not may_be_header(data, start):
            return None
        end = start + HEADER + int.from_bytes(data[start + 3 : start + 5])
        return None if len(data) < end else self._take(end)

    @property
    def flawed(self) -> bool:
        """The bytes at the expected beginning of the next record are not a record."""
        return not self.lost and not may_be_header(self._data, self._start)

    def _take(self, end: int) -> Record:
        record = self._record(self._start, end)
        self._start = end
        self._drop_marks()
        return record

    def _record(self, start: int, end: int) -> Record:
        """The record whose header is at `start` and whose fragment ends at `end`."""
        data = self._data
        first = start + HEADER
        zero = self._base + first
        marks: list[Mark] = []
        for mark in self._marks:
            if mark.end > zero or first == end:
                marks.append(msgspec.structs.replace(mark, end=min(mark.end - zero, end - first)))
            if mark.end - zero >= end - first:
                break
        version = int.from_bytes(data[start + 1 : start + 3])
        return Record(data[start], version, bytes(data[first:end]), tuple(marks))

    # -- missing bytes ----------------------------------------------------------------------------------------------

    def gap(self, size: int) -> bool:
        """Bytes are missing after those taken so far. Returns whether a record's end after them is known.

        Then exactly one record was lost, the incomplete one.
        """
        if self.lost:
            self.passed += size + len(self)
            self.clear()
            return False
        if self._skip:
            if size <= self._skip:
                self._skip -= size
                return True
            self._lose(size)
            return False
        pending = len(self)
        if pending >= HEADER:
            left = HEADER + int.from_bytes(self._data[self._start + 3 : self._start + 5]) - pending
            if size <= left:
                self.clear()
                self._skip = left - size
                return True
        self._lose(size + pending)
        return False

    def lose(self) -> None:
        """The next record is not at the expected position."""
        self._lose(0)

    def _lose(self, passed: int) -> None:
        if passed:
            self.clear()
        self._skip = 0
        self.lost = True
        self.passed = passed
        self.searched = 0

    def seek(self) -> Record | None:
        """The next candidate that is complete, to be tried; None: more bytes are needed.

        `found` confirms that it was a record. Without that, the next call searches further.
        """
        data = self._data
        while True:
            at = data.find(_PROTECTED, self._start)
            if at < 0:
                # The beginning of one may be at the end.
                self._pass(max(len(data) - len(_PROTECTED) + 1, self._start))
                return None
            self._pass(at)
            if len(data) - at < HEADER:
                return None
            end = at + HEADER + int.from_bytes(data[at + 3 : at + 5])
            if end > at + HEADER + MAX_FRAGMENT:
                self._pass(at + 1)
                continue
            if end > len(data):
                return None
            record = self._record(at, end)
            self._pass(at + 1)
            return record

    def found(self, record: Record) -> None:
        """The last result of `seek` is a record: the next one begins after it."""
        self.lost = False
        self.passed = 0
        self._start += HEADER - 1 + len(record.data)
        self._drop_marks()

    def _pass(self, start: int) -> None:
        self.passed += start - self._start
        self.searched += start - self._start
        self._start = start
        self._drop_marks()

    def _drop_marks(self) -> None:
        position = self._base + self._start
        while self._marks and self._marks[0].end <= position:
            self._marks.popleft()


# Fields of handshake messages that decryption and reports need (RFC 5246, 7.4; RFC 8446, 4).

CLIENT_HELLO: Final = 1
SERVER_HELLO: Final = 2
END_OF_EARLY_DATA: Final = 5
ENCRYPTED_EXTENSIONS: Final = 8
CERTIFICATE: Final = 11
FINISHED: Final = 20
KEY_UPDATE: Final = 24

TLS12: Final = 0x0303
TLS13: Final = 0x0304

MAX_MESSAGE: Final = 256 << 10
"""Maximum size of a handshake message in bytes; certificate chains have some 5 kB."""
MAX_ALPN: Final = 16
"""Maximum number of a client's protocols that are kept."""

_SERVER_NAME: Final = 0
_ALPN: Final = 16
_ENCRYPT_THEN_MAC: Final = 22
_PRE_SHARED_KEY: Final = 41
_EARLY_DATA: Final = 42
_SUPPORTED_VERSIONS: Final = 43

_RETRY: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that asks for another ClientHello: SHA-256 of `HelloRetryRequest` (RFC 8446, 4.1.3)."""


class ClientHello(msgspec.Struct, frozen=True):
    """What a client offers."""

    version: int
    """The highest one."""
    random: bytes
    server_name: str | None = None
    alpn: tuple[str, ...] = ()
    early_data: bool = False


class ServerHello(msgspec.Struct, frozen=True):
    """What the server chose."""

    version: int
    random: bytes
    suite: int
    compression: int
    alpn: str | None = None
    encrypt_then_mac: bool = False
    retry: bool = False
    """It is a HelloRetryRequest: another ClientHello and another ServerHello follow."""
    session_id: bytes = b""
    """For TLS 1.2: the session that the connection begins or resumes; empty if the server keeps none."""


class _ShortError(ValueError):
    """A field exceeds its container."""


class _Fields:
    """Reads consecutive fields."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __len__(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > len(self):
            raise _ShortError
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def vector(self, width: int) -> bytes:
        return self.take(self.number(width))


class HandshakeBuffer:
    """Reassembles handshake messages of one stream; they may share records, and span several."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        # Grows and shrinks in place: a message may come in records of one byte each.
        self._data = bytearray()

    def clear(self) -> None:
        """Records are missing: drop the partial message."""
        self._data = bytearray()

    def add(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take a record's content; yields type and body of each message that is now complete.

        A message longer than MAX_MESSAGE yields its type and no bytes, and its content is skipped.
        """
        self._data += data
        while len(self._data) >= 4:
            length = int.from_bytes(self._data[1:4])
            kind = self._data[0]
            if length > MAX_MESSAGE:
                self._data = bytearray()
                yield kind, b""
                return
            if len(self._data) < 4 + length:
                return
            body = bytes(self._data[4 : 4 + length])
            del self._data[: 4 + length]
            yield kind, body


def client_hello(body: bytes) -> ClientHello | None:
    """A ClientHello's body; None if invalid."""
    try:
        fields = _Fields(body)
        version, random = fields.number(2), fields.take(32)
        fields.vector(1)
        fields.vector(2)
        fields.vector(1)
        found = _extensions(fields)
        versions = _Fields(_Fields(found[_SUPPORTED_VERSIONS]).vector(1)) if _SUPPORTED_VERSIONS in found else None
        while versions:
            offered = versions.number(2)
            # Reserved ones that must be ignored (RFC 8701) are higher than any.
            if offered >> 8 == 3:
                version = max(version, offered)
        return ClientHello(
            version,
            random,
            _server_name(found.get(_SERVER_NAME)),
            _protocols(found.get(_ALPN)),
            early_data=_EARLY_DATA in found,
        )
    except _ShortError:
        return None


def server_hello(body: bytes) -> ServerHello | None:
    """A ServerHello's body; None if invalid."""
    try:
        fields = _Fields(body)
        version, random = fields.number(2), fields.take(32)
        session_id = fields.vector(1)
        suite, compression = fields.number(2), fields.number(1)
        found = _extensions(fields)
        if _SUPPORTED_VERSIONS in found:
            version = _Fields(found[_SUPPORTED_VERSIONS]).number(2)
        alpn = _protocols(found.get(_ALPN))
        return ServerHello(
            version,
            random,
            suite,
            compression,
            alpn[0] if alpn else None,
            encrypt_then_mac=_ENCRYPT_THEN_MAC in found,
            retry=random == _RETRY,
            session_id=session_id,
        )
    except _ShortError:
        return None


def resumes(body: bytes) -> bool:
    """Whether a ServerHello of TLS 1.3 selects the secret of an earlier session (RFC 8446, 4.2.11)."""
    try:
        fields = _Fields(body)
        fields.take(34)
        fields.vector(1)
        fields.take(3)
        return _PRE_SHARED_KEY in _extensions(fields)
    except _ShortError:
        return False


def encrypted_extensions(body: bytes) -> tuple[str | None, bool]:
    """For TLS 1.3: the application protocol that the server chose, and whether it accepts early data."""
    try:
        found = _extensions(_Fields(body))
        alpn = _protocols(found.get(_ALPN))
        return alpn[0] if alpn else None, _EARLY_DATA in found
    except _ShortError:
        return None, False


def certificate_of(body: bytes) -> bytes | None:
    """The first certificate (DER) of a Certificate message of TLS 1.2; None if there is none."""
    try:
        return _Fields(_Fields(body).vector(3)).vector(3)
    except _ShortError:
        return None


def certificate_of_13(body: bytes) -> bytes | None:
    """The same of TLS 1.3, where the context of a request comes first (RFC 8446, 4.4.2)."""
    try:
        fields = _Fields(body)
        fields.vector(1)
        return _Fields(fields.vector(3)).vector(3)
    except _ShortError:
        return None


def _extensions(fields: _Fields) -> dict[int, bytes]:
    """Extensions by type; old hellos may end before them."""
    found: dict[int, bytes] = {}
    if not len(fields):
        return found
    listed = _Fields(fields.vector(2))
    while len(listed):
        kind = listed.number(2)
        found[kind] = listed.vector(2)
    return found


def _server_name(data: bytes | None) -> str | None:
    """RFC 6066, 3."""
    if not data:
        return None
    names = _Fields(_Fields(data).vector(2))
    while len(names):
        kind, name = names.number(1), names.vector(2)
        if kind == 0:
            return name.decode("ascii", "backslashreplace")
    return None


def _protocols(data: bytes | None) -> tuple[str, ...]:
    """RFC 7301, 3.1."""
    if not data:
        return ()
    found: list[str] = []
    names = _Fields(_Fields(data).vector(2))
    while len(names) and len(found) < MAX_ALPN:
        found.append(names.vector(1).decode("ascii", "backslashreplace"))
    return tuple(found)
