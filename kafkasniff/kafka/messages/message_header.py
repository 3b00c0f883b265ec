"""Headers of messages: the fields before a body, whatever the bytes hold.

Nothing here raises on bad bytes: what cannot be a header is None.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Final

import msgspec

from kafkasniff.kafka.messages.message_plan import request_plan
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.kafka.schema.wire import Odd, varint_rest

__all__ = ["RequestHeader", "judge_tags", "read_tags", "read_varint", "request_header"]

MAX_HEADER_TAGS: Final = 1000
"""Tagged fields of a header; none is defined to this day (KIP-482)."""

_head = Struct(">hhi").unpack_from
_int16 = Struct(">h").unpack_from


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields before a request's body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | bytes | None
    """bytes if it is not UTF-8."""
    length: int
    """Size of the header in bytes: the body starts there."""


def _text(raw: bytes) -> str | bytes:
    """A string of the wire; bytes if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int] | None:
    """An unsigned varint and the position after it; None if it does not end before `end` or within 5 bytes."""
    if position >= end:
        return None
    value = data[position]
    position += 1
    if value > 0x7F:
        try:
            value, position = varint_rest(data, position, value)
        except (Odd, IndexError):
            return None
    return None if position > end else (value, position)


def read_tags(data: bytes, position: int, end: int) -> tuple[tuple[tuple[int, bytes], ...], int] | None:
    """The tag section of a header and the position after it; None if it does not fit."""
    if position < end and data[position] == 0:
        return (), position + 1
    read = read_varint(data, position, end)
    if read is None or read[0] > MAX_HEADER_TAGS:
        return None
    count, position = read
    tags: list[tuple[int, bytes]] = []
    for _ in range(count):
        tag = read_varint(data, position, end)
        size = None if tag is None else read_varint(data, tag[1], end)
        if tag is None or size is None or size[0] > end - size[1]:
            return None
        position = size[1] + size[0]
        tags.append((tag[0], data[size[1] : position]))
    return tuple(tags), position


def request_header(data: bytes, start: int, end: int, *, strict: bool = False) -> RequestHeader | None:
    """The header of a request, or None if the bytes cannot be one.

    Negative keys and versions, versions far above the known ones, and client ids or tags that do not fit are refused.
    `strict`, for judging bytes of unknown kind, also refuses unknown keys and versions, and client ids that are not
    printable text.
    """
    if end - start < 8:
        return None
    key, version, correlation_id = _head(data, start)
    if key < 0 or version < 0:
        return None
    plan = request_plan(key, version)
    if not plan.plausible_version or (strict and not plan.known_version):
        return None
    position = start + 8
    client_id: str | bytes | None = None
    if plan.header > 0:
        if end - position < 2:
            return None
        (length,) = _int16(data, position)
        position += 2
        if length >= 0:
            if length > end - position:
                return None
            client_id = _text(data[position : position + length])
            position += length
            if strict and not (isinstance(client_id, str) and client_id.isprintable()):
                return None
        elif length != -1:
            return None
        if plan.header > 1:
            tags = read_tags(data, position, end)
            if tags is None:
                return None
            position = tags[1]
    return RequestHeader(key, version, correlation_id, client_id, position - start)


def judge_tags(tags: tuple[tuple[int, bytes], ...], context: DecodeContext, position: int) -> None:
    """Report tags of a header that do not ascend; `position` is the end of the section."""
    for (one, _), (other, _) in pairwise(tags):
        if other <= one:
            context.problem("tags-not-ascending", f"header: tag {other} comes after tag {one}", position)
            return
