"""The bounds of decoders, and what they record about a message besides its body.

The native kernel handles only clean messages: at anything else its decoders raise `Odd`, and the walker, which handles
everything, decodes the message again (`kafkasniff.kafka.schema.schema.Schema.read`).
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.errors import error_name
from kafkasniff.model import ErrorCode

__all__ = [
    "MAX_ELEMENTS",
    "MAX_UNKNOWN_TAGS",
    "ZERO_SIZE_SLACK",
    "Ended",
    "Odd",
    "add_error",
    "keep_tag",
    "varint_rest",
]

MAX_ELEMENTS: Final = 4_000_000
"""Elements of all arrays of one message: a body of tiny elements must not take hundreds of times its size in memory.
The largest real messages (metadata of 200,000 partitions) hold half of it."""

MAX_UNKNOWN_TAGS: Final = 100_000
"""Tagged fields without a definition per message; each takes two bytes on the wire and 300 in memory."""

ZERO_SIZE_SLACK: Final = 64
"""If elements may take no bytes at all, a count may exceed the remaining bytes by this much and no more."""


class Odd(Exception):  # noqa: N818 - not an error: it says that the walker has to decode this message
    """Something that the kernel leaves to the walker."""


class Ended(Odd):
    """The walk ended at a problem, which was recorded: the fields before it.

    A handler of `Odd` alone makes the walker decode the message again, with the same result.
    """

    def __init__(self, body: dict[str, Any], position: int) -> None:
        super().__init__()
        self.body = body
        self.position = position


def varint_rest(data: bytes, position: int, first: int) -> tuple[int, int]:
    """The value of an unsigned varint whose first byte was read, and the position after it.

    A varint has at most 5 bytes (org.apache.kafka.common.utils.ByteUtils): raises Odd if it is longer, IndexError at
    the end of the data.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise Odd


def add_error(context: DecodeContext, code: int, path: str) -> None:
    """Record a non-zero error code."""
    context.errors.append(ErrorCode(code, error_name(code), path))


def keep_tag(context: DecodeContext, struct: dict[str, Any], tag: int, value: bytes, show: bool) -> None:
    """Keep a tagged field that has no definition; its bytes are withheld if the schema contains secrets."""
    context.unknown_tags += 1
    if context.unknown_tags > MAX_UNKNOWN_TAGS:
        raise Odd
    kept: dict[str, Any] = {"tag": tag}
    if show:
        kept["base64"] = b64encode(value).decode("ascii")
    else:
        kept["redacted"] = len(value)
    struct.setdefault("_unknown_tags", []).append(kept)
