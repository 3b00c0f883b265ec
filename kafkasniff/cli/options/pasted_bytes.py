"""Bytes as people paste them: hex in its many forms, hexdumps, base64, or raw from stdin."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Final

from kafkasniff.errors import UsageError

__all__ = ["MAX_INPUT", "bytes_from_stdin", "bytes_from_text", "without_prefix"]

MAX_INPUT: Final = 256 << 20
"""Maximum input: a message of 100 MiB in hex, with room for white space."""

# A line of a hexdump: an offset, groups of hex digits, then after two spaces or a bar the bytes as text (xxd, hexdump,
# tcpdump).
_DUMP_LINE: Final = re.compile(
    r"\s*(?:0x)?[0-9a-fA-F]{4,8}:?\s{1,3}"
    r"((?:[0-9a-fA-F]{2}){1,8}(?:\s{1,2}(?:[0-9a-fA-F]{2}){1,8})*)"
    r"(?:\s{2,}.*|\s*\|.*)?"
)
_SEPARATORS: Final = re.compile(r"[\s,:;\[\]()-]|0[xX](?=[0-9a-fA-F])|\\x")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def bytes_from_text(text: str) -> bytes:
    """The bytes that a text represents. Raises UsageError if it is neither hex nor base64.

    Text that could be both is hex: a base64 text of only hex digits is very unlikely.
    """
    text = text.strip()
    if not text:
        raise UsageError("no bytes given")
    found = _dump(text)
    if found is None:
        digits = _SEPARATORS.sub("", text)
        found = bytes.fromhex(digits) if _HEX.fullmatch(digits) else _base64(text)
    if found is None:
        raise UsageError("the input is neither hex nor base64")
    return found


def _dump(text: str) -> bytes | None:
    """The bytes of a hexdump; None if a line is not one. Lines of hex without an offset are not a dump."""
    matches = [_DUMP_LINE.fullmatch(line) for line in text.splitlines() if line.strip()]
    if len(matches) < 2 and not (matches and matches[0] and re.match(r"\s*(?:0x)?0+:?\s", text)):
        return None
    # `fromhex` skips fewer kinds of white space than `\s` and `split` do.
    pieces = [bytes.fromhex("".join(match[1].split())) for match in matches if match is not None]
    if len(pieces) < len(matches):
        return None
    return b"".join(pieces)


def _base64(text: str) -> bytes | None:
    joined = "".join(text.split())
    if not _BASE64.fullmatch(joined):
        return None
    joined = joined.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(joined + "=" * (-len(joined) % 4), validate=True)
    except binascii.Error:
        return None


def bytes_from_stdin(data: bytes) -> bytes:
    """Bytes of hex or base64 text; anything else is the message itself. Raises UsageError for empty input."""
    if not data:
        raise UsageError("no bytes on stdin")
    if data.isascii() and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data):
        try:
            return bytes_from_text(data.decode("ascii"))
        except UsageError:
            return data
    return data


def without_prefix(data: bytes) -> tuple[bytes, bool]:
    """The message without its length prefix, and whether it had one: an int32 that matches exactly."""
    if len(data) > 4 and int.from_bytes(data[:4], "big") == len(data) - 4:
        return data[4:], True
    return data, False
