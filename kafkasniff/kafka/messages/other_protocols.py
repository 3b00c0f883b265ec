"""Recognizes other protocols by the first bytes of a stream."""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["NAMED", "is_gssapi_token", "name_answer", "name_protocol", "protocol_in"]

NAMED: Final = "this is "
"""Prefix of a reason that names the stream's protocol."""
_SIZE = Struct(">i")
_METHODS: Final = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ", b"TRACE ")
_STARTS: Final = (
    (b"HTTP/", "HTTP"),
    (b"PRI * HTTP/2", "HTTP/2"),
    (b"SSH-", "SSH"),
    (b"\x00\x00\x00\x08\x04\xd2", "PostgreSQL"),
    (b"AMQP", "AMQP"),
    (b"<!DOCTYPE", "HTML"),
    (b"-ERR ", "RESP, which Redis speaks"),
)
_TLS: Final = (0x14, 0x15, 0x16, 0x17)
_ALERT: Final = 0x15


def is_gssapi_token(data: bytes, start: int, end: int) -> bool:
    """Whether these bytes are the first token of GSSAPI with Kerberos or SPNEGO (RFC 2743, 3.1; RFC 4121, 4.1)."""
    head = data[start : min(end, start + 24)]
    return head[:1] == b"\x60" and (
        b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" in head or b"\x06\x06\x2b\x06" in head
    )


def name_protocol(head: bytes) -> str | None:
    """Description of a stream that is not Kafka, by its first bytes; None if it is unknown."""
    if _is_tls(head):
        return "TLS"
    if head.startswith(_METHODS):
        # The size in the broker's log, which people search for.
        return (
            "HTTP: perhaps a browser, a health check or a scrape; a broker takes its first bytes for a request of "
            f"{_SIZE.unpack_from(head)[0]:,} bytes and closes the connection"
        )
    return next((name for start, name in _STARTS if head.startswith(start)), None)


def protocol_in(reason: str) -> str | None:
    """The protocol that a reason against Kafka names: `TLS`, `HTTP`, `SSH` …; None if it names none.

    `TLS with ALPN` for TLS that offers other application protocols: Kafka does not use ALPN.
    """
    if not reason.startswith(NAMED):
        return None
    name = reason.removeprefix(NAMED)
    if name.startswith(("TLS", "SSL")):
        return "TLS with ALPN" if ", ALPN " in name else "TLS"
    return name.partition(":")[0]


def name_answer(size: int) -> str | None:
    """Description of a non-Kafka answer to a Kafka client, by its first four bytes in place of a length.

    A sentence; None if they are unknown.
    """
    head = _SIZE.pack(size)
    logged = f"(the client takes it for a response of {size:,} bytes)"
    if _is_tls(head):
        what = "an alert of TLS" if head[0] == _ALERT else "TLS"
        return (
            f"a client that speaks Kafka without TLS is answered with {what} {logged}: the listener expects TLS "
            "(security.protocol SSL or SASL_SSL)"
        )
    found = next((name for start, name in _STARTS if start.startswith(head)), None)
    if found is None:
        return None
    return f"a Kafka client is answered in {found} {logged}: what listens there is not a broker (wrong host or port?)"


def _is_tls(head: bytes) -> bool:
    """RFC 8446, 5.1: type and version of a record."""
    return len(head) >= 3 and head[0] in _TLS and head[1] == 3 and head[2] <= 4
