"""The PROXY protocol header that a load balancer may send before a connection's bytes.

Source: HAProxy's PROXY protocol specification, versions 1 (a line of text) and 2 (binary).
"""

from __future__ import annotations

import ipaddress
from struct import unpack_from
from typing import Final

__all__ = ["MAX_PROLOGUE", "proxy_prologue"]

MAX_PROLOGUE: Final = 536
"""Maximum size of a header; the specification promises that it fits the smallest segment."""

_V1: Final = b"PROXY "
_V1_LONGEST: Final = 107
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_ADDRESSES: Final = {0x11: (4, "TCP over IPv4"), 0x21: (16, "TCP over IPv6")}


def proxy_prologue(head: bytes) -> tuple[int, str] | None:
    """Length and description of the PROXY header at the start of `head`.

    (0, "") if there is none, None if more bytes are needed.
    """
    if head.startswith(_V1[: len(head)]) and len(head) < len(_V1):
        return None
    if head.startswith(_V1):
        end = head.find(b"\r\n", 0, _V1_LONGEST)
        if end >= 0:
            words = head[:end].decode("latin-1").split(" ")
            if len(words) == 6:
                return end + 2, _describe(words[2], words[4], words[3], words[5])
            return end + 2, "PROXY protocol v1 header without addresses"
        return None if len(head) < _V1_LONGEST else (0, "")
    if head.startswith(_V2[: len(head)]) and len(head) < len(_V2) + 4:
        return None
    if not head.startswith(_V2):
        return 0, ""
    family, length = unpack_from(">BH", head, 13)
    total = 16 + length
    if total > MAX_PROLOGUE:
        return 0, ""
    if len(head) < total:
        return None
    width, _ = _ADDRESSES.get(family, (0, ""))
    if not width or length < 2 * width + 4:
        return total, "PROXY protocol v2 header without addresses"
    source, target = head[16 : 16 + width], head[16 + width : 16 + 2 * width]
    ports = unpack_from(">HH", head, 16 + 2 * width)
    return total, _describe(
        str(ipaddress.ip_address(source)), str(ports[0]), str(ipaddress.ip_address(target)), str(ports[1])
    )


def _describe(source: str, source_port: str, target: str, target_port: str) -> str:
    return f"PROXY protocol header: the client is {source} port {source_port}, connected to {target} port {target_port}"
