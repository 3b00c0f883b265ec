"""Headers: what can be one, and the parts that they consist of."""

from __future__ import annotations

import struct

import pytest

from kafkasniff.kafka.messages.message_header import (
    MAX_HEADER_TAGS,
    RequestHeader,
    judge_tags,
    read_tags,
    read_varint,
    request_header,
)
from kafkasniff.kafka.messages.message_plan import VERSION_MARGIN
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from tests.craft.kafka_bytes import unsigned_varint
from tests.kafka.messages.test_message import request


def test_request_header_refuses_what_cannot_be_one() -> None:
    good = request(18, 2, b"", tags=b"")
    assert request_header(good, 0, len(good)) == RequestHeader(18, 2, 7, "app", 13)
    assert request_header(b"xx" + good + b"yy", 2, 2 + len(good)) == RequestHeader(18, 2, 7, "app", 13)
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


def test_varints() -> None:
    for value in (0, 1, 127, 128, 300, 16_384, (1 << 31) - 1):
        data = unsigned_varint(value)
        assert read_varint(b"\xff" + data + b"\x05", 1, 1 + len(data)) == (value, 1 + len(data))
        for cut in range(len(data)):
            assert read_varint(data + b"\x05", 0, cut) is None
    # They have at most five bytes.
    assert read_varint(b"\x80" * 5 + b"\x01", 0, 6) is None


def test_tag_sections() -> None:
    data = b"\x02\x00\x01x\x81\x01\x02yz"
    assert read_tags(b"\x07" + data + b"\x07", 1, 1 + len(data)) == (((0, b"x"), (129, b"yz")), 1 + len(data))
    assert read_tags(b"\x00", 0, 1) == ((), 1)
    for cut in range(len(data)):
        assert read_tags(data + b"\x00" * 9, 0, cut) is None


def test_tag_sections_are_bounded() -> None:
    one = b"\x05\x00"
    most = unsigned_varint(MAX_HEADER_TAGS) + one * MAX_HEADER_TAGS
    read = read_tags(most, 0, len(most))
    assert read is not None
    assert len(read[0]) == MAX_HEADER_TAGS
    more = unsigned_varint(MAX_HEADER_TAGS + 1) + one * (MAX_HEADER_TAGS + 1)
    assert read_tags(more, 0, len(more)) is None


@pytest.mark.parametrize(("tags", "is_odd"), [((1, 2, 9), False), ((), False), ((1, 1), True), ((4, 3, 2), True)])
def test_tags_ascend(tags: tuple[int, ...], is_odd: bool) -> None:
    context = DecodeContext(DecodeOptions(), 0)
    judge_tags(tuple((tag, b"") for tag in tags), context, 20)
    assert [(problem.kind, problem.offset) for problem in context.problems] == [("tags-not-ascending", 20)] * is_odd
