"""Headers: what can be one, and the parts that they consist of."""

from __future__ import annotations

import struct

from kafkasniff.kafka.messages.message_header import (
    MAX_HEADER_TAGS,
    RequestHeader,
    read_tags,
    request_header,
)
from kafkasniff.kafka.messages.message_plan import VERSION_MARGIN
from tests.craft.kafka_bytes import unsigned_varint
from tests.kafka.messages.test_message import request


def test_request_header_refuses_what_cannot_be_one() -> None:
    good = request(18, 2, b"", tags=b"")
    assert request_header(good, 0, len(good)) == RequestHeader(18, 2, 7, "app", 13)
    assert request_header(b"xx" + good + b"yy", 2, 2 + len(good)) == RequestHeader(18, 2, 7, "app", 13)
    # ControlledShutdown 0 has no client id.
    assert request_header(struct.pack(">hhi", 7, 0, 5), 0, 8) == RequestHeader(7, 0, 5, None, 8)
    for bad in (
        struct.pack(">hhih", -1, 0, 1, -1),
        struct.pack(">hhih", 18, -1, 1, -1),
        struct.pack(">hhih", 18, 5 + VERSION_MARGIN + 1, 1, -1) + b"\x00",
        struct.pack(">hhih", 18, 0, 1, -2),
        struct.pack(">hhih", 18, 0, 1, 1),
        struct.pack(">hhih", 18, 3, 1, -1),
        struct.pack(">hhihB", 18, 3, 1, -1, 1),
        struct.pack(">hhihBBB", 18, 3, 1, -1, 1, 0, 200),
    ):
        assert request_header(bad, 0, len(bad)) is None


def test_strict_request_header() -> None:
    newer = struct.pack(">hhihB", 18, 6, 1, -1, 0)
    assert request_header(newer, 0, len(newer)) is not None
    assert request_header(newer, 0, len(newer), strict=True) is None
    unknown = struct.pack(">hhih", 4242, 0, 1, -1)
    assert request_header(unknown, 0, len(unknown)) is not None
    assert request_header(unknown, 0, len(unknown), strict=True) is None
    unprintable = request(18, 2, b"", client=b"a\x00", tags=b"")
    assert request_header(unprintable, 0, len(unprintable)) is not None
    assert request_header(unprintable, 0, len(unprintable), strict=True) is None


def test_tag_sections_are_bounded() -> None:
    one = b"\x05\x00"
    most = unsigned_varint(MAX_HEADER_TAGS) + one * MAX_HEADER_TAGS
    read = read_tags(most, 0, len(most))
    assert read is not None
    assert len(read[0]) == MAX_HEADER_TAGS
    more = unsigned_varint(MAX_HEADER_TAGS + 1) + one * (MAX_HEADER_TAGS + 1)
    assert read_tags(more, 0, len(more)) is None
