"""Fields of handshake messages that decryption and reports need (RFC 5246, 7.4; RFC 8446, 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

__all__ = [
    "CERTIFICATE",
    "CLIENT_HELLO",
    "ENCRYPTED_EXTENSIONS",
    "END_OF_EARLY_DATA",
    "FINISHED",
    "KEY_UPDATE",
    "MAX_MESSAGE",
    "SERVER_HELLO",
    "TLS12",
    "TLS13",
    "ClientHello",
    "HandshakeBuffer",
    "ServerHello",
    "certificate_of",
    "client_hello",
    "encrypted_extensions",
    "server_hello",
]

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
