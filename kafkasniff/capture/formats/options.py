"""Options and name records of pcapng blocks (draft-ietf-opsawg-pcapng, sections 3.5 and 4.5)."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator

__all__ = ["name_records", "options"]


def options(data: bytes, position: int, end: int, order: str) -> Iterator[tuple[int, bytes]]:
    """(code, value) of the options in data[position:end], up to their end mark or to the first invalid one."""
    while position + 4 <= end:
        code, length = struct.unpack_from(order + "HH", data, position)
        position += 4
        if code == 0 or position + length > end:
            return
        yield code, data[position : position + length]
        position += (length + 3) & ~3


def name_records(data: bytes, position: int, end: int, order: str) -> Iterator[tuple[str, str]]:
    """(address, name) of the records of a name resolution block's body; the first of several names."""
    for kind, value in options(data, position, end, order):  # records are built like options
        size = {1: 4, 2: 16}.get(kind)
        if size is None or len(value) <= size:
            continue
        name = value[size:].split(b"\0", 1)[0].decode("utf-8", "replace")
        if name:
            yield str(ipaddress.ip_address(value[:size])), name
