"""What a stream starts with that is no Kafka frame, told by its first bytes."""

from __future__ import annotations

__all__ = ["is_gssapi_token", "name_protocol"]


def is_gssapi_token(data: bytes, start: int, end: int) -> bool:
    """Whether these bytes are the first token of GSSAPI with Kerberos or SPNEGO (RFC 2743, 3.1; RFC 4121, 4.1)."""
    head = data[start : min(end, start + 24)]
    return head[:1] == b"\x60" and (
        b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" in head or b"\x06\x06\x2b\x06" in head
    )


def name_protocol(head: bytes) -> str | None:
    """What a stream that is not Kafka starts with, in words; None where it is nothing well-known."""
    if len(head) >= 3 and head[0] in (0x14, 0x15, 0x16, 0x17) and head[1] == 3 and head[2] <= 4:
        return "TLS"
    if head.startswith((b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ")):
        return "HTTP"
    for start, name in (
        (b"HTTP/", "HTTP"),
        (b"PRI * HTTP/2", "HTTP/2"),
        (b"SSH-", "SSH"),
        (b"\x00\x00\x00\x08\x04\xd2", "PostgreSQL"),
    ):
        if head.startswith(start):
            return name
    return None
